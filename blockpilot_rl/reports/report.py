"""The report of a comparison: a self-contained HTML page, and Markdown with plots."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from matplotlib.figure import Figure

from blockpilot_rl.evaluation.measure import LOOPS
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.files import atomic_write
from blockpilot_rl.reports.plots import as_svg, draw_plots
from blockpilot_rl.reports.sentences import crossfit_line, halves_line, verdict_lines
from blockpilot_rl.reports.tables import (
    TextTable,
    ablation_table,
    arms_table,
    budget_table,
    decoding_table,
    group_tables,
    learning_table,
    left_out_table,
    off_policy_table,
    paper_tables,
    pooled_table,
    portability_table,
    slower_tables,
    source_table,
    sources_table,
    speedup_table,
    split_text,
    summary_table,
    temperature_table,
)

_READING = {
    "Speedup": "decode time of plain decoding (block size 1) divided by the decode time of the "
    "choice, for the same request after prefill. Mean averages the speedups of the requests. Total "
    "divides the summed times, so long answers weigh more. The two can favour different sizes.",
    "Best fixed": "the size with the largest mean speedup on the training prompts. The gain over "
    "it is what counts, not the gain over plain decoding or over the size that the drafter was "
    "trained for.",
    "Gain": "relative difference in mean speedup from the best fixed size. The time of an agent "
    "includes its decision, one per request, timed on the machine of the comparison; a fixed size "
    "takes no decision. The interval is a paired bootstrap over prompts: all rows of a prompt are "
    "resampled together, after averaging the seeds of an agent within each row. It applies to "
    "these trained policies; the ticks in the plot of gains show how the seeds differ.",
    "Oracle": "the fastest size of each request, which is known only after decoding. Gap closed is "
    "the share of the way from best fixed to oracle. Regret is the oracle's mean speedup minus "
    "that of the choice.",
    "τ": "acceptance length: tokens per decode pass, the target's own token included, pooled over "
    "all requests or averaged per request. It does not measure time: a larger block raises τ and "
    "can still be slower.",
    "Slower than plain": "share of the requests that take longer than plain decoding, decision "
    "time included, and the mean of speedup minus 1 over these requests.",
    "Loops": "answers that end in a repeated phrase. Drafts of a repetition are easily accepted, "
    "so these answers show a higher speedup than others.",
    "Other oracles": "the oracle partly profits from noise within an answer. The other oracles do "
    "not: they choose on other samples of a prompt, or on one half of an answer, and are judged on "
    "the rest. “In-sample” is the gain of an oracle that is chosen and judged on the same rows. "
    "The other oracles are not strict bounds, because they choose by noisy data too.",
    "Verdict": "an agent is shipped if it is significantly faster than the best fixed size and "
    "than each size that it takes itself, if it is not significantly slower on unseen sources, and "
    "if no family, all estimated together, is likely to lose more than the margin. The level of "
    "the intervals is adjusted for the number of agents compared.",
    "Guards": "the comparison fails if a test prompt, or its hidden state, is also in the training "
    "or validation split, or if an agent's choices agree with the test labels more than an honest "
    "policy can.",
}
_CURVES = (
    "Agents are trained on growing numbers of prompts, and the best fixed size is chosen on the "
    "same prompts. Gains are over the best fixed size of all training prompts. Agents also get the "
    "same share of the validation prompts, which the counts leave out: most agents are selected on "
    "them, and ridge regression also learns from them."
)
_SOURCE_CURVE = (
    "Agents are trained on all training prompts of some families, drawn for each seed, and "
    "judged on unseen sources. Gains are over the best fixed size of all "
    "training prompts; the numbers of prompts are means over the seeds."
)
_BUDGETS = (
    "If every label needs a decode, a full-information learner pays one decode per arm for each "
    "answer. A bandit learner pays one decode per decision, or two if its reward is the difference "
    "from the best fixed size, plus the labels by which that size is chosen. With replay, the "
    "labels of all arms of an answer cost about one decode, and a bandit learner can decide on it "
    "any number of times. Every answer of a prompt is paid for. Validation prompts count if an "
    "agent learns from them, as ridge regression does, and not if they only select."
)
_ABLATION = (
    "The same algorithm is trained on each state group alone, on all but each, and on all recorded "
    "groups. The change is the paired difference in mean speedup from agents that see all groups."
)
_TEMPERATURES = (
    "Agents that see the sampling options choose for all temperatures. They are compared with one "
    "fixed size for all requests, and with the best fixed size of each temperature."
)
_PORTABILITY = (
    "The acceptance policy was trained once and priced for devices where a further token of a "
    "block costs this share of a plain pass. The reward policy was trained for each device, and "
    "once for the sweep's own. The share kept is the gain of the acceptance policy over that of "
    "the reward policy that was trained there."
)
_OFF_POLICY = (
    "A log is simulated by drawing a random block size for each test row and keeping only its "
    "reward, as a service that explores would. Several logs are drawn, because a single one is "
    "noisy. The estimators see the decisions of a log and their propensities; the truth uses every "
    "reward of the sweep. RMSE is the root mean square error of one log's estimate. Decision time "
    "is left out."
)
_PAPER = (
    "The window contains the recorded sizes near the drafter's own size, and plain decoding. The "
    "best policy is the verdict's agent, trained on the rows of each temperature. It was chosen on "
    "test prompts, and the intervals here, unlike the verdict's, are not adjusted for that."
)
_SOURCES = (
    "Nothing is trained on unseen sources: neither the agents nor the choice of the best fixed "
    "size reads their prompts. A sweep names them when it is recorded (`collect-sweep --unseen`)."
)
_POOLED = (
    "A hierarchical normal model estimates the gains of all families together, so that a family of "
    "few prompts does not look bad by noise alone. An agent is not shipped if a family loses more "
    "than the margin with a probability above `--family-risk`."
)
_LEFT_OUT = (
    "Each family is judged with agents, and with a best fixed size, that were trained on the other "
    "families only. These can include related families, such as story and chat-story."
)


@dataclass(frozen=True)
class Section:
    """One section of the report.

    Attributes:
        title: Its heading.
        text: A paragraph before the tables; may be empty.
        tables: Its tables.
        plot: Name of its plot; None if it has none.
    """

    title: str
    text: str
    tables: list[TextTable]
    plot: str | None = None

    @property
    def anchor(self) -> str:
        """The title in the form that links use."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def write_report(comparison: Comparison, folder: str | Path) -> Path:
    """Write `report.html`, and `report.md` with its plots, into a folder.

    The HTML page contains its style and plots, so it can be sent on its own. Other files in the
    folder stay.

    Args:
        comparison: The comparison.
        folder: The folder, which is created if it is missing.

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
        verdicts=verdict_lines(comparison),
        figures=_figures(comparison),
        sections=_sections(comparison, plots),
        splits=[split_text(comparison, name) for name in ("train", "validation", "test")],
        reading=_READING,
        command=command,
        facts=json.dumps({**comparison.settings, **provenance}, indent=2, ensure_ascii=False),
        svg=lambda plot: as_svg(plots[plot]),
    )


def _sections(comparison: Comparison, plots: Mapping[str, Figure]) -> list[Section]:
    """Sections of everything that the comparison has numbers for, in order."""
    rows, groups = comparison.split["test_rows"], group_tables(comparison)
    sections = [
        Section(
            "Speedup over plain decoding",
            f"{crossfit_line(comparison)} {halves_line(comparison)}",
            [summary_table(comparison)],
            "gains",
        ),
        Section("Seen and unseen sources", _SOURCES, [sources_table(comparison)]),
        Section("Acceptance and decision time", "", [decoding_table(comparison)]),
        Section("Block sizes chosen", "", [arms_table(comparison)], "block_sizes"),
        Section(
            "By family",
            f"{rows} test rows in {len(comparison.split['families'])} families.",
            [groups.pop("family")],
            "families",
        ),
    ]
    if (temperatures := temperature_table(comparison)) is not None:
        sections.insert(1, Section("All temperatures", _TEMPERATURES, [temperatures]))
    if (pooled := pooled_table(comparison)) is not None:
        sections.append(Section("Families estimated together", _POOLED, [pooled]))
    for grouping, table in groups.items():
        title = "With and without loops" if grouping == LOOPS else f"By {grouping}"
        sections.append(Section(title, "", [table]))
    if slower := slower_tables(comparison):
        sections.append(Section("Slower than plain decoding", "", slower))
    if (left_out := left_out_table(comparison)) is not None:
        sections.append(Section("Families left out", _LEFT_OUT, [left_out]))
    if (learning := learning_table(comparison)) is not None:
        sections.append(Section("Learning curve", _CURVES, [learning], "learning_curve"))
    if (source := source_table(comparison)) is not None:
        sections.append(Section("Learning curve over sources", _SOURCE_CURVE, [source]))
    if (budget := budget_table(comparison)) is not None:
        sections.append(Section("At equal decode budget", _BUDGETS, [budget], "budget_curves"))
    if (ablation := ablation_table(comparison)) is not None:
        sections.append(Section("State groups", _ABLATION, [ablation]))
    if (portability := portability_table(comparison)) is not None:
        sections.append(Section("Other devices", _PORTABILITY, [portability]))
    if tables := paper_tables(comparison):
        sections.append(Section("The paper's table", _PAPER, tables))
    sections.append(Section("Fixed sizes", "", [speedup_table(comparison)], "speedups"))
    if (off_policy := off_policy_table(comparison)) is not None:
        sections.append(Section("Off-policy evaluation", _OFF_POLICY, [off_policy]))
    # A comparison without agents has no plot by family.
    return [
        section if section.plot in plots else Section(section.title, section.text, section.tables)
        for section in sections
    ]


def _figures(comparison: Comparison) -> dict[str, str]:
    """The most important numbers, by their names."""
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
