"""Contract of every channel: a reply streams in place and ends as exactly the final reply."""

from __future__ import annotations

import asyncio
import re
import time
import unicodedata

import pytest

from agent.blocks import Ask, Done, Final, Notice, Plan, PlanItem, Step, Text
from channels.base import Settling
from tests.support.recording_inbox import Rows
from tests.support.rigs.registry import Memory, Rig, demanded, settled, until


def plain(text: str) -> str:
    """Return the text as a person reads it, without the zero-width characters that prevent mentions."""
    return re.sub("[\u200b\u2060\ufeff]", "", unicodedata.normalize("NFC", text))


def settling(rig: Rig, posts: Memory) -> Settling:
    """Return the reply with these messages as a later process opens it."""
    reply = rig.channel.reply(rig.thread(), posts)
    assert isinstance(reply, Settling)
    return reply


# ---------------------------------------------------------------- the final reply


@demanded("live")
async def test_the_final_is_visible_once_and_steps_are_folded_away(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Step("1", "running the numbers"))
    reply.show(Text("Let me see"))
    await settled(rig, "running the numbers")
    reply.show(Step("1", "running the numbers", "done"))
    reply.show(Done())
    await reply.finish(Final("The answer is 42."))
    seen = await settled(rig, "The answer is 42.")
    assert seen.count("The answer is 42.") == 1
    if "edits" in rig.can:
        assert rig.visible() == ["The answer is 42."]


@demanded("live")
async def test_a_plan_is_shown_while_it_is_in_progress(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Plan((PlanItem("look", "done"), PlanItem("think", "running"), PlanItem("write"))))
    seen = await settled(rig, "write")
    assert re.search(r"look.*think.*write", seen, re.S)
    await reply.finish(Final("Written."))
    assert "Written." in await settled(rig, "Written.")
    if "edits" in rig.can:
        assert rig.visible() == ["Written."]


@demanded("live")
async def test_a_notice_is_shown_until_work_continues(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Notice("retry", "My model is busy, trying again."))
    await settled(rig, "My model is busy")
    reply.show(Text("Here it is"))
    if "edits" in rig.can:
        await until(lambda: rig.visible() == ["Here it is"])
    await reply.finish(Final("Here it is."))
    await settled(rig, "Here it is.")


@demanded("live")
async def test_close_keeps_the_visible_messages(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Step("1", "half of the work"))
    seen = await settled(rig, "half of the work")
    await reply.close()
    await rig.channel.reply(rig.thread(), Memory("next")).finish(Final("The next one."))
    assert "\n".join(rig.visible()).startswith(seen)


@demanded("edits")
async def test_a_reply_with_only_files_shows_no_text(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Step("1", "drawing"))
    await settled(rig, "drawing")
    await reply.finish(Final(""))
    assert rig.visible() == []


# ---------------------------------------------------------------- long replies


@demanded("documents")
async def test_the_rest_of_a_long_answer_is_a_file(rig: Rig) -> None:
    words = [f"word{number}" for number in range(3000)]
    posts = Memory()
    for _ in range(2):  # the second is that of a restarted process
        await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final(" ".join(words)))
        assert " ".join(rig.visible()).split() == words
        assert len(rig.visible()) <= 4


@demanded("edits")
async def test_a_stream_longer_than_the_final_reply_leaves_no_message(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("long " * (rig.channel.limits.text_limit // 4)))
    await until(lambda: len(rig.visible()) >= 2 or "long long" in "".join(rig.visible()))
    await reply.finish(Final("short"))
    assert rig.visible() == ["short"]


@pytest.mark.parametrize("topic", [0, 1])
@demanded("topics", "edits")
async def test_a_long_answer_without_ascii_is_streamed_and_shown(rig: Rig, topic: int) -> None:
    """Some platforms limit bytes: 3,500 Chinese characters are 10 KB."""
    words = [f"第{number:04}句话说明了这件事情的一个方面。" for number in range(180)]
    question = await rig.say("说说看", topic)
    reply = rig.channel.reply(question.thread, Memory(), to=question.id, asker=question.author.id)
    for number, word in enumerate(words):
        reply.show(Step("1", "running the tests", progress=f"{number} lines of output so far"))
        reply.show(Text(word))
        await asyncio.sleep(0.01)
    reply.show(Step("1", "running the tests", "done"))
    reply.show(Done())
    await reply.finish(Final("".join(words)))
    assert "".join("".join(rig.visible(topic)).split()) == "".join(words)


@demanded("topics", "edits")
async def test_three_replies_at_once_are_each_shown_in_their_thread(rig: Rig) -> None:
    topics = [1, 2, 3]
    questions = {topic: await rig.say(f"question {topic}", topic) for topic in topics}

    async def answer(topic: int) -> None:
        asked = questions[topic]
        reply = rig.channel.reply(asked.thread, Memory(f"r{topic}"), to=asked.id, asker=asked.author.id)
        words = [f"t{topic}w{number}" for number in range(60)]
        for word in words:
            reply.show(Text(f"{word} "))
            await asyncio.sleep(0.02)
            if word == words[10]:  # nobody waits for another reply's end
                await settled(rig, words[0], topic)
        await reply.finish(Final(" ".join(words)))
        assert rig.visible(topic) == [" ".join(words)]

    async with asyncio.TaskGroup() as group:
        for topic in topics:
            group.create_task(answer(topic), name=f"answer {topic}")


# ---------------------------------------------------------------- rate limits


@demanded("edits", "wire")
async def test_a_reply_is_edited_in_place_and_skips_intermediate_states(rig: Rig) -> None:
    began = time.monotonic()
    reply = rig.channel.reply(rig.thread(), Memory())
    for number in range(200):
        reply.show(Text(f"w{number} "))
        await asyncio.sleep(0.005)
    await until(lambda: "".join(rig.visible()).startswith("w0 w1 "))
    assert len(rig.visible()) == 1
    words = " ".join(f"w{number}" for number in range(200))
    await reply.finish(Final(words))
    assert rig.visible() == [words]
    windows = (time.monotonic() - began) / rig.channel.window
    assert rig.wire.count("post") + rig.wire.count("edit") <= windows + 4
    assert rig.wire.count("delete") == 0


@demanded("edits", "wire")
async def test_an_unchanged_message_is_not_sent(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("All of it."))
    await settled(rig, "All of it.")
    before = rig.wire.count("post") + rig.wire.count("edit")
    reply.show(Text(""))
    await asyncio.sleep(0.1)
    assert rig.wire.count("post") + rig.wire.count("edit") == before
    await reply.finish(Final("All of it."))
    count = rig.wire.count("any")
    await reply.finish(Final("All of it."))
    assert rig.wire.count("any") == count
    assert rig.visible() == ["All of it."]


@demanded("edits", "wire")
async def test_first_words_are_shown_without_delay(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("At once."))
    await until(lambda: rig.visible() == ["At once."])  # no placeholder, no window
    await reply.finish(Final("At once."))


# ---------------------------------------------------------------- crashes


@demanded("edits")
async def test_a_restarted_process_continues_a_long_reply(rig: Rig) -> None:
    words = [f"word{number}" for number in range(rig.channel.limits.text_limit // 4)]
    posts = Memory()
    await rig.channel.reply(rig.thread(), posts).finish(Final(" ".join(words)))
    await rig.leave()
    await rig.back()
    words[0] = "changed"
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final(" ".join(words)))
    assert " ".join(rig.visible()).split() == words


@demanded("edits")
async def test_a_possible_repeat_stays_marked_after_a_restart(rig: Rig) -> None:
    posts = Memory(rows=Rows({0: None}))
    await rig.channel.reply(rig.thread(), posts).finish(Final("Perhaps twice."))
    marked = await settled(rig, "Perhaps twice.")
    await rig.leave()
    await rig.back()
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Perhaps twice."))
    assert await settled(rig, "Perhaps twice.") == marked


# ---------------------------------------------------------------- settled questions

FORMATS = Ask("q1", "Which format?", ("csv", "pdf"))
SIZES = Ask("q2", "Which size?", ("A4", "A5"))


@demanded("edits", "buttons")
@pytest.mark.parametrize("asks", [(FORMATS,), (FORMATS, SIZES)], ids=["alone", "with another"])
async def test_a_settled_question_says_its_outcome_in_place_of_its_buttons(rig: Rig, asks: tuple[Ask, ...]) -> None:
    """A later process edits the message. It can be repeated, and taken back."""
    final, posts = Final("The report is ready. Which format?", asks, state="waiting"), Memory()
    await rig.channel.reply(rig.thread(), posts).finish(final)
    await until(lambda: "pdf" in rig.offers())
    before = rig.visible()
    for _ in range(2):
        await settling(rig, posts).settle(final, "q1", "✓ csv (Jane)")
        await until(lambda: "pdf" not in rig.offers())
        assert rig.offers() == [option for ask in asks[1:] for option in ask.options]
        seen = rig.visible()
        assert len(seen) == len(before)
        assert "\n".join(seen).count("✓ csv (Jane)") == 1
        assert seen[0].startswith("The report is ready.")
    await settling(rig, posts).settle(final, "q1", "")
    assert rig.visible() == before
    assert rig.offers() == [option for ask in asks for option in ask.options]


@demanded("edits", "buttons", "erase")
async def test_a_question_whose_message_is_gone_is_not_posted_again(rig: Rig) -> None:
    final, posts = Final("Which format?", (FORMATS,), state="waiting"), Memory()
    await rig.channel.reply(rig.thread(), posts).finish(final)
    await until(lambda: "pdf" in rig.offers())
    rig.erase()
    await settling(rig, posts).settle(final, "q1", "✓ csv (Jane)")
    assert rig.visible() == []
