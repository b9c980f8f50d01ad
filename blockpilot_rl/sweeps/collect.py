"""Record a sweep: continuations, states and the outcome of every arm, shard by shard.

The target answers each prompt once; every arm is then replayed from that continuation, and a
latency profile turns passes into seconds. Shards are written atomically, so a run that was killed
goes on with the first missing shard and ends in the same table.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from blockpilot_rl.decoding.batched import Continuation, continue_batch
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.replay import replay
from blockpilot_rl.decoding.state import (
    GROUPS,
    draft_features,
    next_token_features,
    prompt_features,
)
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_write, write_json
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.prompts import Prompt
from blockpilot_rl.sweeps.table import DEFAULT_ARMS, SweepMetadata, SweepTable, validate_arms

SHARD_PROMPTS = 32
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class SweepConfig:
    """What to record.

    Attributes:
        arms: Block sizes, increasing from 1.
        max_new_tokens: Budget of each continuation.
        groups: State groups to record.
    """

    arms: tuple[int, ...] = DEFAULT_ARMS
    max_new_tokens: int = 128
    groups: tuple[str, ...] = GROUPS

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If one is out of range.
        """
        validate_arms(self.arms)
        if self.max_new_tokens < 2:
            raise BlockPilotError(f"max_new_tokens must be at least 2, not {self.max_new_tokens}")


@dataclass(frozen=True)
class _Job:
    """A sweep that is being recorded in a folder of shards."""

    decoder: Decoder
    prompts: Sequence[Prompt]
    config: SweepConfig
    folder: Path

    @property
    def pair(self) -> Pair:
        return self.decoder.pair

    def shard(self, index: int) -> Path:
        return self.folder / f"shard-{index:05d}.parquet"

    @property
    def shards(self) -> int:
        return -(-len(self.prompts) // SHARD_PROMPTS)


def collect_shards(
    decoder: Decoder,
    prompts: Sequence[Prompt],
    config: SweepConfig,
    folder: Path,
    part: tuple[int, int] = (0, 1),
    progress: Progress = lambda done, total: None,
) -> None:
    """Record the shards of a sweep that are still missing.

    Args:
        decoder: The pair's decoder.
        prompts: What to decode.
        config: What to record.
        folder: Folder of the shards.
        part: Which shards to make: number `part[0]` of every `part[1]`, so that several processes
            can share the work.
        progress: Called with the finished prompts and their total.

    Raises:
        BlockPilotError: If a prompt is too long, or the folder holds shards of another sweep.
    """
    job = _Job(decoder, prompts, config, folder)
    _claim(job)
    encoded = [decoder.pair.encode(prompt.chat())[0] for prompt in prompts]
    for prompt, ids in zip(prompts, encoded, strict=True):
        try:
            decoder.check_length(len(ids), config.max_new_tokens, max(config.arms))
        except BlockPilotError as error:
            raise BlockPilotError(f"prompt {prompt.id}: {error}") from None
    for index in range(part[0], job.shards, part[1]):
        span = slice(index * SHARD_PROMPTS, (index + 1) * SHARD_PROMPTS)
        if not job.shard(index).exists():
            frame = _record(job, prompts[span], encoded[span])
            with atomic_write(job.shard(index)) as partial:
                frame.to_parquet(partial)
        progress(min(span.stop, len(prompts)), len(prompts))


def assemble(
    decoder: Decoder,
    prompts: Sequence[Prompt],
    config: SweepConfig,
    folder: Path,
    profile: LatencyProfile,
    latency: dict[str, str],
) -> SweepTable:
    """Put the shards together and price every arm.

    Args:
        decoder: The decoder that recorded the shards.
        prompts: What was decoded.
        config: What was recorded.
        folder: Folder of the shards.
        profile: What the passes cost.
        latency: `dtype` and `device` of the profile.

    Raises:
        BlockPilotError: If shards are missing, or no prompt was left to record.
    """
    job = _Job(decoder, prompts, config, folder)
    _claim(job)
    missing = [index for index in range(job.shards) if not job.shard(index).exists()]
    if missing:
        raise BlockPilotError(
            f"{folder} lacks {len(missing)} of {job.shards} shards; run the same command again"
        )
    frame = pd.concat([pd.read_parquet(job.shard(i)) for i in range(job.shards)])
    # A text that ends with its first token has no decode pass, so nothing to choose or to time.
    short = frame["output_tokens"].map(len) < 2
    left_out = frame.loc[short, "id"].to_list()
    frame = frame[~short].reset_index(drop=True)
    if frame.empty:
        raise BlockPilotError("every prompt ended with its first token; nothing to record")
    accepted = [
        list(row) for row in zip(*(frame[f"accepted_{arm}"] for arm in config.arms), strict=True)
    ]
    seconds = np.array(
        [
            [
                profile.decode_seconds(arm, int(length), emitted)
                for arm, emitted in zip(config.arms, row, strict=True)
            ]
            for length, row in zip(frame["prompt_tokens"], accepted, strict=True)
        ]
    )
    pair = decoder.pair
    metadata = SweepMetadata(
        arms=config.arms,
        default_block_size=pair.block_size,
        target=pair.target_name,
        drafter=str(pair.drafter_name),
        fingerprint=pair.fingerprint,
        dtype=str(pair.dtype).removeprefix("torch."),
        latency_dtype=latency["dtype"],
        device=latency["device"],
        temperature=0.0,
        max_new_tokens=config.max_new_tokens,
        template={},
        state=decoder.state_layout(config.groups),
        latency=profile.to_dict(),
        provenance={**provenance(), "ended_with_first_token": left_out},
    )
    return SweepTable(
        metadata=metadata,
        rows=frame[[name for name in frame if name in SweepTable.SCALARS]],
        states=np.stack(frame["state"].to_list()).astype(np.float32),
        output_tokens=frame["output_tokens"].to_list(),
        accepted=accepted,
        seconds=seconds,
        measured_seconds=np.full(seconds.shape, np.nan),
    )


def measure_rows(
    decoder: Decoder,
    table: SweepTable,
    prompts: Sequence[Prompt],
    rows: Sequence[int],
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> SweepTable:
    """Decode some rows for real under every arm and record the measured seconds.

    Arms are interleaved in random order within a prompt, after a warm-up.

    Args:
        decoder: The decoder to time.
        table: The sweep.
        prompts: Its prompts.
        rows: Rows to decode.
        seed: Of the order of the arms.
        progress: Called with the finished rows and their total.
    """
    rng = np.random.default_rng(seed)
    by_id = {prompt.id: prompt for prompt in prompts}
    measured = table.measured_seconds.copy()
    decoder.warm_up(table.arms)
    for done, row in enumerate(rows, start=1):
        ids = decoder.pair.encode(by_id[table.rows["id"][row]].chat())
        prefill = decoder.prefill(ids, table.metadata.max_new_tokens, max(table.arms))
        for arm in rng.permutation(len(table.arms)):
            measured[row, arm] = decoder.decode(prefill, table.arms[arm]).decode_seconds
        progress(done, len(rows))
    return dataclasses.replace(table, measured_seconds=measured)


def is_repetitive(tokens: Sequence[int]) -> bool:
    """Whether a text ends in a loop: its last 24 tokens or more repeat a phrase of up to 16."""
    for period in range(1, 17):
        tail = list(tokens[-max(24, 3 * period) :])
        if len(tail) >= 24 and tail[period:] == tail[:-period]:
            return True
    return False


def _claim(job: _Job) -> None:
    """Mark the folder as this sweep's, or check that it is."""
    description: dict[str, Any] = {
        "fingerprint": job.pair.fingerprint,
        "dtype": str(job.pair.dtype),
        "prompts": [prompt.id for prompt in job.prompts],
        "arms": list(job.config.arms),
        "max_new_tokens": job.config.max_new_tokens,
        "groups": list(job.config.groups),
    }
    path = job.folder / "description.json"
    if not path.exists():
        write_json(path, description)
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    differing = [key for key, value in description.items() if found.get(key) != value]
    if differing:
        raise BlockPilotError(
            f"{job.folder} holds an unfinished sweep with other {', '.join(differing)}; "
            "finish it with the same options, remove it, or name another output"
        )


def _record(job: _Job, prompts: Sequence[Prompt], encoded: Sequence[torch.Tensor]) -> pd.DataFrame:
    """Decode and replay one shard."""
    decoder, config = job.decoder, job.config
    stops = job.pair.stop_token_ids
    answers = continue_batch(decoder.target, encoded, config.max_new_tokens, stops)
    if decoder.drafter is None:
        raise BlockPilotError("a sweep needs a drafter; this pair has none")
    accepted = replay(decoder.drafter, answers, config.arms)
    drafts = _first_drafts(job, answers)
    records = []
    for prompt, answer, arms, draft in zip(prompts, answers, accepted, drafts, strict=True):
        output = answer.output_ids.tolist()
        record = {
            "id": prompt.id,
            "suite": prompt.suite,
            "family": prompt.family,
            "language": prompt.language,
            "split": prompt.split,
            "prompt_tokens": len(answer.prompt_ids),
            "finish_reason": "stop" if output[-1] in stops else "length",
            "repetitive": is_repetitive(output),
            "state": _state(job, answer, draft).numpy(),
            "output_tokens": answer.output_ids.int().numpy(),
        }
        for arm, lengths in zip(config.arms, arms, strict=True):
            record[f"accepted_{arm}"] = np.array(lengths, dtype=np.int16)
        records.append(record)
    return pd.DataFrame(records)


@torch.inference_mode()
def _first_drafts(job: _Job, answers: Sequence[Continuation]) -> torch.Tensor:
    """The drafter's confidences along each prompt's first block, `[rows, block_size - 1]`."""
    drafter = job.decoder.drafter
    assert drafter is not None
    starts = torch.tensor([len(answer.prompt_ids) for answer in answers])
    cache = drafter.new_cache(len(answers), int(starts.max()) + job.pair.block_size)
    features = [answer.features[: len(answer.prompt_ids)] for answer in answers]
    drafter.extend(torch.nn.utils.rnn.pad_sequence(features, batch_first=True), cache)
    anchors = torch.stack([answer.output_ids[0] for answer in answers])
    rows = torch.arange(len(answers))
    logits = drafter.draft_at(rows, starts, anchors, job.pair.block_size, cache)
    return torch.stack([draft_features(row) for row in logits])


@torch.inference_mode()
def _state(job: _Job, answer: Continuation, draft: torch.Tensor) -> torch.Tensor:
    last = answer.last[len(answer.prompt_ids) - 1]
    parts = {
        "last_hidden": last.float(),
        "next_token": next_token_features(job.decoder.target.logits(last)),
        "prompt": prompt_features(len(answer.prompt_ids)),
        "draft": draft,
    }
    return torch.cat([parts[name] for name in job.config.groups])
