"""The buttons Stop and Retry act on the run of their reply only, with the rights of the commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.messages import Author, Kind, Message
from bot.database.database import Database
from bot.database.states import RunState
from bot.journey import claims
from bot.rights.claimed_run import ClaimedRun, RunEnding
from bot.storage import inbox, runs
from tests.support.current_config import OPEN_ACCESS
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.unit.bot.test_commands import HELP, answering, receive, said

REQUEST = replace(HELP, key="m1", id="m1", text="do it", kind=Kind.CHAT)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def begin_run(store: Database) -> ClaimedRun:
    await receive(store, REQUEST)
    [job] = await store.run(lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "me", 10.0, 60.0, 1))
    return job


async def fail_run(store: Database, job: ClaimedRun) -> None:
    await store.run(lambda execute: claims.finish_run(execute, job, RunEnding(RunState.FAILED), 20.0))


def press(name: str, reply: str, key: str = "p1", by: str = "42") -> Message:
    return replace(
        HELP, key=key, id="77", text=name, target=reply, author=Author(by, "Jane"), to_bot=True, reply_to="77"
    )


async def answers(store: Database, *presses: Message) -> list[str]:
    async with answering(store):
        await receive(store, *presses)
    return (await said(store))[-len(presses) :]


async def stopped_by(store: Database, job: ClaimedRun) -> str:
    run = await store.run(lambda execute: runs.latest_run(execute, job.conversation))
    assert run
    return run.stop_by


@pytest.mark.parametrize(
    ("by", "words", "stops"),
    [
        ("42", [], "42"),
        ("boss", [], "boss"),
        ("43", ["Only the person who asked, or an operator, can stop this."], ""),
    ],
    ids=["requester", "operator", "another person"],
)
async def test_stop_stops_its_run_for_those_who_may(store: Database, by: str, words: list[str], stops: str) -> None:
    """The end of the run itself says that it was stopped."""
    job = await begin_run(store)
    assert await answers(store, press("stop", f"r{job.run}", by=by)) == words
    assert await stopped_by(store, job) == stops


async def test_stop_of_an_earlier_reply_stops_nothing_and_says_so(store: Database) -> None:
    job = await begin_run(store)
    [words] = await answers(store, press("stop", f"r{job.run + 1}"))
    assert words == "That work has ended already, so there is nothing to stop."
    assert await stopped_by(store, job) == ""


async def test_retry_repeats_the_request_once(store: Database) -> None:
    job = await begin_run(store)
    await fail_run(store, job)
    await answers(store, press("retry", f"r{job.run}"), press("retry", f"r{job.run}", key="p2"))
    pending = await store.run(lambda execute: inbox.pending_rows(execute, job.conversation, 10))
    assert [row.message.text for row in pending] == ["do it"]


async def test_retry_of_an_earlier_reply_repeats_nothing_and_says_so(store: Database) -> None:
    job = await begin_run(store)
    await fail_run(store, job)
    [words] = await answers(store, press("retry", f"r{job.run + 7}"))
    assert words.startswith("That request is not the latest one here any more.")
    assert not await store.run(lambda execute: inbox.pending_rows(execute, job.conversation, 10))
