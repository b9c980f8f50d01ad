"""`generate`: decode one prompt plainly, with a fixed block size, or with a policy."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from blockpilot_rl.cli.console import command
from blockpilot_rl.cli.flags import (
    completion_option,
    device_option,
    drafter_option,
    dtype_option,
    target_option,
)
from blockpilot_rl.decoding.acceptance import generation_warnings
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Generation, Pass
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.models.pairs import Pair, load_pair
from blockpilot_rl.options import check_options, option
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.policies.pricing import AUTO, price_policy


@dataclass(frozen=True)
class GenerateConfig:
    """Decode one prompt and report how it went.

    Without --plain, --block-size or --policy, the drafter's own block size is used.
    """

    prompt: str | None = option(None, help="the prompt; `-` reads standard input")
    prompt_file: str | None = option(None, metavar="FILE", help="read the prompt from a UTF-8 file")
    plain: bool = option(False, help="decode without drafts (block size 1)")
    block_size: int | None = option(None, minimum=1, help="decode with this block size")
    policy: str | None = option(
        None,
        metavar="DIR",
        help="let this policy choose the block size; `bundled` is one for the default pair",
    )
    calibration: str = option(
        AUTO,
        metavar="FILE|none",
        help="calibration whose prices an acceptance policy chooses by; none for those that it was "
        "exported with (default: the one that `blockpilot calibrate` has kept, if there is one)",
    )
    target: str | None = target_option()
    drafter: str | None = drafter_option()
    dtype: str = dtype_option("float32")
    device: str = device_option()
    template: dict[str, Any] = option(
        default_factory=dict, help="options of the chat template, such as enable_thinking:false"
    )
    completion: bool = completion_option()
    max_new_tokens: int = option(128, minimum=1, help="budget, the first token included")
    temperature: float = option(0.0, help="0 is greedy")
    top_k: int = option(0, help="sample from the K most probable tokens; 0 is all")
    top_p: float = option(1.0, help="sample from the tokens that hold this much probability")
    seed: int = option(0, help="random seed of a sampled text, the same for every block size")
    json: str | None = option(
        None, nargs="?", const="-", metavar="FILE", help="write a record; alone, to standard output"
    )

    def __post_init__(self) -> None:
        """Check that there is one prompt and at most one way of decoding.

        Raises:
            BlockPilotError: If not, or if a value is out of range.
        """
        check_options(self)
        if (self.prompt is None) == (self.prompt_file is None):
            raise BlockPilotError("give one of --prompt and --prompt-file")
        ways = {
            "--plain": self.plain,
            "--block-size": self.block_size is not None,
            "--policy": self.policy is not None,
        }
        given = [flag for flag, used in ways.items() if used]
        if len(given) > 1:
            raise BlockPilotError(
                f"give at most one of {', '.join(ways)}; got {' and '.join(given)}"
            )
        if self.calibration != AUTO and self.policy is None:
            raise BlockPilotError("--calibration prices a policy; name one with --policy")
        if self.json not in (None, "-") and Path(self.json).is_dir():
            raise BlockPilotError(f"--json {self.json} is a folder; name a file")
        self.sampling()

    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)

    def read_prompt(self) -> str:
        """The prompt's text.

        Raises:
            BlockPilotError: If it is empty, cannot be read or is not UTF-8.
        """
        try:
            if self.prompt_file is not None:
                text = Path(self.prompt_file).read_text(encoding="utf-8")
            elif self.prompt == "-":
                text = sys.stdin.buffer.read().decode("utf-8")
            else:
                text = str(self.prompt)
            text.encode("utf-8")
        except UnicodeError as error:
            raise BlockPilotError(f"the prompt is not UTF-8 text: {error}") from error
        except OSError as error:
            raise BlockPilotError(
                f"cannot read --prompt-file {self.prompt_file}: {error.strerror}"
            ) from error
        if not text.strip():
            raise BlockPilotError("the prompt is empty; give some text")
        return text


def generate(config: GenerateConfig) -> None:
    """Decode the prompt, stream its text, save the record and print a summary.

    Raises:
        BlockPilotError: If the prompt, the pair or the policy cannot be used.
    """
    text = config.read_prompt()
    check_output(config.json)
    policy = None if config.policy is None else BlockSizePolicy.from_pretrained(config.policy)
    # Plain decoding needs no drafter, and another target than the default may have none.
    alone = config.plain and config.drafter is None and config.target is not None
    pair = load_pair(
        config.target,
        config.drafter,
        config.dtype,
        config.device,
        with_drafter=not alone,
        template=config.template,
        completion=config.completion,
    )
    if policy is not None:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("blockpilot_rl.policies").setLevel(logging.INFO)
        chosen = None if config.calibration == "none" else config.calibration
        policy = price_policy(policy, pair, chosen)
    # Standard output holds either the text or the record, so that each can be piped.
    echo = Echo(pair, sys.stderr if config.json == "-" else sys.stdout)
    result = Decoder(pair).generate(
        text,
        policy or (1 if config.plain else config.block_size),
        config.max_new_tokens,
        config.sampling(),
        warm_up=True,
        on_pass=echo.show,
    )
    if config.json is not None:
        write_json(config.json, record(pair, result, config))
    echo.finish()
    print(f"\n{summary(result)}", file=sys.stderr)
    for warning in generation_warnings(result, pair.trained_length):
        print("warning:", warning, file=sys.stderr)


main = command(generate, GenerateConfig)


class Echo:
    """Prints a text as its tokens arrive.

    A character that spans several tokens is printed with its last token. If the stream fails, the
    text is still decoded, and `finish` raises the error.
    """

    def __init__(self, pair: Pair, stream: TextIO) -> None:
        """Start without text."""
        self._pair, self._stream = pair, stream
        self._tokens: list[int] = []
        self._shown = 0
        self._error: OSError | None = None

    def show(self, item: Pass) -> None:
        """Print the text of one pass."""
        self._tokens += item.tokens
        self._print(whole=False)

    def finish(self) -> None:
        """Print the rest of the text.

        Raises:
            OSError: If the stream has failed.
        """
        self._print(whole=True)
        if self._error is not None:
            raise self._error

    def _print(self, *, whole: bool) -> None:
        text = str(self._pair.tokenizer.decode(self._tokens, skip_special_tokens=True))
        if self._error is not None or (text.endswith("\N{REPLACEMENT CHARACTER}") and not whole):
            return
        try:
            print(text[self._shown :], end="", flush=True, file=self._stream)
        except OSError as error:
            self._error = error
        self._shown = len(text)


def summary(result: Generation) -> str:
    """Describe the speed of a text in one line."""
    chosen = f"block size {result.block_size}"
    if result.block_size is None:
        chosen = f"draft lengths from {min(result.drafted)} to {max(result.drafted)}"
    if result.policy_seconds:
        sure = "" if result.confidence is None else f", confidence {result.confidence:.2f}"
        chosen += f" (chosen in {result.policy_seconds * 1e6:.0f} µs{sure})"
    return (
        f"[{len(result.tokens)} tokens, {result.tokens_per_second:.1f} tokens/s, "
        f"τ {result.acceptance_length:.2f}, {chosen}, {result.finish_reason}]"
    )


def record(pair: Pair, result: Generation, config: GenerateConfig) -> dict[str, Any]:
    """Make the record of `--json`.

    `block_sizes` (tokens verified), `drafted` and `accepted` have an entry per target pass.
    """
    return {
        "tokens": result.tokens,
        "text": result.text,
        "block_size": result.block_size,
        "block_sizes": result.block_sizes,
        "drafted": result.drafted,
        "accepted": result.accepted,
        "pass_seconds": [item.seconds for item in result.passes],
        "seconds": result.decode_seconds,
        "prefill_seconds": result.prefill_seconds,
        "tokens_per_second": result.tokens_per_second,
        "acceptance_length": result.acceptance_length,
        "policy_microseconds": result.policy_seconds * 1e6,
        "confidence": result.confidence,
        "finish_reason": result.finish_reason,
        "prompt_tokens": result.prompt_tokens,
        "sampling": config.sampling(),
        "dtype": config.dtype,
        "target": pair.target_name,
        "drafter": pair.drafter_name,
        "fingerprint": pair.fingerprint,
        "template": result.template,
    }
