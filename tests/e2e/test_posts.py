"""The posts of docs/threads.md, on every platform and the console: cancelled, answered, and killed at three moments.

The moments are: while the work goes on; after its commit, before the post (the platform is away); after the post.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.fakes.model_script import text_of
from tests.fakes.server import until
from tests.support.rigs.attached_console import AttachedConsoleRig
from tests.support.service_process import ask, bash
from tests.support.thread_talk import ThreadTalk, calls, delegate, question, tool

pytestmark = pytest.mark.usefixtures("bubblewrap")
OUT = "/mnt/user-data/outputs"
SLOW = {"tokens": 4000, "tok_ms": 50, "word": "slow"}  # an answer that takes minutes


async def leave(talk: ThreadTalk) -> None:
    """Take the platform away, or the person from the console."""
    rig = talk.service.rigs[talk.name]
    await (rig.detach() if isinstance(rig, AttachedConsoleRig) else rig.wire.stop())


async def come_back(talk: ThreadTalk) -> None:
    """Bring the platform back, and start the service."""
    rig = talk.service.rigs[talk.name]
    if not isinstance(rig, AttachedConsoleRig):
        await rig.wire.start()
    await talk.service.start()


async def propose(talk: ThreadTalk, number: int, **args: str) -> None:
    """Have a schedule proposed, and confirm it."""
    yearly = tool("schedule", action="create", cron="0 4 1 1 *", time_zone="UTC", **args)
    talk.say(ask(steps=[calls(yearly)], text="proposed"))
    await talk.shows(f"(number {number})")
    talk.say(f"!schedule confirm {number}")
    await talk.shows(f"Schedule {number} is active")
    await talk.service.quiet()


async def runs_now(talk: ThreadTalk, conversation: str) -> None:
    sql = f"SELECT 1 FROM runs WHERE state='running' AND conversation='{conversation}'"  # noqa: S608 — constants
    await until(lambda: bool(talk.service.rows(sql)), what=f"the run of {conversation}")


async def settled(talk: ThreadTalk) -> None:
    await until(lambda: not talk.service.rows("SELECT 1 FROM questions WHERE state='open'"), what="the answer")


def write(talk: ThreadTalk, *statements: str) -> None:
    """Change the database of a service that is dead: time passes."""
    with closing(sqlite3.connect(talk.service.data / "fawn.db")) as store:
        for statement in statements:
            store.execute(statement)
        store.commit()


@pytest.mark.parametrize("name", ["slack", "console"])
async def test_what_is_posted_beside_a_thread_survives_a_kill_at_three_moments(tmp_path: Path, name: str) -> None:
    """An agent, a lost command with its file, a schedule, a reminder, and the words of a missed and a paused one."""
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        await propose(talk, 1, what="Count the tickets")
        await propose(talk, 2, kind="reminder", what="Stretch your legs")
        await propose(talk, 3, what="Read the news")
        await propose(talk, 4, kind="watch", what="Say what is new", url="http://127.0.0.1:9/")
        talk.say(ask(steps=[bash(f"echo 1 > {OUT}/one.csv; sleep 600", background=True)], text="started"))
        await until(lambda: [*talk.service.data.glob("threads/*/outputs/one.csv")], what="the file")
        talk.say(delegate("market", ask(text="The market is large", delay_ms=4000)))
        await runs_now(talk, "task:2")

        await leave(talk)
        await talk.service.kill()  # while the work goes on
        now = time.time()
        write(
            talk,
            f"UPDATE schedules SET next_at={now - 3600} WHERE id=3",  # noqa: S608 — numbers
            f"UPDATE schedules SET next_at={now} WHERE id IN (1, 2, 4)",  # noqa: S608 — numbers
            "UPDATE schedules SET failures=4 WHERE id=4",
        )
        await talk.service.spawn("run", "--config", "config.yaml")
        ended = "SELECT count(*) FROM runs WHERE state='done' AND conversation IN ('task:2', 'schedule:1')"
        posted = "SELECT count(*) FROM side_posts"
        await until(
            lambda: talk.service.rows(ended) == [(2,)] and talk.service.rows(posted) == [(6,)], 60, "all that is posted"
        )
        await talk.service.kill()  # after the commit, before the post
        await come_back(talk)
        posts = {
            "The market is large": "task 2",
            "was lost": "task 1",
            "Count the tickets": "schedule 1",
            "⏰ Stretch your legs": "schedule 2",
            "I missed schedule 3": "schedule 3",
            "I paused schedule 4": "schedule 4",
        }
        for words in (*posts, "one.csv"):
            await talk.shows(words, seconds=60)
        await talk.service.quiet(60)
        await talk.service.restart()  # after the post
        await talk.service.quiet()
        for words in posts:
            if words != "Count the tickets":  # the proposal has these words, too
                assert talk.count(words) == 1, words
        await talk.say_and_read("which ones?")
        await talk.service.quiet()
        told = talk.last_words("which ones?")
        for words, origin in posts.items():
            assert told.count(f"Posted here by {origin} “") == 1, origin
            assert words in told
        assert "one.csv" in told, "the agent knows which file came"
        assert talk.service.rows("SELECT * FROM outbox WHERE state<>2") == []


@pytest.mark.parametrize("name", ["telegram", "console"])
async def test_what_works_beside_a_thread_is_cancelled_and_posts_nothing_more(tmp_path: Path, name: str) -> None:
    """A background agent, a command, a running schedule by its task and by its deletion, and a reminder; for good."""
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        talk.say(delegate("market", ask(**SLOW)))
        await runs_now(talk, "task:1")
        talk.say("!task 1 cancel")
        await talk.shows("Task 1 is cancelled.")
        talk.say(ask(steps=[bash(f"sleep 600; echo 1 > {OUT}/late.csv", background=True)], text="started"))
        await talk.shows("started")
        await until(
            lambda: talk.service.rows("SELECT state FROM tasks WHERE id=2") == [("running",)], what="the command"
        )
        talk.say("!task 2 cancel")
        await talk.shows("Task 2 is cancelled.")
        await propose(talk, 1, kind="reminder", what="Stretch your legs")
        talk.say("!schedule delete 1")
        await talk.shows("Schedule 1 is deleted.")
        talk.say("!schedule run 1")
        await talk.shows("I don't know a schedule 1 here.")
        await propose(talk, 2, what=ask(**SLOW))
        stopped = "SELECT count(*) FROM runs WHERE conversation='schedule:2' AND state='stopped'"
        for count, words in ((1, "!task 3 cancel"), (2, "!schedule delete 2")):
            talk.say("!schedule run 2")
            await runs_now(talk, "schedule:2")
            talk.say(words)
            await until(lambda count=count: talk.service.rows(stopped) == [(count,)], what="its end")  # type: ignore[misc]  # lambda
        await talk.service.quiet()
        await talk.service.restart()
        await talk.service.quiet()
        assert not talk.count("⏰ Stretch your legs")
        assert not [*talk.service.data.glob("threads/*/outputs/late.csv")]
        assert not talk.service.rows("SELECT 1 FROM outbox WHERE kind='file'")
        talk.say("!tasks")
        await talk.shows("Background tasks, newest first:")
        for number in range(1, 5):
            assert talk.count(f"{number}. ⏹") == 1
        assert not talk.service.rows("SELECT 1 FROM runs WHERE state IN ('running', 'waiting')")


@pytest.mark.parametrize("name", ["discord", "console"])
async def test_several_questions_beside_a_thread_survive_kills_and_one_is_cancelled(tmp_path: Path, name: str) -> None:
    """Killed while two ask, while the choice between them is open, and right after it; a later message knows both."""
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        titles = ("market", "money")
        asked = {title: ask(steps=[question(f"Which {title}?")], text=f"the {title} is large") for title in titles}
        work = {"kind": "general-purpose", "background": True}
        begun = [tool("task", description=title, prompt=prompt, **work) for title, prompt in asked.items()]
        talk.say(ask(steps=[calls(*begun)], text="delegated"))
        for title in titles:
            await talk.shows(f"Which {title}?")
        await talk.service.quiet()
        await talk.service.restart()
        talk.say("the Asian one")
        await talk.shows("For which one is this?")
        await talk.service.quiet()
        await talk.service.restart()
        talk.press("Task 2 “money”")
        await until(
            lambda: len(talk.service.rows("SELECT 1 FROM questions WHERE state='open'")) == 1, what="the answer"
        )
        await talk.service.restart()
        await talk.shows("the money is large")
        talk.say("!task 1 cancel")
        await talk.shows("Task 1 is cancelled.")
        await talk.service.quiet()
        talk.say("and now?")
        await talk.shows("and now?")
        await talk.service.quiet()
        told = talk.last_words("and now?")
        for words in ("Which market?", "Which money?", "the money is large"):
            assert words in told
        assert not talk.count("the market is large")


@pytest.mark.parametrize("name", ["feishu", "console"])
async def test_what_the_thread_asks_is_answered_and_closed_and_survives_a_kill_at_three_moments(
    tmp_path: Path, name: str
) -> None:
    """A question and an approval: killed before they ask, while they ask, and right after the answer."""
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        for asks, shown, label, done in (
            (question("Which format?", "csv", "pdf"), "Which format?", "csv", "the report is done"),
            (bash("echo deployed"), "echo deployed", "Approve", "it is deployed"),
        ):
            talk.say(ask(steps=[{**asks, "delay_ms": 1500}], text=done))
            await until(lambda: bool(talk.service.rows("SELECT 1 FROM runs WHERE state='running'")), what="the run")
            await talk.service.restart()
            await talk.shows(shown)
            await talk.service.quiet()
            await talk.service.restart()
            talk.press(label)
            await settled(talk)
            await talk.service.restart()
            await talk.shows(done)
            await talk.service.quiet()
            assert talk.count(done) == 1
            talk.say(ask(steps=[asks], text=f"again: {done}"))
            await until(lambda: bool(talk.service.rows("SELECT 1 FROM questions WHERE state='open'")), what="it asks")
            await talk.service.quiet()
            talk.say("!stop")
            await settled(talk)
            await talk.service.quiet()
            await talk.service.restart()
            talk.say(ask(steps=[asks], text=f"in words: {done}"))
            await until(lambda: bool(talk.service.rows("SELECT 1 FROM questions WHERE state='open'")), what="it asks")
            await talk.service.quiet()
            talk.say(label)
            await talk.shows(f"in words: {done}")
            await talk.service.quiet()
            assert not talk.count(f"again: {done}")
        assert talk.service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]


@pytest.mark.parametrize("name", ["dingtalk", "console"])
async def test_what_waiting_lists_is_answered_by_button_or_number_after_kills_and_not_once_it_is_closed(
    tmp_path: Path, name: str
) -> None:
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        rig = talk.service.rigs[name]
        for number, what in enumerate(("first", "second", "third"), 1):
            deploys = ask(steps=[bash(f"echo {what}")], text=f"the {what} is done")
            talk.say(delegate(what, deploys, text=f"delegated {what}"))
            await talk.shows(f"echo {what}")
            await talk.service.quiet()
            known = len(talk.service.rows("SELECT 1 FROM waiting_numbers")) + 1
            rig.mutter("!waiting")
            await until(lambda n=known: len(talk.service.rows("SELECT 1 FROM waiting_numbers")) == n, what="the list")  # type: ignore[misc]  # lambda
            await talk.service.quiet()
            [(listed,)] = talk.service.rows("SELECT max(number) FROM waiting_numbers")
            if number == 1:
                rig.press("Approve")
            else:
                await talk.service.restart()  # while the list is shown
            if number == 2:
                rig.mutter(f"!waiting {listed} Approve")
            if number < 3:
                await settled(talk)
                await talk.service.restart()  # right after the answer
                await talk.shows(f"the {what} is done")
                await talk.service.quiet()
        talk.say("!task 3 cancel")
        await talk.shows("Task 3 is cancelled.")
        rig.mutter(f"!waiting {listed} Approve")
        await until(lambda: any("any more" in each for each in rig.visible()), what="the refusal")
        await talk.service.quiet()
        assert [talk.count(f"the {what} is done") for what in ("first", "second", "third")] == [1, 1, 0]


@pytest.mark.parametrize("name", ["slack", "dingtalk"])
async def test_what_others_talk_about_beside_a_question_survives_a_kill_and_is_stopped_alone(
    tmp_path: Path, name: str
) -> None:
    """Killed while Eve's turn works, and after its answer; her `/stop` ends her work and leaves Jane's question."""
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        talk.say(ask(steps=[question("Which format?")], text="the report is done"))
        await talk.shows("Which format?")
        await talk.service.quiet()
        talk.say(ask(text="the release is on Friday", delay_ms=2000), by=talk.other)
        running = "SELECT 1 FROM runs WHERE state='running' AND requester<>(SELECT requester FROM runs WHERE id=1)"
        await until(lambda: bool(talk.service.rows(running)), what="her turn")
        await talk.service.restart()
        await talk.shows("the release is on Friday")
        await talk.service.quiet()
        await talk.service.restart()
        talk.say(ask(**SLOW), by=talk.other)
        await until(lambda: bool(talk.service.rows(running)), what="her turn")
        talk.say("!stop", by=talk.other)
        await until(lambda: not talk.service.rows(running), what="its end")
        await talk.service.quiet()
        assert talk.count("the release is on Friday") == 1
        talk.say("csv")
        await talk.shows("the report is done")
        await talk.service.quiet()
        talk.say("and now?")
        await talk.shows("and now?")
        await talk.service.quiet()
        known = "\n".join(text_of(each) for each in talk.last_request("and now?").messages)
        assert "the release is on Friday" in known
