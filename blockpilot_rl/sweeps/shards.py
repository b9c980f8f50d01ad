"""Shards of a recording: the state of every prompt and the outcome of every block size.

The target answers each prompt once, or once with each seed. All block sizes are then replayed from
that answer, shard by shard. Shards are written atomically, so a recording that was killed resumes
with the first missing shard and ends in the same sweep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
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
from blockpilot_rl.decoding.latency import DEFAULT_ARMS, validate_arms
from blockpilot_rl.decoding.replay import Trace, replay, trace
from blockpilot_rl.decoding.state import GROUPS, compute_state, validate_groups
from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.files import atomic_write, remove_leftovers
from blockpilot_rl.options import check_options, option
from blockpilot_rl.prompts import Prompt, policy_split
from blockpilot_rl.sweeps.claims import claim, claim_digest
from blockpilot_rl.sweeps.continuations import ContinuationStore, Shard
from blockpilot_rl.sweeps.parquet import SCALARS, Key, read_parquet, write_parquet
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import read_traces, write_traces

CLAIM_FILE = "description.json"
"""The claim of a recording's folder."""


def parse_trace(text: str) -> int | Literal["all"]:
    """Read the number of prompts to trace, or `all`.

    Raises:
        BlockPilotError: If the text is neither.
    """
    if text == "all":
        return "all"
    if not text.isdecimal():
        raise BlockPilotError(f"must be a number of prompts or all, not {text!r}")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """The contents of a sweep.

    Attributes:
        arms: Block sizes, increasing from 1.
        max_new_tokens: Budget of each answer.
        state_groups: State groups to record.
        trace: Number of prompts of each split to trace, the first ones, or `"all"`; 0 for none.
        unseen_families: Families that nothing is trained on: all their prompts are test prompts,
            and results on them are reported separately.
    """

    arms: tuple[int, ...] = option(DEFAULT_ARMS, metavar="1,B,…", help="block sizes")
    max_new_tokens: int = option(128, minimum=2, help="budget of each answer")
    state_groups: tuple[str, ...] = option(
        GROUPS, metavar="A,B", help="state groups to record for policies"
    )
    trace: int | Literal["all"] = option(
        0,
        nargs="?",
        const="all",
        metavar="N",
        parse=parse_trace,
        help="also record what every position would accept, for the first N prompts of each split; "
        "without a number, for all",
    )
    unseen_families: tuple[str, ...] = option(
        (),
        aliases=["--unseen"],
        metavar="FAMILY,…",
        help="families that nothing is trained on: all their prompts are test prompts, and "
        "verdicts report them separately",
    )

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        check_options(self)
        validate_arms(self.arms)
        validate_groups(self.state_groups)
        if self.trace != "all" and self.trace < 0:
            raise BlockPilotError(f"trace must be 0 (off) or more, not {self.trace}")


@dataclass(frozen=True)
class Recording:
    """A sweep that is being recorded.

    Attributes:
        decoder: The pair's decoder.
        store: The target's answers.
        config: The contents of the sweep.
        folder: Folder of the replayed shards.
    """

    decoder: Decoder
    store: ContinuationStore
    config: SweepConfig
    folder: Path

    def __post_init__(self) -> None:
        """Check that the pair can be recorded.

        Raises:
            BlockPilotError: If the pair has no drafter.
        """
        if self.decoder.drafter is None:
            raise BlockPilotError("a sweep needs a drafter; this pair has none")
        families = sorted({prompt.family for prompt in self.store.prompts})
        for name in self.config.unseen_families:
            if name not in families:
                hint = closest(name, families) or f" They are {', '.join(families)}."
                raise BlockPilotError(f"unseen family {name!r} has no prompts.{hint}")

    @property
    def shards(self) -> list[Path]:
        """Paths of all replayed shards, one per shard of answers."""
        return [self.shard(index) for index in range(len(self.store.shards))]

    @property
    def claim_file(self) -> Path:
        """The claim: a JSON file that describes what the shards are made from."""
        return self.folder / CLAIM_FILE

    @property
    def digest(self) -> str:
        """Digest of the claim, which every shard carries."""
        return claim_digest(self.claim_file)

    def shard(self, index: int) -> Path:
        """Path of one replayed shard."""
        return self.folder / f"{self.store.shard(index).stem}.parquet"

    def is_recorded(self, index: int) -> bool:
        """Whether the answers of one shard are there and replayed."""
        return self.store.shard(index).exists() and self._is_replayed(index)

    @cached_property
    def traced(self) -> frozenset[str]:
        """Ids of the prompts to trace."""
        seen: Counter[str] = Counter()
        ids = []
        for prompt in self.store.prompts:
            split = policy_split(prompt, self.config.unseen_families)
            if self.config.trace == "all" or seen[split] < self.config.trace:
                ids.append(prompt.id)
            seen[split] += 1
        return frozenset(ids)

    def claim(self) -> None:
        """Claim the folder for this recording, or check that it is claimed already.

        Raises:
            BlockPilotError: If the folder holds shards of another recording.
        """
        pair, config = self.decoder.pair, self.config
        description: dict[str, Any] = {
            "fingerprint": pair.fingerprint,
            "dtype": str(pair.dtype),
            "prompts": [prompt.id for prompt in self.store.prompts],
            "arms": list(config.arms),
            "max_new_tokens": config.max_new_tokens,
            "groups": list(config.state_groups),
            "trace": config.trace,
            "shortens_blocks": True,
            "sampling": self.store.describe_sampling(),
            "template": dict(pair.template or {}),
        }
        if config.unseen_families:
            description["unseen_families"] = sorted(config.unseen_families)
        claim(self.claim_file, description)

    def replay_shards(
        self, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Replay every block size on the answers that have not been replayed yet.

        No other process may work on the same shards.

        Args:
            progress: Called with the finished answers and their total.

        Raises:
            BlockPilotError: If answers are missing, or the folder holds shards of another
                recording.
        """
        self.claim()
        self.store.check_complete()
        self.remove_leftovers()
        progress(0, self.store.size)
        for index in range(len(self.shards)):
            self.replay_shard(index)
            progress(self.store.answers_through(index), self.store.size)

    def replay_shard(self, index: int) -> None:
        """Replay every block size on the answers of one shard, unless that is done.

        Args:
            index: Number of the shard, from 0.

        Raises:
            BlockPilotError: If its answers are missing, corrupt or part of other work.
        """
        if self._is_replayed(index):
            return
        traces, frame = self._record(self.store.read_shard(index))
        # Reading the claim fails if another process has finished the recording in the meantime.
        path, digest = self.shard(index), self.digest
        # A shard with rows counts as finished, so its traces are written first.
        with atomic_write(_trace_file(path)) as partial:
            write_traces(partial, self.config.arms, traces, digest)
        with atomic_write(path) as partial:
            write_parquet(partial, pa.Table.from_pandas(frame, preserve_index=False), digest)

    def remove_leftovers(self) -> None:
        """Remove temporary files of killed writes. No other process may work on the shards."""
        remove_leftovers([*self.shards, *map(_trace_file, self.shards)])

    def frame(self) -> pd.DataFrame:
        """All replayed rows, in the order of the prompts and the seeds.

        Raises:
            BlockPilotError: If shards are missing, corrupt or part of another recording.
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

    def traces(self, sweep: Sweep) -> dict[int, Trace]:
        """Traces of the sweep of these shards, by row number.

        Raises:
            BlockPilotError: If shards are missing, corrupt or part of another recording.
        """
        self._check_shards()
        by_key: dict[Key, Trace] = {}
        digest = self.digest
        for path in self.shards:
            try:
                by_key |= read_traces(_trace_file(path), self.config.arms, digest)
            except BlockPilotError as error:
                raise _unreadable(error) from error
        traced = [(row, key) for row, key in enumerate(sweep.keys) if key[0] in self.traced]
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
        """Check that the shards hold exactly one row of every answer.

        Raises:
            BlockPilotError: If a shard repeats another, has rows of other prompts, or lacks rows.
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
            "split": policy_split(prompt, self.config.unseen_families),
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
        return compute_state(
            self.config.state_groups,
            last,
            logits,
            prompt_tokens,
            lambda: draft_logits,
            sampling=answer.sampling,
            features=answer.features[prompt_tokens - 1].to(last.device),
        )

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
