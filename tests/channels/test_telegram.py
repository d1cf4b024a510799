"""What a person sees on Telegram: the cases of the channel, each by its number, and its corners."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.conversation import Ask, Attachment, Final, Kind, Secret, Step, Text, Thread, Unreadable
from channels import telegram
from channels.base import CommandInfo, Gone, Health, OutFile, Receipt, Refused, TryLater
from channels.writer import Writer
from tests.channels.rigs import Box, Memory, TelegramRig, listening, until
from tests.fakes.telegram import TOKEN, FakeTelegram

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
GROUP = -100


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramRig]:
    async with TelegramRig.start(tmp_path) as made:
        made.server.chat(42)
        made.server.chat(GROUP)
        yield made


def edits(rig: TelegramRig, chat: int = 42) -> list[float]:
    return [call.at for call in rig.server.calls if call.method == "editMessageText" and call.chat == chat]


async def test_case_15_a_placeholder_first_then_edits_in_place(rig: TelegramRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    await until(lambda: rig.visible() == ["…"])
    reply.show(Text("The an"))
    await until(lambda: rig.visible() == ["The an"], seconds=1)
    reply.show(Text("swer"))
    await reply.finish(Final("The answer."))
    [shown] = rig.server.visible(42)
    assert (shown.text, shown.id) == ("The answer.", 1)
    assert [call.method for call in rig.server.calls if call.method == "sendMessage"] == ["sendMessage"]


async def test_typing_shows_at_once_and_until_something_is_visible(rig: TelegramRig) -> None:
    await rig.say("hello")
    await until(lambda: rig.server.calls_of("sendChatAction"))
    reply = rig.channel.reply(rig.thread(), Memory())
    await asyncio.sleep(0.05)
    assert len(rig.server.calls_of("sendChatAction")) == 1  # it still shows
    await reply.finish(Final("Hello."))
    await rig.say("and now?")  # the answer took it away
    await until(lambda: len(rig.server.calls_of("sendChatAction")) == 2, seconds=1)


async def test_case_16_edits_in_a_group_keep_three_seconds_apart(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path, per_group=20.0) as rig:
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
        in_group = [c.at for c in rig.server.calls if c.chat == rig.forum and c.text and c.text != "group"]
        assert len(in_group) >= 2
        assert all(later - earlier >= 3 for earlier, later in itertools.pairwise(in_group[1:]))
        assert len(edits(rig)) >= 6
        assert (rig.visible(7), rig.visible()) == (["group"], ["private"])
        assert rig.server.refused() == 0


async def test_case_17_a_flooded_stream_edit_is_skipped_and_the_final_complete(rig: TelegramRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("one "))
    await until(rig.visible)
    rig.server.fault("flood", "editMessageText", seconds=1)
    reply.show(Text("two "))
    await until(lambda: edits(rig))
    reply.show(Text("three"))
    await reply.finish(Final("one two three"))
    assert rig.visible() == ["one two three"]


async def test_case_18_a_long_final_is_an_edit_and_replies_in_order(rig: TelegramRig) -> None:
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


async def test_case_19_not_modified_is_no_error_and_no_second_message(rig: TelegramRig) -> None:
    posts = Memory()
    await rig.channel.reply(rig.thread(), posts).finish(Final("Same."))
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Same."))
    assert [call.status for call in rig.server.calls if call.method == "editMessageText"] == [400]
    assert rig.visible() == ["Same."]


async def test_case_20_a_deleted_placeholder_is_replaced(rig: TelegramRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    await until(lambda: rig.visible() == ["…"])
    rig.server.remove(42, 1)
    await reply.finish(Final("Still here."))
    assert rig.visible() == ["Still here."]


async def test_case_22_a_document_of_21_mb_is_refused_without_the_token(
    rig: TelegramRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig.server.send_document("big.iso", b"x", size=21 << 20)
    [file] = (await rig.box.next()).attachments
    for known in (file, Attachment(file.ref, file.name)):  # told beforehand, or only by getFile
        with pytest.raises(Refused) as refusal:
            _ = [chunk async for chunk in rig.channel.fetch(known)]
        assert str(refusal.value) == "exceeds the 20 MB download limit"
        assert TOKEN not in repr(refusal.value)


async def test_the_token_is_in_no_log_and_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with TelegramRig.start(tmp_path) as rig:
        errors: list[BaseException] = []
        rig.server.chat(42)
        for kind in ("drop", "error", "flood"):
            rig.server.fault(kind, "sendMessage", seconds=5)
            with pytest.raises((TryLater, Exception)) as told:
                await rig.channel.reply(rig.thread(), Memory()).finish(Final("x"))
            errors.append(told.value)
        await rig.server.stop()
        with pytest.raises(TryLater) as down:
            await rig.channel.announce([])
        with pytest.raises(TryLater) as gone:
            _ = [chunk async for chunk in rig.channel.fetch(Attachment("F", "f"))]
        errors += [down.value, gone.value]
        await until(lambda: rig.channel.readiness().health is Health.DOWN)
        said = "\n".join([caplog.text, rig.channel.readiness().detail, *map(repr, errors), repr(rig.channel)])
        assert TOKEN not in said
        assert TOKEN.split(":")[1] not in said
    assert TOKEN not in repr(telegram.Settings(token=Secret(TOKEN)))


async def test_case_42_a_failed_text_is_said_and_can_be_tried_again(rig: TelegramRig) -> None:
    rig.server.fault("error", "sendMessage", code=500)
    posts = Memory()
    with pytest.raises(TryLater):
        await rig.channel.reply(rig.thread(), posts).finish(Final("Later."))
    assert not rig.visible()
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Later."))
    assert rig.visible() == ["Later."]


async def test_case_61_a_flooded_chat_leaves_the_others_alone(rig: TelegramRig) -> None:
    rig.server.chat(43)
    rig.server.fault("flood", "*", chat=42, seconds=60, times=-1)
    slow = rig.channel.reply(rig.thread(), Memory("r1"))
    slow.show(Text("x"))
    await until(lambda: rig.server.calls_of("sendMessage"))
    before = time.monotonic()
    await rig.channel.reply(telegram_thread(43), Memory("r2")).finish(Final("Fine."))
    assert time.monotonic() - before < 1
    with pytest.raises(TryLater) as told:
        await slow.finish(Final("x"))
    assert 55 < told.value.after <= 60


async def test_case_62_a_permanent_refusal_is_refused_once(rig: TelegramRig) -> None:
    rig.server.fault("error", "sendMessage", code=400, times=-1)
    posts = Memory()
    with pytest.raises(Refused) as told:
        await rig.channel.reply(rig.thread(), posts).finish(Final("Never."))
    assert not isinstance(told.value, Gone)
    assert len(rig.server.calls_of("sendMessage")) == 1
    assert posts.rows == {}


async def test_case_64_a_connection_that_says_nothing_is_noticed(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path, poll_seconds=0.0) as rig:
        await until(lambda: rig.channel.readiness().health is Health.READY)
        rig.server.fault("hang", "getUpdates", times=2)
        await until(lambda: not [f for f in rig.server.faults if f.times], seconds=15)
        await until(lambda: rig.channel.readiness().health is Health.DOWN, seconds=25)
        await until(lambda: rig.channel.readiness().health is Health.READY, seconds=25)


async def test_case_70_wild_markdown_comes_whole_through_a_bad_day(rig: TelegramRig) -> None:
    rows = "\n".join(f"| {number} | 值 {number} |" for number in range(120))
    code = "\n".join(f"say({number})  # <@U1> @everyone" for number in range(120))
    items = "\n".join(f"- item {number}\n  - nested {number}" for number in range(60))
    words = " ".join(f"词{number}" for number in range(500))
    text = f"# Big\n\n{words}\n\n| n | v |\n|---|---|\n{rows}\n\n{items}\n\n```py\n{code}\n```\n\n<@U1> @everyone"
    rig.server.fault("flood", "*", chat=42, times=-1, chance=0.2, seconds=1)
    rig.server.fault("error", "*", chat=42, times=-1, chance=0.2, code=500)
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    for at in range(0, len(text), 400):
        reply.show(Text(text[at : at + 400]))
        await asyncio.sleep(0.02)
    for _ in range(60):
        try:
            await reply.finish(Final(text))
            break
        except TryLater as error:
            await asyncio.sleep(min(error.after, 1.0))
    seen = "\n".join(rig.visible())
    for pattern, count in ((r"词(\d+)", 500), (r"值 (\d+)", 120), (r"• item (\d+)", 60), (r"say\((\d+)\)", 120)):
        assert re.findall(pattern, seen) == [str(number) for number in range(count)]
    assert "```" not in seen
    assert seen.endswith("<@U1> @everyone")
    kinds = {entity["type"] for shown in rig.server.visible(42) for entity in shown.entities}
    assert not kinds & {"mention", "text_mention"}
    assert not any("parse_mode" in call.args for call in rig.server.calls)


async def test_case_84_a_group_that_becomes_a_supergroup_is_followed(rig: TelegramRig) -> None:
    message = await rig.say("@fawn_bot hi")
    rig.server.migrate(GROUP, -1_001_000_000_777)
    moved = await rig.box.next(kind=Kind.MOVED)
    assert moved.text == "-1001000000777"
    await rig.channel.reply(telegram_thread(GROUP), Memory(), to=message.id).finish(Final("Still with you."))
    assert rig.server.texts(-1_001_000_000_777) == ["Still with you."]


@pytest.mark.parametrize("chat", [42, GROUP])
async def test_case_84_a_bot_that_was_blocked_stops_trying(rig: TelegramRig, chat: int) -> None:
    rig.server.membership(chat, "kicked")
    with pytest.raises(Gone):
        await rig.channel.reply(telegram_thread(chat), Memory()).finish(Final("Hello?"))
    rig.server.forum(rig.forum, 7)
    rig.server.delete_topic(rig.forum, 7)
    with pytest.raises(Gone):
        await rig.channel.reply(telegram_thread(rig.forum, 7), Memory()).finish(Final("Hello?"))
    with pytest.raises(Gone):
        await rig.channel.reply(telegram_thread(99), Memory()).finish(Final("Hello?"))


async def test_a_poison_update_blocks_nothing(rig: TelegramRig) -> None:
    rig.server.poison()
    assert (await rig.say("after it")).text == "after it"
    assert [type(event) for event in rig.box.events].count(Unreadable) == 1
    await until(lambda: rig.server.waiting() == 0)


async def test_nothing_is_confirmed_before_it_is_stored(rig: TelegramRig) -> None:
    rig.box.broken = True
    rig.server.send("first")
    rig.server.send("other chat", chat=43)
    await until(lambda: rig.box.offered >= 3)
    assert rig.server.waiting() == 2
    for chat in (42, 43):
        assert len(rig.server.texts(chat)) == 1  # told once in each chat, however often it is tried
    rig.box.broken = False
    await until(lambda: len(rig.box.messages) == 2)
    await until(lambda: rig.server.waiting() == 0)


async def test_a_second_poller_with_the_same_token_is_named(rig: TelegramRig) -> None:
    await until(lambda: rig.channel.readiness().health is Health.READY)
    rig.server.fault("error", "getUpdates", code=409, times=2)
    rig.server.send("wake the poll")
    await until(lambda: rig.channel.readiness().health is Health.DOWN)
    assert "same token" in rig.channel.readiness().detail
    await until(lambda: rig.channel.readiness().health is Health.READY, seconds=20)


async def test_a_wrong_token_is_named() -> None:
    async with FakeTelegram(token="1:OTHER") as server:
        settings = telegram.Settings(token=Secret(TOKEN), base_url=server.base_url)
        async with telegram.connect(settings) as channel, listening(channel, Box()):
            await until(lambda: channel.readiness().health is Health.DOWN)
            assert "@BotFather" in channel.readiness().detail


async def test_a_webhook_is_taken_away(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path) as rig:
        rig.server.webhook = True
        rig.server.send("hello")
        assert (await rig.box.next()).text == "hello"


async def test_an_api_that_is_down_at_start_is_waited_for() -> None:
    server = FakeTelegram()
    await server.start()
    port = server.port
    await server.stop()
    settings = telegram.Settings(token=Secret(TOKEN), base_url=f"http://127.0.0.1:{port}")
    box = Box()
    async with telegram.connect(settings) as channel, listening(channel, box):
        await until(lambda: channel.readiness().health is Health.DOWN)
        with pytest.raises(TryLater):
            await channel.announce([CommandInfo("help", "What I can do")])
        await server.start(port)
        server.send("finally")
        assert (await box.next()).text == "finally"
        await until(lambda: server.commands, what="the commands, announced after all")
        await server.stop()


async def test_a_group_answer_replies_to_its_asker_and_a_private_one_does_not(rig: TelegramRig) -> None:
    asked = rig.server.send("@fawn_bot x", chat=GROUP)
    for chat, key in ((GROUP, "r1"), (42, "r2")):
        reply = rig.channel.reply(telegram_thread(chat), Memory(key), to=str(asked["message_id"]))
        await reply.finish(Final("y"))
    assert [shown.reply_to for shown in rig.server.visible(GROUP)] == [asked["message_id"]]
    assert [shown.reply_to for shown in rig.server.visible(42)] == [0]


async def test_an_answer_to_a_deleted_question_still_comes(rig: TelegramRig) -> None:
    await rig.channel.reply(telegram_thread(GROUP), Memory(), to="777").finish(Final("y"))
    assert rig.server.texts(GROUP) == ["y"]


async def test_entities_that_telegram_refuses_cost_only_the_style(rig: TelegramRig) -> None:
    words = "Bad Request: can't parse MessageEntity"
    rig.server.fault("error", "sendMessage", code=400, description=words)
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("**bold**"))
    [shown] = rig.server.visible(42)
    assert (shown.text, shown.entities) == ("bold", ())


async def test_link_previews_are_off(rig: TelegramRig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("https://example.org"))
    [call] = rig.server.calls_of("sendMessage")
    assert call.args["link_preview_options"] == {"is_disabled": True}


async def test_an_image_is_a_photo_and_everything_else_a_document(rig: TelegramRig, tmp_path: Path) -> None:
    for name, data in (
        ("chart.png", PNG),
        ("fake.png", b"not a picture"),
        ("data.csv", b"a,b"),
        ("line\nbreak.txt", b"x"),
    ):
        path = tmp_path / "copy"
        path.write_bytes(data)
        await rig.channel.send_file(rig.thread(), OutFile(path, name, len(data), "c" * 2000), Memory(name))
    shown = rig.server.visible(42)
    assert [(part.kind, part.file_name) for part in shown] == [
        ("photo", "chart.png"),
        ("document", "fake.png"),
        ("document", "data.csv"),
        ("document", "line_break.txt"),
    ]
    assert shown[0].file == PNG
    assert all(part.text == "c" * 1023 + "…" for part in shown)


async def test_case_41_an_empty_file_is_refused_and_the_next_is_sent(rig: TelegramRig, tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.write_bytes(b"")
    full.write_bytes(b"x")
    with pytest.raises(Refused, match=r"empty\.txt is empty"):
        await rig.channel.send_file(rig.thread(), OutFile(empty, "empty.txt", 0), Memory("f1"))
    await rig.channel.send_file(rig.thread(), OutFile(full, "full.txt", 1), Memory("f2"))
    assert rig.visible() == ["full.txt"]


async def test_case_63_a_file_of_unknown_outcome_is_marked(rig: TelegramRig, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a")
    rig.server.fault("drop", "sendDocument", after=True)
    posts = Memory()
    file = OutFile(path, "a.csv", 1, "table")
    with pytest.raises(Exception, match="no answer"):
        await rig.channel.send_file(rig.thread(), file, posts)
    await rig.channel.send_file(rig.thread(), file, Memory(rows=posts.rows))
    assert rig.visible() == ["tablea.csv", "↻ Possibly a repeat: tablea.csv"]


async def test_a_click_that_is_not_taken_leaves_the_buttons(rig: TelegramRig) -> None:
    rig.box.refuses = lambda message: message.kind is Kind.CLICK
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Sure?", Ask("a", "Sure?", ("yes", "no"))))
    [shown] = rig.server.visible(42)
    query = rig.server.click(shown.buttons[0][1], shown.id)
    await until(lambda: rig.server.answers.get(query))
    assert "not yours" in rig.server.answers[query]
    assert rig.box.receipts == [Receipt.IGNORED]
    assert len(rig.server.visible(42)[0].buttons) == 2


async def test_many_and_long_options_stay_answerable(rig: TelegramRig) -> None:
    options = tuple(f"option {number} " + "x" * 150 * (number == 3) for number in range(20))
    await rig.channel.reply(rig.thread(), Memory("r1")).finish(Final("Which?", Ask("a", "Which?", options)))
    [call] = rig.server.calls_of("sendMessage")
    rows = call.args["reply_markup"]["inline_keyboard"]
    assert len(rows) <= 8
    assert sum(map(len, rows)) == 20
    assert all(option.strip() in call.text for option in options)  # one was shortened: all are written out
    await rig.channel.reply(rig.thread(), Memory("r2")).finish(Final("Which?", Ask("a" * 64, "Which?", ("yes", "no"))))
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
        assert not edits(rig)
        group = rig.channel.reply(rig.thread(7), Memory("r2"))
        group.show(Text("half"))
        await until(lambda: rig.visible(7) == ["half"])
        await group.finish(Final("whole"))
        assert rig.visible(7) == ["whole"]


async def test_a_stream_whose_post_got_lost_goes_on_marked(rig: TelegramRig) -> None:
    rig.server.fault("drop", "sendMessage", after=True)
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("half"))
    await until(lambda: len(rig.visible()) == 2, seconds=8)
    await reply.finish(Final("whole"))
    assert rig.visible() == ["half", "↻ Possibly a repeat: whole"]


async def test_a_finish_in_a_flood_of_deltas_is_one_call(rig: TelegramRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    for number in range(100):
        reply.show(Step(str(number), f"step {number}", "done"))
        reply.show(Text(f"{number} "))
    await asyncio.sleep(0.1)
    count = len(rig.server.calls)
    await reply.finish(Final("over"))
    assert len(rig.server.calls) == count + 1
    assert rig.visible() == ["over"]


async def test_a_stream_that_is_refused_leaves_the_final_to_say_so(rig: TelegramRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    rig.server.fault("error", "sendMessage", code=400)
    reply.show(Text("half"))
    await until(lambda: rig.server.calls_of("sendMessage"))
    reply.show(Text(" more"))
    await asyncio.sleep(0.05)
    assert len(rig.server.calls_of("sendMessage")) == 1
    await reply.finish(Final("whole"))
    assert rig.visible() == ["whole"]


async def test_writers_leave_no_task_behind(rig: TelegramRig) -> None:
    for number in range(20):
        reply = rig.channel.reply(rig.thread(), Memory(f"r{number}"))
        reply.show(Text("x"))
        assert isinstance(reply, Writer)
        await reply.close()
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if name.startswith(("writer", "typing", "post"))]


def test_the_settings_do_not_import_the_sdk() -> None:
    code = "import sys, channels.telegram; sys.exit(bool({'telegram', 'pyromark', 'aiohttp'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def telegram_thread(chat: int, topic: int = 0) -> Thread:
    return Thread("telegram", "123456", str(chat), str(topic or ""))
