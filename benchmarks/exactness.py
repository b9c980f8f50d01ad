"""Compare the texts of all block sizes with plain decoding, token for token.

`python benchmarks/exactness.py --prompts 200 --json OUT` decodes every prompt plain and with each
block size, at each temperature. Kernels round differently for different shapes, so two tokens with
close scores can swap. If a text differs, both ways decode again, and the scores of the first
differing token are compared: the logits, or at a temperature T the logits / T plus the noise. The
difference counts as rounding if

- each way chose the token with its highest score, and
- no score of the vocabulary differs by more than 8 × eps × max |logit| / T between the two ways
  (T is 1 for greedy decoding, eps belongs to the dtype of the pair).

A wrong token breaks the first rule, a pass over the wrong text the second. Any other difference is
an error of the decoder, and the exit code is 1. In float32 all texts must be equal, so every
difference is an error.

Finished prompts are lines of OUT with the suffix `.jsonl`, so the same command resumes a run that
was stopped or killed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from rich.table import Table

from blockpilot_rl.cli.console import open_console, open_messages, run
from blockpilot_rl.cli.flags import (
    completion_option,
    device_option,
    drafter_option,
    dtype_option,
    target_option,
    whole_numbers,
    words,
)
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Prefill
from blockpilot_rl.decoding.sampling import Sampler, Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import write_json
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.options import option
from blockpilot_rl.prompts import Prompt, builtin_suite, load_prompts
from blockpilot_rl.provenance import provenance

ROUNDING_STEPS = 8


@dataclass(frozen=True)
class ExactnessBenchmark:
    """Compare the texts of every block size with plain decoding, token for token."""

    prompts: int = option(20, help="test prompts of the built-in suite to decode")
    prompts_file: str | None = option(None, metavar="FILE", help="decode the prompts of a file too")
    max_new_tokens: int = option(64, help="budget of each text")
    block_sizes: str = option("2,4,8,16", help="block sizes to compare with plain decoding")
    temperatures: str = option("0,1", help="temperatures to decode at; 0 is greedy")
    dtype: str = dtype_option("float32")
    device: str = device_option()
    target: str | None = target_option()
    completion: bool = completion_option()
    drafter: str | None = drafter_option()
    seed: int = option(0, help="random seed of the noise, added to the id of each prompt")
    json: str | None = option(
        None, metavar="FILE", help="write a record; the same command resumes it"
    )

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        if self.prompts < 0 or (self.prompts == 0 and self.prompts_file is None):
            raise BlockPilotError("give --prompts of at least 1, or a --prompts-file")
        if self.max_new_tokens < 2:
            raise BlockPilotError(f"--max-new-tokens must be at least 2, not {self.max_new_tokens}")
        self.sizes()
        if not self.samplings(0):
            raise BlockPilotError("--temperatures must name at least one, such as 0,1")
        if self.json is not None and (Path(self.json).is_dir() or self.json.endswith(".jsonl")):
            raise BlockPilotError(f"--json {self.json} must be a file such as exact.json")

    def sizes(self) -> tuple[int, ...]:
        """The block sizes."""
        return whole_numbers(self.block_sizes, "--block-sizes", least=2)

    def samplings(self, seed: int) -> list[Sampling]:
        """How tokens are chosen, one `Sampling` per temperature."""
        try:
            values = [float(word) for word in words(self.temperatures)]
        except ValueError as error:
            raise BlockPilotError(
                f"--temperatures must be numbers such as 0,1, not {self.temperatures!r}"
            ) from error
        return [Sampling(value, seed=seed) for value in values]

    def read_prompts(self) -> list[Prompt]:
        """The prompts to decode, without duplicates."""
        prompts = builtin_suite(self.prompts, splits=["test"])
        if self.prompts_file is not None:
            prompts += load_prompts(self.prompts_file)
        return list({prompt.id: prompt for prompt in prompts}.values())


class Journal:
    """Results of finished prompts by id, stored as lines of a file so that a run can resume."""

    def __init__(self, path: Path | None, description: dict[str, Any]) -> None:
        """Read the results of finished prompts.

        Args:
            path: The file; None stores nothing. A last line that was cut off is dropped.
            description: Pair and options, the first line of the file.

        Raises:
            BlockPilotError: If the file is corrupt or belongs to another comparison.
        """
        self.path = path
        self.results: dict[str, Any] = {}
        if path is None:
            return
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        lines = whole.split(b"\n") if whole else [json.dumps(description).encode()]
        try:
            found, *results = [json.loads(line) for line in lines]
            self.results = {result.pop("id"): result["results"] for result in results}
        except (ValueError, KeyError, AttributeError) as error:
            raise BlockPilotError(f"{path} is corrupt; remove it and start over") from error
        if found != description:
            raise BlockPilotError(
                f"{path} is of another pair or other options; repeat those options or change --json"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\n".join(lines) + b"\n")

    def add(self, prompt_id: str, results: list[dict[str, Any]]) -> None:
        """Store the results of one prompt."""
        self.results[prompt_id] = results
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"id": prompt_id, "results": results}) + "\n")


def main(config: ExactnessBenchmark) -> int:
    """Run the comparison; returns 1 if a text differs by more than rounding."""
    prompts = config.read_prompts()
    pair = load_pair(
        config.target,
        config.drafter,
        config.dtype,
        config.device,
        completion=config.completion,
    )
    decoder = Decoder(pair)
    description = {
        "fingerprint": pair.fingerprint,
        "dtype": str(pair.dtype).removeprefix("torch."),
        "device": pair.device.type,
        "max_new_tokens": config.max_new_tokens,
        "block_sizes": list(config.sizes()),
        "temperatures": [sampling.temperature for sampling in config.samplings(0)],
        "seed": config.seed,
    }
    path = None if config.json is None else Path(config.json).with_suffix(".jsonl")
    journal = Journal(path, description)
    with Progress(console=open_messages()) as progress:
        task = progress.add_task("decode", total=len(prompts))
        for prompt in prompts:
            if prompt.id not in journal.results:
                # The noise of a prompt does not depend on the other prompts.
                samplings = config.samplings(config.seed + int(prompt.id[:8], 16))
                ids = pair.encode(prompt.chat())
                sizes, budget = config.sizes(), config.max_new_tokens
                journal.add(prompt.id, [compare(decoder, ids, s, sizes, budget) for s in samplings])
            progress.advance(task)
    report = summarise(
        {prompt.id: journal.results[prompt.id] for prompt in prompts}, config.sizes()
    )
    if config.json is not None:
        write_json(config.json, {**report, **description, "provenance": provenance()})
    show(report)
    must_not = report["divergences"] if pair.dtype == torch.float32 else report["beyond_rounding"]
    return 1 if must_not else 0


def compare(
    decoder: Decoder, ids: torch.Tensor, sampling: Sampling, sizes: Sequence[int], budget: int
) -> dict[str, Any]:
    """Decode one prompt plain and with every block size.

    Returns:
        `temperature`, `tokens` (number of tokens of the plain text) and `divergences` (the results
        of `divergence` for the sizes whose text differs).
    """
    prefill = decoder.prefill(ids, budget, max(sizes), sampling)
    plain = decoder.decode(prefill, 1).tokens
    divergences = {}
    for size in sizes:
        tokens = decoder.decode(prefill, size).tokens
        if tokens != plain:
            divergences[str(size)] = divergence(decoder, prefill, size)
    return {
        "temperature": sampling.temperature,
        "tokens": len(plain),
        "divergences": divergences,
    }


class NotingSampler(Sampler):
    """Records the logits that the target used last at every position."""

    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        """Start without records."""
        super().__init__(sampling, vocab_size)
        self.noted: dict[int, torch.Tensor] = {}

    def choose(self, logits: torch.Tensor, position: int) -> torch.Tensor:
        """Choose as `Sampler` does."""
        self.noted.update(enumerate(logits, start=position))
        return super().choose(logits, position)


def divergence(decoder: Decoder, prefill: Prefill, size: int) -> dict[str, Any]:
    """Compare the scores of the first differing token between plain decoding and a block size.

    Returns:
        `index` (position of that token), `margin` (between the two best scores of plain decoding),
        `moved` (largest difference of a score between the two ways), `steps` (the same in rounding
        steps `eps × max |logit|`, at the temperature), `own` (whether each way chose its best
        token) and `rounding` (whether the difference is rounding). If one text is a prefix of the
        other, only `index` and `rounding` (False) are given.
    """
    sampling, vocabulary = prefill.sampler.sampling, decoder.target.vocab_size
    samplers = [NotingSampler(sampling, vocabulary) for _ in range(2)]
    texts = [
        decoder.decode(replace(prefill, sampler=sampler), block_size).tokens
        for sampler, block_size in zip(samplers, (1, size), strict=True)
    ]
    differing = [i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b]
    if not differing:
        return {"index": min(map(len, texts)), "rounding": False}
    index = differing[0]
    position = prefill.prompt_tokens + index
    logits = torch.stack([sampler.noted[position].float() for sampler in samplers])
    step = torch.finfo(decoder.pair.dtype).eps * float(logits.abs().max())
    scores = logits
    if not sampling.is_greedy:
        noise = Sampler(sampling, vocabulary).noise(position, 1, logits.device)
        scores, step = logits / sampling.temperature + noise, step / sampling.temperature
    best, second = scores[0].topk(2).values.tolist()
    moved = float((scores[0] - scores[1]).abs().max())
    own = scores.argmax(dim=-1).tolist() == [text[index] for text in texts]
    return {
        "index": index,
        "margin": best - second,
        "moved": moved,
        "steps": moved / step,
        "own": own,
        "rounding": own and moved <= ROUNDING_STEPS * step,
    }


def summarise(results: dict[str, Any], sizes: Sequence[int]) -> dict[str, Any]:
    """Count equal texts and list the others.

    Returns:
        `prompts`, `tokens` (of the plain texts), `equal` (by temperature and block size),
        `divergences` (a list), `beyond_rounding` (number of divergences that are not rounding),
        `largest_steps` (the largest rounding difference, or None) and `criterion`.
    """
    equal: dict[str, dict[str, int]] = {}
    divergences, tokens = [], 0
    for prompt_id, temperatures in results.items():
        for result in temperatures:
            tokens += result["tokens"]
            counts = equal.setdefault(
                f"{result['temperature']:g}", dict.fromkeys(map(str, sizes), 0)
            )
            for size in counts:
                found = result["divergences"].get(size)
                counts[size] += found is None
                if found is not None:
                    where = {"prompt": prompt_id, "temperature": result["temperature"]}
                    divergences.append({**where, "block_size": int(size), **found})
    steps = [found["steps"] for found in divergences if found["rounding"]]
    return {
        "prompts": len(results),
        "tokens": tokens,
        "equal": equal,
        "divergences": divergences,
        "beyond_rounding": sum(not found["rounding"] for found in divergences),
        "largest_steps": max(steps, default=None),
        "criterion": f"each chose its best, moved <= {ROUNDING_STEPS} * eps * max |logit| / T",
    }


def show(report: dict[str, Any]) -> None:
    """Print the counts."""
    console = open_console()
    table = Table(title=f"texts equal to plain decoding, of {report['prompts']}")
    table.add_column("temperature")
    for size in next(iter(report["equal"].values())):
        table.add_column(f"block {size}", justify="right")
    for temperature, counts in report["equal"].items():
        table.add_row(temperature, *map(str, counts.values()))
    console.print(table)
    differing, beyond = len(report["divergences"]), report["beyond_rounding"]
    if differing:
        largest = report["largest_steps"] or 0.0
        console.print(
            f"{differing} texts differ: {differing - beyond} by rounding (no score moved by more "
            f"than {largest:.2g} steps of eps × max |logit|), {beyond} beyond it",
            soft_wrap=True,
        )


if __name__ == "__main__":
    raise SystemExit(run(main, ExactnessBenchmark))
