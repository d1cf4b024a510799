"""Slack's native streams: their content, their end, and fallbacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.blocks import Ask, Final, Notice, Plan, PlanItem, Step, Text
from agent.messages import Kind
from channels.base import Reply, TryLater
from tests.fakes.slack import JANE, OPS, TEAM
from tests.support.recording_inbox import Memory, Rows
from tests.support.rigs.registry import ready, until
from tests.support.rigs.slack import DIRECT, SlackRig, methods, reply, shown


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SlackRig]:
    async with SlackRig.start(tmp_path) as made:
        await ready(made)
        yield made


async def test_a_stream_is_native_and_ends_with_one_call(rig: SlackRig) -> None:
    message = await rig.say("tell me", 7)
    growing = reply(rig, message)
    for number in range(30):
        growing.show(Text(f"w{number} "))
        await asyncio.sleep(0.03)
    await until(lambda: rig.server.calls_of("chat.appendStream"))
    assert shown(rig).state == "streaming"
    before = len(methods(rig))
    words = " ".join(f"w{number}" for number in range(30))
    await growing.finish(Final(words))
    assert (shown(rig).text, shown(rig).state, shown(rig).edits) == (words, "stopped", 0)
    assert methods(rig)[before:] == ["stopStream"]
    assert set(methods(rig)[1:before]) == {"appendStream"}
    [start] = rig.server.calls_of("chat.startStream")
    assert (start.args["recipient_user_id"], start.args["recipient_team_id"]) == (JANE, TEAM)
    assert start.args["thread_ts"] == rig.root(7)


@pytest.mark.slow
async def test_stream_updates_contain_only_new_text(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("tell me", 7))
    for piece in ("谢", "谢", " **bo", "ld** <", "@U1> a &l", "t; b"):
        growing.show(Text(piece))
        await asyncio.sleep(0.4)
    await growing.finish(Final("谢谢 **bold** <@U1> a &lt; b"))
    assert shown(rig).text == "谢谢 **bold** <@U1> a &lt; b"
    assert "update" not in methods(rig)
    assert rig.pinged(7) == []


async def test_text_that_escaping_makes_longer_still_fits(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("tell me", 7))
    text = " ".join(f"<@U{number}>" for number in range(1300))  # 11,000 characters, 15,000 escaped
    growing.show(Text(text))
    await until(lambda: len(rig.visible(7)) == 3)  # 4,000 characters each
    await growing.finish(Final(text))
    assert " ".join(rig.visible(7)).split() == text.split()
    assert not [call for call in rig.server.calls if call.error]


async def test_steps_and_plan_are_tasks_that_collapse_at_the_end(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Plan((PlanItem("look", "done"), PlanItem("think", "running"), PlanItem("write"))))
    growing.show(Step("s1", "bash: make", "running", progress="cc -c x.c"))
    await until(lambda: "bash: make" in shown(rig).text)
    assert shown(rig).tasks == (
        "look: complete",
        "think: in_progress",
        "write: pending",
        "bash: make · cc -c x.c: in_progress",
    )
    growing.show(Step("s1", "bash: make", "failed"))
    growing.show(Text("It broke."))
    await until(lambda: "bash: make: error" in shown(rig).tasks)
    await growing.finish(Final("It broke."))
    assert shown(rig).text == "It broke."
    assert methods(rig)[-1] == "stopStream"


async def test_several_texts_stream_into_one_message_that_ends_as_the_final_reply(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Text("Let me look.", "a"))
    await until(lambda: "Let me look." in shown(rig).text)
    growing.show(Step("s1", "reading"))
    growing.show(Text("It is", "b"))
    await until(lambda: "Let me look.\n\nIt is" in shown(rig).text)
    assert "update" not in methods(rig)
    await growing.finish(Final("It is 42."))
    assert (shown(rig).text, shown(rig).state) == ("It is 42.", "stopped")
    assert methods(rig)[-2:] == ["stopStream", "update"]
    assert rig.server.calls_of("chat.stopStream")[0].args["chunks"][-1]["text"] == " 42."  # one call, and it is seen


@pytest.mark.parametrize("narration", [False, True], ids=["answer", "narration and answer"])
@pytest.mark.parametrize("topic", [0, 7], ids=["edited", "streamed"])
async def test_the_final_reply_keeps_its_steps_in_a_titled_plan(rig: SlackRig, narration: bool, topic: int) -> None:
    growing = reply(rig, await rig.say("work", topic))
    if narration:
        growing.show(Text("Let me look.", "a"))
    growing.show(Step("s1", "reading", "running", progress="3 lines of output so far"))
    await until(lambda: rig.visible(topic))
    steps = (Step("s1", "reading", "done"), Step("s2", "writing", "done"))
    for step in steps:
        growing.show(step)
    growing.show(Text("It is", "b"))
    await until(lambda: "It is" in rig.visible(topic)[-1])
    await growing.finish(Final("It is 42.", steps=steps, step_count=2, seconds=8))
    [last] = rig.server.visible(OPS, rig.root(7)) if topic else rig.server.visible(DIRECT)
    assert (last.text, last.tasks) == ("It is 42.", ("reading: complete", "writing: complete"))
    assert last.plan == "✅ 2 steps · 8 s"


async def test_a_replaced_text_is_shown_until_the_final_reply(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Text("It is rai", "a"))
    await until(lambda: "It is rai" in shown(rig).text)
    growing.show(Text("Sunny", "a", replace=True))
    await until(lambda: shown(rig).text == "Sunny")
    await growing.finish(Final("Sunny all day."))
    assert shown(rig).text == "Sunny all day."


async def test_a_notice_is_a_task_that_ends(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Notice("retry", "My model is busy."))
    await until(lambda: shown(rig).tasks == ("My model is busy.: in_progress",))
    growing.show(Text("Here"))
    await until(lambda: shown(rig).tasks == ("My model is busy.: complete",))
    await growing.finish(Final("Here it is."))
    assert shown(rig).text == "Here it is."


# Case 12 of docs/cases.md
async def test_a_stream_that_slack_ended_continues_as_edits(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("this takes six minutes", 7))
    growing.show(Text("One. "))
    await until(lambda: "One." in shown(rig).text)
    rig.server.expire(shown(rig).ts)
    growing.show(Text("Two. "))
    await until(lambda: shown(rig).text == "One. Two.")
    await growing.finish(Final("One. Two. Three."))
    assert shown(rig).text == "One. Two. Three."
    assert methods(rig).count("startStream") == 1


async def test_a_stream_that_ended_early_gets_its_final_reply_as_an_edit(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Text("One."))
    await until(lambda: "One." in shown(rig).text)
    rig.server.expire(shown(rig).ts)
    await growing.finish(Final("One. Two."))
    assert shown(rig).text == "One. Two."


async def test_refused_streams_are_replaced_by_edits(rig: SlackRig) -> None:
    rig.server.fault("error", "chat.startStream", times=-1, description="feature_not_enabled")
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Step("s1", "reading"))
    growing.show(Text("One."))
    await until(lambda: "One." in shown(rig).text)
    assert "reading" in shown(rig).text
    await growing.finish(Final("One. Two."))
    assert (shown(rig).text, shown(rig).state) == ("One. Two.", "posted")


async def test_with_too_many_recent_streams_replies_are_messages(rig: SlackRig) -> None:
    rig.server.fault("flood", "chat.startStream", times=-1, seconds=30)
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Text("At once."))
    await until(lambda: shown(rig).text == "At once.")
    await growing.finish(Final("At once."))
    other = reply(rig, await rig.say("more", 8), Memory("r8"))
    await other.finish(Final("Too."))
    assert len(rig.server.calls_of("chat.startStream")) == 1  # Slack asked to wait: nothing is tried meanwhile


async def test_an_unconfirmed_stream_update_is_not_repeated(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Text("One. "))
    await until(lambda: "One." in shown(rig).text)
    rig.server.fault("drop", "chat.appendStream", after=True)
    growing.show(Text("Two. "))
    await until(lambda: "Two." in shown(rig).text)
    await deliver_over(growing, Final("One. Two. Three."))
    assert shown(rig).text == "One. Two. Three."


async def test_an_unconfirmed_end_of_a_stream_leaves_the_final_reply(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Text("One. "))
    await until(lambda: "One." in shown(rig).text)
    rig.server.fault("drop", "chat.stopStream", after=True)
    await deliver_over(growing, Final("One. Two."))
    assert (shown(rig).text, shown(rig).state) == ("One. Two.", "stopped")


async def test_a_delayed_end_of_a_stream_shows_the_text_at_once(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Text("One. "))
    await until(lambda: "One." in shown(rig).text)
    rig.server.fault("flood", "chat.stopStream", seconds=1)
    with pytest.raises(TryLater) as told:
        await growing.finish(Final("One. Two."))
    assert shown(rig).text == "One. Two."
    await asyncio.sleep(told.value.after)
    await deliver_over(growing, Final("One. Two."))
    assert (shown(rig).text, shown(rig).state, shown(rig).edits) == ("One. Two.", "stopped", 0)


async def test_rate_limited_stream_updates_do_not_delay_the_end(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("work", 7))
    growing.show(Text("One. "))
    await until(lambda: "One." in shown(rig).text)
    rig.server.fault("flood", "chat.appendStream", times=-1, seconds=60)
    growing.show(Text("Two. "))
    await until(lambda: rig.server.calls_of("chat.appendStream"))
    await growing.finish(Final("One. Two. Three."))
    assert (shown(rig).text, shown(rig).state, shown(rig).edits) == ("One. Two. Three.", "stopped", 0)
    assert len(rig.server.calls_of("chat.appendStream")) == 1


async def deliver_over(growing: Reply, final: Final) -> None:
    """Finish the reply, repeatedly as long as it has to wait."""
    for _ in range(10):
        try:
            return await growing.finish(final)
        except TryLater as error:
            await asyncio.sleep(error.after)
    raise AssertionError("never delivered")


@pytest.mark.parametrize("answered", [True, False])
async def test_a_restarted_process_continues_an_open_stream(rig: SlackRig, answered: bool) -> None:
    message, posts = await rig.say("work", 7), Memory()
    if not answered:
        rig.server.fault("drop", "chat.startStream", after=True)
    growing = reply(rig, message, posts)
    growing.show(Text("Half a"))
    await until(lambda: "Half a" in shown(rig).text)
    await growing.close()
    await rig.leave()
    await rig.back()
    assert posts.rows == {0: shown(rig).ts if answered else None}
    await reply(rig, message, Memory(rows=posts.rows)).finish(Final("Half a sentence."))
    assert (shown(rig).text, shown(rig).state) == ("Half a sentence.", "stopped")


async def test_unconfirmed_streams_of_two_replies_are_each_continued_once(rig: SlackRig) -> None:
    """Slack shows no mark of its reply on an open stream. A restarted process finds both."""
    rows = [Rows(), Rows()]
    questions = [await rig.say(f"question {number}", 7) for number in range(2)]
    for number, question in enumerate(questions):
        rig.server.fault("drop", "chat.startStream", after=True)
        growing = reply(rig, question, Memory(f"r{number}", rows[number]))
        growing.show(Text(f"Half {number}"))
        await until(lambda: len(rig.visible(7)) == number + 1)  # noqa: B023 — awaited in the loop
        await growing.close()
    assert rows == [{0: None}, {0: None}]
    await rig.leave()
    await rig.back()
    again = [Memory(f"r{number}", rows[number], [rows[1 - number]]) for number in range(2)]
    ended = [reply(rig, questions[number], again[number]).finish(Final(f"Whole {number}.")) for number in range(2)]
    await asyncio.gather(*ended)
    assert sorted(rig.visible(7)) == ["Whole 0.", "Whole 1."]


async def test_a_lookup_does_not_take_a_stream_that_another_reply_is_starting(rig: SlackRig) -> None:
    rows = [Rows({0: None}), Rows()]
    questions = [await rig.say(f"question {number}", 7) for number in range(2)]
    rig.server.fault("slow", "chat.startStream", after=True, seconds=1.0)
    later = reply(rig, questions[1], Memory("r1", rows[1], [rows[0]]))
    later.show(Text("Half"))
    await until(lambda: rig.visible(7) == ["Half"])
    earlier = reply(rig, questions[0], Memory("r0", rows[0], [rows[1]]))
    with pytest.raises(TryLater):
        await earlier.finish(Final("The earlier answer."))
    await until(lambda: rows[1].get(0))
    await earlier.finish(Final("The earlier answer."))
    await later.finish(Final("Half of it."))
    assert sorted(text.rpartition("\n")[2] for text in rig.visible(7)) == ["Half of it.", "The earlier answer."]


async def test_the_native_stop_button_stops_the_turn(rig: SlackRig) -> None:
    message, posts = await rig.say("work", 7), Memory()
    growing = reply(rig, message, posts)
    growing.show(Text("On it"))
    await until(lambda: "On it" in shown(rig).text)
    rig.server.press_stop(shown(rig).ts)
    stop = await rig.box.next(kind=Kind.COMMAND)
    assert (stop.text, stop.thread, stop.reply_to) == ("stop", message.thread, posts.rows[0])
    await growing.finish(Final("On it\n\n_Stopped._"))
    assert shown(rig).text == "On it\n\n_Stopped._"


async def test_a_streamed_answer_ends_with_feedback_buttons(rig: SlackRig) -> None:
    message = await rig.say("tell me", 7)
    growing = reply(rig, message)
    growing.show(Text("It is "))
    await until(lambda: shown(rig).state == "streaming")
    await growing.finish(Final("It is done."))
    for value in ("up", "down"):
        key = rig.server.rate(shown(rig).ts, value)
        pressed = await rig.box.next(1 if value == "up" else 2, Kind.FEEDBACK)
        assert (pressed.text, pressed.reply_to, pressed.author.id) == (value, shown(rig).ts, JANE)
        assert pressed.thread == message.thread
        await until(lambda key=key: rig.server.acked(key))  # type: ignore[misc]  # bound at once


async def test_a_question_has_no_feedback_buttons(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("tell me", 7))
    growing.show(Text("Hm. "))
    await until(lambda: shown(rig).state == "streaming")
    ask = Ask("ask-1", "Which?", ("a", "b"))
    await growing.finish(Final("Hm. Which?", (ask,)))
    [end] = rig.server.calls_of("chat.stopStream")
    assert [block["type"] for block in end.args["blocks"]] == ["actions"]
