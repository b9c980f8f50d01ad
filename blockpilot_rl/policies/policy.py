"""The deployed policy: a small torch module that maps a prefill state to a block size.

Loading and running it needs no RL library. Its config holds the arms, the state groups that it
reads, the pair that it was trained on, and the fixed size that it falls back to.

Its head either scores every arm, for the device that it was trained for (`reward`), or predicts how
far drafts survive (`acceptance`). The latter chooses for any device whose passes have been timed.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from huggingface_hub import HfApi, snapshot_download
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import atomic_directory, write_json
from blockpilot_rl.models.messages import describe_template
from blockpilot_rl.policies.acceptance import AcceptanceHead, Survival, buffer_shapes
from blockpilot_rl.policies.config import ACTIVATIONS, PolicyConfig, Prices, TrainedOn

if TYPE_CHECKING:
    from blockpilot_rl.decoding.calibration import Calibration

BUNDLED_POLICY = Path(__file__).parents[1] / "bundled" / "policy"


class Decision(NamedTuple):
    """A policy's choice for one request.

    Attributes:
        block_size: The block size.
        confidence: Weight of the request's own prediction in the choice, in 0..1; the rest is the
            average over the training requests. None for policies that do not know.
    """

    block_size: int
    confidence: float | None = None


class BlockSizePolicy(nn.Module):
    """Scores every arm from a prefill state and picks the best.

    With the head `reward` the network is a plain multilayer perceptron over the standardised state;
    the scores are logits or predicted rewards, depending on the agent; only their order matters.
    With the head `acceptance` the scores are predicted speedups over plain decoding: tokens per
    pass by the predicted survival of drafts, over the seconds of a pass by the latency profile.
    """

    mean: torch.Tensor
    scale: torch.Tensor
    _lines: torch.Tensor

    def __init__(self, config: PolicyConfig) -> None:
        """Build the network with an identity scaler and zero weights, without random numbers."""
        super().__init__()
        self.config = config
        self._warned: set[str] = set()
        width = config.state.width
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        if config.head == "acceptance":
            self.acceptance = AcceptanceHead(width, config.hidden[0], config.arms)
            self._read_prices()
            return
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

    @classmethod
    def from_acceptance(
        cls,
        config: PolicyConfig,
        head: Mapping[str, torch.Tensor],
        mean: torch.Tensor,
        scale: torch.Tensor,
    ) -> BlockSizePolicy:
        """Build a policy from a fitted acceptance head.

        Args:
            config: Its description, with the head `acceptance`.
            head: Tensors of the head by name; see `AcceptanceHead`.
            mean: Mean of the states, `[width]`.
            scale: Standard deviation of the states, `[width]`, positive.
        """
        policy = cls(config)
        values = {f"acceptance.{name}": torch.as_tensor(value) for name, value in head.items()}
        policy.load_state_dict({"mean": mean, "scale": scale, **values})
        return policy.eval()

    def for_device(self, profile: LatencyProfile | Calibration) -> BlockSizePolicy:
        """Copy an acceptance policy so that it chooses by the prices of another device.

        Args:
            profile: The device's calibration, or its latency profile alone. It must have measured
                the policy's block sizes.

        Returns:
            The copy; its predictions of survival are the same.

        Raises:
            BlockPilotError: If this is a reward policy, the calibration belongs to another pair, or
                a block size was not measured.
        """
        if self.config.head != "acceptance":
            raise BlockPilotError(
                "a reward policy is tied to the device that it was trained for; re-price its sweep "
                "with `blockpilot calibrate --sweep` and train it again, or train an acceptance "
                "policy"
            )
        if isinstance(profile, LatencyProfile):
            prices = Prices.from_latency(profile, "unknown", "unknown")
        else:
            config = self.config
            profile.check_pair(config.fingerprint, config.target, config.drafter)
            prices = Prices.from_latency(profile.latency, profile.device, profile.dtype)
        policy = copy.deepcopy(self)
        policy.config = dataclasses.replace(self.config, prices=prices)
        policy._read_prices()
        return policy

    def check_device(self, device: str, dtype: str) -> None:
        """Warn, once, if the policy chooses by the prices of another device.

        Args:
            device: Name of the device, as in `Calibration.device`.
            dtype: Dtype of both models.
        """
        prices = self.config.prices
        if prices is None or (prices.device, prices.dtype) == (device, dtype):
            return
        if "device" in self._warned:
            return
        self._warned.add("device")
        cure = "measure this one with `blockpilot calibrate`"
        if self.config.head == "reward":
            cure = (
                "re-price its sweep for this one with `blockpilot calibrate --sweep` and train it "
                "again, or use an acceptance policy"
            )
        warnings.warn(
            f"the policy chooses for {prices.device} in {prices.dtype}, not for {device} in "
            f"{dtype}; {cure}",
            UserWarning,
            stacklevel=3,
        )

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
        standardised = (states - self.mean) / self.scale
        if self.config.head == "acceptance":
            return self._speedups(states, self.acceptance(standardised))
        scores: torch.Tensor = self.net(standardised)
        return scores

    @torch.inference_mode()
    def survival(self, states: np.ndarray | torch.Tensor) -> Survival:
        """Predict how far drafts survive; only for the head `acceptance`.

        Args:
            states: `[n, width]`.

        Raises:
            BlockPilotError: If the policy has another head.
        """
        if self.config.head != "acceptance":
            raise BlockPilotError("a reward policy predicts no survival; train `acceptance`")
        found: Survival = self.acceptance((torch.as_tensor(states) - self.mean) / self.scale)
        return found

    def _read_prices(self) -> None:
        """Take the lines of greedy and of sampled steps, `[2, arms, 2]`, from the config."""
        assert self.config.prices is not None
        profile = self.config.prices.latency
        ways = (profile, profile.at_temperature())
        lines = torch.tensor(np.stack([way.step_lines(self.arms) for way in ways])).float()
        self.register_buffer("_lines", lines.to(self.mean.device), persistent=False)

    def _speedups(self, states: torch.Tensor, survival: Survival) -> torch.Tensor:
        """Predict the speedup of every arm over plain decoding, `[n, arms]`.

        The seconds of a token are those of a step at the expected context length, over the expected
        tokens of a pass. The drafter's pass over the prompt, which plain decoding does without,
        is shared by the tokens of an answer of mean length.
        """
        assert self.config.prices is not None
        profile, head = self.config.prices.latency, self.acceptance
        prompt_tokens = self._prompt_tokens(states)
        sampled = self._sampled(states)
        lines = self._lines[sampled.long()]
        context = prompt_tokens + head.answer_tokens / 2
        seconds = (lines[..., 0] + lines[..., 1] * context[:, None]) / survival.tokens
        reading = profile.read_prompt[0] + profile.read_prompt[1] * prompt_tokens
        seconds[:, 1:] += (reading / head.answer_tokens)[:, None]
        seconds = seconds + (sampled * profile.noise_seconds)[:, None]
        return seconds[:, :1] / seconds

    def _prompt_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Length of each prompt, `[n]`: from the state, or the mean of the training prompts."""
        if "prompt" not in self.state_groups:
            return self.acceptance.prompt_tokens.expand(len(states))
        return states[:, int(self.config.state.columns(("prompt",))[0])].exp()

    def _sampled(self, states: torch.Tensor) -> torch.Tensor:
        """Whether each request has a temperature, `[n]`: from the state, or as in the training."""
        if "sampling" in self.state_groups:
            return states[:, int(self.config.state.columns(("sampling",))[0])] > 0
        assert self.config.trained_on is not None
        sampled = min(self.config.trained_on.temperatures) > 0
        return torch.full((len(states),), sampled, device=states.device)

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
        return self._decide(state).block_size

    @torch.inference_mode()
    def decide(self, state: torch.Tensor) -> Decision:
        """Choose a block size for one request, as `select` does, and say how sure the choice is.

        Args:
            state: `[width]`, the groups `state_groups` in order.
        """
        return self._decide(state)

    def _decide(self, state: torch.Tensor) -> Decision:
        states = state[None].to(self.mean)
        knows = self.config.head == "acceptance"
        if knows:
            survival: Survival = self.acceptance((states - self.mean) / self.scale)
            scores = self._speedups(states, survival)
        else:
            scores = self(states)
        if not bool(_usable(states, scores)):
            self._warn(1, 1, frames=5)
            return Decision(self.config.fallback, 0.0 if knows else None)
        confidence = float(survival.confidence) if knows else None
        return Decision(self.config.arms[int(scores.argmax())], confidence)

    def _judge(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Score every arm, `[n, arms]`, and mark the states that can be decided on, `[n]`."""
        states = states.to(self.mean)
        scores = self(states)
        return scores, _usable(states, scores)

    def _warn(self, count: int, total: int, frames: int = 4) -> None:
        """Warn about unusable states, for the user's frame: after this method and its callers."""
        warnings.warn(
            f"{count} of {total} states are not finite or give no finite score; the fallback block "
            f"size {self.config.fallback} is used for them",
            RuntimeWarning,
            stacklevel=frames,
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
        if not bool((self.scale > 0).all()):
            return "scale is not positive"
        if self.config.head == "acceptance":
            return self.acceptance.problem()
        return None

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


def _usable(states: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Mark the states `[n, width]` that can be decided on by their scores `[n, arms]`.

    A saturated hidden layer can turn an infinite state into finite scores, so both must be finite.
    """
    return states.isfinite().all(dim=1) & scores.isfinite().all(dim=1)


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
    if config.head == "acceptance":
        for name, shape in buffer_shapes(widths[0], config.hidden[0], config.arms).items():
            expected[f"acceptance.{name}"] = list(shape)
    else:
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


def _card_of_head(config: PolicyConfig) -> str:
    if config.head == "acceptance":
        return (
            "- Predicts how far drafts survive; `blockpilot calibrate` measures the prices of "
            "another device\n"
        )
    return "" if config.prices is None else f"- For {config.prices.device} only\n"


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
{_card_of_training(config.trained_on)}{_card_of_head(config)}
```python
from blockpilot_rl.policies.policy import BlockSizePolicy

policy = BlockSizePolicy.from_pretrained("FOLDER")
```
"""
