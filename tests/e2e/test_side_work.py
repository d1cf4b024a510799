"""What works beside a conversation, on every platform: sub-agents, tasks, schedules, skills, memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_skills import run_skill, write_skill
from tests.fakes.model_script import text_of
from tests.support.service_process import ask, bash
from tests.support.thread_talk import PLATFORMS, ThreadTalk, calls, delegate, question, tool

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.parametrize("name", PLATFORMS)]


async def test_everything_that_works_beside_a_thread_works_on_every_platform(tmp_path: Path, name: str) -> None:
    """A sub-agent, a background agent that asks, a background command, a schedule, a skill and a memory."""
    write_skill(tmp_path)
    async with ThreadTalk.open(tmp_path, name, memory={"enabled": True, "wait_seconds": 3600}) as talk:
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
        await talk.shows("noted it")
        talk.say(ask(steps=[bash("echo done")], text="and done"))
        await talk.shows("and done")
        assert "likes tea" in talk.last_words("and done")
        await talk.service.quiet()
        assert talk.service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]
