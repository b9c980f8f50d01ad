"""The decision problem of an agent: arms, states and the pair they belong to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean
from blockpilot_rl.files import whole_number
from blockpilot_rl.models.messages import describe_template
from blockpilot_rl.policies.config import Prices, TrainedOn
from blockpilot_rl.sweeps.reprice import sweep_latency
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class Problem:
    """The decision problem that an agent has learned. Other sweeps and states are refused.

    Attributes:
        arms: Block sizes to choose from.
        state: State groups it reads, in order.
        best_fixed: Block size with the best mean speedup on the training prompts.
        fingerprint: Digest of the pair.
        target: Name of the target.
        drafter: Name of the drafter.
        template: Chat-template options of the states.
        trained_on: The requests of the training split; None if release 0.1 saved the agent.
        prices: What passes cost on the device of the sweep; None if release 0.1 saved the agent.
    """

    arms: tuple[int, ...]
    state: StateLayout
    best_fixed: int
    fingerprint: str
    target: str
    drafter: str
    template: dict[str, Any]
    trained_on: TrainedOn | None = None
    prices: Prices | None = None

    @classmethod
    def from_sweep(
        cls, train: Sweep, state_groups: Sequence[str], baseline: Sweep | None = None
    ) -> Problem:
        """Describe the problem of a training split.

        Args:
            train: The split.
            state_groups: State groups to read.
            baseline: Rows to choose the best fixed size on; None for those of the split.
        """
        metadata = train.with_groups(state_groups).metadata
        return cls(
            arms=train.arms,
            state=metadata.state.select(state_groups),
            best_fixed=train.arms[best_fixed_by_mean(train if baseline is None else baseline)],
            fingerprint=metadata.fingerprint,
            target=metadata.target,
            drafter=metadata.drafter,
            template=metadata.template,
            trained_on=TrainedOn(
                temperatures=tuple(np.unique(train.temperatures).tolist()),
                languages=tuple(sorted(set(train.rows["language"].astype(str)))),
                prompt_tokens=(
                    int(train.rows["prompt_tokens"].min()),
                    int(train.rows["prompt_tokens"].max()),
                ),
            ),
            prices=Prices.from_latency(
                sweep_latency(train), metadata.device, metadata.latency_dtype
            ),
        )

    @property
    def best_fixed_arm(self) -> int:
        """Index of the best fixed block size."""
        return self.arms.index(self.best_fixed)

    def states(self, table: Sweep) -> np.ndarray:
        """Select the states that the agent reads from a sweep, `[n, width]`.

        Raises:
            BlockPilotError: If the sweep has other arms, another pair, other states or other
                chat-template options.
        """
        table = table.with_groups(self.state.names)
        metadata = table.metadata
        if table.arms != self.arms:
            raise BlockPilotError(
                f"the agent chooses among the arms {self.arms}, the sweep has {table.arms}"
            )
        if metadata.fingerprint != self.fingerprint:
            raise BlockPilotError(
                f"the agent was trained on the pair {self.target} + {self.drafter} "
                f"(fingerprint {self.fingerprint}), the sweep is of {metadata.target} + "
                f"{metadata.drafter} ({metadata.fingerprint}); train on a sweep of that pair"
            )
        if metadata.template != self.template:
            raise BlockPilotError(
                f"the agent was trained with {describe_template(self.template)}, the sweep has "
                f"{describe_template(metadata.template)}; train on a sweep with those prompts"
            )
        if metadata.state.select(self.state.names) != self.state:
            raise BlockPilotError(
                f"the agent reads states {self.state.groups}, the sweep has {metadata.state.groups}"
            )
        return table.states[:, metadata.state.columns(self.state.names)]

    def gains(self, table: Sweep) -> np.ndarray:
        """Speedups less that of the best fixed size on the same prompt, `[n, arms]`.

        How fast a prompt decodes with every arm says nothing about the choice, so agents learn this
        difference.
        """
        gains: np.ndarray = table.speedups - table.speedups[:, [self.best_fixed_arm]]
        return gains

    def to_dict(self) -> dict[str, Any]:
        """Render as JSON-ready values."""
        return {**dataclasses.asdict(self), "state": [list(group) for group in self.state.groups]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Problem:
        """Read the result of `to_dict`.

        Raises:
            BlockPilotError: If a key is missing or unknown, or a value of a wrong type.
        """
        try:
            arms = tuple(map(whole_number, values["arms"]))
            if whole_number(values["best_fixed"]) not in arms:
                raise ValueError(f"best_fixed {values['best_fixed']} is not one of its arms")
            trained_on = values.get("trained_on")
            if trained_on is not None:
                trained_on = TrainedOn.from_dict(trained_on)
            state = StateLayout.from_lists(values["state"])
            prices = values.get("prices")
            converted = {
                "arms": arms,
                "state": state,
                "trained_on": trained_on,
                "prices": None if prices is None else Prices.from_dict(prices),
            }
            return cls(**{**values, **converted})
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BlockPilotError(
                f"the saved agent describes no valid problem ({error}); train the agent again"
            ) from error
