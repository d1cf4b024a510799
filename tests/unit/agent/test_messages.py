"""Messages: every one has an origin, also those that were stored before there was one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from agent.messages import Author, Message, Origin, Quote, Thread
from agent.stored_json import Damaged

JANE = Author("7", "Jane")
SAID = Message(Thread("telegram", "b", "7"), "telegram:b:7:1", "1", JANE, "hello", 1.0, origin=Origin.PERSON)


def stored_before(key: str, mode: str, *, bot: bool = False) -> bytes:
    """Return a message as it was stored when it had no origin."""
    values: dict[str, Any] = orjson.loads(replace(SAID, key=key, author=replace(JANE, bot=bot)).dump())
    for name in ("origin", "root", "generation", "resent_by"):
        del values[name]
    return orjson.dumps({**values, "mode": mode})


@pytest.mark.parametrize(
    ("key", "mode", "origin"),
    [
        ("telegram:b:7:1", "", Origin.PERSON),
        ("plan:telegram:b:7:1", "plan", Origin.PERSON),
        ("sched:3:1795352700.000", "scheduled", Origin.SCHEDULE),
        ("retry:telegram:b:7:2:0", "scheduled", Origin.SCHEDULE),
        ("task:4", "task", Origin.TASK),
        ("retry:telegram:b:7:2:0", "task", Origin.TASK),
        ("task:5", "", Origin.TOOL),
        ("expired:ask:1", "", Origin.SYSTEM),
    ],
)
def test_a_message_stored_without_an_origin_gets_that_of_its_mode_or_key(key: str, mode: str, origin: Origin) -> None:
    loaded = Message.load(stored_before(key, mode))
    assert loaded.origin is origin
    assert loaded.mode == (mode if mode == "plan" else "")
    assert loaded.is_by_person == (origin is Origin.PERSON)
    assert Message.load(loaded.dump()) == loaded


def test_a_message_of_another_bot_is_no_persons() -> None:
    loaded = Message.load(stored_before("telegram:b:7:1", "", bot=True))
    assert loaded.origin is Origin.BOT
    assert not loaded.is_by_person
    assert not replace(SAID, author=replace(JANE, bot=True)).is_by_person


def test_an_origin_is_kept_and_an_unknown_one_is_damage() -> None:
    for origin in Origin:
        assert Message.load(replace(SAID, origin=origin).dump()).origin is origin
    values = orjson.loads(SAID.dump())
    with pytest.raises(Damaged):
        Message.load(orjson.dumps({**values, "origin": "nobody"}))


def test_a_message_of_an_older_channel_has_the_origin_of_its_author() -> None:
    for author in (JANE, replace(JANE, bot=True)):
        older = Message(SAID.thread, "k", "1", author, "hello", 1.0)  # type: ignore[call-arg]  # mypy refuses it
        assert older.origin is author.origin


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Jane", "Jane"),
        ("Jane \u202egpj.exe", "Jane gpj.exe"),
        ("\u2066Eve\u2069 \u200eadmin\u200f", "Eve admin"),
        ("\u061cليلى", "ليلى"),
        ("دوست\u200cم", "دوست\u200cم"),
        ("👩\u200d💻 Ann", "👩\u200d💻 Ann"),
        ("Bob\n\x1b[2J\u0085 owner", "Bob [2J owner"),
        ("\u202e\u202d", "7"),
        ("", ""),
    ],
)
def test_a_name_turns_no_words_around_it(name: str, shown: str) -> None:
    assert replace(JANE, name=name).name == shown
    assert Quote(name, "hi").author == ("" if shown == "7" else shown)
    stored = Message.load(replace(SAID, author=replace(JANE, name=name)).dump())
    assert stored.author.name == shown
