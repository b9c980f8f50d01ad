"""The model card of a drafter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.training.acceptance import acceptance_markdown


def drafter_card(pair: Pair, report: dict[str, Any], legs: Sequence[dict[str, Any]] = ()) -> str:
    """Write the model card of a drafter.

    Args:
        pair: The pair.
        report: The result of `acceptance_report`.
        legs: Options and results of the legs of its training, as in `training.json`.

    Returns:
        The card in Markdown, with the metadata of the hub.
    """
    assert pair.drafter is not None
    config = pair.drafter.config
    kind = "DFlash2" if config.is_dflash2 else "DFlash"
    temperature = report["sampling"].temperature
    unseen = ", ".join(report["unseen_families"])
    card = f"""---
library_name: blockpilot-rl
tags: [speculative-decoding, dflash]
---
# {kind} drafter for {pair.target_name}

- {config.num_hidden_layers} layers, block size {config.block_size}, a draft vocabulary of
  {config.draft_vocab_size or config.vocab_size} tokens.
- It reads the target layers {config.target_layer_ids}.
- Trained length: {config.trained_length} tokens. Longer prompts are decoded correctly, but fewer
  drafts are accepted.

## Acceptance

Tokens per target pass on held-out prompts in real decoding, with block size {report["block_size"]},
{report["dtype"]}, temperature {temperature:g} where the table states no other, and up to
{report["max_new_tokens"]} new tokens. `acceptance.json` has all values.

{acceptance_markdown(report)}
"""
    if unseen:
        card += f"\nNothing of these families was trained on: {unseen}.\n"
    return card + _training(legs)


def _training(legs: Sequence[dict[str, Any]]) -> str:
    if not legs:
        return ""
    lines = [
        "",
        "## Training",
        "",
        "`training.json` has the recipe.",
        "",
        "| leg | sequences | temperature | steps | learning rate | hours | seen | unseen |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for index, leg in enumerate(legs):
        recipe, acceptance = leg["recipe"], leg["acceptance"] or {}
        measured = (f"{acceptance[x]:.2f}" if x in acceptance else "" for x in ("seen", "unseen"))
        lines.append(
            f"| {index + 1} | {leg['sequences_in_corpus']} | {leg['temperature']:g} | "
            f"{recipe.steps} | {recipe.learning_rate:g} | {leg['seconds'] / 3600:.2f} | "
            f"{' | '.join(measured)} |"
        )
    return "\n".join(lines) + "\n"
