"""Read checkpoints: local folders or hub ids, drafters in the layout of z-lab or speculators."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    StrictDataclassError,
)
from safetensors import safe_open

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import read_json
from blockpilot_rl.models.drafter import DFlash2DraftModel, DFlashDraftModel
from blockpilot_rl.models.drafter_config import OWN_MODULES, DFlashConfig
from blockpilot_rl.models.speculators import is_speculators, translate_config, translate_tensors

ARCHITECTURES = ("DFlashDraftModel", "DFlash2DraftModel")
"""Architectures of z-lab's checkpoints that can be read."""

# Configs, weights and tokenizers of every kind.
_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken", "*.bpe")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LAYER = re.compile(r"layers\.(\d+)\.")


def resolve_checkpoint(name: str | Path, kind: str) -> Path:
    """Find the folder of a checkpoint: the local folder itself, or a snapshot of the hub.

    Args:
        name: Local folder or hub id.
        kind: `target` or `drafter`, named in errors.

    Raises:
        BlockPilotError: If the folder has no config, or neither the hub nor its cache has it.
    """
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise BlockPilotError(f"{kind} {folder} has no config.json; is it a checkpoint folder?")
        return folder
    is_path = folder.exists() or folder.is_absolute() or str(name).startswith(".")
    if is_path or str(name).count("/") > 1:
        raise BlockPilotError(f"{kind} {str(name)!r} is neither a folder nor a hub id (owner/name)")
    try:
        snapshot = snapshot_download(str(name), allow_patterns=list(_FILES))
        # Other weight files are needed only if there are no safetensors files.
        if not any(Path(snapshot).glob("*.safetensors")):
            patterns = [*_FILES, "pytorch_model*.bin"]
            snapshot = snapshot_download(str(name), allow_patterns=patterns)
        return Path(snapshot)
    except HFValidationError as error:
        raise BlockPilotError(f"{kind} {str(name)!r} is not a hub id: {error}") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
        raise BlockPilotError(
            f"{kind} {str(name)!r} is not a local folder and could not be fetched from the hub "
            f"({type(error).__name__}); check the name and the network, or give a local folder"
        ) from error


def load_drafter(
    name: str | Path, dtype: torch.dtype | None = None, device: str | torch.device = "cpu"
) -> DFlashDraftModel:
    """Load a drafter.

    The names and shapes of all tensors are compared with the config before anything is allocated.

    Args:
        name: Local folder or hub id.
        dtype: Dtype to run in; None keeps the dtype of the checkpoint.
        device: Where to put it.

    Raises:
        BlockPilotError: If the checkpoint is missing, corrupt or of another architecture, its
            tensors do not match its config one to one, or a weight is NaN or infinite.
    """
    folder = resolve_checkpoint(name, "drafter")
    values = _read_values(folder)
    draft_vocabulary = values.get("draft_vocab_size")
    shapes = _without_prefix(_read_shapes(folder))
    shapes = translate_tensors(shapes, draft_vocabulary, str(folder))
    _check_depth(values, shapes, folder)
    # A drafter owns the modules whose tensors it has, whatever its config says.
    owned = {f"has_own_{name}": True for name in OWN_MODULES if f"{name}.weight" in shapes}
    try:
        config = DFlashConfig(**{**values, **owned})
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise BlockPilotError(
            f"drafter config {folder / 'config.json'} is invalid: {one_line(error)}"
        ) from error
    with torch.device("meta"):
        _check_shapes(_build(config, folder), shapes, folder)
    tensors = _without_prefix(dict(_read_tensors(folder)))
    tensors = translate_tensors(tensors, draft_vocabulary, str(folder))
    model = _build(config, folder)
    model.load_state_dict(tensors)
    # Only parameters: rotary frequencies would lose positions if they were rounded.
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype or tensors["fc.weight"].dtype)
    check_finite(model.named_parameters(), f"drafter {folder}")
    model.to(device)  # type: ignore[arg-type]  # the decorator in transformers hides the signature
    model.eval()  # type: ignore[no-untyped-call]
    return model


def check_finite(tensors: Iterable[tuple[str, torch.Tensor]], source: str) -> None:
    """Check that weights hold neither NaN nor infinity.

    A sum in float32 is finite if all numbers are, except for absurdly large ones; only then are
    the numbers checked one by one.

    Args:
        tensors: Names and values. Whole numbers and tensors without data are skipped.
        source: Origin of the tensors, named in errors.

    Raises:
        BlockPilotError: If a tensor holds such a value. The message names the tensor.
    """
    for name, tensor in tensors:
        if tensor.is_meta or tensor.dtype not in _FLOATS:
            continue
        values = tensor.detach()
        if values.sum(dtype=torch.promote_types(values.dtype, torch.float32)).isfinite():
            continue
        wrong = int((~values.isfinite()).sum())
        if wrong:
            hint = "; load it as bfloat16 or float32" if values.dtype == torch.float16 else ""
            raise BlockPilotError(
                f"{source}: tensor {name} holds {wrong} values that are NaN or infinite, so the "
                f"checkpoint is corrupt{hint}"
            )


def _read_values(folder: Path) -> dict[str, Any]:
    """Read the settings of a drafter's config, in the terms of z-lab's layout."""
    path = folder / "config.json"
    try:
        raw = read_json(path)
    except FileNotFoundError as error:
        raise BlockPilotError(f"drafter {folder} has no config.json") from error
    if not isinstance(raw, dict):
        raise BlockPilotError(f"drafter config {path} holds no JSON object")
    if is_speculators(raw):
        return translate_config(raw, str(folder))
    architectures = raw.get("architectures") or []
    # Some tools leave the architecture out; only drafters have a dflash_config.
    is_drafter = not architectures and "dflash_config" in raw
    if not is_drafter and not set(ARCHITECTURES) & set(architectures):
        raise BlockPilotError(
            f"drafter {folder} has architecture {architectures}, not {' or '.join(ARCHITECTURES)}; "
            "give a DFlash drafter"
        )
    return {name: raw[name] for name in raw if name not in ("model_type", "auto_map")}


def _weight_files(folder: Path) -> list[Path]:
    """The weights: safetensors files, or else PyTorch's own files."""
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not files:
        raise BlockPilotError(f"drafter {folder} has no *.safetensors or pytorch_model*.bin file")
    return files


def _read_tensors(folder: Path, *, shapes_only: bool = False) -> Iterator[tuple[str, torch.Tensor]]:
    """Read names and tensors.

    Args:
        folder: The checkpoint.
        shapes_only: Read headers and yield tensors without data.
    """
    for file in _weight_files(folder):
        read = _read_pytorch if file.suffix == ".bin" else _read_safetensors
        try:
            yield from read(file, shapes_only)
        # PyTorch raises many kinds of errors for a file that is not its own.
        except Exception as error:
            raise BlockPilotError(
                f"drafter weights {file} are corrupt: {one_line(error)}"
            ) from error


def _read_safetensors(file: Path, shapes_only: bool) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(file, "pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118
            if shapes_only:
                yield name, torch.empty(tensors.get_slice(name).get_shape(), device="meta")
            else:
                yield name, tensors.get_tensor(name)


def _read_pytorch(file: Path, shapes_only: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Read a file of PyTorch that holds nothing but tensors, without running code from it."""
    mmap = zipfile.is_zipfile(file)
    tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=mmap)
    for name, tensor in tensors.items():
        # A few bytes can stand for a tensor of any size whose strides are zero.
        if tensor.nbytes > tensor.untyped_storage().nbytes():
            raise ValueError(f"tensor {name} is larger than its data")
        yield name, tensor.to("meta") if shapes_only else tensor.clone()


def _read_shapes(folder: Path) -> dict[str, torch.Tensor]:
    """Names and shapes of all tensors, as tensors without data."""
    return dict(_read_tensors(folder, shapes_only=True))


def _without_prefix(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Drop the prefix `model.`, which some tools put before the names of a base model."""
    if not any(name.startswith("model.layers.") for name in tensors):
        return dict(tensors)
    return {name.removeprefix("model."): tensor for name, tensor in tensors.items()}


def _check_depth(
    values: Mapping[str, Any], shapes: Mapping[str, torch.Tensor], folder: Path
) -> None:
    """Refuse more layers than there are weights for, since even an empty layer takes memory."""
    stated = values.get("num_hidden_layers")
    found = {int(match[1]) for name in shapes if (match := _LAYER.match(name))}
    if isinstance(stated, int) and stated > max(found, default=-1) + 1:
        raise BlockPilotError(
            f"drafter {folder} does not fit its config: the config has {stated} layers, the "
            f"weights have {len(found)}"
        )


def _check_shapes(
    model: DFlashDraftModel, shapes: Mapping[str, torch.Tensor], folder: Path
) -> None:
    """Compare names and shapes of a checkpoint's tensors with those of the model."""
    expected = {key: value.shape for key, value in model.state_dict().items()}
    missing = sorted(expected.keys() - shapes.keys())
    unclaimed = sorted(shapes.keys() - expected.keys())
    if missing or unclaimed:
        raise BlockPilotError(
            f"drafter {folder} does not fit its config: missing tensors {missing[:3]}, "
            f"unclaimed tensors {unclaimed[:3]} ({len(missing)} and {len(unclaimed)} in total)"
        )
    wrong = [key for key, shape in expected.items() if shapes[key].shape != shape]
    if wrong:
        key = wrong[0]
        raise BlockPilotError(
            f"drafter {folder}: tensor {key} has shape {tuple(shapes[key].shape)}, the config "
            f"wants {tuple(expected[key])}"
        )


def _build(config: DFlashConfig, folder: Path) -> DFlashDraftModel:
    try:
        return (DFlash2DraftModel if config.is_dflash2 else DFlashDraftModel)(config)
    except BlockPilotError as error:
        raise BlockPilotError(f"{folder}: {error}") from error
    # Values of a wrong kind fail here, in as many ways as there are layers.
    except Exception as error:
        raise BlockPilotError(
            f"drafter config {folder / 'config.json'} describes no model that can be built: "
            f"{one_line(error)}"
        ) from error
