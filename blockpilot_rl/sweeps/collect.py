"""Record a sweep: the state of every prompt and the outcome of every arm.

The target answers each prompt once; every arm is then replayed from that answer, shard by shard,
and a latency profile turns passes into seconds. Shards are written atomically, so a run that was
killed goes on with the first missing one and ends in the same table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.replay import replay
from blockpilot_rl.decoding.state import GROUPS, compute_state
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_write
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.continuations import ContinuationStore, Progress, Shard, claim
from blockpilot_rl.sweeps.prompts import BUILTIN, Prompt
from blockpilot_rl.sweeps.table import DEFAULT_ARMS, SweepMetadata, SweepTable, validate_arms


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
        return [self.folder / f"{path.stem}.parquet" for path in self.store.shards]

    def replay_shards(self, progress: Progress = lambda done, total: None) -> None:
        """Replay every arm on the answers that have not been replayed yet.

        Args:
            progress: Called with the finished prompts and their total.

        Raises:
            BlockPilotError: If answers are missing, or the folder holds shards of another sweep.
        """
        self._claim()
        total, done = len(self.store.prompts), 0
        by_id = {prompt.id: prompt for prompt in self.store.prompts}
        for path, shard in zip(self.shards, self.store.read(), strict=True):
            if not path.exists():
                frame = self._record([by_id[key] for key in shard.prompt_ids], shard)
                with atomic_write(path) as partial:
                    frame.to_parquet(partial)
            done += len(shard.prompt_ids)
            progress(done, total)

    def frame(self) -> pd.DataFrame:
        """All replayed rows, in the order of the prompts.

        Raises:
            BlockPilotError: If shards are missing or of another sweep.
        """
        self._claim()
        missing = [path for path in self.shards if not path.exists()]
        if missing:
            raise BlockPilotError(
                f"{self.folder} lacks {len(missing)} of {len(self.shards)} shards; run the same "
                "command again"
            )
        rows = pd.concat([pd.read_parquet(path) for path in self.shards])
        order = [prompt.id for prompt in self.store.prompts]
        return rows.set_index("id").loc[order].reset_index()

    def _claim(self) -> None:
        """Mark the folder as this sweep's, or check that it is."""
        description: dict[str, Any] = {
            "fingerprint": self.decoder.pair.fingerprint,
            "dtype": str(self.decoder.pair.dtype),
            "prompts": [prompt.id for prompt in self.store.prompts],
            "arms": list(self.config.arms),
            "max_new_tokens": self.config.max_new_tokens,
            "groups": list(self.config.groups),
        }
        claim(self.folder / "description.json", description)

    def _record(self, prompts: Sequence[Prompt], shard: Shard) -> pd.DataFrame:
        """Replay one shard."""
        answers, stops = shard.continuations, self.decoder.pair.stop_token_ids
        assert self.decoder.drafter is not None
        accepted = replay(self.decoder.drafter, answers, self.config.arms)
        drafts = self._first_drafts(answers)
        records = []
        for prompt, answer, arms, draft in zip(prompts, answers, accepted, drafts, strict=True):
            output = answer.output_ids.tolist()
            record = {
                "id": prompt.id,
                "suite": prompt.suite,
                "family": prompt.family,
                "language": prompt.language,
                "split": policy_split(prompt),
                "prompt_tokens": len(answer.prompt_ids),
                "finish_reason": "stop" if output[-1] in stops else "length",
                "repetitive": is_repetitive(output),
                "state": self._state(answer, draft).cpu().numpy(),
                "output_tokens": answer.output_ids.int().numpy(),
            }
            for arm, lengths in zip(self.config.arms, arms, strict=True):
                record[f"accepted_{arm}"] = np.array(lengths, dtype=np.int16)
            records.append(record)
        return pd.DataFrame(records)

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
        return drafter.draft_at(rows, starts, anchors, block_size, cache)


def policy_split(prompt: Prompt) -> str:
    """Split of a prompt in a sweep.

    Only the built-in suite trains drafters; the share that its hash keeps for them is training data
    of policies everywhere else.
    """
    return "train" if prompt.suite != BUILTIN and prompt.split == "drafter" else prompt.split


def assemble(
    collection: Collection, profile: LatencyProfile, latency_dtype: str, device: str
) -> SweepTable:
    """Put the shards together and price every arm.

    Args:
        collection: A sweep whose shards are all there.
        profile: What the passes cost.
        latency_dtype: Dtype that the profile was measured in.
        device: Device that it was measured on, in words.

    Raises:
        BlockPilotError: If shards are missing, or no prompt is left to record.
    """
    frame, config = collection.frame(), collection.config
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
    decoder = collection.decoder
    pair = decoder.pair
    metadata = SweepMetadata(
        arms=config.arms,
        default_block_size=pair.block_size,
        target=pair.target_name,
        drafter=str(pair.drafter_name),
        fingerprint=pair.fingerprint,
        dtype=str(pair.dtype).removeprefix("torch."),
        latency_dtype=latency_dtype,
        device=device,
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
