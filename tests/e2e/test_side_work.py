"""What works beside a conversation, on every platform: sub-agents, tasks, schedules, skills, memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_skills import run_skill, write_skill
from tests.fakes.model_script import text_of
from tests.fakes.server import until
from tests.support.service_process import ask, bash
from tests.support.thread_talk import ThreadTalk, calls, delegate, question, tool

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.parametrize("name", ["slack", "console"])]


async def test_everything_that_works_beside_a_thread_works_on_every_platform(tmp_path: Path, name: str) -> None:
    """A sub-agent, a background agent that asks, a background command, a schedule, a skill and a memory."""
    write_skill(tmp_path)
    async with ThreadTalk.open(tmp_path, name, memory={"enabled": True, "wait_seconds": 3600}, sandbox={}) as talk:
        talk.say(delegate("count", ask(text="three files"), background=False, text="counted"))
        await talk.shows("counted")
        assert "three files" in text_of(talk.model.requests()[-1].messages[-1])

        talk.say(
            delegate("market", ask(steps=[question("Which market?", "Asia", "Europe")], text="The market is large"))
        )
        await talk.shows("Which market?")
        talk.press("Asia")
        await talk.shows("The market is large")

        started = calls(tool("bash", command="echo first; exit 3", background=True))
        talk.say(ask(steps=[started], text="started"))
        await talk.shows("Background task 2 failed")

        yearly = tool("schedule", action="create", what="Read the news", cron="0 4 1 1 *", time_zone="UTC")
        talk.say(ask(steps=[calls(yearly)], text="proposed"))
        await talk.shows("Shall I")
        talk.press("Yes")
        await talk.shows("Schedule 1 is active")
        talk.say("!schedule run 1")
        await talk.shows("You said: ")

        talk.say(ask(steps=[run_skill(numbers=[1, 2])], text="added"))
        await talk.shows("added")
        assert '"sum": 3' in text_of(talk.model.requests()[-1].messages[-1])

        saved = calls(tool("memory", action="save", text="likes tea", quote="I like tea"))
        talk.say("I like tea, remember it " + ask(steps=[saved], text="noted it"))
        await talk.shows("I would read this in later conversations")  # the thread has read what a command printed
        talk.press("Approve")
        await talk.shows("noted it")
        talk.say(ask(steps=[bash("echo done")], text="and done"))
        await talk.shows("and done")
        assert "likes tea" in talk.last_words("and done")
        await talk.service.quiet()
        assert talk.service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]


async def test_what_works_beside_a_thread_survives_a_kill_at_three_moments(tmp_path: Path, name: str) -> None:
    """Killed during its work, while it asks, and right after the answer: each is posted once, and known there."""
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        talk.say(delegate("market", ask(text="The market is large", delay_ms=1500)))
        await talk.shows("delegated")
        await until(
            lambda: ("done",) in talk.service.rows("SELECT state FROM runs"), what="the end of the thread's run"
        )
        await talk.service.restart()
        await talk.shows("The market is large")
        assert talk.count("The market is large") == 1

        asks = ask(steps=[question("Which money?", "Euro", "Yuan")], text="The money is enough")
        talk.say(delegate("money", asks, text="asked for money"))
        await talk.shows("Which money?")
        await talk.service.quiet()
        await talk.service.restart()
        talk.press("Euro")
        await until(lambda: not talk.service.rows("SELECT 1 FROM questions WHERE state='open'"), what="the answer")
        await talk.service.restart()
        await talk.shows("The money is enough")

        deploys = ask(steps=[calls(tool("bash", command="echo deployed"))], text="It is deployed")
        talk.say(delegate("deploy", deploys, text="asked to deploy"))
        await talk.shows("echo deployed")
        await talk.service.quiet()
        await talk.service.restart()
        talk.say("Approve")
        await until(lambda: not talk.service.rows("SELECT 1 FROM questions WHERE state='open'"), what="the answer")
        await talk.service.restart()
        await talk.shows("It is deployed")
        await talk.service.quiet()
        posted = ("The market is large", "The money is enough", "It is deployed")
        assert [talk.count(words) for words in posted] == [1, 1, 1], talk.visible()
        talk.say("and now?")
        await talk.shows("and now?")
        await talk.service.quiet()
        told = talk.last_words("and now?")
        for number, words in enumerate(posted, 1):
            assert told.count(f"Posted here by task {number} ") >= 1
            assert words in told
        assert talk.service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]


async def test_work_beside_a_thread_is_cancelled_and_its_approval_closed(tmp_path: Path, name: str) -> None:
    """An approval of a background agent by button, and one that ends with its task; a schedule that is deleted."""
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        for number, what in enumerate(("first", "second"), 1):
            deploys = ask(steps=[calls(tool("bash", command=f"echo {what}"))], text=f"the {what} is done")
            talk.say(delegate(what, deploys, text=f"delegated the {what}"))
            await talk.shows(f"echo {what}")
            await talk.service.quiet()
            if number == 1:
                talk.press("Approve")
                await talk.shows("the first is done")
                await talk.service.quiet()
        talk.say("!task 2 cancel")
        await talk.shows("Task 2 is cancelled.")
        if name != "console":  # what it printed stays
            await talk.shows("Closed without an answer")
        await talk.service.quiet()
        if name == "console":
            talk.press("Approve")
            await talk.service.quiet()
        else:
            assert "Approve" not in talk.offers()
        assert not talk.count("the second is done")

        yearly = tool("schedule", action="create", what="Read the news", cron="0 4 1 1 *", time_zone="UTC")
        talk.say(ask(steps=[calls(yearly)], text="proposed"))
        await talk.shows("Shall I")
        talk.say("!schedule delete 1")
        await talk.shows("Schedule 1 is deleted")
        talk.press("Yes")
        await talk.service.quiet()
        assert talk.service.rows("SELECT 1 FROM schedules WHERE state='active'") == []
