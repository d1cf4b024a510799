"""WhatsApp: the 24 hours, templates, buttons and lists, what Meta reports, files by their kind, and what is lacking."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.blocks import Ask, Final, Step, Text
from agent.messages import Kind
from agent.setting import Secret
from channels.base import (
    ChatGone,
    Gap,
    Health,
    LastEvent,
    NoCatchUp,
    OutgoingFile,
    Refused,
    Settling,
    TokenRejected,
    TryLater,
    Unattended,
)
from channels.shared.caches import Sparing
from channels.shared.lifecycle import opened
from channels.shared.reply_window import ReplyWindows, WindowClosed
from channels.whatsapp import setup
from channels.whatsapp.api import WhatsAppApi
from channels.whatsapp.channel import WhatsAppChannel
from channels.whatsapp.events import Status, is_signed, parse_webhook
from channels.whatsapp.markdown import to_whatsapp
from tests.fakes.whatsapp import DISPLAY, JANE, KIM, NUMBER, PARAMETERS, PAUSED, REENGAGE, FakeWhatsApp
from tests.support.relaying import relaying
from tests.support.rigs.registry import Memory, until
from tests.support.rigs.whatsapp import SOURCES, WhatsAppRig, settings_for

DAY = 86_400.0


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[WhatsAppRig]:
    async with WhatsAppRig.start(tmp_path) as made:
        await until(lambda: made.channel.readiness().health is Health.READY)
        yield made


def channel_of(rig: WhatsAppRig) -> WhatsAppChannel:
    assert isinstance(rig.channel, WhatsAppChannel)
    return rig.channel


def posts_of(rig: WhatsAppRig) -> int:
    return len(rig.server.calls_of("post"))


# ---------------------------------------------------------------- answers


async def test_an_answer_of_the_api_that_comes_in_pieces_is_read_whole(rig: WhatsAppRig) -> None:
    rig.server.pieces = True
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Once."))
    assert rig.visible() == ["Once."]


async def test_an_answer_comes_whole_because_nothing_can_be_changed(rig: WhatsAppRig) -> None:
    asked, posts = await rig.say("work"), Memory()
    reply = rig.channel.reply(asked.thread, posts, to=asked.id)
    for block in (Step("1", "Reading a.txt", "done"), Text("The **whole**")):
        reply.show(block)
    await until(lambda: (asked.id, True) in rig.server.reads)  # it is read, and the bot types
    assert posts_of(rig) == 0
    final = Final("The **whole** answer.", steps=(Step("1", "Reading a.txt", "done"),), step_count=1, seconds=2)
    await reply.finish(final)
    assert [one.text for one in rig.server.visible()] == ["The *whole* answer.\n\n✅ 1 step · 2 s"]
    again = rig.channel.reply(asked.thread, Memory(rows=posts.rows), to=asked.id)  # a restarted process
    await again.finish(final)
    assert isinstance(again, Settling)
    await again.settle(final, "none", "✅")
    assert posts_of(rig) == 1
    reply = rig.channel.reply(asked.thread, Memory(rows=posts.rows), to=asked.id)
    await reply.finish(Final("Another one."))  # it cannot be changed: the other one stands below
    assert [one.text for one in rig.server.visible()][1:] == ["Another one."]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (("Yes", "No", "Later"), "button"),
        (("Yes", "No", "Later", "Never"), "list"),
        (("Allow it in this conversation", "Deny it in this conversation"), "list"),
    ],
)
async def test_options_are_buttons_or_a_list_and_come_back_whole(
    rig: WhatsAppRig, options: tuple[str, ...], kind: str
) -> None:
    ask = Ask("ask-1", "May I?", options)
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("May I?", asks=(ask,), state="waiting"))
    [call] = rig.server.calls_of("post")
    assert call.body["interactive"]["type"] == kind
    rig.press(rig.buttons()[1])
    click = await rig.box.next(1, Kind.CLICK)
    assert (click.text, click.target, click.reply_to) == (options[1], "ask-1", rig.server.visible()[0].id)


async def test_options_that_do_not_fit_are_numbered(rig: WhatsAppRig) -> None:
    options = tuple(f"option {number}" for number in range(1, 12))
    ask = Ask("ask-1", "Which?", options)
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Which?", asks=(ask,), state="waiting"))
    [shown] = rig.server.visible()
    assert (shown.options, "11. option 11" in shown.text) == ([], True)


async def test_a_long_question_has_its_options_in_a_message_below(rig: WhatsAppRig) -> None:
    text = "word " * 400 + "May I?"
    ask = Ask("ask-1", text, ("Yes", "No"))
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(text, asks=(ask,), state="waiting"))
    assert [len(one.options) for one in rig.server.visible()] == [0, 2]


async def test_a_second_press_is_told_that_it_is_answered(rig: WhatsAppRig) -> None:
    ask = Ask("ask-1", "May I?", ("Yes", "No"))
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("May I?", asks=(ask,), state="waiting"))
    rig.press("Yes")
    rig.press("Yes")
    await until(lambda: "already answered" in rig.server.visible()[-1].text)
    assert len([each for each in rig.box.messages if each.kind is Kind.CLICK]) == 1


async def test_a_flood_of_presses_is_answered_a_few_times(rig: WhatsAppRig) -> None:
    ask = Ask("ask-1", "May I?", ("Yes", "No"))
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("May I?", asks=(ask,), state="waiting"))
    presses = 2 * Sparing.MOST + 5
    for _ in range(presses):
        rig.press("Yes")
    await until(lambda: len(rig.box.receipts) == presses)
    await until(lambda: not any(task.get_name().startswith("whatsapp click") for task in asyncio.all_tasks()))
    told = [one for one in rig.server.visible() if "already answered" in one.text]
    assert 1 <= len(told) < presses - 1


async def test_a_post_that_meta_reports_is_not_repeated(rig: WhatsAppRig) -> None:
    """`biz_opaque_callback_data` comes back with each status, so that an unknown outcome becomes known."""
    rig.server.reports = True
    rig.server.fault("drop", "post", after=True)
    asked, posts = await rig.say("hi"), Memory()
    reply = rig.channel.reply(asked.thread, posts, to=asked.id)
    with pytest.raises(Exception, match="did not answer"):
        await reply.finish(Final("Once."))
    await until(lambda: channel_of(rig)._reported)
    await rig.channel.reply(asked.thread, Memory(rows=posts.rows), to=asked.id).finish(Final("Once."))
    assert [one.text for one in rig.server.visible()] == ["Once."]


async def test_a_report_of_a_failure_waits_for_its_post_and_holds_up_nobody(rig: WhatsAppRig) -> None:
    channel_of(rig).record_seconds = 3600.0
    rig.server.late = rig.server.reports = True
    await rig.say("hello")
    rig.server.heard[JANE] = time.time() - DAY - 1
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Lost."))
    await until(lambda: channel_of(rig)._failures)
    await rig.say("meanwhile")
    channel_of(rig).record_seconds = 0.0
    await until(lambda: rig.box.messages[-1].kind is Kind.UNDELIVERED)
    assert [each.kind for each in rig.box.messages] == [Kind.CHAT, Kind.CHAT, Kind.UNDELIVERED]


# ---------------------------------------------------------------- the 24 hours


async def test_a_closed_window_is_no_failure_and_opens_with_the_next_message(rig: WhatsAppRig) -> None:
    await rig.say("hello")
    channel_of(rig).windows = ReplyWindows("WhatsApp", DAY)
    channel_of(rig).windows.open(JANE, time.time() - DAY)
    for _attempt in range(3):
        with pytest.raises(Unattended, match="has to write first"):
            await rig.channel.reply(rig.thread(), Memory()).finish(Final("Late."))
    assert posts_of(rig) == 0  # it costs no call, and no template: none is configured
    await rig.say("are you there?")
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Late."))
    assert [one.text for one in rig.server.visible()] == ["Late."]


async def test_a_window_that_only_meta_knows_to_be_closed_is_learned(rig: WhatsAppRig) -> None:
    rig.server.heard[JANE] = time.time() - DAY - 1
    for _attempt in range(3):
        with pytest.raises(WindowClosed):
            await rig.channel.reply(rig.thread(), Memory()).finish(Final("Late."))
    assert [call.code for call in rig.server.calls_of("post")] == [REENGAGE]
    rig.server.late = rig.server.reports = True  # the same by a webhook, after the call was accepted
    await rig.say("again")
    rig.server.heard[JANE] = time.time() - DAY - 1
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Lost."))

    def is_closed() -> bool:
        try:
            channel_of(rig).windows.check(JANE)
        except WindowClosed:
            return True
        return False

    await until(is_closed)


async def test_the_window_is_known_after_a_restart() -> None:
    class Heard(NoCatchUp):
        async def open_gap(self, channel: str, workspace: str) -> Gap:
            assert (channel, workspace) == ("whatsapp", NUMBER)
            return Gap([LastEvent(JANE, "", time.time() - DAY), LastEvent(KIM, "", time.time())])

    windows = ReplyWindows("WhatsApp", DAY)
    await windows.restore(Heard(), "whatsapp", NUMBER)
    windows.check(KIM)
    windows.check("nobody")
    with pytest.raises(WindowClosed):
        windows.check(JANE)


async def test_a_template_asks_the_person_to_write_once(tmp_path: Path) -> None:
    async with WhatsAppRig.start(tmp_path, template="fawn_answer_waits") as rig:
        rig.server.heard[JANE] = time.time() - DAY - 1
        for _attempt in range(3):
            with pytest.raises(WindowClosed):
                await rig.channel.reply(rig.thread(), Memory()).finish(Final("Late."))
        assert [one.text for one in rig.server.visible()] == ["[fawn_answer_waits]"]


async def test_a_template_that_meta_does_not_send_is_not_tried_again(tmp_path: Path) -> None:
    """It is paused, or was approved with parameters: the operator has to change it."""
    for change in (with_a_pause, with_a_parameter):
        async with WhatsAppRig.start(tmp_path, template="fawn_answer_waits") as rig:
            change(rig.server)
            rig.server.heard[JANE] = time.time() - DAY - 1
            for _attempt in range(3):
                with pytest.raises(WindowClosed):
                    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Late."))
            refused = [call.code for call in rig.server.calls_of("post")]
            assert refused in ([REENGAGE, PAUSED], [REENGAGE, PARAMETERS])
            assert rig.server.visible() == []


def with_a_pause(server: FakeWhatsApp) -> None:
    server.paused.add("fawn_answer_waits")


def with_a_parameter(server: FakeWhatsApp) -> None:
    server.parameters["fawn_answer_waits"] = 1


async def test_files_are_there_for_a_week_and_their_addresses_for_minutes(rig: WhatsAppRig) -> None:
    rig.server.upload("a.csv", b"a,b\n")
    [file] = (await rig.box.next()).attachments
    for seconds in (0.0, 600.0, 6 * DAY):  # each time under a new address
        rig.server.clock = later(seconds)
        assert b"".join([chunk async for chunk in rig.channel.fetch(file)]) == b"a,b\n"
    rig.server.clock = later(8 * DAY)
    with pytest.raises(Refused, match="no longer available"):
        [chunk async for chunk in rig.channel.fetch(file)]


def later(seconds: float) -> Callable[[], float]:
    return lambda: time.time() + seconds


async def test_sound_that_whatsapp_does_not_play_is_refused_with_its_reason(rig: WhatsAppRig, tmp_path: Path) -> None:
    (tmp_path / "a.ogg").write_bytes(b"OggS\x00\x02" + bytes(22) + b"\x01vorbis")
    (tmp_path / "b.ogg").write_bytes(b"OggS\x00\x02" + bytes(22) + b"OpusHead")
    files = [OutgoingFile(tmp_path / name, name, (tmp_path / name).stat().st_size) for name in ("a.ogg", "b.ogg")]
    with pytest.raises(Refused, match=r"a\.ogg: .*OPUS"):
        await rig.channel.send_files(rig.thread(), files, Memory())
    assert [one.name for one in rig.server.visible()] == ["b.ogg"]


async def test_files_wait_for_the_window_before_they_are_uploaded(rig: WhatsAppRig, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    channel_of(rig).windows.open(JANE, time.time() - DAY)
    with pytest.raises(WindowClosed):
        await rig.channel.send_files(rig.thread(), [OutgoingFile(tmp_path / "a.csv", "a.csv", 4)], Memory())
    assert rig.server.calls_of("upload") == []


# ---------------------------------------------------------------- what comes


async def test_what_people_send_is_read(rig: WhatsAppRig) -> None:
    server = rig.server
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Mine."))
    mine = server.visible()[-1].id
    server.send("an answer", **{"from": DISPLAY, "id": mine})
    answer = await rig.box.next(1)
    assert (answer.reply_to, answer.to_bot, answer.author.name) == (mine, True, "Jane Doe")
    server.send("foreign words", forwarded=True)
    forwarded = await rig.box.next(2)
    assert (forwarded.text, [(each.kind, each.text) for each in forwarded.quotes]) == (
        "",
        [("forward", "foreign words")],
    )
    server.message("location", {"latitude": 52.5, "longitude": 13.4, "name": "Office", "address": "Main Street 1"})
    assert (await rig.box.next(3)).text == "Office: Main Street 1\n52.5, 13.4"
    contacts = [{"name": {"formatted_name": "Ann Poe"}, "phones": [{"phone": "+1 555"}]}]
    server.message("contacts", {}, contacts=contacts)
    assert (await rig.box.next(4)).text == "Ann Poe: +1 555"
    server.message("order", {"catalog_id": "1"})
    assert (await rig.box.next(5)).kind is Kind.UNSUPPORTED
    server.react("👍")
    liked = await rig.box.next(6)
    assert (liked.kind, liked.text, liked.reply_to) == (Kind.FEEDBACK, "up", mine)
    server.react("")
    assert (await rig.box.next(7)).kind is Kind.FEEDBACK_REMOVED
    server.send("/stop now")
    assert ((await rig.box.next(8)).kind, rig.box.messages[-1].text) == (Kind.COMMAND, "stop now")


async def test_sound_pictures_and_their_bytes_arrive(rig: WhatsAppRig) -> None:
    rig.server.upload("", b"OggS", kind="audio")
    rig.server.upload("", b"\xff\xd8", "look", kind="image")
    await rig.box.next(2)
    sound, picture = (message.attachments[0] for message in rig.box.messages)
    assert (sound.kind, sound.mime, picture.kind, rig.box.messages[1].text) == ("audio", "audio/ogg", "image", "look")
    assert b"".join([chunk async for chunk in rig.channel.fetch(picture)]) == b"\xff\xd8"
    rig.server.media.clear()
    with pytest.raises(Refused, match="no longer available"):
        [chunk async for chunk in rig.channel.fetch(sound)]


def test_an_event_of_an_unknown_shape_stops_no_other() -> None:
    message = {"from": JANE, "id": "wamid.1", "timestamp": "1", "type": "text", "text": {"body": "hi"}}
    broken = {**message, "id": "wamid.2", "timestamp": None}
    other = {"metadata": {"phone_number_id": "1"}, "messages": [message]}
    value = {"metadata": {"phone_number_id": NUMBER}, "messages": [broken, message], "statuses": [{"id": "w"}, 5]}
    changes = [{"field": "messages", "value": each} for each in (other, value, 7)]
    lost, read, status = parse_webhook(json.dumps({"entry": [{"changes": changes}, None]}).encode(), NUMBER)
    assert getattr(lost, "said", None) is not None  # its author is told
    assert getattr(read, "text", "") == "hi"
    assert isinstance(status, Status)
    [broken_body] = parse_webhook(b"\x00", NUMBER)
    assert not isinstance(broken_body, Status)
    assert parse_webhook(b"[1]", NUMBER) == []


async def test_what_meta_did_not_sign_is_not_read(rig: WhatsAppRig) -> None:
    assert not is_signed("s", {}, b"{}")
    assert not is_signed("s", {"x-hub-signature-256": "sha256=00"}, b"{}")
    channel = channel_of(rig)
    body = json.dumps({"entry": []}).encode()
    from channels.shared.relay_client import Delivery

    await channel._store(Delivery(1, "whatsapp", 0.0, {"x-hub-signature-256": "sha256=00"}, body))
    assert rig.channel.readiness().health is Health.DOWN
    assert "App secret" in rig.channel.readiness().detail
    await rig.say("genuine")
    await until(lambda: rig.channel.readiness().health is Health.READY)


# ---------------------------------------------------------------- files, errors, the account


async def test_files_go_as_what_whatsapp_takes(rig: WhatsAppRig, tmp_path: Path) -> None:
    await rig.say("hello")
    for name, data in {"a.png": b"\x89PNG", "b.csv": b"a,b", "c.mp3": b"ID3", "d.zip": b"PK"}.items():
        (tmp_path / name).write_bytes(data)
    files = [
        OutgoingFile(tmp_path / name, name, (tmp_path / name).stat().st_size, f"about {name}")
        for name in ("a.png", "b.csv", "c.mp3", "d.zip")
    ]
    with pytest.raises(Refused, match=r"^d\.zip: WhatsApp takes no files of this kind"):
        await rig.channel.send_files(rig.thread(), files, Memory())
    shown = [(one.kind, one.text) for one in rig.server.visible()]
    assert shown == [
        ("image", "about a.png"),
        ("document", "about b.csv"),
        ("text", "about c.mp3"),
        ("audio", ""),
    ]
    with (tmp_path / "big.png").open("wb") as big:
        big.truncate((5 << 20) + 1)
    large = OutgoingFile(tmp_path / "big.png", "big.png", (5 << 20) + 1)
    with pytest.raises(Refused, match="at most 5 MB"):
        await rig.channel.send_files(rig.thread(), [large], Memory("r2"))


async def test_the_person_who_cannot_be_reached_is_gone(rig: WhatsAppRig) -> None:
    from dataclasses import replace

    stranger = replace(rig.thread(), chat="4900000000")
    with pytest.raises(ChatGone):
        await rig.channel.reply(stranger, Memory()).finish(Final("Hello?"))


async def test_too_many_messages_to_one_person_come_later(rig: WhatsAppRig) -> None:
    rig.server.limits = True
    async with opened(WhatsAppApi(channel_of(rig)._settings)) as api:
        content = {"type": "text", "text": {"body": "again"}}
        for _number in range(45):
            await api.send(JANE, content)
        with pytest.raises(TryLater, match="retry after 10 s"):
            await api.send(JANE, content)


async def test_a_wrong_token_and_a_wrong_relay_are_said(tmp_path: Path) -> None:
    from dataclasses import replace

    async with FakeWhatsApp() as server, relaying(tmp_path, SOURCES) as relay:
        settings = settings_for(server, relay)
        assert await setup.probe_number(settings) == f"connected as Fawn (+{DISPLAY})"
        with pytest.raises(Refused, match="WhatsApp rejects the token"):
            await setup.probe_number(replace(settings, token=Secret("other")))
        with pytest.raises(Refused, match="relay rejects the key"):
            await setup.probe_number(replace(settings, relay_key=Secret("other")))
        async with opened(WhatsAppApi(replace(settings, token=Secret("other")))) as api:
            with pytest.raises(TokenRejected):
                await api.account()


# ---------------------------------------------------------------- Markdown


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**bold** and *it* and ~~no~~ and `co*de*`", "*bold* and _it_ and ~no~ and `co*de*`"),
        ("# Head\n\ntext", "*Head*\n\ntext"),
        ("[the page](https://a.example/x) <https://b.example>", "the page (https://a.example/x) https://b.example"),
        ("- one\n- [x] two\n  1. deep", "- one\n- ☑ two\n  1. deep"),
        ("3. c\n4. d", "3. c\n4. d"),
        ("> quoted\n> more", "> quoted\n> more"),
        ("```python\na = 1\n```", "```\na = 1\n```"),
        ("| a | b |\n|---|---|\n| 1 | 22 |", "```\na | b\n--+---\n1 | 22\n```"),
        ("![chart](https://a.example/c.png)", "chart (https://a.example/c.png)"),
        ("one\ntwo\n\n---\n\nthree", "one\ntwo\n\n⎯⎯⎯⎯⎯⎯⎯⎯\n\nthree"),
        ("<b>&amp; x</b>", "<b>& x</b>"),
    ],
)
def test_markdown_is_written_as_whatsapp_has_it(markdown: str, shown: str) -> None:
    assert to_whatsapp(markdown) == shown
