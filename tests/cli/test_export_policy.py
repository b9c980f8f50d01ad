from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from blockpilot_rl.agents import ALGORITHMS, load_agent
from blockpilot_rl.cli.export_policy import main
from blockpilot_rl.cli.train_agent import main as train
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep
from tests.agents.quick import BRIEF
from tests.synthetic import synthetic_table


def brief(algorithm):
    """Words that keep the training short."""
    pairs = [f"{name}:{value}" for name, value in BRIEF[algorithm].items()]
    return ["-params", *pairs] if pairs else []


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    synthetic_table(500).save(folder / "sweep")
    return folder


@pytest.fixture(scope="module")
def run(workplace):
    """Folder of a run of an algorithm, trained once."""

    def trained(algorithm):
        folder = workplace / "logs" / algorithm / "BlockSize-v0_1"
        if not folder.exists():
            words = ["--algo", algorithm, "--sweep", str(workplace / "sweep"), "--verbose", "0"]
            words += [
                "-f",
                str(workplace / "logs"),
                "--arms",
                "1,2,4,16",
                *brief(algorithm),
            ]
            assert train(words) == 0
        return folder

    return trained


@pytest.mark.parametrize(
    "algorithm", [name for name in ALGORITHMS if name not in ("random", "oracle")]
)
def test_exports_what_the_agent_chooses(algorithm, run, workplace, tmp_path, capsys):
    assert main([str(run(algorithm)), "--out", str(tmp_path / "policy")]) == 0
    policy = BlockSizePolicy.from_pretrained(tmp_path / "policy")
    test = Sweep.load(workplace / "sweep").split("test").select_arms((1, 2, 4, 16))
    np.testing.assert_array_equal(
        policy.predict(test.states), load_agent(run(algorithm)).choose(test)
    )
    assert policy.config.arms == (1, 2, 4, 16)
    assert policy.config.algorithm == algorithm
    assert len(policy.config.provenance["sweep"]["sha256"]) == 64
    assert f"--policy {tmp_path / 'policy'}" in capsys.readouterr().out


def test_the_run_may_be_given_by_its_flag(run, tmp_path):
    assert main(["--out", str(tmp_path / "policy"), "--run", str(run("fixed"))]) == 0
    assert (tmp_path / "policy" / "model.safetensors").is_file()


@pytest.mark.parametrize("algorithm", ["oracle", "random"])
def test_yardsticks_are_refused(algorithm, run, tmp_path, capsys):
    assert main([str(run(algorithm)), "--out", str(tmp_path / "policy")]) == 2
    error = capsys.readouterr().err
    assert f"{algorithm} cannot be exported: " in error
    assert error.count("\n") == 1
    assert not (tmp_path / "policy").exists()


def test_a_folder_in_use_is_kept_by_default(run, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("precious", encoding="utf-8")
    assert main([str(run("fixed")), "--out", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert main([str(run("fixed")), "--out", str(tmp_path), "--overwrite"]) == 2
    assert "holds mine.txt, which replacing it would lose" in capsys.readouterr().err
    (tmp_path / "mine.txt").unlink()
    for _ in range(2):
        assert main([str(run("fixed")), "--out", str(tmp_path), "--overwrite"]) == 0
    assert (tmp_path / "config.json").is_file()


def test_a_run_is_not_replaced_by_its_policy(run, tmp_path, capsys):
    folder = shutil.copytree(run("fixed"), tmp_path / "run")
    assert main([str(folder), "--out", str(folder), "--overwrite"]) == 2
    assert "which replacing it would lose" in capsys.readouterr().err
    assert (folder / "agent.json").is_file()


def test_incomplete_and_missing_runs(run, tmp_path, capsys):
    broken = shutil.copytree(run("fixed"), tmp_path / "broken")
    (broken / "agent.json").unlink()
    assert main([str(broken), "--out", str(tmp_path / "policy")]) == 2
    assert "is incomplete" in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere"), "--out", str(tmp_path / "policy")]) == 2
    assert "no run at" in capsys.readouterr().err


def test_a_sweep_of_another_pair_cannot_check_it(run, workplace, tmp_path, capsys):
    foreign = shutil.copytree(workplace / "sweep", tmp_path / "foreign")
    metadata = json.loads((foreign / "metadata.json").read_text(encoding="utf-8"))
    metadata["fingerprint"] = "f" * 16
    (foreign / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    words = [str(run("fixed")), "--out", str(tmp_path / "policy"), "--sweep", str(foreign)]
    assert main(words) == 2
    assert "was trained on the pair" in capsys.readouterr().err
    assert not (tmp_path / "policy").exists()


def test_a_moved_sweep_can_be_named(run, workplace, tmp_path, capsys):
    moved = shutil.copytree(run("fixed"), tmp_path / "moved")
    arguments = (moved / "args.yml").read_text(encoding="utf-8")
    gone = arguments.replace(str(workplace / "sweep"), str(tmp_path / "gone"))
    (moved / "args.yml").write_text(gone, encoding="utf-8")
    words = [str(moved), "--out", str(tmp_path / "policy")]
    assert main(words) == 2
    assert "no sweep at" in capsys.readouterr().err
    assert main([*words, "--sweep", str(workplace / "sweep")]) == 0


def test_corrupt_model(run, tmp_path, capsys):
    broken = shutil.copytree(run("supervised"), tmp_path / "broken")
    weights = load_file(broken / "model" / "model.safetensors")
    weights.pop("net.0.bias")
    save_file(weights, broken / "model" / "model.safetensors")
    assert main([str(broken), "--out", str(tmp_path / "policy")]) == 2
    assert "are corrupt" in capsys.readouterr().err
