"""Contract of every channel: faults of the platform, the network and the process."""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import suppress

import pytest

from agent.blocks import Ask, Final, Text, View
from agent.messages import Kind
from channels.base import Health, Refused, TokenRejected, TryLater, Unconfirmed
from tests.support.rigs.registry import Memory, Rig, deliver, demanded, ready, settled, until

# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("flood", {"seconds": 1}),
        ("error", {"code": 502}),
        ("error", {"code": 500, "body": "<html>Bad Gateway</html>"}),
        ("drop", {}),
        ("slow", {"seconds": 0.3}),
    ],
    ids=["429", "502", "html", "drop", "slow"],
)
@demanded("wire", "edits")
async def test_a_failed_edit_is_retried_without_other_effects(rig: Rig, kind: str, rule: dict[str, object]) -> None:
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Half"))
    await settled(rig, "Half")
    await reply.close()
    rig.wire.fault(kind, "edit", **rule)  # type: ignore[arg-type] # the table's kinds are the wire's
    await deliver(rig, Final("The whole."), posts)
    assert rig.visible() == ["The whole."]


# Case 17 of docs/cases.md
@demanded("wire", "edits")
async def test_a_stream_continues_after_a_flood_wait(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("one "))
    await settled(rig, "one")
    rig.wire.fault("flood", "edit", seconds=1)
    reply.show(Text("two "))
    await settled(rig, "two")
    reply.show(Text("three"))
    await reply.finish(Final("one two three"))
    assert rig.visible() == ["one two three"]


@demanded("wire")
async def test_a_post_that_never_arrived_is_not_marked_as_a_repeat(rig: Rig) -> None:
    rig.wire.fault("flood", "post", seconds=1)
    rig.wire.fault("error", "post", code=502)
    assert await deliver(rig, Final("Here."), Memory()) <= 3
    assert rig.visible() == ["Here."]


# Case 63 of docs/cases.md
@demanded("wire")
async def test_a_post_accepted_without_an_answer_is_not_duplicated_unmarked(rig: Rig) -> None:
    rig.wire.fault("drop", "post", after=True)
    await deliver(rig, Final("Here."), Memory())
    if "once" in rig.can:
        assert rig.visible() == ["Here."]
        return
    first, second = rig.visible()
    assert first == "Here."
    assert second.endswith("Here.")
    assert second != "Here."


# Case 63 of docs/cases.md
@demanded("wire")
async def test_a_post_that_is_never_confirmed_is_posted_a_limited_number_of_times(rig: Rig) -> None:
    rig.wire.fault("error", "post", code=504, after=True, times=-1)
    posts = Memory()
    with suppress(Unconfirmed):  # found if the platform supports a lookup
        await deliver(rig, Final("Here."), posts)
        assert "once" in rig.can
    first, *repeats = rig.visible()
    assert first == "Here."
    if "once" in rig.can:
        assert repeats == []
    else:
        [repeat] = repeats
        assert repeat.endswith("Here.")
        assert repeat != "Here."
        with pytest.raises(Unconfirmed):  # a restart keeps all of it
            await deliver(rig, Final("Here."), Memory(rows=posts.rows))
        assert rig.wire.count("post") == 2


@demanded("wire", "edits")
@pytest.mark.parametrize("after", [False, True], ids=["lost", "effective"])
async def test_a_proxy_that_answers_504_to_everything_doubles_an_answer_once_at_most(rig: Rig, after: bool) -> None:
    """Until it answers again, nothing is posted a second time. Then the answer is there, whole and confirmed."""
    await ready(rig)
    rig.wire.fault("error", "any", code=504, times=5, after=after)
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    await asyncio.sleep(2.0)  # a placeholder would be due
    reply.show(Text("Here"))
    await asyncio.sleep(1.0)
    await reply.close()
    await deliver(rig, Final("Here."), posts)
    assert len(rig.visible()) <= 2
    assert rig.visible()[-1].endswith("Here.")
    assert not [text for text in rig.visible() if "Here" not in text], "an empty message stays"


@demanded("wire", "edits")
async def test_an_unconfirmed_stream_leaves_the_repeat_to_the_final_reply(rig: Rig) -> None:
    posts = Memory()
    rig.wire.fault("error", "post", code=504, after=True)
    reply = rig.channel.reply(rig.thread(), posts)
    for number in range(5):
        reply.show(Text(f"piece {number} "))
        await asyncio.sleep(0.3)
    await reply.close()
    await deliver(rig, Final("The whole."), posts)
    assert len(rig.visible()) == (1 if "once" in rig.can else 2)
    assert rig.visible()[-1].endswith("The whole.")


@demanded("wire", "once")
async def test_a_post_accepted_before_a_crash_is_shown_once(rig: Rig) -> None:
    posts = Memory()
    rig.wire.fault("drop", "post", after=True)
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Here"))
    await settled(rig, "Here")
    await reply.close()
    await rig.leave()
    await rig.back()
    await deliver(rig, Final("Here it is."), posts)
    assert rig.visible() == ["Here it is."]


@demanded("wire", "edits")
async def test_an_edit_accepted_without_an_answer_is_shown_once(rig: Rig) -> None:
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Half"))
    await settled(rig, "Half")
    rig.wire.fault("drop", "edit", after=True)
    try:
        await reply.finish(Final("The whole."))
    except TryLater:
        await reply.finish(Final("The whole."))
    assert rig.visible() == ["The whole."]
    await deliver(rig, Final("The whole."), posts)
    assert rig.visible() == ["The whole."]


# Case 61 of docs/cases.md
@demanded("topics", "wire")
async def test_a_failing_chat_does_not_affect_other_chats(rig: Rig) -> None:
    rig.wire.fault("flood", "any", topic=0, seconds=600, times=-1)
    with pytest.raises(TryLater):
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Later."))
    async with asyncio.timeout(60):  # where a limit is an application's, others wait for some seconds
        await rig.channel.reply(rig.thread(7), Memory("r2")).finish(Final("Now."))
    assert rig.visible(7) == ["Now."]


@demanded("retry_after", "wire")
async def test_the_wait_of_a_rate_limit_is_passed_on(rig: Rig) -> None:
    rig.wire.fault("flood", "any", seconds=60, times=-1)
    with pytest.raises(TryLater) as told:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Later."))
    assert 30 < told.value.after <= 61


# Case 62 of docs/cases.md
@demanded("wire")
async def test_a_refusal_that_the_channel_does_not_know_may_pass_and_leaves_nothing_behind(rig: Rig) -> None:
    rig.wire.fault("error", "post", code=400, times=4)
    posts, refused = Memory(), 0
    while not rig.visible():
        refusal: Refused | None = None
        try:
            await rig.channel.reply(rig.thread(), posts).finish(Final("**Later.**"))
        except Refused as error:
            refusal, refused = error, refused + 1
        if refusal:
            assert refusal.may_pass, refusal
            assert rig.wire.count("post") <= 2 * refused  # at most once more, without formatting
            assert posts.rows == {}
            assert rig.visible() == []
    assert refused >= 2
    assert [text.replace("*", "") for text in rig.visible()] == ["Later."]


@demanded("wire", "tokens")
async def test_a_token_that_a_call_finds_revoked_is_a_fault_of_the_channel_at_once(rig: Rig) -> None:
    await ready(rig)
    rig.wire.fault("error", "post", code=401, times=-1)
    with pytest.raises(TokenRejected) as told:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Here."))
    known = rig.channel.readiness()
    assert known.health is Health.DOWN
    assert str(told.value) in known.detail


@pytest.mark.parametrize(
    ("refusals", "restarted", "topic"),
    [(1, False, 0), (2, False, 1), (-1, False, 0), (1, True, 1), (2, True, 0), (-1, True, 1)],
    ids=[
        "once",
        "twice in a thread",
        "always",
        "once in a thread, restarted",
        "twice, restarted",
        "always in a thread, restarted",
    ],
)
@demanded("topics", "wire", "edits")
async def test_a_final_whose_edits_are_refused_is_shown_all_the_same(
    rig: Rig, refusals: int, restarted: bool, topic: int
) -> None:
    """The half that was streamed becomes plain text or goes away; the whole answer is visible once."""
    posts = Memory()
    thread = (await rig.say("what is it?", topic)).thread
    reply = rig.channel.reply(thread, posts, asker=rig.box.messages[-1].author.id)
    reply.show(Text("Half"))
    await settled(rig, "Half", topic)
    rig.wire.fault("error", "edit", code=400, times=refusals)
    if restarted:
        await reply.close()
        reply = rig.channel.reply(thread, Memory(rows=posts.rows))
    await reply.finish(Final("The **whole** answer."))
    [seen] = rig.visible(topic)
    assert seen.replace("*", "") == "The whole answer."
    await rig.channel.reply(thread, Memory(rows=posts.rows)).finish(Final("The **whole** answer."))
    assert len(rig.visible(topic)) == 1


@demanded("wire", "edits", "buttons")
async def test_a_question_whose_edits_are_refused_names_its_options(rig: Rig) -> None:
    view = View()
    view.add(Ask("ask-1", "Which colour?", ("red", "blue")))
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("Half"))
    await settled(rig, "Half")
    rig.wire.fault("error", "edit", code=400, times=-1)
    await reply.finish(view.final())
    [seen] = rig.visible()
    assert re.search("Which colour.*red.*blue", seen, re.S)


@demanded("wire")
async def test_a_cancelled_finish_can_be_repeated(rig: Rig) -> None:
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    rig.wire.fault("slow", "post", seconds=1.0)
    task = asyncio.create_task(reply.finish(Final("Whole.")))
    await until(lambda: rig.wire.count("post"), what="the post")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await reply.close()
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Whole."))
    assert rig.visible() == ["Whole."]


# ---------------------------------------------------------------- connections


@demanded("wire")
async def test_readiness_follows_the_connection_and_recovers(rig: Rig) -> None:
    await rig.wire.stop()
    await until(lambda: rig.channel.readiness().health is Health.DOWN, what="the outage to be noticed")
    assert rig.channel.readiness().detail
    with pytest.raises(TryLater):
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Nobody hears."))
    await rig.wire.start()
    await ready(rig)
    assert (await rig.say("are you back?")).text == "are you back?"
    await rig.channel.reply(rig.thread(), Memory("r2")).finish(Final("I am."))
    assert rig.visible() == ["I am."]


@demanded("wire", "edits")
async def test_a_reply_survives_an_outage(rig: Rig) -> None:
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Half of"))
    await settled(rig, "Half of")
    await rig.wire.stop()
    reply.show(Text(" it"))
    with pytest.raises(TryLater):
        await reply.finish(Final("Half of it is better than nothing."))
    await rig.wire.start()
    await ready(rig)
    await deliver(rig, Final("Half of it is better than nothing."), posts)
    assert rig.visible() == ["Half of it is better than nothing."]


@demanded("socket", "wire")
async def test_a_broken_connection_is_reopened_without_loss(rig: Rig) -> None:
    await rig.say("before")
    rig.wire.abort()
    rig.mutter("meanwhile")
    await until(lambda: any(message.text == "meanwhile" for message in rig.box.messages))
    await ready(rig)
    await rig.say("after")
    assert [message.text for message in rig.box.messages] == ["before", "meanwhile", "after"]


# Case 64 of docs/cases.md
@demanded("socket", "wire")
async def test_a_silent_connection_is_detected_and_reopened(rig: Rig) -> None:
    await rig.say("before")
    since = rig.channel.readiness().since
    rig.wire.deafen()
    rig.mutter("do you hear me?")
    await until(lambda: any(message.text == "do you hear me?" for message in rig.box.messages))
    await ready(rig)
    assert rig.channel.readiness().since > since  # it was not ready in the meantime
    await rig.say("after")
    assert [message.text for message in rig.box.messages] == ["before", "do you hear me?", "after"]


@demanded("socket", "wire")
async def test_a_connection_that_breaks_repeatedly_is_reopened_each_time(rig: Rig) -> None:
    for number in range(3):
        rig.wire.abort()
        await ready(rig)
        assert (await rig.say(f"round {number}")).text == f"round {number}"
    assert len(rig.box.messages) == 3


# ---------------------------------------------------------------- shutdown


async def test_closing_a_channel_leaves_no_task_or_connection(rig: Rig) -> None:
    await rig.say("hello")
    await rig.leave()
    tasks, threads = len(asyncio.all_tasks()), set(threading.enumerate())
    for number in range(2):
        await rig.back()
        await rig.say(f"hello {number}")
        reply = rig.channel.reply(rig.thread(), Memory(f"r{number}"))
        reply.show(Text("I am"))
        await settled(rig, "I am" if "edits" in rig.can else "")
        await rig.leave()
    await until(lambda: len(asyncio.all_tasks()) <= tasks, what="the end of every task")

    def left() -> list[str]:
        return [t.name for t in threading.enumerate() if t not in threads and not t.name.startswith("asyncio_")]

    await until(lambda: not left(), what="the end of every thread")
    texts = [message.text for message in rig.box.messages if message.kind is Kind.CHAT]
    assert texts == ["hello", "hello 0", "hello 1"]
