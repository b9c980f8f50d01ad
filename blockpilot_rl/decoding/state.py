"""The state of a prompt, which policies read: named groups of values that prefill computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from blockpilot_rl.decoding.sampling import GREEDY, Sampling
from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.files import whole_number

GROUPS = ("last_hidden", "next_token", "prompt", "draft", "sampling", "features")
DEFAULT_GROUPS = ("last_hidden", "next_token", "prompt")


@dataclass(frozen=True)
class StateLayout:
    """Names and widths of the groups of a state vector, in order.

    Attributes:
        groups: Pairs of name and width:

            - `last_hidden`: final-norm hidden state of the last prompt token;
            - `next_token`: entropy (nats), top-1 probability and top-2 margin of the first token;
            - `prompt`: logarithm of the number of prompt tokens;
            - `draft`: the drafter's top-1 probabilities along its first block;
            - `sampling`: temperature, top-p, and 1 / top-k (0 for all tokens);
            - `features`: the drafter's context features of the last prompt token.
    """

    groups: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            BlockPilotError: If a group is unknown, repeated or has no width.
        """
        validate_groups([name for name, _ in self.groups])
        if any(width < 1 for _, width in self.groups):
            raise BlockPilotError(f"state groups must have positive widths: {self.groups}")

    @classmethod
    def from_lists(cls, groups: Any) -> StateLayout:
        """Read pairs of name and width from JSON values.

        Raises:
            TypeError or ValueError: If they are of a wrong type.
            BlockPilotError: If a group is unknown, repeated or has no width.
        """
        return cls(tuple((str(name), whole_number(width)) for name, width in groups))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups, in order."""
        return tuple(name for name, _ in self.groups)

    @property
    def width(self) -> int:
        """Length of the whole state vector."""
        return sum(width for _, width in self.groups)

    def columns(self, names: Sequence[str]) -> np.ndarray:
        """Find the columns of some groups in a recorded state, in the order of `names`.

        Raises:
            BlockPilotError: If a group is unknown or was not recorded.
        """
        validate_groups(names)
        spans: dict[str, range] = {}
        start = 0
        for name, width in self.groups:
            spans[name] = range(start, start + width)
            start += width
        absent = [name for name in names if name not in spans]
        if absent:
            raise BlockPilotError(f"state groups {absent} were not recorded; found {self.names}")
        return np.concatenate([np.asarray(spans[name]) for name in names])

    def select(self, names: Sequence[str]) -> StateLayout:
        """Layout of some of the groups, in the order of `names`."""
        widths = dict(self.groups)
        self.columns(names)
        return StateLayout(tuple((name, widths[name]) for name in names))


def validate_groups(names: Sequence[str]) -> None:
    """Check names of state groups.

    Raises:
        BlockPilotError: If there are no names, or one is unknown or repeated.
    """
    if not names:
        raise BlockPilotError(f"no state group given; choose from {', '.join(GROUPS)}")
    for name in names:
        if name not in GROUPS:
            raise BlockPilotError(
                f"unknown state group {name!r}; choose from {', '.join(GROUPS)}."
                f"{closest(name, GROUPS)}"
            )
    if len(set(names)) != len(names):
        raise BlockPilotError(f"state groups are repeated: {', '.join(names)}")


def state_layout(
    hidden_size: int, block_size: int, names: Sequence[str], feature_layers: int = 1
) -> StateLayout:
    """Layout of the groups for a pair.

    Args:
        hidden_size: Hidden size of the target.
        block_size: Block size the drafter was trained for.
        names: Groups to include, in order.
        feature_layers: Layers of the target whose outputs the drafter reads.
    """
    widths: Mapping[str, int] = {
        "last_hidden": hidden_size,
        "next_token": 3,
        "prompt": 1,
        "draft": max(1, block_size - 1),
        "sampling": 3,
        "features": max(1, feature_layers) * hidden_size,
    }
    validate_groups(names)
    return StateLayout(tuple((name, widths[name]) for name in names))


def next_token_features(logits: torch.Tensor) -> torch.Tensor:
    """Entropy (nats), top-1 probability and top-2 margin of the next token.

    Args:
        logits: `[..., vocab]`.

    Returns:
        `[..., 3]`, float32.
    """
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    probs = log_probs.exp()
    first, second = probs.topk(2).values.unbind(-1)
    entropy = -(probs * log_probs).sum(-1)
    return torch.stack([entropy, first, first - second], dim=-1)


def prompt_features(prompt_tokens: int) -> torch.Tensor:
    """Logarithm of the number of prompt tokens, `[1]`, float32."""
    return torch.tensor([math.log(prompt_tokens)])


def sampling_features(sampling: Sampling) -> torch.Tensor:
    """Temperature, top-p, and 1 / top-k (0 for all tokens), `[3]`, float32.

    Greedy decoding ignores top-p and top-k, so its values are always 0, 1, 0.
    """
    if sampling.is_greedy:
        return torch.tensor([0.0, 1.0, 0.0])
    inverse = 1 / sampling.top_k if sampling.top_k else 0.0
    return torch.tensor([sampling.temperature, sampling.top_p, inverse])


def draft_features(draft_logits: torch.Tensor) -> torch.Tensor:
    """The drafter's top-1 probabilities along a block.

    Args:
        draft_logits: `[block_size - 1, draft_vocab]`.

    Returns:
        `[block_size - 1]`, float32.
    """
    return torch.softmax(draft_logits.float(), dim=-1).amax(dim=-1)


def compute_state(
    groups: Sequence[str],
    last_hidden: torch.Tensor,
    logits: torch.Tensor,
    prompt_tokens: int,
    first_draft: Callable[[], torch.Tensor],
    *,
    sampling: Sampling = GREEDY,
    features: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute state groups of one prompt.

    Args:
        groups: Names of the groups, in order.
        last_hidden: Final-norm hidden state of the last prompt token, `[hidden]`.
        logits: The target's logits for the first token, `[vocab]`.
        prompt_tokens: Length of the prompt.
        first_draft: Returns the draft logits of the first block, `[block_size - 1, draft_vocab]`.
            It is called only for the group `draft`.
        sampling: How tokens are chosen, for the group `sampling`.
        features: The drafter's context features of the last prompt token, `[layers * hidden]`,
            for the group `features`.

    Returns:
        `[width]`, float32.

    Raises:
        BlockPilotError: If a group is unknown, or `features` is asked for but not given.
    """
    validate_groups(groups)
    if "features" in groups and (features is None or not len(features)):
        raise BlockPilotError("the state group 'features' needs a drafter; this pair has none")
    parts: dict[str, Callable[[], torch.Tensor]] = {
        "last_hidden": last_hidden.float,
        "next_token": lambda: next_token_features(logits),
        "prompt": lambda: prompt_features(prompt_tokens).to(logits.device),
        "draft": lambda: draft_features(first_draft()),
        "sampling": lambda: sampling_features(sampling).to(logits.device),
        "features": lambda: cast(torch.Tensor, features).float(),
    }
    return torch.cat([parts[name]() for name in groups])
