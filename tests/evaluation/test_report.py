from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.image import imread

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.compare import compare
from blockpilot_rl.evaluation.plots import plot_arms, plot_gains, plot_speedups
from blockpilot_rl.evaluation.report import write_report
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.evaluation.tables import (
    arms_table,
    decoding_table,
    family_table,
    gain_text,
    speedup_table,
    summary_table,
    verdict_line,
)
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    table = synthetic_table(n=400)
    train, validation, test = (table.split(name) for name in ("train", "validation", "test"))
    rng = np.random.default_rng(0)
    arms = rng.integers(5, size=(3, len(test)))
    constant = np.full((3, len(test)), 2)
    found = compare(
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
    return dataclasses.replace(comparison, agents={}, verdict=verdict)


def test_the_report_holds_verdict_tables_plots_and_origin(comparison, tmp_path):
    path = write_report(comparison, tmp_path / "new" / "folder")
    text = path.read_text(encoding="utf-8")
    assert path.name == "report.md"
    assert verdict_line(comparison) in text
    assert f"| steady | {comparison.agents['steady'].mean_speedup:.3f} |" in text
    assert "compare.py --sweep 'my sweep'" in text
    assert '"git_sha": "abc"' in text
    plots = sorted(path.parent.glob("*.png"))
    assert len(plots) == 3
    for plot in plots:
        assert f"({plot.name})" in text
        assert imread(plot).std() > 0.01


def test_writing_again_keeps_other_files(comparison, tmp_path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    write_report(comparison, tmp_path)
    write_report(comparison, tmp_path)
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert len(list(tmp_path.iterdir())) == 5


def test_a_file_in_the_way_is_named(comparison, tmp_path):
    (tmp_path / "report").write_text("", encoding="utf-8")
    with pytest.raises(BlockPilotError, match="report"):
        write_report(comparison, tmp_path / "report")


def test_the_tables_are_rectangular_and_in_order(comparison):
    for build in (summary_table, decoding_table, arms_table, family_table, speedup_table):
        table = build(comparison)
        assert {len(row) for row in table.rows} == {len(table.columns)}
    names = [row[0] for row in summary_table(comparison).rows]
    assert names[0] == "default size (16)"
    assert names[1].startswith("best fixed (")
    assert names[-4:] == ["random", "guesser", "steady", "oracle"]
    shares = dict(zip(arms_table(comparison).columns, arms_table(comparison).rows[1], strict=True))
    assert shares["4"] == "100%"
    assert shares["8"] == "–"


def test_without_agents_the_tables_leave_them_out(without_agents, tmp_path):
    assert [row[0] for row in arms_table(without_agents).rows] == ["oracle"]
    assert len(family_table(without_agents).columns) == 4
    write_report(without_agents, tmp_path)


def test_gains_are_shown_in_percent():
    assert gain_text(Interval(0.0312, -0.004, 0.1)) == "+3.1% (-0.4, +10.0)"
    assert gain_text(Interval(-0.02, float("nan"), float("nan"))) == "-2.0%"


def test_the_plots_show_the_numbers(comparison):
    lines = {line.get_label(): line for line in plot_speedups(comparison).axes[0].get_lines()}
    assert list(lines["all prompts"].get_ydata()) == list(comparison.speedups["all"].values())
    assert list(lines["easy"].get_ydata()) == list(comparison.speedups["easy"].values())
    bars = plot_arms(comparison).axes[0].containers[0]
    assert [bar.get_height() for bar in bars] == list(comparison.agents["guesser"].arms.values())
    segment = plot_gains(comparison).axes[0].get_lines()[0]
    assert list(segment.get_xdata()) == list(comparison.agents["guesser"].gain[1:])
