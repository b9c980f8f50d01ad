"""The deployed policy: a small torch module that maps a prefill state to a block size.

Loading and running it needs no RL library. Its config holds the arms, the state groups that it
reads, the pair that it was trained on, and the fixed size that it falls back to.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from huggingface_hub import HfApi, snapshot_download
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import atomic_directory, write_json
from blockpilot_rl.models.messages import describe_template
from blockpilot_rl.policies.config import ACTIVATIONS, PolicyConfig, TrainedOn

BUNDLED_POLICY = Path(__file__).parents[1] / "bundled" / "policy"


class BlockSizePolicy(nn.Module):
    """Scores every arm from a prefill state and picks the best.

    The network is a plain multilayer perceptron over the standardised state; the scores are
    logits or predicted rewards, depending on the agent; only their order matters.
    """

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, config: PolicyConfig) -> None:
        """Build the network with an identity scaler and zero weights, without random numbers."""
        super().__init__()
        self.config = config
        self._warned: set[str] = set()
        width = config.state.width
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        layers: list[nn.Module] = []
        for out in config.hidden:
            layers += [_zero_linear(width, out), ACTIVATIONS[config.activation]()]
            width = out
        layers.append(_zero_linear(width, len(config.arms)))
        self.net = nn.Sequential(*layers)

    @classmethod
    def from_layers(
        cls,
        config: PolicyConfig,
        linears: Sequence[tuple[torch.Tensor, torch.Tensor]],
        mean: torch.Tensor,
        scale: torch.Tensor,
    ) -> BlockSizePolicy:
        """Build a policy from learned weights.

        Args:
            config: Its description; `hidden` must fit the weights.
            linears: Weight `[out, in]` and bias `[out]` of each linear layer, in order.
            mean: Mean of the states, `[width]`.
            scale: Standard deviation of the states, `[width]`, positive.
        """
        policy = cls(config)
        mine = [layer for layer in policy.net if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            policy.mean.copy_(mean)
            policy.scale.copy_(scale)
            for layer, (weight, bias) in zip(mine, linears, strict=True):
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
        return policy.eval()

    def with_provenance(self, provenance: Mapping[str, Any] | None) -> BlockSizePolicy:
        """Copy the policy, with another record of its origin."""
        policy = copy.deepcopy(self)
        policy.config = dataclasses.replace(self.config, provenance=dict(provenance or {}))
        return policy

    @property
    def arms(self) -> tuple[int, ...]:
        """Block sizes it chooses from, increasing."""
        return self.config.arms

    @property
    def state_groups(self) -> tuple[str, ...]:
        """State groups that the decoder must compute, in order."""
        return self.config.state.names

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Score every arm.

        Args:
            states: `[n, width]`, float32.

        Returns:
            `[n, arms]`.
        """
        scores: torch.Tensor = self.net((states - self.mean) / self.scale)
        return scores

    @torch.inference_mode()
    def usable(self, states: np.ndarray) -> np.ndarray:
        """Report the states that the policy can decide on.

        Args:
            states: `[n, width]`.

        Returns:
            Boolean, `[n]`: False if the state or a score is not finite, in which case `predict` and
            `select` return the fallback.
        """
        _, usable = self._judge(torch.as_tensor(states))
        return usable.cpu().numpy()

    @torch.inference_mode()
    def predict(self, states: np.ndarray) -> np.ndarray:
        """Choose an arm for each state.

        Args:
            states: `[n, width]`.

        Returns:
            Arm indices, `[n]`. A state with NaN or infinity, or whose scores overflow, gets the
            index of `config.fallback`, with a `RuntimeWarning`; `usable` shows which.
        """
        scores, usable = self._judge(torch.as_tensor(states))
        fallback = scores.new_tensor(self.arms.index(self.config.fallback), dtype=torch.int64)
        if not bool(usable.all()):
            self._warn(int((~usable).sum()), len(usable))
        return torch.where(usable, scores.argmax(dim=1), fallback).cpu().numpy()

    @torch.inference_mode()
    def select(self, state: torch.Tensor) -> int:
        """Choose a block size for one request.

        Args:
            state: `[width]`, the groups `state_groups` in order.

        Returns:
            A block size of `config.arms`; `config.fallback`, with a `RuntimeWarning`, if the state
            or a score is not finite.
        """
        scores, usable = self._judge(state[None])
        if not bool(usable):
            self._warn(1, 1)
            return self.config.fallback
        return self.config.arms[int(scores.argmax())]

    def _judge(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Score every arm, `[n, arms]`, and mark the states that can be decided on, `[n]`."""
        states = states.to(self.mean)
        scores = self(states)
        # A saturated hidden layer can turn an infinite state into finite scores: look at both.
        return scores, states.isfinite().all(dim=1) & scores.isfinite().all(dim=1)

    def _warn(self, count: int, total: int) -> None:
        warnings.warn(
            f"{count} of {total} states are not finite or give no finite score; the fallback block "
            f"size {self.config.fallback} is used for them",
            RuntimeWarning,
            stacklevel=4,  # this method, the caller, its inference mode, and the user
        )

    def check_pair(self, fingerprint: str, template: Mapping[str, Any] | None = None) -> None:
        """Refuse a pair, or chat-template options, that the policy was not trained on.

        Raises:
            BlockPilotError: If either differs.
        """
        if fingerprint != self.config.fingerprint:
            raise BlockPilotError(
                f"policy was trained on the pair {self.config.target} + {self.config.drafter} "
                f"(fingerprint {self.config.fingerprint}), this pair has {fingerprint}; "
                "train a policy on a sweep of this pair"
            )
        if template is not None and dict(template) != self.config.template:
            raise BlockPilotError(
                f"policy was trained with {describe_template(self.config.template)}, not "
                f"{describe_template(template)}"
            )

    def check_request(
        self, temperature: float, prompt_tokens: int, language: str | None = None
    ) -> None:
        """Warn, once per kind, about a request that differs from those of the training.

        Args:
            temperature: Sampling temperature; 0 for greedy decoding.
            prompt_tokens: Length of the prompt.
            language: Language of the prompt, if it is known.
        """
        trained_on = self.config.trained_on
        if trained_on is None:
            return
        found = trained_on.differences(temperature, prompt_tokens, language)
        for kind in found.keys() - self._warned:
            self._warned.add(kind)
            warnings.warn(
                f"the policy was trained {found[kind]}; its choices may be slower than the fixed "
                f"block size {self.config.fallback}",
                UserWarning,
                stacklevel=3,
            )

    def save_pretrained(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write `config.json`, `model.safetensors` and a model card, atomically.

        Raises:
            BlockPilotError: If the folder holds files and `overwrite` is not set, it cannot be
                written, or a weight is not finite.
        """
        problem = self._problem()
        if problem is not None:
            raise BlockPilotError(f"the policy is not saved: {problem}")
        with atomic_directory(folder, overwrite=overwrite) as partial:
            write_json(partial / "config.json", self.config.to_dict())
            save_file(
                {name: tensor.contiguous() for name, tensor in self.state_dict().items()},
                partial / "model.safetensors",
            )
            (partial / "README.md").write_text(_card(self.config), encoding="utf-8")

    @classmethod
    def from_pretrained(cls, name: str | Path) -> BlockSizePolicy:
        """Load a policy from a folder or, if there is no such folder, from the hub.

        Args:
            name: The folder or hub id; `bundled` is the policy for the default pair that ships with
                this package.

        Raises:
            BlockPilotError: If it is missing or corrupt.
        """
        folder = _resolve(name)
        config = PolicyConfig.load(folder / "config.json")
        weights = folder / "model.safetensors"
        try:
            problem = _wrong_shape(config, weights)
            if problem is None:
                policy = cls(config)
                policy.load_state_dict(load_file(weights))
                problem = policy._problem()
        except (OSError, SafetensorError, RuntimeError) as error:
            problem = one_line(error)
        if problem is not None:
            raise BlockPilotError(f"policy weights {weights} are corrupt: {problem}")
        return policy.eval()

    def _problem(self) -> str | None:
        """Describe a weight that is not a valid number, if there is one."""
        for name, weights in self.state_dict().items():
            if not bool(weights.isfinite().all()):
                return f"{name} holds a number that is not finite"
        return None if bool((self.scale > 0).all()) else "scale is not positive"

    def push_to_hub(self, repo_id: str, folder: str | Path, *, private: bool = False) -> None:
        """Upload a saved policy to the Hugging Face hub.

        Args:
            repo_id: `owner/name`.
            folder: Where `save_pretrained` wrote it.
            private: Whether to create a private repository.
        """
        api = HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=str(folder))


def _zero_linear(inputs: int, outputs: int) -> nn.Linear:
    layer = cast(nn.Linear, nn.utils.skip_init(nn.Linear, inputs, outputs))
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _wrong_shape(config: PolicyConfig, weights: Path) -> str | None:
    """Compare the shapes in a weights file's header with a config, before memory is allocated.

    Returns:
        The first difference; None if there is none.
    """
    widths = (config.state.width, *config.hidden, len(config.arms))
    expected = {"mean": [widths[0]], "scale": [widths[0]]}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        # Activations take the odd numbers.
        expected[f"net.{2 * layer}.weight"] = [outputs, inputs]
        expected[f"net.{2 * layer}.bias"] = [outputs]
    with safe_open(weights, "pt") as file:
        found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            return (
                f"config.json gives {name} the shape {expected.get(name)}, the file has "
                f"{found.get(name)}"
            )
    return None


def _resolve(name: str | Path) -> Path:
    folder = Path(name)
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise BlockPilotError(
            f"policy {str(name)!r} is a file; name the folder that holds it, {folder.parent}"
        )
    if str(name) == "bundled":
        return BUNDLED_POLICY
    if folder.is_absolute() or str(name).count("/") != 1 or str(name).startswith("."):
        raise BlockPilotError(
            f"no policy at {str(name)!r}; export one with `blockpilot export-policy RUN --out DIR`"
        )
    try:
        return Path(snapshot_download(str(name)))
    except (OSError, ValueError) as error:
        raise BlockPilotError(
            f"policy {str(name)!r} is not a local folder and could not be fetched from the hub "
            f"({type(error).__name__}); check the name and the network"
        ) from error


def _card_of_training(trained_on: TrainedOn | None) -> str:
    if trained_on is None:
        return ""
    temperatures = ", ".join(f"{value:g}" for value in trained_on.temperatures)
    shortest, longest = trained_on.prompt_tokens
    return (
        f"- Trained at temperature {temperatures}, in {', '.join(trained_on.languages)}, on "
        f"prompts of {shortest} to {longest} tokens\n"
    )


def _card(config: PolicyConfig) -> str:
    arms = ", ".join(str(arm) for arm in config.arms)
    groups = ", ".join(config.state.names)
    return f"""---
library_name: blockpilot-rl
license: apache-2.0
tags: [speculative-decoding, dflash, contextual-bandit]
---
# Block-size policy ({config.algorithm})

Chooses the block size of DFlash speculative decoding for each request, right after prefill.

- Target: {config.target}; drafter: {config.drafter} (pair fingerprint `{config.fingerprint}`)
- Arms: {arms}; falls back to {config.fallback}
- State: {groups} ({config.state.width} numbers)
{_card_of_training(config.trained_on)}
```python
from blockpilot_rl.policies.policy import BlockSizePolicy

policy = BlockSizePolicy.from_pretrained("FOLDER")
```
"""
