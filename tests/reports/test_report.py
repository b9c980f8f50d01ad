from __future__ import annotations

import dataclasses
import html
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.image import imread

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.evaluation.results import (
    Ablation,
    AblationRow,
    Comparison,
    CurvePoint,
    LeftOut,
    PaperRow,
)
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.reports.plots import (
    as_svg,
    draw_plots,
    plot_arms,
    plot_budget_curves,
    plot_families,
    plot_gains,
    plot_learning_curve,
    plot_speedups,
)
from blockpilot_rl.reports.report import _sections, write_report
from blockpilot_rl.reports.sentences import verdict_line
from blockpilot_rl.reports.tables import (
    ablation_table,
    arms_table,
    budget_table,
    comparison_tables,
    decoding_table,
    gain_text,
    group_tables,
    learning_table,
    left_out_table,
    off_policy_table,
    slower_tables,
    speedup_table,
    summary_table,
)
from tests.experiments.judged import judged
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    table = synthetic_table(n=400)
    train, validation, test = (table.split(name) for name in ("train", "validation", "test"))
    rng = np.random.default_rng(0)
    arms = rng.integers(5, size=(3, len(test)))
    constant = np.full((3, len(test)), 2)
    found = judged(
        train,
        validation,
        test,
        {"guesser": Choices(arms, np.full(3, 1e-4)), "steady": Choices(constant, np.full(3, 2e-4))},
    )
    return dataclasses.replace(
        found,
        settings={"seeds": 3},
        provenance={"command": ["compare.py", "--sweep", "my sweep"], "git_sha": "abc"},
    )


@pytest.fixture
def without_agents(comparison) -> Comparison:
    verdict = dataclasses.replace(comparison.verdict, best_agent=None)
    return dataclasses.replace(comparison, agents={}, verdict=verdict, off_policy=None)


def test_the_markdown_holds_verdict_tables_plots_and_origin(comparison, tmp_path):
    folder = write_report(comparison, tmp_path / "new" / "folder").parent
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert verdict_line(comparison) in text
    assert f"| steady | {comparison.agents['steady'].mean_speedup:.3f} |" in text
    assert "compare.py --sweep 'my sweep'" in text
    assert '"git_sha": "abc"' in text
    assert text.endswith("```\n")
    plots = sorted(folder.glob("*.png"))
    assert len(plots) == 4
    for plot in plots:
        assert f"({plot.name})" in text
        assert imread(plot).std() > 0.01


class Page(HTMLParser):
    """Checks that every element ends, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.counts[tag] += 1
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.counts[tag] += 1
        self.attributes += attrs

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag


def page(comparison, folder) -> tuple[str, Page]:
    path = write_report(comparison, folder)
    assert path.name == "report.html"
    text, found = path.read_text(encoding="utf-8"), Page()
    found.feed(text)
    assert found.open == []
    return text, found


def test_the_page_is_whole_and_holds_everything_itself(comparison, tmp_path):
    text, found = page(comparison, tmp_path)
    assert text.startswith("<!doctype html>")
    assert html.escape(verdict_line(comparison), quote=False) in text
    assert f"<td>{comparison.agents['steady'].mean_speedup:.3f}</td>" in text
    assert found.counts["svg"] == len(draw_plots(comparison)) == 4
    assert found.counts["style"] >= 1
    assert not found.counts.keys() & {"script", "link", "img", "iframe"}
    for name, value in found.attributes:
        # Links lead within the page; anything else that names an address would be fetched.
        if name in ("src", "href", "xlink:href"):
            assert value.startswith("#")
    assert "url(http" not in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_plots_use_the_text_colour_of_the_page(comparison):
    svg = as_svg(draw_plots(comparison)["gains"])
    assert svg.startswith("<svg")
    assert "currentColor" in svg
    assert "#000000" not in svg
    assert ">steady</text>" in svg
    assert svg == as_svg(draw_plots(comparison)["gains"])


def test_names_from_outside_are_escaped(comparison, tmp_path):
    pair = {**comparison.pair, "target": "<b>bold</b> & more"}
    text, found = page(dataclasses.replace(comparison, pair=pair), tmp_path)
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; more" in text
    assert found.counts["b"] == 0


@pytest.fixture
def complete(comparison) -> Comparison:
    """With every view that can be asked for."""
    outcomes = comparison.agents

    def points(price: int | None, shift: float) -> list[CurvePoint]:
        gain = Interval(shift, shift - 0.01, shift + 0.01)
        counts = (40, 80, 160)
        return [
            CurvePoint(count, price and price * count, 1.5, gain, 0.2, 0.1 * shift)
            for count in counts
        ]

    learning = {"fixed": points(None, 0.0), "steady": points(None, 0.02)}
    budgets = {
        price: {"fixed": points(factor, 0.0), "steady": points(factor, 0.02)}
        for price, factor in (("decode", 5), ("replay", 1))
    }
    row = PaperRow("1, 16", 2.5, 2.75, 1.234, 1.345, Interval(0.012, -0.01, 0.03))
    change, none = Interval(-0.03, -0.04, -0.02), Interval(0.0, 0.0, 0.0)
    ablation = {
        "prompt alone": AblationRow(["prompt"], 1, 1.222, row.gain, float("nan"), change),
        "all groups": AblationRow(["prompt", "draft"], 16, 1.26, row.gain, 0.25, none),
    }
    return dataclasses.replace(
        comparison,
        ablation=Ablation("steady", ablation),
        left_out=LeftOut({"easy": 4, "hard": 8}, comparison.best_fixed, outcomes),
        learning_curve=learning,
        budget_curves=budgets,
        paper_table={"0": {"oracle": row}, "1": {"oracle": row, "plain decoding": row}},
        crossfit=CrossFit("replicates", 30, 90, 1.61, 1.72, 1.55, Interval(0.039, 0.01, 0.07)),
        halves=CrossFit("halves", 20, 25, 1.6, 1.7, 1.55, Interval(0.03, 0.02, 0.04)),
        notes=["too few prompts"],
    )


def test_every_view_has_its_section(complete, tmp_path):
    text, found = page(complete, tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    for written in (text, markdown):
        for title in (
            "Families left out",
            "Learning curve",
            "At equal decode budget",
            "State groups",
            "-3.0% (-4.0, -2.0)",
            "paper&#39;s table" if written is text else "paper's table",
            "Off-policy evaluation",
            "at temperature 0",
            "at temperature 1",
            "+1.2% (-1.0, +3.0)",
            "30 prompts): mean speedup 1.610, +3.9% (+1.0, +7.0) over best fixed",
            "oracle cross-fitted on other samples, 30 prompts (90 rows)",
            "+3.0% (+2.0, +4.0); in-sample +9.7%",
            "judged on the other, the oracle gains +3.0% (+2.0, +4.0) over best fixed",
            "Note: too few prompts.",
            "a decode per label",
        ):
            assert title in written
    assert found.counts["svg"] == 6
    assert len(list(tmp_path.glob("*.png"))) == 6
    anchors = {value for name, value in found.attributes if name == "id"}
    links = {value for name, value in found.attributes if name == "href" and value}
    assert {link.removeprefix("#") for link in links if not link.startswith("#m")} <= anchors


def test_the_curves_show_the_numbers(complete):
    lines = {line.get_label(): line for line in plot_learning_curve(complete).axes[0].get_lines()}
    assert list(lines["steady"].get_xdata()) == [40, 80, 160]
    assert list(lines["steady"].get_ydata()) == [0.02] * 3
    decode, replay = plot_budget_curves(complete).axes
    for axes, factor in ((decode, 5), (replay, 1)):
        (line,) = [line for line in axes.get_lines() if line.get_label() == "steady"]
        assert list(line.get_xdata()) == [factor * count for count in (40, 80, 160)]
        assert list(line.get_ydata()) == pytest.approx([0.002] * 3)
    rows = {row[0]: row[1:] for row in learning_table(complete).rows}
    assert rows["steady"] == ["+2.0% (+1.0, +3.0)"] * 3
    paid = ["200: +2.0%", "400: +2.0%", "800: +2.0%"]
    assert ["steady", "a decode per label", *paid] in budget_table(complete).rows


def test_each_group_is_shown_next_to_all_groups(complete):
    gain = "+1.2% (-1.0, +3.0)"
    assert ablation_table(complete).rows == [
        ["prompt alone", "1", "1.222", gain, "–", "-3.0% (-4.0, -2.0)"],
        ["all groups", "16", "1.260", gain, "25%", "–"],
    ]
    assert ablation_table(complete).columns[0] == "steady sees"


def test_a_family_left_out_is_shown_next_to_the_same_one_seen(complete):
    axes = plot_families(complete).axes[0]
    best = complete.verdict.best_agent
    markers = [line for line in axes.get_lines() if line.get_marker() in ("o", "s")]
    seen = [line.get_xdata()[0] for line in markers]
    gains = [family.gain.value for family in complete.agents[best].per_family.values()]
    assert seen == gains * 2
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["easy", "hard"]
    assert [row[0] for row in left_out_table(complete).rows] == ["easy", "hard", "all"]


def test_writing_again_keeps_other_files(comparison, tmp_path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    write_report(comparison, tmp_path)
    write_report(comparison, tmp_path)
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert len(list(tmp_path.iterdir())) == 7


def test_a_file_in_the_way_is_named(comparison, tmp_path):
    (tmp_path / "report").write_text("", encoding="utf-8")
    with pytest.raises(BlockPilotError, match="report"):
        write_report(comparison, tmp_path / "report")


def test_the_tables_are_rectangular_and_in_order(comparison):
    always = (summary_table, decoding_table, arms_table, speedup_table)
    built = [build(comparison) for build in (*always, off_policy_table)]
    for table in (*built, *group_tables(comparison).values()):
        assert {len(row) for row in table.rows} == {len(table.columns)}
    names = [row[0] for row in summary_table(comparison).rows]
    assert names[0] == "default size (16)"
    assert names[1].startswith("best fixed (")
    assert names[-5:-1] == ["random", "guesser", "steady", "oracle"]
    assert names[-1].startswith("oracle chosen on one half of the answer, ")
    shares = dict(zip(arms_table(comparison).columns, arms_table(comparison).rows[1], strict=True))
    assert shares["4"] == "100%"
    assert shares["8"] == "–"


@pytest.mark.parametrize(
    ("kind", "names"), [("temperature", ("0", "0.7")), ("language", ("de", "en"))]
)
def test_a_table_by_temperature_or_language_takes_several(comparison, kind, names):
    assert kind not in group_tables(comparison)
    assert f"By {kind}" not in [section.title for section in _sections(comparison, {})]
    group = dataclasses.replace(
        comparison.oracle.per_family["easy"],
        rows=7,
        mean_speedup=1.5,
        gain=Interval(0.02, 0.01, 0.03),
    )

    def both(outcome):
        return dataclasses.replace(outcome, **{f"per_{kind}": dict.fromkeys(names, group)})

    mixed = dataclasses.replace(
        comparison,
        best_fixed=both(comparison.best_fixed),
        oracle=both(comparison.oracle),
        agents={name: both(agent) for name, agent in comparison.agents.items()},
    )
    row = ["7", "1.500", "1.500", "+2.0% (+1.0, +3.0)", "1.500"]
    assert group_tables(mixed)[kind].rows == [[name, *row] for name in names]
    assert f"By {kind}" in [section.title for section in _sections(mixed, {})]


def test_requests_slower_than_plain_decoding_are_shown_for_every_choice(comparison):
    """Overall, per family and, if there are several, per language."""
    [by_family] = slower_tables(comparison)
    fixed = comparison.best_fixed
    assert by_family.columns == ["family", f"best fixed\n({fixed.block_size})", "guesser", "steady"]
    assert [row[0] for row in by_family.rows] == ["easy", "hard", "all"]
    outcomes = (fixed, *comparison.agents.values())
    for row in by_family.rows:
        for cell, outcome in zip(row[1:], outcomes, strict=True):
            found = outcome if row[0] == "all" else outcome.per_family[row[0]]
            share, loss = found.slower_share, found.slower_loss
            assert cell == (f"{share:.1%} ({-loss:+.1%})" if share else "–")
    guesser = comparison.agents["guesser"]
    assert 0 < guesser.slower_share < 1
    shares = {row[0]: row[-1] for row in decoding_table(comparison).rows}
    assert shares["guesser"].startswith(f"{guesser.slower_share:.1%} (-")
    assert shares["oracle"] == "–"
    both = dataclasses.replace(fixed, per_language={"de": fixed, "en": fixed})
    agents = {
        name: dataclasses.replace(agent, per_language={"de": agent, "en": agent})
        for name, agent in comparison.agents.items()
    }
    mixed = dataclasses.replace(comparison, best_fixed=both, agents=agents)
    assert [table.rows[0][0] for table in slower_tables(mixed)] == ["easy", "de"]


def test_looping_answers_have_a_table(comparison, tmp_path):
    assert "loops" not in group_tables(comparison)

    def split(outcome):
        groups = {"looping": outcome.per_family["easy"], "other": outcome.per_family["hard"]}
        return dataclasses.replace(outcome, per_loops=groups)

    looping = dataclasses.replace(
        comparison,
        best_fixed=split(comparison.best_fixed),
        oracle=split(comparison.oracle),
        agents={name: split(agent) for name, agent in comparison.agents.items()},
    )
    assert [row[0] for row in group_tables(looping)["loops"].rows] == ["looping", "other"]
    write_report(looping, tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## With and without loops" in text
    assert "## Slower than plain decoding" in text
    assert group_tables(looping)["loops"].title in [
        table.title for table in comparison_tables(looping)
    ]


def test_prompts_and_rows_are_not_confused(comparison, tmp_path):
    split = {**comparison.split, "test_prompts": 1000, "test_rows": 1700}
    found = dataclasses.replace(comparison, split=split)
    titles = [build(found).title for build in (summary_table, arms_table, speedup_table)]
    assert all(title.endswith(", 1,000 test prompts (1,700 rows)") for title in titles)
    write_report(found, tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    train, validation = (split[f"{name}_prompts"] for name in ("train", "validation"))
    assert f"{train} training prompts, {validation} validation prompts, 1,000 test prompts " in text


def test_the_estimates_from_logs_are_shown_next_to_the_truth(comparison):
    check = comparison.off_policy
    table = off_policy_table(comparison)
    assert table.title == f"Off-policy estimates from 20 logs of {check.decisions} decisions each"
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["truth"][0] == f"{check.truth:.3f}"
    found = check.estimators["DR"]
    assert rows["DR"] == [
        f"{found.mean:.3f}",
        f"{found.rmse:.3f}",
        f"{found.coverage:.0%}",
        f"{found.effective_sample_size:.0f}",
    ]
    assert rows["DM"][-1] == "–"


def test_both_acceptance_lengths_are_named(comparison):
    """4.74 pooled and 5.45 per request are the same data (vllm-project/vllm#52816)."""
    table, agent = decoding_table(comparison), comparison.agents["guesser"]
    cells = dict(zip(table.columns, next(r for r in table.rows if r[0] == "guesser"), strict=True))
    assert cells["τ pooled"] == f"{agent.acceptance_length:.2f}"
    assert cells["τ per request"] == f"{agent.acceptance_length_per_request:.2f}"
    assert cells["τ pooled"] != cells["τ per request"]


def test_without_agents_the_tables_leave_them_out(without_agents, tmp_path):
    assert [row[0] for row in arms_table(without_agents).rows] == ["oracle"]
    assert len(group_tables(without_agents)["family"].columns) == 4
    _, found = page(without_agents, tmp_path)
    assert found.counts["svg"] == 3


def test_gains_are_shown_in_percent():
    assert gain_text(Interval(0.0312, -0.004, 0.1)) == "+3.1% (-0.4, +10.0)"
    assert gain_text(Interval(-0.02, float("nan"), float("nan"))) == "-2.0%"
    assert gain_text(Interval(-0.0002, -0.0003, 0.0)) == "+0.0% (+0.0, +0.0)"


def test_the_plots_show_the_numbers(comparison):
    lines = {line.get_label(): line for line in plot_speedups(comparison).axes[0].get_lines()}
    assert list(lines["all prompts"].get_ydata()) == list(comparison.speedups["all"].values())
    assert list(lines["easy"].get_ydata()) == list(comparison.speedups["easy"].values())
    bars = plot_arms(comparison).axes[0].containers[0]
    assert [bar.get_height() for bar in bars] == list(comparison.agents["guesser"].arms.values())
    segment = plot_gains(comparison).axes[0].get_lines()[0]
    assert list(segment.get_xdata()) == list(comparison.agents["guesser"].gain[1:])
