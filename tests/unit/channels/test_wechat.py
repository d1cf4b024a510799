"""WeChat: signing in, the cursor, ten messages and 24 hours, files, quotes, and what is lacking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent.blocks import Ask, Final, Step, Text
from agent.messages import Kind, Quote, Unreadable
from channels.base import Health, OutgoingFile, Refused, TokenRejected, TryLater, Unattended
from channels.shared.reply_window import ReplyWindows, WindowClosed
from channels.wechat.channel import BUDGET, WeChatChannel
from channels.wechat.events import WINDOW_SECONDS, parse_message
from channels.wechat.login import MAX_CODES, Login, kept_name, probe_login, sign_in
from tests.fakes.wechat import BOT, FIRST_ID, JANE, KIM, FakeWeChat, Window
from tests.support.rigs.registry import Memory, until
from tests.support.rigs.wechat import WeChatRig, login_of, settings_for


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[WeChatRig]:
    async with WeChatRig.start(tmp_path) as made:
        await until(lambda: made.channel.readiness().health is Health.READY)
        made.server.budget = True
        channel_of(made).windows = ReplyWindows("WeChat", WINDOW_SECONDS, BUDGET)
        channel_of(made).windows.state = made.box
        yield made


def has_codes(server: FakeWeChat, number: int) -> bool:
    return len(server.codes) == number


class Screen:
    """What a person sees while a code is to be scanned, and the numbers that they type."""

    def __init__(self, numbers: Sequence[str] = ()) -> None:
        self.shown: list[tuple[str, str]] = []
        self._numbers = iter(numbers)

    def show(self, text: str, code: str = "") -> None:
        self.shown.append((text, code))

    async def ask(self, text: str) -> str:
        self.show(text)
        return next(self._numbers)


def channel_of(rig: WeChatRig) -> WeChatChannel:
    assert isinstance(rig.channel, WeChatChannel)
    return rig.channel


# ---------------------------------------------------------------- signing in


async def test_a_scanned_code_gives_a_login_that_works() -> None:
    async with FakeWeChat() as server:
        screen = Screen()
        shown = screen.shown
        signing = asyncio.create_task(sign_in(screen, settings_for(server)))
        await until(lambda: server.codes)
        [code] = server.codes
        server.codes[code]["status"] = "scaned"
        await until(lambda: len(shown) == 2)
        server.scan(code)
        found = await signing
        login = Login.load(found.kept[kept_name(JANE)])
        assert shown[0][1] == f"https://liteapp.weixin.qq.com/q/{code}"
        assert shown[0][1] in shown[0][0]
        assert (found.value, login and (login.bot, login.person, login.url)) == (JANE, (BOT, JANE, server.base_url))
        assert "is kept by the service" in await probe_login(settings_for(server))


async def test_a_code_that_nobody_confirms_ends() -> None:
    async with FakeWeChat() as server:
        screen = Screen()
        signing = asyncio.create_task(sign_in(screen, settings_for(server)))
        for number in range(1, MAX_CODES + 1):  # each is replaced once it is over
            await until(partial(has_codes, server, number))
            [*server.codes.values()][-1]["status"] = "expired"
        with pytest.raises(Refused, match="Nobody confirmed"):
            await signing
        assert len({code for _text, code in screen.shown if code}) == MAX_CODES


async def test_a_number_of_the_telephone_is_asked_for_until_it_is_the_right_one() -> None:
    async with FakeWeChat() as server:
        screen = Screen(numbers=["111111", "654321"])
        signing = asyncio.create_task(sign_in(screen, settings_for(server)))
        await until(lambda: server.codes)
        [code] = server.codes
        server.want_number(code, "654321")
        await until(lambda: server.codes[code]["status"] == "scaned")
        server.scan(code)
        assert (await signing).value == JANE
        asked, again = (text for text, code in screen.shown if not code and "number" in text)
        assert asked.startswith("Type the number")
        assert again.startswith("That is not the number")


async def test_a_code_whose_number_is_wrong_too_often_is_replaced() -> None:
    async with FakeWeChat() as server:
        screen = Screen(numbers=["1", "2", "3"])
        signing = asyncio.create_task(sign_in(screen, settings_for(server)))
        await until(lambda: server.codes)
        server.want_number(next(iter(server.codes)), "654321")
        await until(lambda: len(server.codes) == 2)
        server.scan([*server.codes][-1])
        assert (await signing).value == JANE


async def test_a_line_that_breaks_meanwhile_changes_nothing() -> None:
    async with FakeWeChat() as server:
        signing = asyncio.create_task(sign_in(Screen(), settings_for(server)))
        await until(lambda: server.codes)
        faults = [server.fault("error", "code", code=502), server.fault("drop", "code")]
        await until(lambda: not any(fault.times for fault in faults))
        server.scan(next(iter(server.codes)))
        assert (await signing).value == JANE


async def test_a_login_without_what_it_needs_is_refused() -> None:
    async with FakeWeChat() as server:
        signing = asyncio.create_task(sign_in(Screen(), settings_for(server)))
        await until(lambda: server.codes)
        server.codes[next(iter(server.codes))] = {"status": "confirmed", "bot_token": "t", "ilink_user_id": JANE}
        with pytest.raises(Refused, match="without a login"):
            await signing


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "null", "{}", '{"token": "t", "url": "ftp://x", "bot": "b", "person": "p"}']
)
def test_a_damaged_login_is_none(text: str) -> None:
    assert Login.load(text) is None


async def test_a_scan_elsewhere_ends_the_login_until_the_page_signs_in_anew(rig: WeChatRig) -> None:
    asked, channel = await rig.say("before"), channel_of(rig)
    rig.server.fault("error", "post", code=401)  # a call learns it before the poll
    with pytest.raises(TokenRejected, match="sign in anew"):
        await channel.reply(asked.thread, Memory()).finish(Final("the answer"))
    rig.server.login(JANE)
    await until(lambda: channel.sign_in_state().is_signed_out)
    assert "sign in anew" in channel.readiness().detail
    with pytest.raises(Unattended):  # it waits, and is no attempt
        await channel.reply(asked.thread, Memory()).finish(Final("the answer"))
    await channel.begin_sign_in()
    await until(lambda: channel.sign_in_code().code)
    await channel.begin_sign_in()  # a second look begins nothing
    [code] = rig.server.codes
    assert channel.sign_in_code().code.endswith(code)
    rig.server.scan(code)
    await until(lambda: channel.readiness().health is Health.READY)
    assert channel.sign_in_code().text == f"Signed in as {JANE}."
    await rig.say("after")
    await rig.channel.reply(asked.thread, Memory()).finish(Final("the answer"))
    assert rig.server.visible()[-1].text == "the answer"


async def test_somebody_else_cannot_take_the_robot_over_at_the_page(rig: WeChatRig) -> None:
    channel = channel_of(rig)
    before = dict(rig.box.kept)
    await channel.begin_sign_in()
    await until(lambda: rig.server.codes)
    rig.server.scan(next(iter(rig.server.codes)), KIM)
    await until(lambda: f"{KIM} scanned the code" in channel.sign_in_code().text)
    assert rig.box.kept == before
    assert channel.readiness().health is Health.READY


async def test_without_a_login_the_channel_says_what_to_do_and_begins_once_there_is_one(tmp_path: Path) -> None:
    async with FakeWeChat() as server:
        rig = WeChatRig(server, settings_for(server))
        async with rig.running():
            await until(lambda: rig.channel.readiness().health is Health.DOWN)
            assert "nobody is signed in" in rig.channel.readiness().detail
            rig.box.kept |= login_of(server)
            await until(lambda: rig.channel.readiness().health is Health.READY)


# ---------------------------------------------------------------- the cursor


async def test_the_cursor_counts_after_the_commit_and_over_a_restart(rig: WeChatRig) -> None:
    def cursor() -> str:
        return next((value for name, value in rig.box.kept.items() if name.startswith("cursor")), "")

    await rig.say("one")
    await until(cursor, what="the cursor behind the first")
    before = cursor()
    rig.box.broken = True
    rig.server.send("two")
    await until(lambda: rig.box.offered >= 3)
    assert cursor() == before
    await rig.leave()
    rig.box.broken = False
    await rig.back()
    await until(lambda: cursor() != before, what="the cursor behind the second")
    assert [each.text for each in rig.box.messages] == ["one", "two"]
    offered = rig.box.offered
    await rig.leave()
    await rig.back()  # nothing comes again
    await rig.say("three")
    assert rig.box.offered == offered + 1


# ---------------------------------------------------------------- ten messages and 24 hours


async def test_an_answer_with_questions_is_one_message(rig: WeChatRig) -> None:
    asked = await rig.say("work")
    posts = Memory(handle=asked.reply_handle)
    reply = rig.channel.reply(asked.thread, posts, to=asked.id)
    for block in (Step("1", "Reading a.txt", "done"), Text("Half")):
        reply.show(block)
    await until(lambda: rig.server.typing)
    asks = (Ask("a", "Red or blue?", ("red", "blue")), Ask("b", "Where?", ("here", "there")))
    final = Final("Two questions.", asks=asks, state="waiting")
    await reply.finish(final)
    [shown] = rig.server.visible()
    assert all(words in shown.text for words in ("Two questions.", "1. red", "2. there"))
    assert shown.context == posts.reply_handle != ""  # that of the message which it answers
    again = rig.channel.reply(asked.thread, Memory(rows=posts.rows), to=asked.id)  # a restarted process
    await again.finish(final)
    assert len(rig.server.visible()) == 1


async def test_after_ten_messages_the_rest_waits_for_the_person_without_a_call(rig: WeChatRig) -> None:
    asked = await rig.say("work")
    for number in range(BUDGET):
        await rig.channel.reply(asked.thread, Memory(f"r{number}")).finish(Final(str(number)))
    posts = Memory("late")
    for _attempt in range(3):
        with pytest.raises(Unattended, match="has to write first"):
            await rig.channel.reply(asked.thread, posts).finish(Final("late"))
    assert [call.code for call in rig.server.calls_of("post")] == [0] * BUDGET
    assert posts.known == []
    await rig.say("go on")
    await rig.channel.reply(asked.thread, posts).finish(Final("late"))
    assert rig.server.visible()[-1].text == "late"


async def test_a_budget_that_only_wechat_knows_is_learned(rig: WeChatRig) -> None:
    asked = await rig.say("work")
    rig.server.windows[JANE].left = 1  # the process before this one used the others
    await rig.channel.reply(asked.thread, Memory("r1")).finish(Final("1"))
    for _attempt in range(2):
        with pytest.raises(WindowClosed):
            await rig.channel.reply(asked.thread, Memory("r2")).finish(Final("2"))
    assert [call.code for call in rig.server.calls_of("post")] == [0, -2]


async def restart(rig: WeChatRig) -> None:
    await rig.leave()
    await rig.back()
    await until(lambda: rig.channel.readiness().health is Health.READY)


async def test_what_an_earlier_process_sent_counts(rig: WeChatRig) -> None:
    """Also a message whose outcome that process did not hear, and not one that WeChat did not take."""
    asked = await rig.say("work")
    for number in range(BUDGET - 2):
        await rig.channel.reply(asked.thread, Memory(f"r{number}")).finish(Final(str(number)))
    rig.server.fault("error", "post", code=503)
    with pytest.raises(TryLater):
        await rig.channel.reply(asked.thread, Memory("busy")).finish(Final("busy"))
    rig.server.fault("hang", "post", after=True)
    sending = asyncio.create_task(rig.channel.reply(asked.thread, Memory("killed")).finish(Final("killed")))
    await until(lambda: rig.server.visible()[-1].text == "killed")
    sending.cancel()
    await restart(rig)
    rig.server.redeliver()  # an event that comes again opens no new window
    await rig.channel.reply(asked.thread, Memory("last")).finish(Final("last"))
    rig.server.calls.clear()
    for _process in range(2):
        with pytest.raises(WindowClosed):
            await rig.channel.reply(asked.thread, Memory("late")).finish(Final("late"))
        await restart(rig)
    assert rig.server.calls_of("post") == []
    await rig.say("go on")
    await rig.channel.reply(asked.thread, Memory("late")).finish(Final("late"))
    assert rig.server.visible()[-1].text == "late"


async def test_a_refusal_that_an_earlier_process_met_is_not_met_again(rig: WeChatRig) -> None:
    asked = await rig.say("work")
    rig.server.windows[JANE].left = 0
    with pytest.raises(WindowClosed):
        await rig.channel.reply(asked.thread, Memory("r1")).finish(Final("1"))
    await restart(rig)
    with pytest.raises(WindowClosed):
        await rig.channel.reply(asked.thread, Memory("r1")).finish(Final("1"))
    assert [call.code for call in rig.server.calls_of("post")] == [-2]


async def test_nothing_is_sent_that_cannot_be_counted(rig: WeChatRig) -> None:
    asked = await rig.say("work")
    rig.box.broken = True
    with pytest.raises(TryLater):
        await rig.channel.reply(asked.thread, Memory("r1")).finish(Final("1"))
    assert rig.server.calls_of("post") == []


async def test_after_24_hours_nothing_is_tried(rig: WeChatRig) -> None:
    channel_of(rig).windows.open(JANE, time.time() - WINDOW_SECONDS)
    rig.server.windows[JANE] = Window(time.time() - WINDOW_SECONDS - 1)
    with pytest.raises(WindowClosed):
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("late"))
    assert rig.server.calls_of("post") == []


async def test_messages_keep_the_distance_that_wechat_wants(tmp_path: Path) -> None:
    async with WeChatRig.start(tmp_path, per_person=0.8) as rig:
        rig.server.fast = True  # three in a second are refused
        asked = await rig.say("work")
        for number in range(3):
            await rig.channel.reply(asked.thread, Memory(f"r{number}")).finish(Final(str(number)))
        assert [call.code for call in rig.server.calls_of("post")] == [0, 0, 0]


# ---------------------------------------------------------------- what comes, files


async def test_what_people_send_is_read(rig: WeChatRig) -> None:
    first = await rig.say("the first words")
    assert first.key == f"wechat:{BOT}:{FIRST_ID}"  # above 2**53
    rig.server.message({"type": 3, "voice_item": {"text": "spoken words", "media": {"aes_key": ""}}})
    spoken = await rig.box.next(2)
    assert (spoken.text, spoken.attachments) == ("spoken words", ())
    rig.server.send("about that", ref_msg={"svr_id": FIRST_ID})  # new apps name a quoted message by its id alone
    quotes = (await rig.box.next(3)).quotes
    assert quotes == (Quote("somebody", "the first words", author_id=first.author.id, member=True),)
    rig.server.send("about this", ref_msg={"message_item": {"type": 1, "text_item": {"text": "quoted"}}})
    assert (await rig.box.next(4)).quotes == (Quote("somebody", "quoted"),)  # by whom is not said: it may be the robot
    rig.server.send("and?", ref_msg={"svr_id": 1})
    assert [quote.kind for quote in (await rig.box.next(5)).quotes] == ["unread"]
    rig.server.message({"type": 99})
    assert (await rig.box.next(6)).kind is Kind.UNSUPPORTED
    rig.server.send("/stop now")
    command = await rig.box.next(7)
    assert (command.kind, command.text) == (Kind.COMMAND, "stop now")


@pytest.mark.parametrize("hexed", [True, False])
async def test_a_picture_is_opened_whatever_the_form_of_its_key(rig: WeChatRig, hexed: bool) -> None:
    rig.server.upload("", b"\xff\xd8" * 40_000, 2, hexed=hexed)
    [picture] = (await rig.box.next()).attachments
    assert picture.kind == "image"
    assert b"".join([chunk async for chunk in rig.channel.fetch(picture)]) == b"\xff\xd8" * 40_000


async def test_a_picture_whose_key_stands_beside_it_is_opened(rig: WeChatRig) -> None:
    rig.server.upload("", b"picture bytes", kind=2, beside=True)
    await until(lambda: rig.box.messages)
    [attachment] = rig.box.messages[-1].attachments
    assert b"".join([chunk async for chunk in rig.channel.fetch(attachment)]) == b"picture bytes"


async def test_a_file_server_that_refuses_is_not_asked_again(rig: WeChatRig, tmp_path: Path) -> None:
    asked = await rig.say("file, please")
    (tmp_path / "a.txt").write_bytes(b"text")
    rig.server.fault("error", "cdn", code=400, times=-1)
    with pytest.raises(Refused, match="file server refused it"):
        await rig.channel.send_files(asked.thread, [OutgoingFile(tmp_path / "a.txt", "a.txt", 4)], Memory())
    assert len(rig.server.calls_of("upload")) == 1


async def test_a_damaged_file_or_key_is_refused(rig: WeChatRig) -> None:
    rig.server.upload("a.csv", b"a,b\n")
    [file] = (await rig.box.next()).attachments
    blob = next(iter(rig.server.blobs))
    rig.server.blobs[blob] = rig.server.blobs[blob][:-1]
    with pytest.raises(Refused, match="damaged"):
        [chunk async for chunk in rig.channel.fetch(file)]
    with pytest.raises(Refused, match="key"):
        [chunk async for chunk in rig.channel.fetch(replace(file, ref='{"aes_key": "eA=="}'))]
    rig.server.blobs.clear()
    with pytest.raises(Refused, match="no longer available"):
        [chunk async for chunk in rig.channel.fetch(file)]


async def test_files_and_pictures_are_sent_whole(rig: WeChatRig, tmp_path: Path) -> None:
    await rig.say("send them")
    for name in ("a.csv", "b.png"):
        (tmp_path / name).write_bytes(name.encode() * 9_000)
    files = [OutgoingFile(tmp_path / name, name, 45_000) for name in ("a.csv", "b.png")]
    await rig.channel.send_files(rig.thread(), files, Memory())
    assert [(one.kind, one.data) for one in rig.server.visible()] == [(4, b"a.csv" * 9_000), (2, b"b.png" * 9_000)]


def test_an_event_of_an_unknown_shape_names_its_author() -> None:
    event = {"message_id": FIRST_ID, "from_user_id": JANE, "message_type": 1, "item_list": [{"type": 1}]}
    lost = parse_message(event, BOT, {})
    assert isinstance(lost, Unreadable)
    assert lost.said is not None
    assert parse_message({"message_type": 2}, BOT, {}) is None


async def test_until_when_a_person_may_be_answered_goes_with_them_and_with_the_time(rig: WeChatRig) -> None:
    message = await rig.say("hello")
    await rig.channel.reply(message.thread, Memory(handle=message.reply_handle)).finish(Final("On it."))
    name = f"window {message.thread.chat}"
    of, until_when = rig.box.owners[name]
    assert (of, name in rig.box.kept) == (message.author.id, True)
    assert until_when is not None
    assert abs(until_when - message.time - WINDOW_SECONDS) < 60.0
    rig.box.forget(message.author.id)
    assert name not in rig.box.kept
