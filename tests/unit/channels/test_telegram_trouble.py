"""Faults of Telegram, the network and the disk, and what users see."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest

from agent.blocks import Final, Text
from agent.messages import Attachment, Unreadable
from agent.setting import Secret
from channels import telegram
from channels.base import ChatGone, CommandInfo, Health, OutcomeUnknown, OutgoingFile, Refused, TryLater
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.support.rigs.registry import Box, Memory, TelegramRig, listening, until
from tests.support.rigs.telegram import FORUM, GROUP, telegram_thread


@pytest.fixture
def rig(telegram_rig: TelegramRig) -> TelegramRig:
    return telegram_rig


# Case 19 of docs/cases.md
async def test_not_modified_is_not_an_error_and_posts_no_second_message(rig: TelegramRig) -> None:
    posts = Memory()
    await rig.channel.reply(rig.thread(), posts).finish(Final("Same."))
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Same."))
    assert [call.status for call in rig.server.calls if call.method == "editMessageText"] == [400]
    assert rig.visible() == ["Same."]


# Case 22 of docs/cases.md
async def test_a_document_of_21_mb_is_refused_without_showing_the_token(
    rig: TelegramRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig.server.send_document("big.iso", b"x", size=21 << 20)
    [file] = (await rig.box.next()).attachments
    for known in (file, Attachment(file.ref, file.name)):  # announced before, or only by getFile
        with pytest.raises(Refused) as refusal:
            _ = [chunk async for chunk in rig.channel.fetch(known)]
        assert str(refusal.value) == "exceeds the 20 MB download limit"
        assert TOKEN not in repr(refusal.value)


@pytest.mark.slow
async def test_the_token_is_not_in_logs_or_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
    assert TOKEN not in repr(telegram.TelegramSettings(token=Secret(TOKEN)))


# Case 64 of docs/cases.md
@pytest.mark.slow
async def test_a_silent_connection_is_detected(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path, poll_seconds=0.0) as rig:
        await until(lambda: rig.channel.readiness().health is Health.READY)
        rig.server.fault("hang", "getUpdates")
        await until(lambda: rig.channel.readiness().health is Health.DOWN)
        assert "did not answer" in rig.channel.readiness().detail
        await until(lambda: rig.channel.readiness().health is Health.READY)


# Case 70 of docs/cases.md
async def test_complex_markdown_is_complete_despite_random_faults(rig: TelegramRig) -> None:
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
    assert not rig.pinged()
    assert not any("parse_mode" in call.args for call in rig.server.calls)


# Case 84 of docs/cases.md
@pytest.mark.parametrize("chat", [42, GROUP])
async def test_a_bot_that_was_blocked_stops_trying(rig: TelegramRig, chat: int) -> None:
    rig.server.membership(chat, "kicked")
    with pytest.raises(ChatGone):
        await rig.channel.reply(telegram_thread(chat), Memory()).finish(Final("Hello?"))
    rig.server.forum(FORUM, 7)
    rig.server.delete_topic(FORUM, 7)
    with pytest.raises(ChatGone):
        await rig.channel.reply(telegram_thread(FORUM, 7), Memory()).finish(Final("Hello?"))
    with pytest.raises(ChatGone):
        await rig.channel.reply(telegram_thread(99), Memory()).finish(Final("Hello?"))


async def test_a_malformed_update_does_not_block_others(rig: TelegramRig) -> None:
    rig.server.poison()
    assert (await rig.say("after it")).text == "after it"
    assert [type(event) for event in rig.box.events].count(Unreadable) == 1
    await until(lambda: rig.server.waiting() == 0)


@pytest.mark.slow
async def test_updates_are_confirmed_only_after_they_are_stored(rig: TelegramRig) -> None:
    rig.box.broken = True
    rig.server.send("first")
    rig.server.send("other chat", chat=43)
    await until(lambda: rig.box.offered >= 3)
    assert rig.server.waiting() == 2
    for chat in (42, 43):
        assert len(rig.server.texts(chat)) == 1  # one notice per chat, however often it is retried
    rig.box.broken = False
    await until(lambda: len(rig.box.messages) == 2)
    await until(lambda: rig.server.waiting() == 0)


async def test_a_wrong_token_is_reported() -> None:
    async with FakeTelegram(token="1:OTHER") as server:
        settings = telegram.TelegramSettings(token=Secret(TOKEN), base_url=server.base_url)
        async with telegram.connect(settings) as channel, listening(channel, Box()):
            await until(lambda: channel.readiness().health is Health.DOWN)
            assert "@BotFather" in channel.readiness().detail


async def test_a_webhook_is_removed(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path) as rig:
        rig.server.webhook = True
        rig.server.send("hello")
        assert (await rig.box.next()).text == "hello"


async def test_the_channel_waits_for_an_api_that_is_down_at_start() -> None:
    server = FakeTelegram()
    await server.start()
    await server.stop()
    settings = telegram.TelegramSettings(token=Secret(TOKEN), base_url=server.base_url)
    box = Box()
    async with telegram.connect(settings) as channel, listening(channel, box):
        await until(lambda: channel.readiness().health is Health.DOWN)
        with pytest.raises(TryLater):
            await channel.announce([CommandInfo("help", "What I can do")])
        await server.start()
        server.send("finally")
        assert (await box.next()).text == "finally"
        await until(lambda: server.commands, what="the commands, announced after all")
        await server.stop()


async def test_a_deleted_message_is_still_answered(rig: TelegramRig) -> None:
    await rig.channel.reply(telegram_thread(GROUP), Memory(), to="777").finish(Final("y"))
    assert rig.server.texts(GROUP) == ["y"]


async def test_refused_entities_leave_the_markdown_as_text(rig: TelegramRig) -> None:
    words = "Bad Request: can't parse MessageEntity"
    rig.server.fault("error", "sendMessage", code=400, description=words)
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("**bold** [link](https://example.com)"))
    [shown] = rig.server.visible(42)
    assert (shown.text, shown.entities) == ("**bold** [link](https://example.com)", ())


# Case 41 of docs/cases.md
async def test_an_empty_file_is_refused_and_the_next_is_sent(rig: TelegramRig, tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.write_bytes(b"")
    full.write_bytes(b"x")
    with pytest.raises(Refused, match=r"empty\.txt: it is empty"):
        await rig.channel.send_files(rig.thread(), [OutgoingFile(empty, "empty.txt", 0)], Memory("f1"))
    await rig.channel.send_files(rig.thread(), [OutgoingFile(full, "full.txt", 1)], Memory("f2"))
    assert rig.visible() == ["full.txt"]


# Case 63 of docs/cases.md
async def test_a_repeated_file_of_unknown_outcome_is_marked(rig: TelegramRig, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a")
    rig.server.fault("drop", "sendDocument", after=True)
    posts = Memory()
    file = OutgoingFile(path, "a.csv", 1, "table")
    with pytest.raises(OutcomeUnknown, match="did not answer"):
        await rig.channel.send_files(rig.thread(), [file], posts)
    await rig.channel.send_files(rig.thread(), [file], Memory(rows=posts.rows))
    assert rig.visible() == ["table a.csv", "↻ You may have seen this already: table a.csv"]


@pytest.mark.slow
async def test_a_stream_with_a_lost_post_leaves_the_repeat_to_the_final_reply(
    rig: TelegramRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.server.fault("drop", "sendMessage", after=True)
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("half"))
    await until(lambda: "writer.refused" in caplog.text, what="the end of the stream")
    assert rig.visible() == ["half"]
    await reply.finish(Final("whole"))
    assert rig.visible() == ["half", "↻ You may have seen this already: whole"]


async def test_a_refused_stream_leaves_the_error_to_the_final_reply(rig: TelegramRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    rig.server.fault("error", "sendMessage", code=400, times=2)
    reply.show(Text("half"))
    await until(lambda: len(rig.server.calls_of("sendMessage")) == 2, what="the attempt as plain text")
    reply.show(Text(" more"))
    await asyncio.sleep(0.05)
    assert len(rig.server.calls_of("sendMessage")) == 2
    await reply.finish(Final("whole"))
    assert rig.visible() == ["whole"]


@pytest.mark.slow
async def test_an_unconfirmed_placeholder_is_posted_once(rig: TelegramRig) -> None:
    rig.wire.fault("error", "post", code=504, after=True, times=-1)
    reply = rig.channel.reply(rig.thread(7), Memory())
    await until(lambda: rig.visible(7), what="the placeholder")
    await asyncio.sleep(4.0)  # two more would have been posted: after 1.2 s, or after the cooldown of 2 s
    await reply.close()
    assert rig.visible(7) == ["…"]


async def test_a_new_name_of_the_bot_is_noticed(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path, account_seconds=0.1, poll_seconds=0.2) as rig:
        rig.server.username = "fawn_two_bot"
        asked = len(rig.server.calls_of("getMe"))
        await until(lambda: len(rig.server.calls_of("getMe")) > asked + 1)
        rig.server.send("@fawn_two_bot hello", chat=-100)
        assert (await rig.box.next()).addressed
