from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
import torch

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.state import StateLayout, compute_state
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation import choices
from blockpilot_rl.evaluation.choices import Choices, decision_seconds, time_decisions
from blockpilot_rl.policies.config import PolicyConfig
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep
from tests.synthetic import synthetic_table

PROFILE = LatencyProfile(
    block_sizes=(1, 2, 4, 8, 16),
    draft=((0.0, 0.0), (0.1, 0.0), (0.2, 0.0), (0.3, 0.0), (0.5, 0.01)),
    verify=((1.0, 0.0),) * 5,
    read_prompt=(2.0, 0.05),
    medians={},
)


def priced_table(n: int) -> Sweep:
    """A sweep with a latency profile, and with the state group `draft` in place of the hidden."""
    table = synthetic_table(n)
    tokens = np.arange(n) + 20
    state = StateLayout((("draft", 12), *table.metadata.state.groups[1:]))
    metadata = dataclasses.replace(table.metadata, latency=PROFILE.to_dict(), state=state)
    rows = table.rows.assign(prompt_tokens=tokens)
    return dataclasses.replace(table, metadata=metadata, rows=rows)


def policy(
    features: tuple[str, ...], hidden: tuple[int, ...] = (), table: Sweep | None = None
) -> BlockSizePolicy:
    metadata = (table or synthetic_table(n=2)).metadata
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
            # On a busy machine two threads would wait for each other.
            assert torch.get_num_threads() == 1
            seen.append(state.clone())
            return super().select(state)

    table = synthetic_table(n=5)
    watched = Watched(policy(("prompt", "next_token")).config)
    seconds = time_decisions(watched, table)
    assert 0 < seconds < 1
    expected = table.states[:, table.metadata.state.columns(("prompt", "next_token"))]
    np.testing.assert_array_equal(torch.stack(seen[-5:]).numpy(), expected)


def test_a_decision_begins_with_its_state(monkeypatch):
    """As in the decoder, where only what prefill has already computed is free."""

    def slowly(groups, *rest, **more):
        time.sleep(0.003)
        assert groups == ["next_token", "prompt"]
        return compute_state(groups, *rest, **more)

    monkeypatch.setattr(choices, "compute_state", slowly)
    groups = ("next_token", "draft", "prompt")
    assert time_decisions(policy(groups, table=priced_table(5)), priced_table(5)) > 0.003


def test_a_policy_that_reads_the_draft_pays_for_it():
    """A block of the drafter's own size, and reading the prompt if nothing else needs it."""
    table = priced_table(5)
    arms = np.array([0, 1, 4, 0, 2])
    reading_it = policy(("draft", "prompt"), table=table)
    seconds = decision_seconds(reading_it, table, arms)
    tokens = np.arange(5) + 20
    expected = 0.5 + 0.01 * tokens + (arms == 0) * (2 + 0.05 * tokens)
    assert (seconds > expected).all()
    np.testing.assert_allclose(seconds, expected, atol=0.1)
    without = decision_seconds(policy(("next_token", "prompt"), table=table), table, arms)
    assert (without == without[0]).all()
    assert without[0] < 0.1


def test_the_price_of_the_draft_does_not_depend_on_the_arms():
    table = priced_table(5)
    arms = np.array([0, 1, 2, 0, 2])
    reading_it = policy(("draft",), table=table)
    few = decision_seconds(reading_it, table.select_arms((1, 2, 4)), arms)
    np.testing.assert_allclose(few, decision_seconds(reading_it, table, arms), atol=0.1)


def test_a_draft_that_cannot_be_priced_is_refused():
    table = priced_table(5)
    arms = np.zeros(5, dtype=int)
    bare = dataclasses.replace(table, metadata=dataclasses.replace(table.metadata, latency={}))
    with pytest.raises(BlockPilotError, match=r"no latency profile to price .* 'draft'"):
        decision_seconds(policy(("draft",), table=bare), bare, arms)
    metadata = dataclasses.replace(table.metadata, default_block_size=12)
    other = dataclasses.replace(table, metadata=metadata)
    with pytest.raises(BlockPilotError, match="block size 12 is not in the latency profile"):
        decision_seconds(policy(("draft",), table=other), other, arms)


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
        (np.zeros((2, 4), dtype=int), np.zeros((2, 3)), r"\[seeds, n\]"),
        (np.zeros((2, 4), dtype=int), np.array([1e-5, np.nan]), "must be seconds"),
        (np.zeros((2, 4), dtype=int), np.array([1e-5, -1e-5]), "must be seconds"),
    ],
)
def test_mismatches_are_refused(arms, seconds, message):
    with pytest.raises(BlockPilotError, match=message):
        Choices(arms, seconds)


def test_shares_of_the_seeds():
    chosen = Choices.free(np.array([[0, 1], [0, 2], [0, 2], [1, 2]]))
    expected = [[0.75, 0.25, 0.0], [0.0, 0.25, 0.75]]
    np.testing.assert_array_equal(chosen.shares(3), expected)
