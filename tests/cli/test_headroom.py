from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from blockpilot_rl.cli.headroom import main
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.sweeps.reprice import predict_seconds
from blockpilot_rl.sweeps.traces import save_sweep
from tests.evaluation.replicates import mixed
from tests.synthetic import synthetic_table

PROFILE = LatencyProfile(
    block_sizes=(1, 2, 4),
    draft=((0.0, 0.0), (0.001, 0.0), (0.001, 0.0)),
    verify=((0.03, 0.0), (0.04, 0.0), (0.06, 0.0)),
    read_prompt=(0.001, 0.0),
    medians={},
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("headroom") / "sweep"
    synthetic_table(200).save(folder)
    return folder


@pytest.fixture(scope="module")
def traced_sweep(tmp_path_factory):
    """A sweep whose passes could be anchored anywhere: each size always accepts all or nothing."""
    table = synthetic_table(60).select_arms((1, 2, 4))
    traces = {}
    for row, emitted in enumerate(table.emitted):
        anchors = np.arange(int(emitted))[:, None]
        whole = (anchors // 8 + row) % 2 == 0
        accepted = np.minimum(np.where(whole, (1, 2, 4), 1), emitted - anchors)
        confidences = np.where(whole, np.full(3, 0.9), 0.1)
        traces[row] = Trace(accepted.astype(np.int16), confidences.astype(np.float16))
    accepted = [[np.array(traces[row].trajectory(arm)) for arm in range(3)] for row in traces]
    metadata = dataclasses.replace(table.metadata, latency=PROFILE.to_dict())
    table = dataclasses.replace(table, accepted=accepted, metadata=metadata)
    folder = tmp_path_factory.mktemp("traced") / "sweep"
    save_sweep(folder, dataclasses.replace(table, seconds=predict_seconds(table, PROFILE)), traces)
    return folder


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    rng = np.random.default_rng(0)
    lengths = {size: rng.uniform(4, 8, size=12).round(3) for size in (14, 15, 16, 17, 18)}
    for size, values in lengths.items():
        keyed = {str(i): float(value) for i, value in enumerate(values)}
        (folder / f"{size}.json").write_text(json.dumps(keyed), encoding="utf-8")
    best = np.array(list(lengths.values())).argmax(axis=0) + 14
    selection = {str(i): int(size) for i, size in enumerate(best)}
    (folder / "1.json").write_text(json.dumps(selection), encoding="utf-8")
    return folder


def test_a_sweep(sweep, tmp_path, capsys):
    assert main([str(sweep), "--json", str(tmp_path / "headroom.json")]) == 0
    out = capsys.readouterr().out
    for text in ("default size (16)", "best fixed (", "best of each family", "oracle, one size"):
        assert text in out
    assert out.splitlines()[-1].startswith("Verdict: adapting ")
    values = json.loads((tmp_path / "headroom.json").read_text(encoding="utf-8"))
    assert {
        "default",
        "best_fixed",
        "per_family",
        "oracle",
        "oracle_crossfit",
        "step_oracle",
        "families",
    } <= values.keys()
    assert values["default"]["block_size"] == 16
    assert values["best_fixed"]["mean_speedup"] <= values["oracle"]["mean_speedup"]
    assert values["provenance"]["versions"]["python"]


def test_json_on_standard_output_leaves_the_tables_to_standard_error(sweep, capsys):
    assert main(["--sweep", str(sweep), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["rows"] > 0
    assert "Verdict: " in err


def test_a_trace_next_to_the_sweep(traced_sweep, sweep, capsys):
    assert main([str(traced_sweep), "--json"]) == 0
    out, err = capsys.readouterr()
    values = json.loads(out)
    steps = values["step_oracle"]
    assert steps["mean_speedup"] > values["oracle"]["mean_speedup"]
    # The drafter knows exactly which blocks are right here.
    confident = steps["rules"]["confident prefix"]
    assert confident["gain"][1] > 0
    assert confident["mean_speedup"] > steps["rules"]["recent acceptance"]["mean_speedup"]
    assert "rule: confident prefix (threshold " in err
    assert "not measured" not in err
    assert main([str(sweep)]) == 0
    assert "Deciding at every step was not measured" in capsys.readouterr().out


def test_published_results(published, capsys):
    assert main([str(published), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    values = json.loads(out)
    assert values["selection"]["equals_oracle"] is True
    assert values["default"]["block_size"] == 16
    assert "equals the oracle's labels on all 12 prompts" in err.splitlines()[-1]
    assert main([str(published), "--default", "15", "--window", "1"]) == 0
    out = capsys.readouterr().out
    assert "oracle among 14–16" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere"], "no sweep at nowhere"),
        (["--confidence", "2"], "--confidence must be"),
        (["--window", "-1"], "--window must be"),
        (["--temperature", "0.7"], "temperature 0.7 was not recorded; the sweep has 0"),
        (["--temperature", "-1"], "temperature must be 0 or more, or all"),
        (["--json", "."], "--json . is a folder"),
    ],
)
def test_bad_input_is_one_line(sweep, argv, message, capsys):
    words = argv if argv[0] == "nowhere" else [str(sweep), *argv]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_one_temperature(sweep, published, capsys):
    assert main([str(sweep), "--temperature", "0", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["temperatures"]) == ["0"]
    assert main([str(published), "--temperature", "0"]) == 2
    assert "published results have none" in capsys.readouterr().err


def test_a_mixed_sweep_is_judged_on_its_greedy_rows(tmp_path, capsys):
    mixed(synthetic_table(150), 60, noise=0.2).save(tmp_path / "sweep")
    assert main([str(tmp_path / "sweep"), "--json"]) == 0
    out, err = capsys.readouterr()
    values = json.loads(out)
    assert list(values["temperatures"]) == ["0"]
    assert values["rows"] == values["prompts"]
    assert values["oracle_crossfit"] is None
    assert len(values["oracle_halves"]["gain"]) == 3
    assert err.count("its 150 greedy rows of 270 are used") == 1
    assert "oracle chosen on one half of the answer" in err
    assert main([str(tmp_path / "sweep"), "--temperature", "all", "--json"]) == 0
    out, err = capsys.readouterr()
    values = json.loads(out)
    assert list(values["temperatures"]) == ["0", "1"]
    assert values["rows"] == values["prompts"] + values["oracle_crossfit"]["rows"]
    assert "greedy rows of" not in err
    assert "oracle cross-fitted on other samples" in err


@pytest.mark.parametrize("flag", ["--default=8", "--default=-1", "--window=0", "--window=99999999"])
def test_options_of_published_results_are_refused_for_a_sweep(flag, sweep, capsys):
    assert main([str(sweep), flag]) == 2
    assert "has no effect on a sweep; drop it" in capsys.readouterr().err
