"""`generate`: decode one prompt plain, with a fixed block size, or with a policy."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blockpilot_rl.cli.lists import assignments
from blockpilot_rl.cli.pair_flags import device_arg, drafter_arg, dtype_arg, target_arg
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.decoding.acceptance import acceptance_warnings, is_repetitive
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Generation, Pass, Prefill
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.models.pairs import Pair, load_pair
from blockpilot_rl.policies.policy import BlockSizePolicy


@dataclass(frozen=True)
class GenerateConfig:
    """Decode one prompt and say how it went.

    Without --plain, --block-size or --policy, the drafter's own block size is used.
    """

    prompt: str | None = arg(None, help="the prompt; `-` reads standard input")
    prompt_file: str | None = arg(None, metavar="FILE", help="read the prompt from a UTF-8 file")
    plain: bool = arg(False, help="decode without a drafter's help (block size 1)")
    block_size: int | None = arg(None, help="decode with this block size")
    policy: str | None = arg(
        None,
        metavar="DIR",
        help="let this policy choose the block size; `bundled` is one for the default pair",
    )
    target: str | None = target_arg()
    drafter: str | None = drafter_arg()
    dtype: str = dtype_arg("float32")
    device: str = device_arg()
    template: list[str] = arg(
        default_factory=list,
        nargs="+",
        metavar="KEY:VALUE",
        help="options of the chat template, such as enable_thinking:false",
    )
    max_new_tokens: int = arg(128, help="budget, the first token included")
    temperature: float = arg(0.0, help="0 is greedy")
    top_k: int = arg(0, help="sample among this many most probable tokens; 0 is all")
    top_p: float = arg(1.0, help="sample among the tokens that hold this much probability")
    seed: int = arg(0, help="decides the sampled text, whatever the block size")
    json: str | None = arg(
        None, nargs="?", const="-", metavar="FILE", help="write a record; alone, to standard output"
    )

    def __post_init__(self) -> None:
        """Check that one prompt and at most one way of decoding are given.

        Raises:
            BlockPilotError: If not.
        """
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
        self.sampling()
        self.template_options()
        if self.block_size is not None and self.block_size < 1:
            raise BlockPilotError(f"--block-size must be at least 1, got {self.block_size}")
        if self.max_new_tokens < 1:
            raise BlockPilotError(f"--max-new-tokens must be at least 1, got {self.max_new_tokens}")
        if self.json not in (None, "-") and Path(self.json).is_dir():
            raise BlockPilotError(f"--json {self.json} is a folder; name a file")

    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)

    def template_options(self) -> dict[str, Any]:
        """Options of the chat template."""
        return assignments(self.template, "--template")

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


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(generate, GenerateConfig, argv, prog=prog)


def generate(config: GenerateConfig) -> None:
    """Load, decode with streaming output, and report.

    Raises:
        BlockPilotError: If the prompt, the pair or the policy is not as needed.
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
        template=config.template_options(),
    )
    if policy is not None:
        policy.check_pair(pair.fingerprint, pair.template)
    decoder = Decoder(pair)
    fixed = 1 if config.plain else config.block_size or pair.block_size
    sizes = (fixed,) if policy is None else policy.arms
    input_ids = pair.encode([{"role": "user", "content": text}])
    decoder.check_length(input_ids.shape[1], config.max_new_tokens, max(sizes))
    sampling = config.sampling()
    decoder.warm_up(sizes, sampling=sampling)
    prefill = decoder.prefill(input_ids, config.max_new_tokens, max(sizes), sampling)
    block_size, policy_seconds = decoder.choose(prefill, fixed if policy is None else policy)
    # Standard output holds either the text or the record, so that each can be piped.
    stream = sys.stderr if config.json == "-" else sys.stdout
    passes = _echo(pair, decoder.stream(prefill, block_size), stream)
    result = decoder.collect(passes, policy_seconds)
    print(f"\n{_summary(result, block_size, policy is not None)}", file=sys.stderr)
    lengths = (prefill.prompt_tokens, pair.trained_length)
    for warning in _warnings(result, block_size, *lengths):
        print("warning:", warning, file=sys.stderr)
    if config.json is not None:
        write_json(config.json, _record(pair, prefill, result, block_size, config))


def _echo(pair: Pair, passes: Iterator[Pass], stream: Any) -> Iterator[Pass]:
    """Print text as its tokens arrive; characters that span tokens wait for their last one."""
    tokens: list[int] = []
    shown = 0
    for item in passes:
        yield item
        tokens += item.tokens
        text = str(pair.tokenizer.decode(tokens, skip_special_tokens=True))
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):
            print(text[shown:], end="", flush=True, file=stream)
            shown = len(text)
    print(pair.tokenizer.decode(tokens, skip_special_tokens=True)[shown:], end="", file=stream)


def _summary(result: Generation, block_size: int, by_policy: bool) -> str:
    chosen = f"block size {block_size}"
    if by_policy:
        chosen += f" (chosen in {result.policy_seconds * 1e6:.0f} µs)"
    return (
        f"[{len(result.tokens)} tokens, {result.tokens_per_second:.1f} tokens/s, "
        f"τ {result.acceptance_length:.2f}, {chosen}, {result.finish_reason}]"
    )


def _warnings(
    result: Generation, block_size: int, prompt_tokens: int = 0, trained_length: int | None = None
) -> list[str]:
    """What looks wrong in this text."""
    emitted, passes = np.array([len(result.tokens) - 1]), np.array([len(result.passes) - 1])
    looping = np.array([is_repetitive(result.tokens)])
    prompts = np.array([prompt_tokens])
    return acceptance_warnings(emitted, passes, looping, block_size, prompts, trained_length)


def _record(
    pair: Pair, prefill: Prefill, result: Generation, block_size: int, config: GenerateConfig
) -> dict[str, Any]:
    """What `--json` writes; `block_sizes` and `accepted` have an entry per target pass."""
    return {
        "tokens": result.tokens,
        "text": pair.tokenizer.decode(result.tokens, skip_special_tokens=True),
        "block_size": block_size,
        "block_sizes": result.block_sizes,
        "accepted": result.accepted,
        "pass_seconds": [item.seconds for item in result.passes],
        "seconds": result.decode_seconds,
        "prefill_seconds": result.prefill_seconds,
        "tokens_per_second": result.tokens_per_second,
        "acceptance_length": result.acceptance_length,
        "policy_microseconds": result.policy_seconds * 1e6,
        "finish_reason": result.finish_reason,
        "prompt_tokens": prefill.prompt_tokens,
        "sampling": config.sampling(),
        "dtype": config.dtype,
        "target": pair.target_name,
        "drafter": pair.drafter_name,
        "fingerprint": pair.fingerprint,
        "template": result.template,
    }
