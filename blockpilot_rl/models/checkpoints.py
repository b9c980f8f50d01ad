"""Read DFlash drafter checkpoints: local folders or hub ids, in z-lab's or speculators' layout."""

from __future__ import annotations

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
from safetensors import SafetensorError
from safetensors.torch import load_file

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import read_json
from blockpilot_rl.models.drafter import DFlashDraftModel
from blockpilot_rl.models.drafter_config import OWN_MODULES, DFlashConfig
from blockpilot_rl.models.speculators import is_speculators, translate_config, translate_tensors

ARCHITECTURE = "DFlashDraftModel"
# Configs, weights, and tokenizers of every kind.
_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken", "*.bpe")


def resolve_checkpoint(name: str | Path, kind: str) -> Path:
    """Find a checkpoint folder: a local one as it is, else a hub snapshot.

    Args:
        name: Local folder or hub id.
        kind: What it is for ("target", "drafter"), named in errors.

    Raises:
        BlockPilotError: If the folder lacks a config, or the hub and its cache cannot give it.
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
        # Gigabytes that are needed only where the same weights have no better file.
        if kind == "target" and not any(Path(snapshot).glob("*.safetensors")):
            patterns = [*_FILES, "pytorch_model*.bin"]
            snapshot = snapshot_download(str(name), allow_patterns=patterns)
        return Path(snapshot)
    except HFValidationError as error:
        raise BlockPilotError(f"{kind} {str(name)!r} is not a hub id: {error}") from error
    except (
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        HfHubHTTPError,
        OSError,
    ) as error:
        raise BlockPilotError(
            f"{kind} {str(name)!r} is not a local folder and could not be fetched from the hub "
            f"({type(error).__name__}); check the name and the network, or give a local folder"
        ) from error


def _read_values(folder: Path) -> dict[str, Any]:
    """Read what a drafter's config states, in z-lab's terms."""
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
    if ARCHITECTURE not in architectures:
        raise BlockPilotError(
            f"drafter {folder} has architecture {architectures}, not {ARCHITECTURE}; "
            "give a DFlash drafter"
        )
    return {name: raw[name] for name in raw if name not in ("model_type", "auto_map")}


def _read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BlockPilotError(f"drafter {folder} has no *.safetensors file")
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            tensors.update(load_file(file))
        except (OSError, SafetensorError) as error:
            raise BlockPilotError(f"drafter weights {file} are corrupt: {error}") from error
    return tensors


def load_drafter(
    name: str | Path, dtype: torch.dtype | None = None, device: str | torch.device = "cpu"
) -> DFlashDraftModel:
    """Load a drafter with every tensor claimed and every parameter filled.

    Args:
        name: Local folder or hub id.
        dtype: Dtype to run in; None keeps the checkpoint's.
        device: Where to put it.

    Raises:
        BlockPilotError: If the checkpoint is missing, corrupt, of another architecture, or its
            tensors do not match the model's one to one.
    """
    folder = resolve_checkpoint(name, "drafter")
    values = _read_values(folder)
    tensors = translate_tensors(_read_tensors(folder), values.get("draft_vocab_size"), str(folder))
    # What a drafter has of its own shows in its tensors, whatever its config says.
    owned = {f"has_own_{name}": True for name in OWN_MODULES if f"{name}.weight" in tensors}
    try:
        config = DFlashConfig(**{**values, **owned})
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise BlockPilotError(
            f"drafter config {folder / 'config.json'} is invalid: {one_line(error)}"
        ) from error
    model = _build(config, folder)
    _check_tensors(model, tensors, folder)
    model.load_state_dict(tensors)
    # Parameters alone: rotary frequencies lose positions when they are rounded.
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype or tensors["fc.weight"].dtype)
    model.to(device)  # type: ignore[arg-type]  # transformers' decorator hides the signature
    model.eval()  # type: ignore[no-untyped-call]
    return model


def _check_tensors(model: DFlashDraftModel, tensors: dict[str, torch.Tensor], folder: Path) -> None:
    expected = {key: value.shape for key, value in model.state_dict().items()}
    missing = sorted(expected.keys() - tensors.keys())
    unclaimed = sorted(tensors.keys() - expected.keys())
    if missing or unclaimed:
        raise BlockPilotError(
            f"drafter {folder} does not fit its config: missing tensors {missing[:3]}, "
            f"unclaimed tensors {unclaimed[:3]} ({len(missing)} and {len(unclaimed)} in all)"
        )
    wrong = [key for key, shape in expected.items() if tensors[key].shape != shape]
    if wrong:
        key = wrong[0]
        raise BlockPilotError(
            f"drafter {folder}: tensor {key} has shape {tuple(tensors[key].shape)}, "
            f"the config wants {tuple(expected[key])}"
        )


def _build(config: DFlashConfig, folder: Path) -> DFlashDraftModel:
    try:
        return DFlashDraftModel(config)
    except BlockPilotError as error:
        raise BlockPilotError(f"{folder}: {error}") from error
    # Values of a wrong kind show only here, in as many ways as there are layers.
    except Exception as error:
        raise BlockPilotError(
            f"drafter config {folder / 'config.json'} describes no model that can be built: "
            f"{one_line(error)}"
        ) from error
