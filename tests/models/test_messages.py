from __future__ import annotations

import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.messages import normalize_messages
from blockpilot_rl.models.pairs import load_pair


def user(content: object, **keys: object) -> dict[str, object]:
    return {"role": "user", "content": content, **keys}


CLIENT_FORMS = [
    (user([{"type": "text", "text": "Hi"}]), user("Hi")),
    (user([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]), user("a\nb")),
    (user(({"type": "text", "text": "Hi", "image_url": None},)), user("Hi")),
    (user("Hi", name=None, tool_calls=None), user("Hi")),
    (user("Hi", name="Ada"), user("Hi", name="Ada")),
    ({"role": "developer", "content": "Be brief."}, {"role": "system", "content": "Be brief."}),
    (
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}], "audio": None},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
    ),
    (
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
    ),
    (
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}},
    ),
    (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": "No."},
    ),
]


@pytest.mark.parametrize(("sent", "read"), CLIENT_FORMS)
def test_messages_as_clients_send_them(sent, read):
    before = dict(sent)
    assert normalize_messages([sent]) == [read]
    assert sent == before


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("Hi", "must be a list of objects with a role and content, not 'Hi'"),
        (None, "must be a list of objects with a role and content, not None"),
        (user("Hi"), "must be a list of objects"),
        (["Hi"], "a role and content, not 'Hi'"),
        ([user(None)], "a role and content"),
        ([{"role": "user"}], "a role and content"),
        ([{"role": "user", "text": "Hi"}], "a role and content"),
        ([{"content": "Hi"}], "a role and content"),
        ([user(5)], "a role and content"),
        ([user(["Hi"])], "must be a text, .*not 'Hi'"),
        ([user([{"type": "image_url", "image_url": {"url": "a.png"}}])], "must be a text, .*image"),
        ([user([{"type": ["text"], "text": "Hi"}])], "must be a text"),
        ([user([{"type": "text", "text": None}])], "must be a text"),
    ],
)
def test_malformed_messages_get_one_line(messages, message):
    with pytest.raises(BlockPilotError, match=message) as caught:
        normalize_messages(messages)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def pair(tiny):
    return load_pair(*tiny)


@pytest.mark.parametrize(("sent", "read"), CLIENT_FORMS)
def test_a_pair_encodes_messages_as_clients_send_them(pair, sent, read):
    last = user("Go on.")
    assert pair.encode([sent, last]).tolist() == pair.encode([read, last]).tolist()


@pytest.mark.parametrize("last", [user(None), user([]), user([{"type": "image"}]), user(" "), "Hi"])
def test_a_pair_refuses_malformed_messages(pair, last):
    with pytest.raises(BlockPilotError, match=r"empty|role and content|must be a text"):
        pair.encode([last])
