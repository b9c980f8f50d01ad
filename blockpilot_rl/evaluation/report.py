"""A Markdown report of a comparison, with its plots beside it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from blockpilot_rl.evaluation.plots import ARMS, GAINS, SPEEDUPS, save_plots
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.evaluation.tables import (
    TextTable,
    arms_table,
    decoding_table,
    family_table,
    speedup_table,
    summary_table,
    verdict_line,
)
from blockpilot_rl.files import atomic_write

_READING = """\
- **Speedup**: decode time with plain decoding (block size 1) over decode time with the choice, for
  the same request behind the same prefill. *Mean* averages the speedups of the requests; *total*
  divides the summed times, so that long answers weigh more. The two can favour different sizes.
- **Best fixed**: the one size that did best on the training prompts. What counts is the gain over
  it, not over plain decoding and not over the size that the drafter was trained for.
- **Gain**: relative difference in mean speedup to the best fixed size. An agent's own decision,
  one per request and timed where the comparison ran, is part of its time; a fixed size decides
  nothing. The interval is a paired bootstrap over prompts; the seeds of an agent are averaged
  within a prompt first.
- **Oracle**: the fastest size of each request, known only afterwards. **Gap closed** is the share
  of the way from best fixed to oracle, **regret** the oracle's mean speedup less the choice's.
- **τ**, the acceptance length, counts tokens per decode pass, the target's own token included:
  *pooled* over all requests, and averaged *per request*. It is no measure of time: a larger block
  raises τ and may still be slower.
- **Verdict**: an agent is shipped if its gain is above 0 with an interval whose level is adjusted
  for the number of agents compared, so that trying many does not make one look good by chance."""


def write_report(comparison: Comparison, folder: str | Path) -> Path:
    """Write `report.md` and its plots into a folder; other files in it stay.

    Args:
        comparison: What to report.
        folder: Where to write; it is created if missing.

    Returns:
        The path of `report.md`.

    Raises:
        BlockPilotError: If the folder cannot be written.
    """
    save_plots(comparison, Path(folder))
    path = Path(folder) / "report.md"
    with atomic_write(path) as partial:
        partial.write_text(_render(comparison), encoding="utf-8")
    return path


def _render(comparison: Comparison) -> str:
    pair, split = comparison.pair, comparison.split
    sections = [
        "# Which block size to ship",
        f"**{verdict_line(comparison)}**",
        f"Target {pair['target']}, drafter {pair['drafter']} (pair `{pair['fingerprint']}`). "
        f"Decode times of {pair['device']} in {pair['dtype']}. "
        f"{split['train_prompts']} training, {split['validation_prompts']} validation and "
        f"{split['test_prompts']} test prompts.",
        _section(summary_table(comparison), GAINS),
        _section(decoding_table(comparison)),
        _section(arms_table(comparison), ARMS),
        _section(family_table(comparison)),
        _section(speedup_table(comparison), SPEEDUPS),
        f"## How to read it\n\n{_READING}",
        _origin(comparison),
    ]
    return "\n\n".join(sections) + "\n"


def _section(table: TextTable, plot: str | None = None) -> str:
    rule = ["---", *["---:"] * (len(table.columns) - 1)]
    heads = [column.replace("\n", " ") for column in table.columns]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (heads, rule, *table.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    parts = [f"## {table.title}", "\n".join(lines)]
    return "\n\n".join([*parts, f"![{table.title}]({plot})"] if plot else parts)


def _origin(comparison: Comparison) -> str:
    provenance = dict(comparison.provenance)
    command = shlex.join(provenance.pop("command", []))
    facts = json.dumps({**comparison.settings, **provenance}, indent=2, ensure_ascii=False)
    return f"## Where it comes from\n\n```bash\n{command}\n```\n\n```json\n{facts}\n```"
