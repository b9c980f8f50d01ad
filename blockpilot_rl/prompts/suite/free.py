"""Families `story`, `chat-story`, `other` and `short`: requests without a given text."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.writer import Writer, texts


def write_story(writer: Writer) -> str:
    """Write one prompt that asks for free writing."""
    hero = writer.write(writer.pick(texts("stories", "heroes")))
    request = writer.pick_request("story", texts("stories", "requests"))
    asked = writer.ask(
        request,
        hero=hero,
        first2=writer.write("{first}"),
        opening=writer.write(writer.pick(texts("stories", "openings")), hero=hero),
        ending=writer.write(writer.pick(texts("stories", "endings"))),
    )
    if ": " in request:
        return asked
    return asked + writer.write(writer.pick(texts("stories", "limits")))


def write_story_chat(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat that asks for a story and for changes to it."""
    name, name2, name3, friend = writer.several("first", 4)
    animal, animal2, animal3 = writer.several("animal", 3)
    found, found2 = writer.pair("object")
    bound = {
        "name": name,
        "name2": name2,
        "friend": friend,
        "animal": animal,
        "animal2": animal2,
        "animal3": animal3,
        "object": found,
        "object2": found2,
        "trait": writer.pick(("small", "shy", "clever", "curious", "lonely", "brave", "tired")),
        "trait2": writer.pick(("careful", "stubborn", "cheerful", "patient", "noisy", "proud")),
    }
    asked = writer.ask(
        "[write|tell me] [the beginning of a|the first part of a|a short] story about a {trait} "
        "{animal} called {name}[ and {object}|]",
        **bound,
    )
    tale = writer.pick(texts("stories", "chat_tales"))
    turns = [asked, writer.write(tale["beginning"], **bound)]
    form = writer.pick(("begun", "continued", "renamed"))
    if form == "continued":
        turns.append(writer.pick(texts("stories", "chat_continuations")))
        turns.append(writer.write(writer.pick(tale["middles"]), **bound))
    if form == "renamed":
        request = writer.write("Call the {animal} {name2} instead of {name}.", **bound)
        turns += [request, turns[1].replace(name, name2)]
        bound |= {"name": name2, "name2": name3}
    end = writer.pick_request("story chat", texts("stories", "chat_ends"))
    turns.append(writer.write(end, **bound))
    return tuple(turns)


def write_other(writer: Writer) -> str:
    """Write one everyday prompt that fits none of the other families."""
    group = writer.pick(texts("other", "groups"))
    template = writer.pick_request(group["name"], group["templates"])
    pairs = {}
    for name in ("animal", "hobby", "season", "job", "concept", "food"):
        if f"{{other_{name}}}" in template:
            pairs[name], pairs[f"other_{name}"] = writer.pair(name)
    phrase = writer.write if group["name"] == "questions" else writer.ask
    return phrase(template, **pairs) + writer.write(writer.pick(texts("other", group["styles"])))


def write_short(writer: Writer) -> str:
    """Write one prompt of a word or a line."""
    forms = texts("short", "words") if writer.chance(0.1) else texts("short", "lines")
    form = writer.pick_request("short", forms)
    bound: dict[str, str] = {}
    for slot in ("animal", "hobby", "month"):
        if f"{{{slot}2}}" in form:
            bound[slot], bound[f"{slot}2"] = writer.pair(slot)
    text = writer.write(form, **bound)
    return text[:1].lower() + text[1:]
