"""The words that a conversation has met: stored, inherited by what it starts, forgotten with a person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.exposure import Exposure
from bot.database.database import Database
from bot.journey.exposure import inherit_exposure, make_row, open_exposure
from bot.storage import exposures, forgetting
from bot.storage.blanked import StillCounted
from bot.storage.exposures import ExposureRow, store_exposure
from bot.storage.forgetting import PersonKey
from tests.support.current_config import current_of
from tests.support.rehearsed_database import make_empty_database
from tests.support.turn_context import say

SECRET = {"query": "who is Marlow"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as opened:
        yield opened


async def opened(store: Database, conversation: str) -> Exposure:
    row = await store.run(partial(exposures.find_exposure, conversation=conversation))
    return open_exposure(store, current_of(), row)


async def meet(store: Database) -> None:
    exposure = await opened(store, "first")
    await exposure.note_inputs([say("a baker of 1234")])
    await exposure.note_result("everything", {}, "Marlow and the baker")


async def test_words_outlast_a_restart_and_what_is_started_inherits_them(store: Database) -> None:
    await meet(store)
    await store.run(partial(inherit_exposure, caller="first", conversation="task:1"))
    for conversation in ("first", "task:1"):
        exposure = await opened(store, conversation)
        assert exposure.destination("query", "web_search", SECRET) == "web_search"
        assert exposure.destination("query", "web_search", {"query": "baker 1234"}) == ""
        assert exposure.destination("query", "web_search", {"query": "baker 1235"}) == "web_search"


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("old", [0, 1])
@pytest.mark.parametrize("flag", ["private", "untrusted", "files"])
async def test_what_is_started_has_met_what_its_caller_or_itself_has_met(
    store: Database, flag: str, old: int, own: int
) -> None:
    """The latest of each kind of digests are kept, and its own are the latest."""
    kinds = ("known", "said", "listed", "private_words")
    for conversation, met, digests in (("first", old, b"abcd"), ("task", own, b"ef")):
        values: dict[str, Any] = {flag: met, **dict.fromkeys(kinds, digests)}
        await store.run(partial(store_exposure, row=ExposureRow(conversation, **values)))
    most = (2, 3, 4, 9)
    await store.run(partial(exposures.inherit_exposure, caller="first", conversation="task", most=most))
    row = await store.run(partial(exposures.find_exposure, conversation="task"))
    flags = {each: getattr(row, each) for each in ("private", "untrusted", "files")}
    assert flags == {**dict.fromkeys(flags, 0), flag: old | own}
    assert [getattr(row, kind) for kind in kinds] == [b"ef", b"def", b"cdef", b"abcdef"]


async def test_what_is_started_by_what_has_met_nothing_keeps_its_own(store: Database) -> None:
    own = ExposureRow("task", private=1, said=b"ab")
    await store.run(partial(store_exposure, row=own))
    await store.run(partial(exposures.inherit_exposure, caller="none", conversation="task", most=(1, 1, 1, 1)))
    assert await store.run(partial(exposures.find_exposure, conversation="task")) == own


async def test_forgetting_a_person_forgets_the_words_and_keeps_that_calls_ask(store: Database) -> None:
    await meet(store)
    forget = partial(
        forgetting.forget_in_conversation,
        person=PersonKey("console", "u1"),
        key="first",
        counted=StillCounted(0.0, lambda _command: False),
        private=False,
    )
    await store.run(forget)
    row = await store.run(partial(exposures.find_exposure, conversation="first"))
    assert (row.said, row.listed, row.private_words) == (b"", b"", b"")
    assert (await opened(store, "first")).asks


async def test_what_makes_calls_ask_is_stored_at_once_and_the_rest_with_the_next_commit(store: Database) -> None:
    exposure = await opened(store, "first")
    read, unsaved = partial(exposures.find_exposure, conversation="first"), []
    await exposure.note_inputs([say("a baker of 1234")])  # a person's words let calls run
    unsaved.append(exposure.unsaved)
    assert await store.run(read) == ExposureRow("first")
    await exposure.note_result("everything", {}, "Marlow")
    unsaved.append(exposure.unsaved)
    assert await store.run(read) == make_row("first", exposure)
    await exposure.note_page("https://example.org", "a page about 5678")
    assert [*unsaved, exposure.unsaved] == [True, False, True]
