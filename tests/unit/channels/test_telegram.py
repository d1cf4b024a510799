"""Telegram as users see it, case by case."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path

import pytest

from agent.blocks import Ask, Final, Step, Text
from agent.messages import Kind
from channels.base import CommandInfo, OutgoingFile, Receipt, Settling
from channels.shared.caches import Presses, Sparing
from channels.shared.reply_writer import ReplyWriter
from channels.telegram.reply import MAX_MESSAGE_UNITS
from tests.fakes.telegram import JANE
from tests.support.rigs.registry import Memory, TelegramRig, until
from tests.support.rigs.telegram import FORUM, GROUP, telegram_thread

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


@pytest.fixture
def rig(telegram_rig: TelegramRig) -> TelegramRig:
    return telegram_rig


# Case 15 of docs/cases.md
async def test_a_placeholder_is_posted_first_and_then_edited(rig: TelegramRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    await until(lambda: rig.visible() == ["…"])
    reply.show(Text("The an"))
    await until(lambda: rig.visible() == ["The an"])
    reply.show(Text("swer"))
    await reply.finish(Final("The answer."))
    [shown] = rig.server.visible(42)
    assert (shown.text, shown.id) == ("The answer.", 1)
    assert [call.method for call in rig.server.calls if call.method == "sendMessage"] == ["sendMessage"]


async def test_typing_is_shown_from_the_start_until_text_is_visible(rig: TelegramRig) -> None:
    await rig.say("hello")
    await until(lambda: rig.server.calls_of("sendChatAction"))
    reply = rig.channel.reply(rig.thread(), Memory())
    await reply.finish(Final("Hello."))
    assert len(rig.server.calls_of("sendChatAction")) == 1  # it showed until then
    await rig.say("and now?")  # the answer took it away
    await until(lambda: len(rig.server.calls_of("sendChatAction")) == 2)


# Case 16 of docs/cases.md
@pytest.mark.slow
async def test_edits_in_a_group_are_three_seconds_apart(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path, per_chat=1.0, per_group=20.0) as rig:
        rig.server.enforce_rates()
        thread = rig.thread(7)
        private = rig.channel.reply(rig.thread(), Memory("r1"))
        group = rig.channel.reply(thread, Memory("r2"))
        for number in range(80):
            private.show(Text(f"{number} "))
            group.show(Text(f"{number} "))
            await asyncio.sleep(0.1)
        await group.finish(Final("group"))
        await private.finish(Final("private"))
        in_group = [c.at for c in rig.server.calls if c.chat == FORUM and c.text and c.text != "group"]
        assert len(in_group) >= 2
        assert all(later - earlier >= 2.5 for earlier, later in itertools.pairwise(in_group[1:]))
        assert len(rig.edits()) >= 6
        assert (rig.visible(7), rig.visible()) == (["group"], ["private"])
        assert rig.server.refused() == 0


# Case 18 of docs/cases.md
async def test_a_long_final_reply_is_an_edit_and_ordered_replies(rig: TelegramRig) -> None:
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("word0"))
    await until(rig.visible)
    words = " ".join(f"word{number}" for number in range(1100))  # about 9,000 characters
    code = "\n".join(f"line {number}" for number in range(400))
    await reply.finish(Final(f"{words}\n\n```py\n{code}\n```"))
    shown = rig.server.visible(42)
    assert shown[0].edits >= 1
    assert [part.id for part in shown] == [int(posts.rows[index] or 0) for index in range(len(shown))]
    seen = " ".join(part.text for part in shown)
    assert re.findall(r"word\d+", seen) == words.split()
    assert re.findall(r"line (\d+)", seen) == [str(number) for number in range(400)]
    assert "```" not in seen
    blocks = [entity for part in shown for entity in part.entities if entity["type"] == "pre"]
    assert [block["language"] for block in blocks] == ["py"] * len(blocks)
    assert len(blocks) >= 1


# Case 84 of docs/cases.md
async def test_a_group_that_becomes_a_supergroup_is_followed(rig: TelegramRig) -> None:
    message = await rig.say("@fawn_bot hi")
    rig.server.migrate(GROUP, -1_001_000_000_777)
    moved = await rig.box.next(kind=Kind.MOVED)
    assert moved.text == "-1001000000777"
    await rig.channel.reply(telegram_thread(GROUP), Memory(), to=message.id).finish(Final("Still with you."))
    assert rig.server.texts(-1_001_000_000_777) == ["Still with you."]


async def test_a_group_answer_replies_to_its_asker_and_a_private_one_does_not(rig: TelegramRig) -> None:
    asked = rig.server.send("@fawn_bot x", chat=GROUP)
    for chat, key in ((GROUP, "r1"), (42, "r2")):
        reply = rig.channel.reply(telegram_thread(chat), Memory(key), to=str(asked["message_id"]))
        await reply.finish(Final("y"))
    assert [shown.reply_to for shown in rig.server.visible(GROUP)] == [asked["message_id"]]
    assert [shown.reply_to for shown in rig.server.visible(42)] == [0]


async def test_a_ping_puts_the_name_before_the_text(rig: TelegramRig) -> None:
    asked = rig.server.send("@fawn_bot x", chat=GROUP, user=77)
    for number, final in enumerate((Final("Done.", mention="77"), Final("**a**\nb", mention="77"))):
        reply = rig.channel.reply(telegram_thread(GROUP), Memory(f"r{number}"), to=str(asked["message_id"]))
        await reply.finish(final)
    first, second = rig.server.visible(GROUP)
    assert (first.text, first.pings, first.reply_to) == ("User77: Done.", ("77",), asked["message_id"])
    assert (second.text, second.pings) == ("User77:\na\nb", ("77",))
    assert [(mark["type"], mark["offset"]) for mark in second.entities] == [("text_mention", 0), ("bold", 8)]
    await rig.channel.reply(telegram_thread(GROUP), Memory("r3")).finish(Final("Gone.", mention="999"))
    assert rig.server.visible(GROUP)[-1].text == "Psst: Gone."  # a person who left the group


async def test_many_names_fit_and_notify_nobody(rig: TelegramRig) -> None:
    rig.server.person(77)
    await rig.channel.reply(telegram_thread(GROUP), Memory()).finish(Final("@user77 " * 1200))
    shown = rig.server.visible(GROUP)
    assert "".join(part.text for part in shown).count("user77") == 1200
    assert not any(part.pings for part in shown)


async def test_the_menu_shows_the_arguments_of_a_command(rig: TelegramRig) -> None:
    await rig.channel.announce([CommandInfo("model", "Choose a model", "NAME"), CommandInfo("help", "x" * 300)])
    told = [entry["description"] for entry in rig.server.commands["default"]]
    assert told == ["Choose a model (NAME)", "x" * 256]


async def test_link_previews_are_off(rig: TelegramRig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("https://example.org"))
    [call] = rig.server.calls_of("sendMessage")
    assert call.args["link_preview_options"] == {"is_disabled": True}


async def test_an_image_is_sent_as_a_photo_and_everything_else_as_a_document(rig: TelegramRig, tmp_path: Path) -> None:
    for name, data in (
        ("chart.png", PNG),
        ("fake.png", b"not a picture"),
        ("data.csv", b"a,b"),
        ("line\nbreak.txt", b"x"),
    ):
        path = tmp_path / "copy"
        path.write_bytes(data)
        await rig.channel.send_files(rig.thread(), [OutgoingFile(path, name, len(data), "c" * 2000)], Memory(name))
    shown = rig.server.visible(42)
    assert [(part.kind, part.file_name) for part in shown] == [
        ("photo", "chart.png"),
        ("document", "fake.png"),
        ("document", "data.csv"),
        ("document", "line_break.txt"),
    ]
    assert shown[0].file == PNG
    assert all(part.text == "c" * 1023 + "…" for part in shown)


async def test_a_flood_of_presses_without_effect_makes_few_calls_and_others_are_answered(rig: TelegramRig) -> None:
    rig.box.refuses = lambda message: message.kind is Kind.CLICK
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Sure?", (Ask("a", "Sure?", ("yes", "no")),)))
    [shown] = rig.server.visible(42)
    for _ in range(300):
        rig.server.click(shown.buttons[0][1], shown.id, user=66)
    query = rig.server.click(shown.buttons[0][1], shown.id, user=77)
    await until(lambda: rig.server.answers.get(query))
    assert len(rig.box.receipts) > Presses.MOST
    assert len(rig.server.calls_of("answerCallbackQuery")) <= Sparing.MOST + 1
    assert not rig.server.calls_of("editMessageReplyMarkup")


async def test_a_rejected_click_keeps_the_buttons(rig: TelegramRig) -> None:
    rig.box.refuses = lambda message: message.kind is Kind.CLICK
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Sure?", (Ask("a", "Sure?", ("yes", "no")),)))
    [shown] = rig.server.visible(42)
    query = rig.server.click(shown.buttons[0][1], shown.id)
    await until(lambda: rig.server.answers.get(query))
    assert "Only the person I asked" in rig.server.answers[query]
    assert rig.box.receipts == [Receipt.IGNORED]
    assert len(rig.server.visible(42)[0].buttons) == 2


async def test_a_choice_stays_visible_below_the_question(rig: TelegramRig) -> None:
    ask = Ask("a", "**Sure?**", ("yes", "no"))
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("**Sure?**", (ask,)))
    [shown] = rig.server.visible(42)
    rig.press("yes")
    await until(lambda: "✓" in rig.visible()[0])
    [after] = rig.server.visible(42)
    assert after.text == f"{shown.text}\n\n✓ yes (Jane)"
    assert (after.entities, after.buttons) == (shown.entities, ())


async def test_a_choice_that_does_not_fit_only_removes_the_buttons(rig: TelegramRig) -> None:
    text = "x" * (MAX_MESSAGE_UNITS - 60)
    ask = Ask("a", text, ("y" * 60, "no"), free_text=False)
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(text, (ask,)))
    rig.press("y" * 60)
    await until(lambda: not rig.buttons())
    assert "✓" not in "".join(rig.visible())


async def test_many_or_long_options_can_be_answered(rig: TelegramRig) -> None:
    options = tuple(f"option {number} " + "x" * 150 * (number == 3) for number in range(20))
    await rig.channel.reply(rig.thread(), Memory("r1")).finish(Final("Which?", (Ask("a", "Which?", options),)))
    [call] = rig.server.calls_of("sendMessage")
    rows = call.args["reply_markup"]["inline_keyboard"]
    assert len(rows) <= 8
    assert sum(map(len, rows)) == 20
    assert all(option.strip() in call.text for option in options)  # one was shortened: all are written out
    await rig.channel.reply(rig.thread(), Memory("r2")).finish(
        Final("Which?", (Ask("a" * 64, "Which?", ("yes", "no")),))
    )
    [_, shown] = rig.server.visible(42)
    assert not shown.buttons
    assert "1. yes" in shown.text


async def test_drafts_stream_in_private_chats_and_end_in_one_post(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path, drafts=True) as rig:
        reply = rig.channel.reply(rig.thread(), Memory("r1"))
        reply.show(Text("half"))
        await until(lambda: rig.server.drafts.get((42, 0)) == "half")
        assert rig.visible() == []
        await reply.finish(Final("whole"))
        assert rig.visible() == ["whole"]
        assert not rig.edits()
        group = rig.channel.reply(rig.thread(7), Memory("r2"))
        group.show(Text("half"))
        await until(lambda: rig.visible(7) == ["half"])
        await group.finish(Final("whole"))
        assert rig.visible(7) == ["whole"]


async def test_the_stop_button_of_a_draft_stops(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path, drafts=True) as rig:
        reply = rig.channel.reply(rig.thread(), Memory("r1"))
        reply.show(Text("half"))
        await until(lambda: rig.server.stoppable)
        rig.server.stop_draft()
        message = await rig.box.next(1)
        assert (message.kind, message.text, message.private) == (Kind.COMMAND, "stop", True)
        assert message.thread == rig.thread()
        assert message.author.id == message.thread.chat
        await reply.close()


TABLE = """Who **won**?

| Name | @jane |
|---|--:|
| `a < b` | 1 |
| [x](tg://user?id=7) | [y](https://a.example/) |
"""
TASKS = "- [x] done <b>\n- [ ] open\n\n```python\n@jane = 1 < 2\n```\n"


@pytest.mark.parametrize("topic", [0, 7], ids=["private", "group"])
async def test_tables_and_task_lists_are_rich_messages_where_the_operator_says_so(tmp_path: Path, topic: int) -> None:
    async with TelegramRig.start(tmp_path, rich_messages=True) as rig:
        chat = int(rig.thread(topic).chat)
        rig.server.person(JANE, username="jane")
        reply = rig.channel.reply(rig.thread(topic), Memory("r1"))
        reply.show(Text(TABLE))
        await until(lambda: rig.visible(topic))
        steps = (Step("s1", "Read <a>", "done"),)
        await reply.finish(Final(TABLE, steps=steps, step_count=1, mention=str(JANE)))
        [rich] = rig.server.chat(chat).rich.values()
        name = "@jane" if topic == 0 else "@\u200bjane"
        assert rich.tables == [[["Name", name], ["a < b", "1"], ["x (tg://user?id=7)", "y"]]]
        [shown] = [each for each in rig.server.visible(chat) if "won" in each.text]
        assert ("1 step" in shown.text, "Read <a>" in shown.text) == (True, True)
        assert shown.pings == ((str(JANE),) if topic else ())
        await rig.channel.reply(rig.thread(topic), Memory("r2")).finish(Final(TASKS))
        assert "☑ done <b>" in rig.visible(topic)[-1]
        assert "@jane = 1 < 2" in rig.visible(topic)[-1]
        await rig.channel.reply(rig.thread(topic), Memory("r3")).finish(Final("plain | text - here"))
        assert len(rig.server.chat(chat).rich) == 2


@pytest.mark.parametrize("text", [TABLE, TASKS])
async def test_a_server_without_rich_messages_shows_text(tmp_path: Path, text: str) -> None:
    async with TelegramRig.start(tmp_path, rich_messages=True) as rig:
        rig.server.knows_rich = False
        await rig.channel.reply(rig.thread(), Memory("r1")).finish(Final(text))
        reply = rig.channel.reply(rig.thread(), Memory("r2"))
        reply.show(Text("half"))
        await until(lambda: len(rig.visible()) == 2)
        await reply.finish(Final(text))
        assert rig.visible()[0] == rig.visible()[1]
        assert ("won" in rig.visible()[0]) == (text is TABLE)


async def test_a_question_in_a_rich_message_has_its_buttons(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path, rich_messages=True) as rig:
        posts = Memory("r1")
        ask = Ask("ask-1", TABLE, ("red", "blue"))
        await rig.channel.reply(rig.thread(), posts).finish(Final(TABLE, (ask,)))
        assert rig.buttons() == ["red", "blue"]
        rig.press("red")
        message = await rig.box.next(1)
        assert (message.kind, message.text) == (Kind.CLICK, "red")
        await until(lambda: not rig.buttons())
        again = rig.channel.reply(rig.thread(), Memory("r1", posts.rows))
        assert isinstance(again, Settling)
        await again.settle(Final(TABLE, (ask,)), "ask-1", "✓ red (Jane)")
        assert "✓ red (Jane)" in rig.visible()[0]


async def test_tables_are_aligned_text_unless_the_operator_says_otherwise(rig: TelegramRig) -> None:
    await rig.channel.reply(rig.thread(), Memory("r1")).finish(Final(TABLE))
    assert not rig.server.chat(JANE).rich
    assert "Name" in rig.visible()[0]


async def test_a_finish_after_many_deltas_is_one_call(rig: TelegramRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    for number in range(100):
        reply.show(Step(str(number), f"step {number}", "done"))
        reply.show(Text(f"{number} "))
    await until(lambda: "99" in "".join(rig.visible()))
    count = rig.wire.count("post") + rig.wire.count("edit")
    await reply.finish(Final("over"))
    assert rig.wire.count("post") + rig.wire.count("edit") == count + 1
    assert rig.visible() == ["over"]


async def test_finished_writers_leave_no_task(rig: TelegramRig) -> None:
    for number in range(20):
        reply = rig.channel.reply(rig.thread(), Memory(f"r{number}"))
        reply.show(Text("x"))
        assert isinstance(reply, ReplyWriter)
        await reply.close()
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if name.startswith(("writer", "typing", "post"))]
