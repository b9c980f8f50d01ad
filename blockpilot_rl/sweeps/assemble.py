"""Assemble a sweep from replayed shards: price every block size, and time some real decodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.metadata import SweepMetadata
from blockpilot_rl.sweeps.parquet import SCALARS
from blockpilot_rl.sweeps.reprice import predict_seconds
from blockpilot_rl.sweeps.shards import Recording
from blockpilot_rl.sweeps.table import Sweep


def check_calibration(calibration: Calibration, pair: Pair, arms: Sequence[int]) -> None:
    """Check that a calibration can price a sweep.

    Args:
        calibration: The calibration.
        pair: Pair of the sweep.
        arms: Block sizes of the sweep.

    Raises:
        BlockPilotError: If the calibration belongs to another pair or lacks a block size.
    """
    calibration.check_pair(pair.fingerprint, pair.target_name, str(pair.drafter_name))
    calibration.latency.step_lines(arms)


def assemble(
    recording: Recording, calibration: Calibration, origin: Mapping[str, Any] | None = None
) -> Sweep:
    """Combine the shards of a recording and price every block size.

    Args:
        recording: A recording with all its shards.
        calibration: The cost of the passes.
        origin: Further provenance, as plain JSON values.

    Raises:
        BlockPilotError: If shards are missing, the calibration does not fit, or every prompt ended
            with its first token.
    """
    check_calibration(calibration, recording.decoder.pair, recording.config.arms)
    frame, config = recording.frame(), recording.config
    # A text that ends with its first token has no decode pass, so there is nothing to time.
    short = frame["output_tokens"].map(len) < 2
    left_out = frame.loc[short, "id"].to_list()
    frame = frame[~short].reset_index(drop=True)
    if frame.empty:
        raise BlockPilotError("every prompt ended with its first token; nothing to record")
    accepted = [
        list(row) for row in zip(*(frame[f"accepted_{arm}"] for arm in config.arms), strict=True)
    ]
    decoder = recording.decoder
    pair = decoder.pair
    metadata = SweepMetadata(
        arms=config.arms,
        default_block_size=pair.block_size,
        target=pair.target_name,
        drafter=str(pair.drafter_name),
        fingerprint=pair.fingerprint,
        dtype=str(pair.dtype).removeprefix("torch."),
        latency_dtype=calibration.dtype,
        device=calibration.device,
        max_new_tokens=config.max_new_tokens,
        shortens_blocks=True,
        template=dict(pair.template or {}),
        state=decoder.state_layout(config.state_groups),
        latency=calibration.latency.to_dict(),
        top_k=recording.store.sampling.top_k,
        top_p=recording.store.sampling.top_p,
        unseen_families=tuple(sorted(config.unseen_families)),
        provenance={
            **provenance(),
            "calibration": calibration.origin,
            "claim": recording.digest,
            "ended_with_first_token": left_out,
            "trained_length": pair.trained_length,
            **(origin or {}),
        },
    )
    unpriced = np.full((len(frame), len(config.arms)), np.nan)
    table = Sweep(
        metadata=metadata,
        rows=frame[list(SCALARS)],
        states=np.stack(frame["state"].to_list()).astype(np.float32),
        output_tokens=frame["output_tokens"].to_list(),
        accepted=accepted,
        seconds=unpriced,
        measured_seconds=unpriced,
    )
    return dataclasses.replace(table, seconds=predict_seconds(table, calibration.latency))


def measure_rows(
    decoder: Decoder,
    table: Sweep,
    prompts: Sequence[Prompt],
    rows: Sequence[int],
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Sweep:
    """Decode some rows with every block size and record the measured seconds.

    After a warm-up, the block sizes of each prompt are decoded in random order. In another dtype
    than that of the answers, a decode may give another text; its seconds stay NaN. The provenance
    counts the decodes, and those of another text, under `measured`.

    Args:
        decoder: The decoder to time.
        table: The sweep.
        prompts: Its prompts.
        rows: Rows to decode.
        seed: Random seed of the order of block sizes.
        progress: Called with the finished rows and their total.

    Returns:
        The sweep with measured seconds.
    """
    rng = np.random.default_rng(seed)
    by_id = {prompt.id: prompt for prompt in prompts}
    keys, metadata = table.keys, table.metadata
    measured, other_texts = table.measured_seconds.copy(), 0
    for temperature in sorted({keys[row][1] for row in rows}):
        sampling = Sampling(temperature, metadata.top_k, metadata.top_p)
        decoder.warm_up(table.arms, sampling=sampling)
    progress(0, len(rows))
    for done, row in enumerate(rows, start=1):
        key, temperature, noise_seed = keys[row]
        ids = decoder.pair.encode(by_id[key].chat())
        sampling = Sampling(temperature, metadata.top_k, metadata.top_p, noise_seed)
        prefill = decoder.prefill(ids, metadata.max_new_tokens, max(table.arms), sampling)
        for arm in rng.permutation(len(table.arms)):
            real = decoder.decode(prefill, table.arms[arm])
            if real.tokens == table.output_tokens[row].tolist():
                measured[row, arm] = real.decode_seconds
            else:
                other_texts += 1
        progress(done, len(rows))
    counts = {"decodes": len(rows) * len(table.arms), "other_texts": other_texts}
    metadata = dataclasses.replace(metadata, provenance={**metadata.provenance, "measured": counts})
    return dataclasses.replace(table, metadata=metadata, measured_seconds=measured)
