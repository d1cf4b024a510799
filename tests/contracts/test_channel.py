"""What every channel promises. What a rig says its platform can do is what is demanded of it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.conversation import (
    Approve,
    Ask,
    Attachment,
    Done,
    Final,
    Kind,
    Notice,
    Plan,
    PlanItem,
    Step,
    Text,
    View,
)
from channels.base import CommandInfo, Health, OutFile, Refused, TryLater, Unknown
from tests.channels.rigs import RIGS, Memory, Rig, TelegramRig, until


@pytest.fixture(params=sorted(RIGS))
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with RIGS[request.param].start(tmp_path) as made:
        yield made


def demanded(*abilities: str) -> pytest.MarkDecorator:
    """Of every channel whose platform offers this."""
    able = [name for name, kind in RIGS.items() if kind.can.issuperset(abilities)]
    return pytest.mark.parametrize("rig", able, indirect=True)


def wire(rig: Rig) -> TelegramRig:
    """The rig with its server, for faults."""
    assert isinstance(rig, TelegramRig)
    return rig


async def settled(rig: Rig, text: str, topic: int = 0) -> str:
    """Everything visible, as soon as `text` is part of it."""
    await until(lambda: text in "\n".join(rig.visible(topic)), what=text)
    return "\n".join(rig.visible(topic))


# ---------------------------------------------------------------- in


async def test_a_message_arrives_with_thread_author_and_text(rig: Rig) -> None:
    message = await rig.say("what is new?")
    assert (message.text, message.kind, message.thread) == ("what is new?", Kind.CHAT, rig.thread())
    assert message.addressed
    assert message.author.id
    assert message.author.name
    assert abs(message.time - time.time()) < 5


async def test_events_have_keys_of_their_own(rig: Rig) -> None:
    first, second = await rig.say("same"), await rig.say("same")
    assert first.key != second.key


async def test_a_command_comes_as_bare_words(rig: Rig) -> None:
    for text in ("/stop now", "!Stop now"):
        message = await rig.say(text)
        assert (message.kind, message.text) == (Kind.COMMAND, "stop now")
    assert (await rig.say("/etc/hosts is odd")).kind is Kind.CHAT


async def test_a_message_that_cannot_be_stored_is_offered_again(rig: Rig) -> None:
    rig.box.broken = True
    asked = asyncio.create_task(rig.say("keep me"))
    await until(lambda: rig.box.offered >= 2)
    assert not rig.box.messages
    if "apology" in rig.can:
        await until(rig.visible)
        assert len(rig.visible()) == 1
        assert "can't store" in rig.visible()[0]
    rig.box.broken = False
    assert (await asked).text == "keep me"


@demanded("redelivery", "wire")
async def test_a_redelivered_event_has_its_old_key(rig: Rig) -> None:
    server = wire(rig).server
    message = await rig.say("once")
    server.redeliver({"update_id": 1000, "message": server.chat(42).messages[1]})
    await until(lambda: len(rig.box.receipts) == 2)
    assert rig.box.messages == [message]


# ---------------------------------------------------------------- a reply


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


async def test_a_reply_without_a_stream_is_just_posted(rig: Rig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Only this."))
    assert (await settled(rig, "Only this.")).strip() == "Only this."


async def test_finish_again_changes_nothing(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    for _ in range(3):
        await reply.finish(Final("Said once."))
    assert (await settled(rig, "Said once.")).count("Said once.") == 1


async def test_a_plan_is_shown_while_it_goes_on(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Plan((PlanItem("look", "done"), PlanItem("think", "running"), PlanItem("write"))))
    seen = await settled(rig, "write")
    assert re.search(r"look.*think.*write", seen, re.S)
    await reply.finish(Final("Written."))
    assert "Written." in await settled(rig, "Written.")
    if "edits" in rig.can:
        assert rig.visible() == ["Written."]


async def test_a_notice_is_shown_until_work_goes_on(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Notice("retry", "The model is busy, trying again."))
    await settled(rig, "The model is busy")
    reply.show(Text("Here it is"))
    if "edits" in rig.can:
        await until(lambda: rig.visible() == ["Here it is"])
    await reply.finish(Final("Here it is."))
    await settled(rig, "Here it is.")


async def test_closing_leaves_what_is_shown(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Step("1", "half of the work"))
    seen = await settled(rig, "half of the work")
    await reply.close()
    await asyncio.sleep(0.05)
    assert "\n".join(rig.visible()) == seen


async def test_words_of_a_long_reply_come_once_and_in_order(rig: Rig) -> None:
    words = [f"word{number}" for number in range(2000)]
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(" ".join(words)))
    await settled(rig, words[-1])
    assert " ".join(rig.visible()).split() == words
    assert all(len(text) <= rig.channel.limits.text for text in rig.visible())


async def test_code_and_tables_stay_whole_over_several_messages(rig: Rig) -> None:
    code = "\n".join(f"print({number}, 'some more text to fill the line up')" for number in range(150))
    rows = "\n".join(f"| {number} | value {number} |" for number in range(300))
    text = f"# Head\n\n```python\n{code}\n```\n\n| n | v |\n|---|---|\n{rows}\n\nThe end, 完. <@U1> @everyone"
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(text))
    seen = await settled(rig, "The end")
    assert re.findall(r"print\((\d+),", seen) == [str(number) for number in range(150)]
    assert re.findall(r"value (\d+)", seen) == [str(number) for number in range(300)]
    assert "完. <@U1> @everyone" in seen


@demanded("edits", "wire")
async def test_a_reply_grows_in_place_and_not_in_lock_step(rig: Rig) -> None:
    server = wire(rig).server
    reply = rig.channel.reply(rig.thread(), Memory())
    for number in range(300):
        reply.show(Text(f"w{number} "))
        await asyncio.sleep(0.005)
    assert len(rig.visible()) == 1
    words = " ".join(f"w{number}" for number in range(300))
    await reply.finish(Final(words))
    assert rig.visible() == [words]
    assert len([call for call in server.calls if call.method in ("sendMessage", "editMessageText")]) <= 5


@demanded("edits", "wire")
async def test_what_does_not_change_is_not_sent(rig: Rig) -> None:
    server = wire(rig).server
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("All of it."))
    await settled(rig, "All of it.")
    reply.show(Text(""))
    await asyncio.sleep(0.1)
    await reply.finish(Final("All of it."))
    assert [call.method for call in server.calls if call.text] == ["sendMessage"]


# ---------------------------------------------------------------- crashes


async def test_a_restarted_process_edits_what_it_had_shown(rig: Rig) -> None:
    posts = Memory()
    first = rig.channel.reply(rig.thread(), posts)
    first.show(Text("Half a"))
    if "edits" in rig.can:
        await settled(rig, "Half a")
    await first.close()
    again = rig.channel.reply(rig.thread(), Memory(rows=posts.rows))
    again.show(Text("Half a sentence"))
    await again.finish(Final("Half a sentence is better than none."))
    seen = await settled(rig, "better than none")
    assert seen.count("better than none") == 1
    if "edits" in rig.can:
        assert len(rig.visible()) == 1
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Half a sentence is better than none."))
    assert "\n".join(rig.visible()).count("better than none") == 1


async def test_a_post_of_unknown_outcome_is_repeated_with_a_mark(rig: Rig) -> None:
    await rig.channel.reply(rig.thread(), Memory(rows={0: None})).finish(Final("Perhaps twice."))
    seen = await settled(rig, "Perhaps twice.")
    assert seen.strip() != "Perhaps twice."
    assert re.search("repeat|second time", seen)


@demanded("edits")
async def test_a_longer_stream_leaves_nothing_behind(rig: Rig) -> None:
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("long " * 1000))
    await until(lambda: len(rig.visible()) == 2, seconds=10)
    await reply.finish(Final("short"))
    assert rig.visible() == ["short"]


# ---------------------------------------------------------------- questions


@demanded("buttons", "wire")
async def test_options_can_be_pressed(rig: Rig) -> None:
    server = wire(rig).server
    await rig.say("paint it")
    view = View()
    view.add(Ask("ask-1", "Which colour?", ("red", "a very dark shade of blue")))
    view.add(Done("waiting"))
    await rig.channel.reply(rig.thread(), Memory()).finish(view.final())
    [shown] = server.visible(42)
    assert "Which colour?" in shown.text
    assert [label for label, _ in shown.buttons] == ["red", "a very dark shade of blue"]
    query = server.click(shown.buttons[1][1], shown.id)
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text) == ("ask-1", "a very dark shade of blue")
    assert click.thread == rig.thread()
    await until(lambda: server.answers.get(query))
    await until(lambda: not server.visible(42)[0].buttons)
    assert "Which colour?" in server.visible(42)[0].text


@demanded("buttons", "wire")
async def test_an_approval_has_two_buttons_and_shows_the_exact_call(rig: Rig) -> None:
    server = wire(rig).server
    view = View()
    view.add(Approve("ap-1", "Delete the table?", "`DROP TABLE users`"))
    await rig.channel.reply(rig.thread(), Memory()).finish(view.final())
    [shown] = server.visible(42)
    assert "DROP TABLE users" in shown.text
    assert [label for label, _ in shown.buttons] == ["Approve", "Deny"]


async def test_a_question_is_asked_in_words_everywhere(rig: Rig) -> None:
    view = View()
    view.add(Ask("ask-1", "Which colour?", ("red", "blue")))
    await rig.channel.reply(rig.thread(), Memory()).finish(view.final())
    assert "Which colour?" in await settled(rig, "colour")


# ---------------------------------------------------------------- threads


@demanded("topics", "wire")
async def test_case_69_every_call_carries_its_own_thread(rig: Rig, tmp_path: Path) -> None:
    server = wire(rig).server

    async def work(topic: int) -> None:
        message = await rig.say(f"work in {topic}", topic)
        assert message.thread == rig.thread(topic)
        reply = rig.channel.reply(message.thread, Memory(f"r{topic}"), to=message.id)
        reply.show(Step("1", f"step in {topic}"))
        await settled(rig, f"step in {topic}", topic)
        await reply.finish(Final(f"done in {topic}"))
        path = tmp_path / f"{topic}.csv"
        path.write_text("a,b\n")
        await rig.channel.send_file(message.thread, OutFile(path, path.name, 4), Memory(f"f{topic}"))

    await work(7)
    await work(9)
    assert all(call.topic in (7, 9) for call in server.calls if call.chat is not None)
    for topic in (7, 9):
        assert rig.visible(topic) == [f"done in {topic}", f"{topic}.csv"]


# ---------------------------------------------------------------- files


@demanded("uploads")
async def test_a_file_is_sent_once(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(b"a,b\n1,2\n")
    posts = Memory()
    file = OutFile(path, "报告 1.csv", 8, "Your table")
    await rig.channel.send_file(rig.thread(), file, posts)
    seen = await settled(rig, "报告 1.csv")
    assert "Your table" in seen
    await rig.channel.send_file(rig.thread(), file, Memory(rows=posts.rows))
    assert "\n".join(rig.visible()) == seen


@demanded("uploads", "wire")
async def test_a_file_over_the_limit_is_refused_in_words(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "big.bin"
    with path.open("wb") as file:
        file.truncate(rig.channel.limits.upload + 1)
    with pytest.raises(Refused, match=r"big\.bin.*50 MB") as refusal:
        await rig.channel.send_file(rig.thread(), OutFile(path, "big.bin", path.stat().st_size), Memory())
    assert str(tmp_path) not in str(refusal.value)


@demanded("downloads", "wire")
async def test_an_upload_comes_back_in_chunks(rig: Rig) -> None:
    server = wire(rig).server
    data = bytes(range(256)) * 2000
    server.send_document("numbers.bin", data, caption="look")
    message = await rig.box.next()
    [file] = message.attachments
    assert (message.text, file.name, file.size) == ("look", "numbers.bin", len(data))
    chunks = [chunk async for chunk in rig.channel.fetch(file)]
    assert b"".join(chunks) == data
    assert len(chunks) > 1


@demanded("downloads")
async def test_an_upload_over_the_limit_is_refused(rig: Rig) -> None:
    with pytest.raises(Refused, match="exceeds the 20 MB download limit"):
        async for _ in rig.channel.fetch(Attachment("x", "big.bin", size=rig.channel.limits.download + 1)):
            pass


# ---------------------------------------------------------------- trouble


async def deliver(rig: Rig, final: Final, posts: Memory) -> int:
    """Until it is visible, as the outbox does: a new reply over what is known, by type of error. Gives the tries."""
    for tries in range(1, 30):
        reply = rig.channel.reply(rig.thread(), Memory(rows=posts.rows))
        try:
            await reply.finish(final)
        except TryLater as error:
            await asyncio.sleep(min(error.after, 2.0))
        except Unknown:
            await asyncio.sleep(0)
        else:
            return tries
        finally:
            await reply.close()
    raise AssertionError("never delivered")


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
@demanded("wire")
async def test_a_fault_on_an_edit_costs_a_try_and_nothing_else(rig: Rig, kind: str, rule: dict[str, object]) -> None:
    server = wire(rig).server
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Half"))
    await settled(rig, "Half")
    await reply.close()
    server.fault(kind, "editMessageText", times=2, **rule)  # type: ignore[arg-type] # the table's kinds are the fake's
    await deliver(rig, Final("The whole."), posts)
    assert rig.visible() == ["The whole."]


@demanded("wire")
async def test_a_post_that_never_arrived_is_not_called_a_repeat(rig: Rig) -> None:
    server = wire(rig).server
    server.fault("flood", "sendMessage", seconds=1, times=1)
    server.fault("error", "sendMessage", code=502, times=1)
    assert await deliver(rig, Final("Here."), Memory()) == 3
    assert rig.visible() == ["Here."]


@demanded("wire")
async def test_case_63_a_post_accepted_without_an_answer_comes_once_more_marked(rig: Rig) -> None:
    server = wire(rig).server
    server.fault("drop", "sendMessage", after=True)
    await deliver(rig, Final("Here."), Memory())
    first, second = rig.visible()
    assert first == "Here."
    assert second.endswith("Here.")
    assert second != "Here."


@demanded("wire")
async def test_an_edit_accepted_without_an_answer_shows_once(rig: Rig) -> None:
    server = wire(rig).server
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Half"))
    await settled(rig, "Half")
    server.fault("drop", "editMessageText", after=True)
    with pytest.raises(TryLater):
        await reply.finish(Final("The whole."))
    await reply.finish(Final("The whole."))
    assert rig.visible() == ["The whole."]


@demanded("topics", "wire")
async def test_case_61_trouble_in_one_chat_leaves_the_others_alone(rig: Rig) -> None:
    server = wire(rig).server
    server.fault("flood", "*", chat=42, seconds=60, times=-1)
    with pytest.raises(TryLater) as told:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Later."))
    assert told.value.after == 60
    async with asyncio.timeout(1):
        await rig.channel.reply(rig.thread(7), Memory("r2")).finish(Final("Now."))
    assert rig.visible(7) == ["Now."]


@demanded("wire")
async def test_readiness_tells_the_truth_and_recovers(rig: Rig) -> None:
    server = wire(rig).server
    await until(lambda: rig.channel.readiness().health is Health.READY)
    port = server.port
    await server.stop()
    await until(lambda: rig.channel.readiness().health is Health.DOWN)
    assert rig.channel.readiness().detail
    await server.start(port)
    await until(lambda: rig.channel.readiness().health is Health.READY, seconds=20)
    assert (await rig.say("are you back?")).text == "are you back?"


async def test_commands_are_announced(rig: Rig) -> None:
    await rig.channel.announce([CommandInfo("help", "What I can do"), CommandInfo("stop", "Stop the work")])
    if "wire" in rig.can:
        commands = wire(rig).server.commands["default"]
        assert [entry["command"] for entry in commands] == ["help", "stop"]


@demanded("wire")
async def test_a_cancelled_finish_can_be_taken_up_again(rig: Rig) -> None:
    server = wire(rig).server
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    server.fault("slow", "sendMessage", seconds=0.3)
    task = asyncio.create_task(reply.finish(Final("Whole.")))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await reply.close()
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Whole."))
    assert rig.visible() == ["Whole."]
