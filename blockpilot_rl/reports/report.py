"""The report of a comparison: one self-contained HTML page, and Markdown with plots beside it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from matplotlib.figure import Figure

from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.files import atomic_write
from blockpilot_rl.reports.plots import as_svg, draw_plots
from blockpilot_rl.reports.tables import (
    TextTable,
    ablation_table,
    arms_table,
    budget_table,
    crossfit_line,
    decoding_table,
    family_table,
    halves_line,
    language_table,
    learning_table,
    left_out_table,
    off_policy_table,
    paper_tables,
    speedup_table,
    split_text,
    summary_table,
    temperature_table,
    verdict_line,
)

_READING = {
    "Speedup": "decode time with plain decoding (block size 1) over decode time with the choice, "
    "for the same request behind the same prefill. Mean averages the speedups of the requests; "
    "total divides the summed times, so that long answers weigh more. The two can favour different "
    "sizes.",
    "Best fixed": "the one size that did best on the training prompts. What counts is the gain "
    "over it, not over plain decoding and not over the size that the drafter was trained for.",
    "Gain": "relative difference in mean speedup to the best fixed size. An agent's own decision, "
    "one per request and timed where the comparison ran, is part of its time; a fixed size decides "
    "nothing. The interval is a paired bootstrap over prompts: all rows of a prompt are drawn "
    "together, and the seeds of an agent are averaged within a row first. So it holds for these "
    "trained policies; the marks in the plot of gains tell how the seeds differ.",
    "Oracle": "the fastest size of each request, known only afterwards. Gap closed is the share of "
    "the way from best fixed to oracle, regret the oracle's mean speedup less the choice's.",
    "τ": "the acceptance length counts tokens per decode pass, the target's own token included: "
    "pooled over all requests, and averaged per request. It is no measure of time: a larger block "
    "raises τ and may still be slower.",
    "Other oracles": "the fastest of many sizes owes part of its lead to luck. Chosen on other "
    "samples of a prompt, or on one half of an answer, and judged on what was left out, an oracle "
    "has no use for luck; “naive there” is the gain of one that has, on the same rows. They are no "
    "strict bounds: what they choose by is noisy too.",
    "Verdict": "an agent is shipped if its gain is above 0 with an interval whose level is "
    "adjusted for the number of agents compared, so that trying many does not make one look good "
    "by chance, if it surely gains over each of the sizes that it takes itself, too, and if it "
    "loses no more than the margin in any family.",
    "Guards": "the comparison fails if a test prompt, or its hidden state, is among those that "
    "were learned from or selected on, or if an agent's choices agree with the test labels more "
    "than an honest policy's can.",
}
_CURVES = (
    "Agents were trained on growing numbers of prompts, the best fixed size was chosen on them "
    "too. The gain is over the size that is best on all training prompts. Beside them, agents get "
    "the same share of the validation prompts, which the numbers leave out: most are selected by "
    "them, the ridge regression learns from them too."
)
_BUDGETS = (
    "Where every label is decoded for, an answer costs a full-information learner one decode per "
    "arm, and a decision costs a bandit learner one, or two where its reward is the difference to "
    "the best fixed size, and then the labels by which that size was chosen, too. With replay, the "
    "labels of all arms of an answer cost about one decode, and a bandit learner may decide on it "
    "as often as it likes. A prompt with several answers costs as many. Validation prompts are "
    "counted where an agent learns from them, as the ridge regression does, and not where they "
    "only select."
)
_ABLATION = (
    "The same algorithm was trained on each group of the state alone, on all but each, and on all "
    "that were recorded. The change is the paired difference in mean speedup to the agents that "
    "saw all of them."
)
_OFF_POLICY = (
    "One block size per test row was drawn by chance and only its reward kept, as a service that "
    "explores would log it; several times, since a single log can mislead. The estimates know the "
    "decisions of a log and their propensities; the truth needs every reward of the sweep. RMSE is "
    "how far a single log's estimate is off, root mean square. The time of a decision is left out."
)
_PAPER = (
    "The window holds the recorded sizes near the drafter's own, and plain decoding. The best "
    "policy is the verdict's agent, trained on the rows of each temperature; it was chosen by test "
    "prompts, for which the intervals here, unlike the verdict's, are not adjusted."
)
_LEFT_OUT = (
    "Each family is judged by agents, and by a best fixed size, that were trained on the other "
    "families alone, among which there may be relatives of it, such as story and chat-story."
)


@dataclass(frozen=True)
class Section:
    """One section of the report.

    Attributes:
        title: Its heading.
        text: A paragraph before the table; may be empty.
        tables: What it tells, in cells.
        plot: Name of its plot; None if it has none.
    """

    title: str
    text: str
    tables: list[TextTable]
    plot: str | None = None

    @property
    def anchor(self) -> str:
        """The title as it stands in links."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def write_report(comparison: Comparison, folder: str | Path) -> Path:
    """Write `report.html`, `report.md` and its plots into a folder; other files in it stay.

    The HTML page holds its style and plots itself, so that it can be sent on its own.

    Args:
        comparison: What to report.
        folder: Where to write; it is created if missing.

    Returns:
        The path of `report.html`.

    Raises:
        BlockPilotError: If the folder cannot be written.
    """
    plots = draw_plots(comparison)
    for name, figure in plots.items():
        with atomic_write(Path(folder) / f"{name}.png") as partial:
            figure.savefig(partial, dpi=150)
    for name in ("report.md", "report.html"):
        with atomic_write(Path(folder) / name) as partial:
            partial.write_text(_render(name, comparison, plots), encoding="utf-8")
    return Path(folder) / "report.html"


def _render(name: str, comparison: Comparison, plots: Mapping[str, Figure]) -> str:
    environment = Environment(
        loader=PackageLoader("blockpilot_rl.reports"),
        autoescape=select_autoescape(["html.jinja"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    provenance = dict(comparison.provenance)
    command = shlex.join(provenance.pop("command", []))
    return environment.get_template(f"{name}.jinja").render(
        comparison=comparison,
        verdict=verdict_line(comparison),
        figures=_figures(comparison),
        sections=_sections(comparison, plots),
        splits=[split_text(comparison, name) for name in ("train", "validation", "test")],
        reading=_READING,
        command=command,
        facts=json.dumps({**comparison.settings, **provenance}, indent=2, ensure_ascii=False),
        svg=lambda plot: as_svg(plots[plot]),
    )


def _sections(comparison: Comparison, plots: Mapping[str, Figure]) -> list[Section]:
    """Everything that the comparison has numbers for, in order."""
    rows = comparison.split["test_rows"]
    sections = [
        Section(
            "Speedup over plain decoding",
            f"{crossfit_line(comparison)} {halves_line(comparison)}",
            [summary_table(comparison)],
            "gains",
        ),
        Section("What lies behind the speedups", "", [decoding_table(comparison)]),
        Section("Block sizes chosen", "", [arms_table(comparison)], "block_sizes"),
        Section(
            "By family",
            f"{rows} test rows in {len(comparison.split['families'])} families.",
            [family_table(comparison)],
            "families",
        ),
    ]
    if (by_language := language_table(comparison)) is not None:
        sections.append(Section("By language", "", [by_language]))
    if (by_temperature := temperature_table(comparison)) is not None:
        sections.append(Section("By temperature", "", [by_temperature]))
    if (left_out := left_out_table(comparison)) is not None:
        sections.append(Section("Families left out", _LEFT_OUT, [left_out]))
    if (learning := learning_table(comparison)) is not None:
        sections.append(Section("Learning curve", _CURVES, [learning], "learning_curve"))
    if (budget := budget_table(comparison)) is not None:
        sections.append(Section("At equal decode budget", _BUDGETS, [budget], "budget_curves"))
    if (ablation := ablation_table(comparison)) is not None:
        sections.append(Section("State groups", _ABLATION, [ablation]))
    if tables := paper_tables(comparison):
        sections.append(Section("The paper's table", _PAPER, tables))
    sections.append(Section("Fixed sizes", "", [speedup_table(comparison)], "speedups"))
    if (off_policy := off_policy_table(comparison)) is not None:
        sections.append(Section("Judged from logs", _OFF_POLICY, [off_policy]))
    # A comparison without agents has no plot by family.
    return [
        section if section.plot in plots else Section(section.title, section.text, section.tables)
        for section in sections
    ]


def _figures(comparison: Comparison) -> dict[str, str]:
    """The numbers to see first, by what they are."""
    fixed, verdict = comparison.best_fixed, comparison.verdict
    figures = {f"best fixed size, {fixed.block_size}": f"{fixed.mean_speedup:.2f} ×"}
    if verdict.best_agent is not None:
        best = comparison.agents[verdict.best_agent]
        value, low, high = best.gain
        over = f"{verdict.best_agent} over best fixed ({100 * low:+z.1f} to {100 * high:+z.1f})"
        figures[over] = f"{value:+z.1%}"
        figures["of the gap to the oracle closed"] = f"{best.gap_closed:z.0%}"
        figures["a decision takes"] = f"{best.policy_microseconds:.0f} µs"
    figures["oracle over best fixed"] = f"{comparison.oracle.gain.value:+z.1%}"
    figures["test prompts"] = f"{comparison.split['test_prompts']:,}"
    return figures
