"""What works beside a thread says what it is, and waits, ends and is cancelled alike, on every platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.server import until
from tests.support.service_process import ask
from tests.support.thread_talk import TOPIC, ThreadTalk, calls, delegate, question, tool

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.parametrize("name", ["discord", "dingtalk"])]
COMMAND = "for n in 1 2; do echo $n >> /mnt/user-data/outputs/[n].csv; done"


async def test_every_post_beside_a_thread_says_what_it_is(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        rig = talk.service.rigs[name]
        talk.say(delegate("market", ask(steps=[question("Which market?", "Asia", "Europe")], text="It is large")))
        asked = await talk.shows("Which market?")
        assert "🔧 Task 1" in asked
        assert "“market”" in asked
        await talk.service.quiet()
        assert rig.pinged(TOPIC)
        talk.press("Asia")
        await until(lambda: any("🔧 Task 1" in each and "It is large" in each for each in talk.visible()))
        talk.say("!task 1")
        await talk.shows("1. ✅ “market”: done at")

        started = calls(tool("bash", command=COMMAND, background=True))
        talk.say(ask(steps=[started], text="started"))
        assert COMMAND in await talk.shows("Background task 2 is done")
        await talk.shows("[n].csv")

        yearly = tool("schedule", action="create", what="Read the news", cron="0 4 1 1 *", time_zone="UTC")
        talk.say(ask(steps=[calls(yearly)], text="proposed"))
        await talk.shows("Shall I")
        talk.press("Yes")
        await talk.shows("Schedule 1 is active")
        talk.say("!schedule run 1")
        shown = await talk.shows("You said: ")
        assert "⏰ Schedule 1" in shown
        assert "“Read the news”" in shown
        await talk.service.quiet()


async def test_a_waiting_task_is_cancelled_on_every_platform(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["write_file"]}, sandbox={}) as talk:
        write = tool("write_file", path="/mnt/user-data/workspace/x", content="x")
        talk.say(delegate("market", ask(steps=[calls(write)], text="wrote it")))
        asked = await talk.shows("May I run")
        assert "🔧 Task 1" in asked
        await talk.service.quiet()
        talk.say("!task 1 cancel")
        await talk.shows("Task 1 is cancelled.")
        await until(lambda: "Approve" not in talk.offers(), what="the end of its buttons")
        assert talk.service.rows("SELECT state FROM questions") == [("closed",)]
        talk.say(ask(text="and on"))
        await talk.shows("and on")
        await talk.service.quiet()
        assert talk.count("wrote it") == 0
        assert not [*talk.service.data.glob("threads/*/workspace/x")]


async def test_a_task_that_was_begun_before_a_kill_is_not_begun_again(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        talk.say(delegate("market", ask(text="The market is large", delay_ms=1500)))
        await talk.shows("delegated")
        await talk.service.kill()
        await talk.service.start()
        await talk.shows("The market is large", seconds=60)
        await talk.service.quiet()
        assert talk.service.rows("SELECT count(*) FROM tasks") == [(1,)]
        assert talk.count("The market is large") == 1
