from __future__ import annotations

import dataclasses
import json

import pytest

from blockpilot_rl.decoding.forward import target_forward
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.training.own_prompts import own_count, own_prompts

USER = "{% for m in messages %}{{ 'a|' }}{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def pair(tiny):
    pair = load_pair(*tiny)
    pair.tokenizer.chat_template = USER
    # Frequent tokens, so that many texts end early.
    return dataclasses.replace(pair, stop_token_ids=tuple(range(30, 36)))


def write(pair, path, count):
    target = target_forward(pair.target, [0, 2])
    return own_prompts(pair, target, count, path, lambda *_: None)


def test_the_target_writes_prompts_and_resumes(pair, tmp_path):
    prompts = write(pair, tmp_path / "whole.jsonl", 60)
    assert len({prompt.id for prompt in prompts}) == 60
    assert {(prompt.family, prompt.language) for prompt in prompts} == {("target", "und")}
    assert min(len(prompt.text) for prompt in prompts) >= 8
    write(pair, tmp_path / "parts.jsonl", 5)
    assert write(pair, tmp_path / "parts.jsonl", 60) == prompts
    rows = [json.loads(line) for line in (tmp_path / "parts.jsonl").read_text().splitlines()]
    assert len({row["seed"] for row in rows}) == len(rows)


def test_targets_that_write_no_prompts_are_refused(pair, tmp_path, monkeypatch):
    monkeypatch.setattr("blockpilot_rl.training.own_prompts._BATCH", 4)
    never = dataclasses.replace(pair, stop_token_ids=())
    with pytest.raises(BlockPilotError, match="wrote 0 prompts and then no new ones"):
        write(never, tmp_path / "never.jsonl", 3)
    with pytest.raises(BlockPilotError, match="need a target with a chat template"):
        write(dataclasses.replace(pair, template={"completion": True}), tmp_path / "base.jsonl", 3)


@pytest.mark.parametrize("source", ["target:", "target:0", "target:-1", "target:many"])
def test_numbers_of_prompts(source):
    assert own_count("target:20") == 20
    with pytest.raises(BlockPilotError, match="must be target:N"):
        own_count(source)
