from __future__ import annotations

import numpy as np
import pytest
import torch

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices, time_decisions
from blockpilot_rl.policies.config import PolicyConfig
from blockpilot_rl.policies.policy import BlockSizePolicy
from tests.synthetic import synthetic_table


def policy(features: tuple[str, ...], hidden: tuple[int, ...] = ()) -> BlockSizePolicy:
    metadata = synthetic_table(n=2).metadata
    return BlockSizePolicy(
        PolicyConfig(
            arms=metadata.arms,
            state=metadata.state.select(features),
            hidden=hidden,
            activation="relu",
            fallback=8,
            fingerprint=metadata.fingerprint,
            target=metadata.target,
            drafter=metadata.drafter,
        )
    )


def test_a_decision_takes_time_and_is_shown_the_groups_the_policy_reads():
    seen = []

    class Watched(BlockSizePolicy):
        def select(self, state: torch.Tensor) -> int:
            seen.append(state.clone())
            return super().select(state)

    table = synthetic_table(n=5)
    watched = Watched(policy(("prompt", "next_token")).config)
    seconds = time_decisions(watched, table)
    assert 0 < seconds < 1
    expected = table.states[:, table.metadata.state.columns(("prompt", "next_token"))]
    np.testing.assert_array_equal(torch.stack(seen[-5:]).numpy(), expected)


def test_a_group_that_was_not_recorded_is_named():
    table = synthetic_table(n=5)
    only_prompt = policy(("prompt",))
    without = table.metadata.state.select(("last_hidden", "next_token"))
    object.__setattr__(table.metadata, "state", without)
    with pytest.raises(BlockPilotError, match="'prompt'"):
        time_decisions(only_prompt, table)


@pytest.mark.parametrize(
    ("arms", "seconds", "message"),
    [
        (np.zeros(4, dtype=int), np.zeros(1), r"\[seeds, n\]"),
        (np.zeros((2, 4), dtype=int), np.zeros(3), r"\[seeds, n\]"),
        (np.zeros((2, 4), dtype=int), np.array([1e-5, np.nan]), "must be seconds"),
        (np.zeros((2, 4), dtype=int), np.array([1e-5, -1e-5]), "must be seconds"),
    ],
)
def test_what_does_not_fit_is_refused(arms, seconds, message):
    with pytest.raises(BlockPilotError, match=message):
        Choices(arms, seconds)


def test_shares_of_the_seeds():
    chosen = Choices.free(np.array([[0, 1], [0, 2], [0, 2], [1, 2]]))
    expected = [[0.75, 0.25, 0.0], [0.0, 0.25, 0.75]]
    np.testing.assert_array_equal(chosen.shares(3), expected)
