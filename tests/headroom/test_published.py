from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.headroom.published import PublishedResults, acceptance_headroom
from blockpilot_rl.reports.headroom import headroom_reason

SIZES = (4, 14, 15, 16, 17, 18, 32)
LENGTHS = {
    4: [3.0, 2.0, 3.5],
    14: [6.0, 5.0, 7.0],
    15: [6.5, 5.0, 7.5],
    16: [6.0, 6.0, 6.0],
    17: [5.0, 5.5, 8.5],
    18: [4.0, 4.0, 8.0],
    32: [9.0, 1.0, 1.0],
}
BEST = [15, 16, 17]
REAL = Path(__file__).parents[3] / "shared" / "data" / "blockpilot_published"


def write(folder: Path, selection=BEST, **changes) -> Path:
    folder.mkdir()
    files = {str(size): values for size, values in LENGTHS.items()} | changes
    for name, values in files.items():
        keyed = {str(i): value for i, value in enumerate(values)}
        # The order of the keys need not be the same everywhere.
        text = json.dumps(dict(reversed(keyed.items())) if name == "17" else keyed)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    if selection is not None:
        text = json.dumps({str(i): value for i, value in enumerate(selection)})
        (folder / "1.json").write_text(text, encoding="utf-8")
    return folder


def test_fixed_sizes_and_oracles(tmp_path):
    found = acceptance_headroom(PublishedResults.load(write(tmp_path / "results")))
    assert found.name == "results"
    assert found.prompts == 3
    assert found.sizes == pytest.approx({s: sum(LENGTHS[s]) / 3 for s in SIZES})
    assert found.default.block_size == 16
    assert found.default.mean_speedup == 6.0
    assert found.default.gain.value == 0.0
    assert found.best_fixed.block_size in (15, 17)
    assert found.best_fixed.mean_speedup == pytest.approx(19 / 3)
    assert found.window_sizes == (14, 15, 16, 17, 18)
    assert found.oracle.mean_speedup == pytest.approx((6.5 + 6.0 + 8.5) / 3)
    assert found.oracle.gain.value == pytest.approx(21 / 18 - 1)
    # One prompt gains nothing, another 41.7%, and resamples reach both ends.
    assert tuple(found.oracle.gain) == pytest.approx((1 / 6, 0.0, 2.5 / 6))
    assert found.oracle_all.mean_speedup == pytest.approx((9.0 + 6.0 + 8.5) / 3)


def test_a_selection_that_equals_the_labels_is_flagged(tmp_path):
    """A "prediction" that equals the test prompts' labels is the oracle under another name."""
    found = acceptance_headroom(PublishedResults.load(write(tmp_path / "results")))
    assert found.selection is not None
    assert found.selection.equals_oracle
    assert found.selection.matches == 3
    assert "equals the oracle's labels on all 3 prompts" in headroom_reason(found)
    assert found.verdict.worth == "maybe"


def test_a_selection_with_errors_is_not_flagged(tmp_path):
    folder = write(tmp_path / "results", selection=[15, 16, 16])
    found = acceptance_headroom(PublishedResults.load(folder))
    assert found.selection is not None
    assert not found.selection.equals_oracle
    assert found.selection.achieved.mean_speedup == pytest.approx((6.5 + 6.0 + 6.0) / 3)
    assert "as good as the oracle on 2 of 3 prompts" in headroom_reason(found)


def test_without_a_selection(tmp_path):
    found = acceptance_headroom(PublishedResults.load(write(tmp_path / "results", None)))
    assert found.selection is None
    assert "selection" not in headroom_reason(found)


def test_another_default_and_window(tmp_path):
    results = PublishedResults.load(write(tmp_path / "results"))
    found = acceptance_headroom(results, default=15, window=1)
    assert found.window_sizes == (14, 15, 16)
    assert found.default.mean_speedup == pytest.approx(19 / 3)
    alone = acceptance_headroom(results, window=0)
    assert alone.oracle.gain.value == 0.0
    assert alone.verdict.worth == "no"
    with pytest.raises(BlockPilotError, match=r"results has no 12\.json; its sizes are \(4, 14"):
        acceptance_headroom(results, default=12)


def test_the_json_has_the_keys_of_a_sweeps_headroom(tmp_path):
    values = acceptance_headroom(PublishedResults.load(write(tmp_path / "results"))).to_dict()
    assert values["default"]["acceptance_length"] == 6.0
    assert values["best_fixed"]["in_sample"] is True
    assert values["oracle"]["block_sizes"] == (14, 15, 16, 17, 18)
    assert values["selection"]["achieved"]["acceptance_length"] == pytest.approx(7.0)
    assert values["measure"] == "acceptance_length"
    assert values["per_family"] is values["oracle_crossfit"] is values["step_oracle"] is None
    assert values["families"] == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"15": [6.5, 5.0]}, r"15\.json has other prompts than the other files: '2'"),
        ({"15": [6.5, float("nan"), 7.0]}, r"15\.json: prompt '1' has the acceptance length nan"),
        ({"15": [6.5, -1.0, 7.0]}, "which is not a positive number"),
        ({"15": [6.5, "x", 7.0]}, r"15\.json: prompt '1' must have a number, not 'x'"),
        ({"15": [6.5, True, 7.0]}, "must have a number, not True"),
        ({"selection": [15, 16, 13]}, r"1\.json: prompt '2' has the selected size 13"),
        ({"selection": [15, 16]}, r"1\.json has other prompts"),
    ],
)
def test_errors_name_the_file_and_the_prompt(tmp_path, changes, message):
    with pytest.raises(BlockPilotError, match=message):
        PublishedResults.load(write(tmp_path / "results", **changes))


def test_other_folders_are_not_published_results(tmp_path):
    assert PublishedResults.is_folder_of(write(tmp_path / "results"))
    assert not PublishedResults.is_folder_of(tmp_path)
    assert not PublishedResults.is_folder_of(tmp_path / "missing")
    only = tmp_path / "only"
    only.mkdir()
    (only / "1.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BlockPilotError, match="has no acceptance lengths, such as"):
        PublishedResults.load(only)
    (only / "16.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BlockPilotError, match="has no prompts"):
        PublishedResults.load(only)
    (only / "16.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(BlockPilotError, match="must map each prompt to a number"):
        PublishedResults.load(only)
    (only / "16.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(BlockPilotError, match=r"16\.json cannot be read as JSON: maximum"):
        PublishedResults.load(only)
    (only / "16.json").write_text(f'{{"a": {10**400}}}', encoding="utf-8")
    with pytest.raises(BlockPilotError, match=r"16\.json: prompt 'a' has a number .* too large"):
        PublishedResults.load(only)
    (only / "16.json").write_text("{", encoding="utf-8")
    with pytest.raises(BlockPilotError, match=r"16\.json cannot be read as JSON"):
        PublishedResults.load(only)


@pytest.mark.skipif(not REAL.is_dir(), reason="the published results are not here")
@pytest.mark.parametrize(
    ("name", "default", "best", "size", "oracle"),
    [
        ("gsm8k_0T0.0", 6.509, 6.528, 17, 6.735),
        ("math500_0T0.0", 8.200, 8.200, 16, 8.532),
    ],
)
def test_the_published_numbers(name, default, best, size, oracle):
    """Data published with BlockPilot (arXiv 2606.31315), whose selection is the oracle's."""
    found = acceptance_headroom(PublishedResults.load(REAL / name))
    means = [found.default, found.best_fixed, found.oracle]
    np.testing.assert_allclose(
        [item.mean_speedup for item in means], [default, best, oracle], atol=5e-4
    )
    assert found.best_fixed.block_size == size
    assert found.prompts == 32
    assert found.selection is not None
    assert found.selection.equals_oracle
