"""Slack's sizes and rate limits: no answer is lost to them, and several people share them fairly."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.blocks import Ask, Final, Plan, PlanItem, Step, Text
from agent.messages import Thread
from agent.setting import Secret
from channels import slack
from channels.base import TryLater
from channels.shared.background import BackgroundTasks
from channels.shared.rate_limit import Priority, RateLimiter
from channels.slack.api import slack_limits
from channels.slack.channel import SlackChannel
from channels.slack.workspace import SHOW_STATUS, PeopleCache
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, OPS, TEAM, FakeSlack
from tests.support.recording_inbox import Memory
from tests.support.rigs.registry import deliver, ready, until
from tests.support.rigs.slack import DIRECT, SlackRig, methods, reply, shown
from tests.unit.channels.test_rate_limit import ClockLoop

LONG_TEXTS = {
    "chinese": "这是一个很长的回答。\n" * 360,
    "russian": "Это длинный ответ. " * 200,
    "code": "if (a < b && c > d) { return a & b; }\n" * 100,
    "emoji": "😀 " * 1500,
}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SlackRig]:
    async with SlackRig.start(tmp_path) as made:
        await ready(made)
        yield made


def refusals(rig: SlackRig) -> list[str]:
    return [f"{call.method}: {call.error}" for call in rig.server.calls if call.error]


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS.keys())
@pytest.mark.parametrize("topic", [0, 7], ids=["edited", "streamed"])
async def test_a_long_answer_in_any_script_arrives_whole(rig: SlackRig, text: str, topic: int) -> None:
    growing = reply(rig, await rig.say("tell me", topic))
    growing.show(Step("s1", "bash: make", "done"))
    for start in range(0, len(text), 500):
        growing.show(Text(text[start : start + 500]))
    await until(lambda: rig.visible(topic))
    await growing.finish(Final(text))
    assert "".join(" ".join(rig.visible(topic)).split()) == "".join(text.split())
    assert not refusals(rig)


async def test_a_chosen_option_is_shown_below_a_long_question(rig: SlackRig) -> None:
    text = "这是一个很长的问题。" * 150
    growing = reply(rig, await rig.say("paint it", 7))
    growing.show(Text(text))
    await until(lambda: rig.visible(7))
    await growing.finish(Final(text, (Ask("ask-1", text, ("red", "blue")),)))
    rig.press("red", 7)
    await until(lambda: "✓ red (Jane)" in shown(rig).text)
    assert text in shown(rig).text


async def test_a_press_shows_the_text_once(rig: SlackRig) -> None:
    """Slack hands a markdown block back as rich text, without its type and id."""
    text = "Which colour shall the wall have?"
    await deliver(rig, Final(text, (Ask("ask-1", text, ("red", "blue")),)), Memory(), 7)
    await until(lambda: rig.visible(7))
    rig.press("red", 7)
    await until(lambda: "✓ red (Jane)" in shown(rig).text)
    assert shown(rig).text.count(text) == 1


async def test_a_long_answer_beside_a_plan_keeps_plan_steps_and_format(rig: SlackRig) -> None:
    plan = tuple(PlanItem(f"item {number} " + "long words " * 12, "done") for number in range(20))
    steps = tuple(Step(f"s{number}", "reading " + "long words " * 9, "done", "detail " * 9) for number in range(9))
    text = "\n\n".join(f"**Chapter {number}** " + "words and more of them " * 40 for number in range(20))
    await deliver(rig, Final(text, plan=plan, steps=steps, step_count=9), Memory(), 0)
    await until(lambda: "Chapter 19" in "".join(rig.visible()))
    assert not refusals(rig)
    posts = list(rig.server.conversation(DIRECT).posts.values())
    assert [block["type"] for post in posts for block in post.blocks].count("plan") == 1
    assert all(any(block["type"] == "markdown" for block in post.blocks) for post in posts if post.bot_id)


async def test_details_that_come_after_their_step_are_shown(rig: SlackRig) -> None:
    """A thought is known when the model has ended it, in whichever update its step came."""
    thinking = reply(rig, await rig.say("think", 7))
    thinking.show(Step("s1", "Thinking", "running"))
    await until(lambda: "Thinking" in shown(rig).text)
    thinking.show(Step("s1", "Thinking", "done", "six times seven"))
    await until(lambda: shown(rig).details["Thinking"] == "six times seven")
    await thinking.finish(Final("42", steps=(Step("s1", "Thinking", "done", "six times seven"),), step_count=1))
    assert shown(rig).details["Thinking"] == "six times seven"


async def test_counted_output_of_a_long_build_changes_only_the_title(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("build it", 7))
    for number in range(5):
        growing.show(Step("s1", "Running make", "running", "make -j4", f"{10 * number} lines of output so far"))
        await until(lambda number=number: f"{10 * number} lines" in shown(rig).text)  # type: ignore[misc]  # a lambda with a default
    [task] = rig.server.conversation(OPS).posts[shown(rig).ts].tasks.values()
    assert (task["title"], task["details"]) == ("Running make · 40 lines of output so far", "make -j4")
    await growing.finish(Final("Built."))
    assert (shown(rig).text, shown(rig).state) == ("Built.", "stopped")


async def test_a_hundred_steps_a_plan_and_a_long_answer_fit_into_the_stream(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Plan(tuple(PlanItem(f"第{number}项：" + "很长的计划" * 30, "running") for number in range(30))))
    for number in range(100):
        growing.show(
            Step(f"s{number}", f"{number} " + "很长的命令" * 30, "running", "很长" * 50, "100 lines of output so far")
        )
    text = "这是一个很长的回答。\n" * 600
    growing.show(Text(text))
    await until(lambda: len(rig.visible(7)) >= 2)
    await growing.finish(Final(text))
    assert "".join(" ".join(rig.visible(7)).split()) == "".join(text.split())
    assert not refusals(rig)


# ---------------------------------------------------------------- rate limits


@pytest.mark.parametrize("native", [True, False], ids=["streams", "edits"])
def test_three_people_see_something_at_least_every_four_seconds(tmp_path: Path, native: bool) -> None:
    """Slack's limits count a workspace. Runs for 60 seconds of the limits' time."""

    async def answer(rig: SlackRig, number: int, seen: dict[int, list[float]]) -> None:
        loop = asyncio.get_running_loop()
        channel = f"D{number}"
        rig.server.conversation(channel)
        asked = rig.server.send("tell me", channel, user=f"U{number}", silent=True)
        thread = Thread("slack", TEAM, channel, asked if native else "")
        growing = rig.channel.reply(thread, Memory(f"r{number}"), to=asked, asker=f"U{number}")
        before, words = "", ""
        while loop.time() < 60.0:
            words += f"w{len(words)} "
            growing.show(Text(words.split()[-1] + " "))
            await asyncio.sleep(0.1)
            if (now := "".join(rig.server.texts(channel))) != before:
                before = now
                seen[number].append(loop.time())
        await growing.finish(Final(words.strip()))
        assert "".join(rig.server.texts(channel)).split() == words.split()

    async def work() -> None:
        async with SlackRig.start(tmp_path) as rig:
            await ready(rig)
            rig.server.limits = True
            began = asyncio.get_running_loop().time()
            seen: dict[int, list[float]] = {1: [began], 2: [began], 3: [began]}
            await asyncio.gather(*(answer(rig, number, seen) for number in seen))
            assert not [call.method for call in rig.server.calls if call.status == 429]
            for times in seen.values():
                assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 4.0

    loop = ClockLoop(io_seconds=0.003)
    loop.run_until_complete(work())
    loop.close()


def test_a_method_is_closed_as_long_as_slack_asks_and_then_slow() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        limits = RateLimiter(slack_limits(1.0))
        await limits.acquire("C1", Priority.FINAL, method="chat.update")
        limits.note_refused("C1", 10.0, "chat.update")
        with pytest.raises(TryLater) as told:
            await limits.acquire("C2", Priority.FINAL, method="chat.update")  # a tier counts the workspace
        assert told.value.after == 10.0
        await asyncio.sleep(10.0)
        times = []
        for number in range(4):
            await limits.acquire("C1", Priority.FINAL, method="chat.update")
            times.append(loop.time())
            if not number:
                live = asyncio.create_task(limits.acquire("C1", Priority.STREAM, method="chat.update"))
        assert times[0] == 10.0  # exactly as it asked
        assert [round(later - earlier, 1) for earlier, later in itertools.pairwise(times)] == [1.3, 1.3, 1.3]
        assert not live.done()  # finals go first, and leave it no token
        await limits.acquire("C1", Priority.STREAM, method="chat.appendStream")  # another method
        limits.note_refused("C1", 10.0, "chat.postMessage")
        await limits.acquire("C2", Priority.FINAL, method="chat.postMessage")  # counts the channel
        await live

    loop = ClockLoop()
    loop.run_until_complete(work())
    loop.close()


def test_many_people_at_once_get_whole_answers_and_few_go_live(tmp_path: Path) -> None:
    """Each is a thread: 20 streams a minute, 20 ends of streams, 50 edits and 50 statuses. In the limits' time."""

    async def work() -> None:
        async with SlackRig.start(tmp_path) as rig:
            await ready(rig)
            rig.server.limits = True
            replies = []
            for number in range(60):
                person = f"U{number}"
                asked = rig.server.send("tell me", f"D{number}", user=person, silent=True)
                thread = Thread("slack", TEAM, f"D{number}", asked)
                replies.append(rig.channel.reply(thread, Memory(f"r{number}"), to=asked, asker=person))
                replies[-1].show(Text("One. "))
            await until(lambda: any(rig.server.texts(f"D{number}") for number in range(60)))
            await asyncio.gather(*(reply.finish(Final("One. Two.")) for reply in replies))
            assert [rig.server.texts(f"D{number}") for number in range(60)] == [["One. Two."]] * 60
            ends = [call for call in rig.server.calls if call.method in ("chat.stopStream", "chat.update")]
            assert not [call for call in ends if call.status == 429]
            assert rig.server.calls_of(SHOW_STATUS)  # beyond the sessions that can be ended soon
            await until(lambda: not [place for place in rig.server.conversations.values() if place.statuses], 120)

    loop = ClockLoop(io_seconds=0.003)
    loop.run_until_complete(work())
    loop.close()


async def test_more_people_than_single_lookups_are_listed(rig: SlackRig) -> None:
    await until(lambda: any(call.done for call in rig.server.calls_of("users.list")), what="the first listing")
    rig.server.limits = True
    for number in range(150):
        rig.server.send("hello", f"D{number}", user=f"U{number}")
    await until(lambda: len(rig.box.messages) >= 150)
    assert {message.author.name for message in rig.box.messages} >= {
        rig.server.people["U149"]["profile"]["display_name"]
    }
    assert len(rig.server.calls_of("users.list")) == 2, "one of them at the connection"
    assert not [call for call in rig.server.calls_of("users.info") if call.status == 429]


async def test_the_members_of_a_small_workspace_are_looked_up_in_one_call(tmp_path: Path) -> None:
    async with FakeSlack() as server:
        server.limits = True
        for number in range(200):
            server.person(f"U{number}", is_restricted=number == 7)
        tokens = slack.SlackSettings(Secret(BOT_TOKEN), Secret(APP_TOKEN), base_url=server.api_url, agent_view=False)
        async with SlackRig(server, tokens).running() as rig:
            await ready(rig)
            await until(lambda: server.calls_of("users.list"))
            for number in range(200):
                server.send("hello", f"D{number}", user=f"U{number}")
            await until(lambda: len(rig.box.messages) == 200)
            assert [message.author.id for message in rig.box.messages if message.author.guest] == ["U7"]
            assert len(server.calls_of("users.list")) == 1
            assert not server.calls_of("users.info")


async def test_a_member_who_is_known_does_not_wait_for_a_new_look(rig: SlackRig) -> None:
    """Whether somebody is a guest decides about access: a guest is asked about again before."""
    assert isinstance(rig.channel, SlackChannel)
    background = BackgroundTasks()
    people = PeopleCache(rig.channel.workspaces[0].api, background, seconds=0.0)

    async def guests() -> list[bool]:
        found = [await people.find_person(user, TEAM) for user in ("U6", "U7")]
        return [person.guest for person in found if person]

    rig.server.person("U6")
    rig.server.person("U7", is_restricted=True)
    assert await guests() == [False, True]
    rig.server.person("U6", is_restricted=True)
    rig.server.person("U7", is_restricted=False)
    rig.server.fault("slow", "users.info", seconds=0.2, contains="U6")
    assert await guests() == [False, False]
    await until(lambda: len(rig.server.calls_of("users.info")) == 4)
    await background.cancel()


async def test_a_short_loss_of_the_socket_asks_only_conversations_in_use(rig: SlackRig) -> None:
    for number in range(60):
        rig.server.conversation(f"C9{number}")
    await rig.say("hello")
    await rig.say("hello", 7)
    before = len(rig.server.calls)
    rig.server.abort()
    await until(lambda: not rig.server.sockets)
    missed = rig.server.send("are you there?", DIRECT)
    await until(lambda: any(message.id == missed for message in rig.box.messages))
    await until(lambda: not rig.box.gaps)
    asked = [call.channel for call in rig.server.calls[before:] if call.method == "conversations.history"]
    assert set(asked) == {DIRECT, OPS}
    assert not rig.server.calls_of("users.conversations")[1:]


async def test_a_hundred_conversations_are_caught_up_within_the_tier(tmp_path: Path) -> None:
    async with SlackRig.start(tmp_path, rate_factor=20.0) as rig:
        await ready(rig)
        for number in range(100):
            rig.server.conversation(f"C9{number}")
        await rig.say("hello")
        await rig.leave()
        await rig.back()
        await until(lambda: len(rig.server.calls_of("conversations.history")) >= 102)
        await until(lambda: not rig.box.gaps)
        assert methods(rig, "conversations.history")


async def test_many_ends_at_once_show_their_text_and_keep_the_limits(rig: SlackRig) -> None:
    rig.server.limits = True
    growing = []
    for number in range(4):
        one = reply(rig, await rig.say("work", number + 1), Memory(f"r{number}"))
        one.show(Text("One. "))
        await until(lambda number=number: "One." in "".join(rig.visible(number + 1)))  # type: ignore[misc]  # a lambda with a default
        growing.append(one)
    ends = [asyncio.create_task(one.finish(Final("One. Two."))) for one in growing]
    await until(lambda: all(rig.visible(number) == ["One. Two."] for number in range(1, 5)))
    await asyncio.gather(*ends)
    assert {shown(rig, number).state for number in range(1, 5)} == {"stopped"}
    assert not [call for call in rig.server.calls if call.status == 429]
