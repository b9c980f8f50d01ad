"""Record a sweep: the state of every prompt and the outcome of every arm.

The target answers each prompt once, or once with each seed; every arm is then replayed from that
answer, shard by shard. Shards are written atomically, so a run that was killed goes on with the
first missing one and ends in the same table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch.nn.utils.rnn import pad_sequence

from blockpilot_rl.decoding.acceptance import is_repetitive
from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.drafting import Blocks
from blockpilot_rl.decoding.replay import Trace, replay, trace
from blockpilot_rl.decoding.state import GROUPS, compute_state
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_write, remove_leftovers
from blockpilot_rl.prompts import Prompt, policy_split
from blockpilot_rl.sweeps.claims import claim, claim_digest
from blockpilot_rl.sweeps.continuations import ContinuationStore, Progress, Shard
from blockpilot_rl.sweeps.frames import SCALARS, Key, read_parquet, write_parquet
from blockpilot_rl.sweeps.metadata import DEFAULT_ARMS, validate_arms
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import read_traces, write_traces

CLAIM_FILE = "description.json"
"""File in a recording's folder that says what its shards are made from."""


@dataclass(frozen=True)
class SweepConfig:
    """What to record.

    Attributes:
        arms: Block sizes, increasing from 1.
        max_new_tokens: Budget of each continuation.
        groups: State groups to record.
        trace: Prompts of each split to trace, the first ones, or `all`; 0 traces none.
    """

    arms: tuple[int, ...] = DEFAULT_ARMS
    max_new_tokens: int = 128
    groups: tuple[str, ...] = GROUPS
    trace: int | Literal["all"] = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If one is out of range.
        """
        validate_arms(self.arms)
        if self.max_new_tokens < 2:
            raise BlockPilotError(f"max_new_tokens must be at least 2, not {self.max_new_tokens}")
        if self.trace != "all" and self.trace < 0:
            raise BlockPilotError(f"trace must be 0 (off) or more, not {self.trace}")


@dataclass(frozen=True)
class Collection:
    """A sweep that is being recorded.

    Attributes:
        decoder: The pair's decoder.
        store: The target's answers.
        config: What to record.
        folder: Where the replayed shards go.
    """

    decoder: Decoder
    store: ContinuationStore
    config: SweepConfig
    folder: Path

    def __post_init__(self) -> None:
        """Check that the pair can be swept.

        Raises:
            BlockPilotError: If it has no drafter.
        """
        if self.decoder.drafter is None:
            raise BlockPilotError("a sweep needs a drafter; this pair has none")

    @property
    def shards(self) -> list[Path]:
        """Files of all replayed shards, one per shard of answers."""
        return [self.shard(index) for index in range(len(self.store.shards))]

    @property
    def claim_file(self) -> Path:
        """Says what the shards are made from."""
        return self.folder / CLAIM_FILE

    @property
    def digest(self) -> str:
        """Digest of the claim, which every shard carries."""
        return claim_digest(self.claim_file)

    def shard(self, index: int) -> Path:
        """File of one replayed shard."""
        return self.folder / f"{self.store.shard(index).stem}.parquet"

    def is_recorded(self, index: int) -> bool:
        """Whether one shard is answered and replayed."""
        return self.store.shard(index).exists() and self._is_replayed(index)

    @cached_property
    def traced(self) -> frozenset[str]:
        """Ids of the prompts whose answers are traced."""
        seen: Counter[str] = Counter()
        ids = []
        for prompt in self.store.prompts:
            split = policy_split(prompt)
            if self.config.trace == "all" or seen[split] < self.config.trace:
                ids.append(prompt.id)
            seen[split] += 1
        return frozenset(ids)

    def claim(self) -> None:
        """Mark the folder as this sweep's, or check that it is.

        Raises:
            BlockPilotError: If it holds shards of another sweep.
        """
        pair, config = self.decoder.pair, self.config
        description: dict[str, Any] = {
            "fingerprint": pair.fingerprint,
            "dtype": str(pair.dtype),
            "prompts": [prompt.id for prompt in self.store.prompts],
            "arms": list(config.arms),
            "max_new_tokens": config.max_new_tokens,
            "groups": list(config.groups),
            "trace": config.trace,
            "sampling": self.store.describe_sampling(),
            "template": dict(pair.template or {}),
        }
        claim(self.claim_file, description)

    def replay_shards(self, progress: Progress = lambda done, total: None) -> None:
        """Replay every arm on the answers that have not been replayed yet.

        No other process may be at work on the same shards.

        Args:
            progress: Called with the finished answers and their total.

        Raises:
            BlockPilotError: If answers are missing, or the folder holds shards of another sweep.
        """
        self.claim()
        self.store.check_complete()
        self.remove_leftovers()
        for index in range(len(self.shards)):
            self.replay_shard(index)
            progress(self.store.answers_through(index), self.store.size)

    def replay_shard(self, index: int) -> None:
        """Replay every arm on the answers of one shard, unless they have been replayed.

        Args:
            index: Which shard, counted from 0.

        Raises:
            BlockPilotError: If its answers are missing, corrupt or of other work.
        """
        if self._is_replayed(index):
            return
        traces, frame = self._record(self.store.read_shard(index))
        path = self.shard(index)
        # A shard is finished when its rows are there, so its traces come first.
        with atomic_write(_trace_file(path)) as partial:
            write_traces(partial, self.config.arms, traces, self.digest)
        with atomic_write(path) as partial:
            write_parquet(partial, pa.Table.from_pandas(frame), self.digest)

    def remove_leftovers(self) -> None:
        """Remove what killed writes of shards have left; no other process may be at work on any."""
        remove_leftovers([*self.shards, *map(_trace_file, self.shards)])

    def frame(self) -> pd.DataFrame:
        """All replayed rows, in the order of the prompts and the seeds.

        Raises:
            BlockPilotError: If shards are missing, corrupt or of another sweep.
        """
        self._check_shards()
        arms = [f"accepted_{arm}" for arm in self.config.arms]
        columns, digest, frames = [*SCALARS, "state", "output_tokens", *arms], self.digest, []
        for path in self.shards:
            try:
                frames.append(read_parquet(path, columns, claim=digest))
            except BlockPilotError as error:
                raise _unreadable(error) from error
        self._check_rows(frames)
        order = pd.MultiIndex.from_product(
            [[prompt.id for prompt in self.store.prompts], self.store.seeds], names=["id", "seed"]
        )
        return pd.concat(frames).set_index(["id", "seed"]).loc[order].reset_index()

    def traces(self, table: Sweep) -> dict[int, Trace]:
        """Traces of a table of these shards, by row number.

        Raises:
            BlockPilotError: If shards are missing, corrupt or of another sweep.
        """
        self._check_shards()
        by_key: dict[Key, Trace] = {}
        digest = self.digest
        for path in self.shards:
            try:
                by_key |= read_traces(_trace_file(path), self.config.arms, digest)
            except BlockPilotError as error:
                raise _unreadable(error) from error
        traced = [(row, key) for row, key in enumerate(table.keys) if key[0] in self.traced]
        lost = sum(key not in by_key for _, key in traced)
        if lost:
            raise BlockPilotError(
                f"{self.folder} lacks the traces of {lost} answers; remove its trace-*.parquet "
                "files and run the same command again"
            )
        return {row: by_key[key] for row, key in traced}

    def _is_replayed(self, index: int) -> bool:
        path = self.shard(index)
        return path.exists() and _trace_file(path).exists()

    def _check_shards(self) -> None:
        self.claim()
        missing = [path for path in self.shards if not path.exists()]
        if missing:
            raise BlockPilotError(
                f"{self.folder} lacks {len(missing)} of {len(self.shards)} shards; run the same "
                "command again"
            )

    def _check_rows(self, frames: Sequence[pd.DataFrame]) -> None:
        """Check that the shards hold one row of every answer.

        Raises:
            BlockPilotError: If a shard repeats another, is of other prompts, or lacks rows.
        """
        again = "and run the same command again"
        wanted = {(prompt.id, seed) for prompt in self.store.prompts for seed in self.store.seeds}
        holders: dict[tuple[str, int], Path] = {}
        for path, frame in zip(self.shards, frames, strict=True):
            for key in zip(frame["id"], frame["seed"], strict=True):
                if key not in wanted:
                    raise BlockPilotError(f"{path} has a row of other work; remove it {again}")
                if key in holders:
                    raise BlockPilotError(
                        f"{holders[key]} and {path} hold the same answer; remove both {again}"
                    )
                holders[key] = path
        if len(holders) < len(wanted):
            raise BlockPilotError(
                f"{self.folder} lacks the rows of {len(wanted) - len(holders)} answers; remove its "
                f"shard-*.parquet files {again}"
            )

    def _record(self, shard: Shard) -> tuple[dict[Key, Trace], pd.DataFrame]:
        """Trace or replay each answer of one shard."""
        drafter, arms = self.decoder.drafter, self.config.arms
        assert drafter is not None
        answers = shard.continuations
        wanted = [key in self.traced for key in shard.prompt_ids]
        found = iter(trace(drafter, [a for a, w in zip(answers, wanted, strict=True) if w], arms))
        rest = [a for a, w in zip(answers, wanted, strict=True) if not w]
        replayed = iter(replay(drafter, rest, arms))
        by_id = {prompt.id: prompt for prompt in self.store.prompts}
        traces: dict[Key, Trace] = {}
        records = []
        for key, answer, traced, draft in zip(
            shard.prompt_ids, answers, wanted, self._first_drafts(answers), strict=True
        ):
            if traced:
                item = next(found)
                traces[(key, answer.sampling.temperature, answer.sampling.seed)] = item
                accepted = [item.trajectory(arm) for arm in range(len(arms))]
            else:
                accepted = next(replayed)
            records.append(self._row(by_id[key], answer, accepted, draft))
        return traces, pd.DataFrame(records)

    def _row(
        self, prompt: Prompt, answer: Continuation, accepted: list[list[int]], draft: torch.Tensor
    ) -> dict[str, Any]:
        output = answer.output_ids.tolist()
        by_arm = zip(self.config.arms, accepted, strict=True)
        return {
            "id": prompt.id,
            "temperature": answer.sampling.temperature,
            "seed": answer.sampling.seed,
            "suite": prompt.suite,
            "family": prompt.family,
            "language": prompt.language,
            "split": policy_split(prompt),
            "prompt_tokens": len(answer.prompt_ids),
            "finish_reason": "stop" if output[-1] in self.decoder.pair.stop_token_ids else "length",
            "repetitive": is_repetitive(output),
            "state": self._state(answer, draft).cpu().numpy(),
            "output_tokens": answer.output_ids.int().numpy(),
            **{f"accepted_{arm}": np.array(item, dtype=np.int16) for arm, item in by_arm},
        }

    @torch.inference_mode()
    def _state(self, answer: Continuation, draft_logits: torch.Tensor) -> torch.Tensor:
        prompt_tokens = len(answer.prompt_ids)
        last = answer.last[prompt_tokens - 1].to(self.decoder.pair.device)
        logits = self.decoder.target.logits(last)
        return compute_state(self.config.groups, last, logits, prompt_tokens, lambda: draft_logits)

    @torch.inference_mode()
    def _first_drafts(self, answers: Sequence[Continuation]) -> torch.Tensor:
        """Draft logits of each first block, `[rows, block_size - 1, draft_vocab]`."""
        drafter, block_size = self.decoder.drafter, self.decoder.pair.block_size
        assert drafter is not None
        device = drafter.device
        starts = torch.tensor([len(answer.prompt_ids) for answer in answers], device=device)
        cache = drafter.new_cache(len(answers), int(starts.max()) + block_size)
        features = [answer.features[: len(answer.prompt_ids)] for answer in answers]
        drafter.extend(pad_sequence(features, batch_first=True).to(device), cache)
        anchors = torch.stack([answer.output_ids[0] for answer in answers]).to(device)
        rows = torch.arange(len(answers), device=device)
        blocks = Blocks(rows, starts, anchors, torch.full_like(rows, block_size))
        states = drafter.draft_at(blocks, cache).view(len(rows), block_size, -1)
        return drafter.greedy_logits(states[:, 1:], anchors)


def _trace_file(shard: Path) -> Path:
    return shard.with_name(shard.name.replace("shard", "trace"))


def _unreadable(error: BlockPilotError) -> BlockPilotError:
    return BlockPilotError(f"{error}; remove the file and run the same command again")
