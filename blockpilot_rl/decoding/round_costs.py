"""Seconds of the parts of a round, for every draft and verify length."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from blockpilot_rl.decoding.latency import LatencyProfile


@dataclass(frozen=True, eq=False)
class RoundCosts:
    """A latency profile as tables that are looked up by length.

    The last axis is a line in the context length: seconds at context 0 and seconds per token. The
    first axis is 0 for greedy requests and 1 for requests with a temperature.

    Attributes:
        draft: Drafter passes by draft length, `[2, longest + 1, 2]`; 0 for lengths up to 1.
        verify: Target passes by verify length, `[2, longest + 1, 2]`.
        read: Line of the drafter's pass over the features of a prompt, `[2]`. Its slope is also the
            cost of each token that a plain round leaves to be read.
        noise: Seconds of sampling noise for each position that a block reaches first.
        chain: Seconds that each draft takes after the drafter's pass, which a draft that stops
            early saves.
    """

    draft: np.ndarray
    verify: np.ndarray
    read: np.ndarray
    noise: float
    chain: float = 0.0

    @classmethod
    def from_profile(cls, profile: LatencyProfile, chain: float = 0.0) -> RoundCosts:
        """Tabulate a profile.

        Lengths between measured ones are interpolated. No draft is priced below the shortest
        measured one.

        Args:
            profile: The profile of the device.
            chain: Seconds that each further draft of a block takes after the drafter's pass.
        """
        profiles = (profile, profile.at_temperature())
        return cls(
            np.stack([each.draft_table() for each in profiles]),
            np.stack([each.verify_table() for each in profiles]),
            np.array(profile.read_prompt),
            profile.noise_seconds,
            chain,
        )

    @property
    def longest(self) -> int:
        """Longest length that has a price."""
        return int(self.draft.shape[1]) - 1

    def with_chain(self, chain: float) -> RoundCosts:
        """Return the costs with another price of a draft that is not made."""
        return dataclasses.replace(self, chain=chain)

    def draft_seconds(
        self, lengths: np.ndarray, contexts: np.ndarray, sampled: np.ndarray
    ) -> np.ndarray:
        """Seconds of drafter passes.

        Args:
            lengths: Draft lengths.
            contexts: Context lengths, of a shape that broadcasts with `lengths`.
            sampled: Whether the request has a temperature, likewise.
        """
        return _seconds(self.draft, lengths, contexts, sampled)

    def verify_seconds(
        self, lengths: np.ndarray, contexts: np.ndarray, sampled: np.ndarray
    ) -> np.ndarray:
        """Seconds of target passes; arguments as for `draft_seconds`."""
        return _seconds(self.verify, lengths, contexts, sampled)


def _seconds(
    table: np.ndarray, lengths: np.ndarray, contexts: np.ndarray, sampled: np.ndarray
) -> np.ndarray:
    lines = table[sampled.astype(np.int64), lengths]
    return np.asarray(lines[..., 0] + lines[..., 1] * contexts)
