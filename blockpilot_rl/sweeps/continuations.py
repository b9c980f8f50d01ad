"""The target's answers with their hidden states, stored shard by shard.

Training a drafter and recording a sweep both start from the target's answer to each prompt. Answers
do not depend on the drafter, so a folder of answers serves any drafter that reads the same target
layers. Shards are written atomically, so a run that was stopped resumes with the first missing one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from blockpilot_rl.decoding.batched import Continuation, continue_batch
from blockpilot_rl.decoding.forward import TargetForward
from blockpilot_rl.decoding.sampling import GREEDY, NOISE, Sampling, validate_seeds
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import atomic_write, locked, remove_leftovers
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.sweeps.claims import CLAIM, check_claim, claim, claim_digest, read_claim

SHARD_PROMPTS = 64
"""Prompts whose answers share a file."""

_CLAIM_FILE = "continuations.json"
# A single key, because safetensors writes several in any order.
_DESCRIBED = "shard"


@dataclass(frozen=True)
class Shard:
    """Some answers.

    Attributes:
        prompt_ids: Id of the prompt of each.
        continuations: The answers; `sampling` holds the seed of each.
    """

    prompt_ids: list[str]
    continuations: list[Continuation]


@dataclass(frozen=True)
class ContinuationStore:
    """A folder of the target's answers to a list of prompts.

    Attributes:
        folder: Folder of the shards.
        prompts: The prompts.
        max_new_tokens: Budget of each answer.
        sampling: How tokens are chosen.
        seeds: Every prompt is answered once with each seed.
    """

    folder: Path
    prompts: Sequence[Prompt]
    max_new_tokens: int
    sampling: Sampling = GREEDY
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        """Check the seeds.

        Raises:
            BlockPilotError: If there are none, one is repeated, or greedy answers have several.
        """
        validate_seeds(self.sampling, self.seeds)

    @property
    def size(self) -> int:
        """Number of answers."""
        return len(self.prompts) * len(self.seeds)

    @property
    def shards(self) -> list[Path]:
        """Paths of all shards, whether they exist or not."""
        return [self.shard(index) for index in range(-(-self.size // SHARD_PROMPTS))]

    @property
    def claim_file(self) -> Path:
        """The claim: a JSON file that describes what the shards are made from."""
        return self.folder / _CLAIM_FILE

    @property
    def digest(self) -> str:
        """Digest of the claim, which every shard carries."""
        return claim_digest(self.claim_file)

    def shard(self, index: int) -> Path:
        """Path of one shard."""
        return self.folder / f"shard-{index:05d}.safetensors"

    def answers_through(self, index: int) -> int:
        """Number of answers in the shards up to and including this one."""
        return min((index + 1) * SHARD_PROMPTS, self.size)

    def record(
        self,
        pair: Pair,
        target: TargetForward,
        layer_ids: Sequence[int],
        part: tuple[int, int] = (0, 1),
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Let the target answer the prompts that are not answered yet.

        Args:
            pair: Encodes the prompts.
            target: The target's forward pass, with the features of `layer_ids`.
            layer_ids: 0-based decoder layers whose outputs are the features.
            part: Index and number of parts, so that several processes can share the work: of every
                `part[1]` shards, this call answers the one with index `part[0]`.
            progress: Called with the number of finished answers and their total.

        Raises:
            BlockPilotError: If a prompt is too long, the folder holds answers of another target,
                suite or setting, or another process answers the same part.
        """
        progress(0, self.size)
        answering = self.open(pair, target, layer_ids)
        mine = range(len(self.shards))[part[0] :: part[1]]
        with locked(self.folder / f"shards-{part[0] + 1}-of-{part[1]}"):
            remove_leftovers(self.shard(index) for index in mine)
            for index in mine:
                answering.answer(index)
                progress(self.answers_through(index), self.size)

    def open(self, pair: Pair, target: TargetForward, layer_ids: Sequence[int]) -> Answering:
        """Claim the folder, or check that it is claimed already, and encode the prompts.

        Args:
            pair: Encodes the prompts.
            target: The target's forward pass, with the features of `layer_ids`.
            layer_ids: 0-based decoder layers whose outputs are the features.

        Raises:
            BlockPilotError: If a prompt is too long, or the folder holds answers of another
                target, suite or setting.
        """
        encoded = [pair.encode(prompt.chat())[0] for prompt in self.prompts]
        for prompt, ids in zip(self.prompts, encoded, strict=True):
            if len(ids) + self.max_new_tokens > pair.max_length:
                raise BlockPilotError(
                    f"prompt {prompt.id} has {len(ids)} tokens; with {self.max_new_tokens} new "
                    f"ones it exceeds the models' {pair.max_length} positions"
                )
        claim(
            self.claim_file,
            {
                "fingerprint": pair.target_fingerprint,
                "dtype": str(pair.dtype).removeprefix("torch."),
                "prompts": prompts_digest(self.prompts),
                "count": len(self.prompts),
                "layer_ids": list(layer_ids),
                "max_new_tokens": self.max_new_tokens,
                "sampling": self.describe_sampling(),
                "template": dict(pair.template) if pair.template else None,
            },
        )
        # Prompts of similar length share a shard, which keeps padding short.
        order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))
        rows = [(self.prompts[i].id, encoded[i], seed) for i in order for seed in self.seeds]
        return Answering(self, pair, target, rows)

    def read(self) -> Iterator[Shard]:
        """Read shard after shard.

        Raises:
            BlockPilotError: If a shard is missing, corrupt or part of other work.
        """
        self.check_complete()
        for index in range(len(self.shards)):
            yield self.read_shard(index)

    def read_shard(self, index: int) -> Shard:
        """Read one shard.

        Raises:
            BlockPilotError: If the shard is missing, corrupt or part of other work.
        """
        return _read_shard(self.shard(index), self.max_new_tokens, self.sampling, self.digest)

    def check_complete(self) -> None:
        """Check that every prompt is answered.

        Raises:
            BlockPilotError: If a shard is missing.
        """
        _check_complete(self.folder, self.shards)

    def describe_sampling(self) -> dict[str, Any] | None:
        """Sampling options of the answers as plain values; None for greedy answers."""
        if self.sampling.is_greedy:
            return None
        names = ("temperature", "top_k", "top_p")
        values = {name: getattr(self.sampling, name) for name in names}
        return {**values, "seeds": list(self.seeds), "noise": NOISE}


@dataclass(frozen=True)
class Answering:
    """A target that answers prompts, shard by shard.

    Attributes:
        store: The folder of answers.
        pair: The pair, which knows the tokens that end a text.
        target: The target's forward pass, with the features to keep.
        rows: Prompt id, prompt tokens `[n]` and seed of each answer, in the order of the shards.
    """

    store: ContinuationStore
    pair: Pair
    target: TargetForward
    rows: Sequence[tuple[str, torch.Tensor, int]]

    def answer(self, index: int) -> None:
        """Answer the prompts of one shard, unless that is done.

        Args:
            index: Number of the shard, from 0.

        Raises:
            BlockPilotError: If its file is corrupt, part of other work, or holds the answers of
                another shard.
        """
        store, path = self.store, self.store.shard(index)
        rows = self.rows[index * SHARD_PROMPTS : store.answers_through(index)]
        if path.exists():
            with _open_shard(path, store.digest) as file:
                found = _keys(file)
            if found != [(key, seed) for key, _, seed in rows]:
                raise BlockPilotError(
                    f"{path} holds the answers of another shard; remove it and run again"
                )
            return
        answers = continue_batch(
            self.target,
            [ids for _, ids, _ in rows],
            store.max_new_tokens,
            self.pair.stop_token_ids,
            store.sampling,
            [seed for _, _, seed in rows],
        )
        described = {CLAIM: store.digest, "prompt_ids": [key for key, *_ in rows]}
        with atomic_write(path) as partial:
            save_file(_pack(answers), partial, {_DESCRIBED: json.dumps(described)})


class StoredAnswers(Sequence[Continuation]):
    """The answers of a finished folder, in the order of its shards.

    Files are mapped into memory, so an answer is read from disk when its states are used.

    Attributes:
        folder: The folder.
        prompt_ids: Id of the prompt of each answer.
        sampling: What the folder's claim says about sampling; None for greedy answers.
    """

    def __init__(self, folder: Path, pair: Pair, layer_ids: Sequence[int]) -> None:
        """Open a folder that `ContinuationStore` has filled.

        Args:
            folder: The folder.
            pair: The target whose answers it must hold.
            layer_ids: Target layers that the features must come from.

        Raises:
            BlockPilotError: If the folder is not finished, corrupt, or holds answers of another
                target, dtype or other layers.
        """
        self.folder = folder
        claim_file = folder / _CLAIM_FILE
        digest, described = claim_digest(claim_file), read_claim(claim_file)
        expected = {
            "fingerprint": pair.target_fingerprint,
            "dtype": str(pair.dtype).removeprefix("torch."),
            "layer_ids": list(layer_ids),
            "template": dict(pair.template) if pair.template else None,
        }
        for name, value in expected.items():
            if described.get(name) != value:
                raise BlockPilotError(
                    f"{folder} holds answers with {name} {described.get(name)}, not {value}; "
                    "answer the prompts again in another folder"
                )
        self.sampling: dict[str, Any] | None = described["sampling"]
        options = dict(self.sampling or {"temperature": 0.0, "seeds": [0]})
        seeds = options.pop("seeds")
        options.pop("noise", None)
        count = int(described["count"]) * len(seeds)
        paths = [
            folder / f"shard-{index:05d}.safetensors" for index in range(-(-count // SHARD_PROMPTS))
        ]
        _check_complete(folder, paths)
        budget, sampling = int(described["max_new_tokens"]), Sampling(**options)
        shards = [_read_shard(path, budget, sampling, digest) for path in paths]
        self.prompt_ids = [key for shard in shards for key in shard.prompt_ids]
        self._answers = [answer for shard in shards for answer in shard.continuations]

    def __len__(self) -> int:
        """Number of answers."""
        return len(self._answers)

    @overload
    def __getitem__(self, index: int) -> Continuation: ...

    @overload
    def __getitem__(self, index: slice) -> list[Continuation]: ...

    def __getitem__(self, index: int | slice) -> Continuation | list[Continuation]:
        """An answer, or several."""
        return self._answers[index]


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """Digest of a list of prompts, by their ids in order."""
    return hashlib.sha256("".join(prompt.id for prompt in prompts).encode()).hexdigest()[:16]


def _check_complete(folder: Path, shards: Sequence[Path]) -> None:
    """Check that all shards of a folder exist.

    Raises:
        BlockPilotError: If one is missing.
    """
    missing = sum(not path.exists() for path in shards)
    if missing:
        raise BlockPilotError(
            f"{folder} lacks {missing} of {len(shards)} shards; run the same command again without "
            "a part"
        )


def _pack(answers: Sequence[Continuation]) -> dict[str, torch.Tensor]:
    return {
        "prompt_tokens": torch.cat([answer.prompt_ids for answer in answers]).int(),
        "output_tokens": torch.cat([answer.output_ids for answer in answers]).int(),
        "prompt_lengths": torch.tensor([len(answer.prompt_ids) for answer in answers]),
        "output_lengths": torch.tensor([len(answer.output_ids) for answer in answers]),
        "seeds": torch.tensor([answer.sampling.seed for answer in answers]),
        "features": torch.cat([answer.features for answer in answers]),
        "last": torch.cat([answer.last for answer in answers]),
    }


@contextmanager
def _open_shard(path: Path, digest: str) -> Iterator[Any]:
    """Open a file of answers that was written under the claim of this digest.

    Raises:
        BlockPilotError: If it was written under another claim or is corrupt. Any error inside the
            block counts as corruption.
    """
    try:
        with safe_open(path, "pt") as file:
            check_claim(path, _described(file).get(CLAIM), digest)
            yield file
    except BlockPilotError as error:
        raise BlockPilotError(f"{error}; remove it and run again") from error
    except (
        *(AttributeError, KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError),
    ) as error:
        raise BlockPilotError(
            f"{path} is corrupt ({one_line(error)}); remove it and run again"
        ) from error


def _described(file: Any) -> dict[str, Any]:
    """The description that an open file carries: its `prompt_ids` and its claim."""
    metadata = file.metadata() or {}
    if _DESCRIBED not in metadata:
        raise ValueError("it does not name its prompts")
    described: dict[str, Any] = json.loads(metadata[_DESCRIBED])
    return described


def _keys(file: Any) -> list[tuple[str, int]]:
    """Prompt id and seed of each answer of an open file."""
    seeds = file.get_tensor("seeds").tolist()
    return list(zip(_described(file)["prompt_ids"], seeds, strict=True))


def _read_shard(path: Path, max_new_tokens: int, sampling: Sampling, digest: str) -> Shard:
    with _open_shard(path, digest) as file:
        keys = _keys(file)
        packed = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        prompts, outputs = packed["prompt_lengths"].tolist(), packed["output_lengths"].tolist()
        positions = [n + m - 1 for n, m in zip(prompts, outputs, strict=True)]
        parts = zip(
            packed["prompt_tokens"].long().split(prompts),
            packed["output_tokens"].long().split(outputs),
            packed["features"].split(positions),
            packed["last"].split(positions),
            strict=True,
        )
        answers = [
            Continuation(*part, max_new_tokens, replace(sampling, seed=seed))
            for part, (_, seed) in zip(parts, keys, strict=True)
        ]
    return Shard([key for key, _ in keys], answers)
