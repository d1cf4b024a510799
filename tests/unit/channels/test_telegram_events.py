"""Telegram's updates become messages: pure functions for any update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.messages import ANYWHERE, Author, Kind, Message, Unreadable
from channels.telegram.events import TelegramAccount, parse_update
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_world import BOT

ME = TelegramAccount(123456, "fawn_bot")
GROUP, SUPERGROUP = -100, -1_001_000_000_001

Json = dict[str, Any]


def received(act: Callable[[FakeTelegram], object]) -> list[Message]:
    """Parse the actions of people in a fake that is not started."""
    world = FakeTelegram()
    act(world)
    events = [parse_update(update, ME) for update in world.updates.values()]
    assert not any(isinstance(event, Unreadable) for event in events), events
    return [event for event in events if isinstance(event, Message)]


def one(act: Callable[[FakeTelegram], object]) -> Message:
    [message] = received(act)
    return message


def test_a_private_text_is_an_addressed_message() -> None:
    message = one(lambda tg: tg.send("hello 😀"))
    assert message.text == "hello 😀"
    assert str(message.thread) == "telegram/123456/42/"
    assert message.key == "telegram:123456:42:1"
    assert (message.author.id, message.author.name) == ("42", "Jane")
    assert message.private
    assert message.addressed
    assert Message.load(message.dump()) == message


@pytest.mark.parametrize(
    ("text", "left", "addressed"),
    [
        ("@fawn_bot what now?", "what now?", True),
        ("@Fawn_Bot, what now?", "what now?", True),
        ("你好 😀 @fawn_bot what now?", "你好 😀 what now?", True),
        ("what now @fawn_bot", "what now", True),
        ("ask @kim and @fawn_bot please", "ask @kim and please", True),
        ("what now?", "what now?", False),
        ("@fawn_bot_two what now?", "@fawn_bot_two what now?", False),
        ("first\n@fawn_bot second", "first\nsecond", True),
    ],
)
def test_a_mention_in_a_group_addresses_the_bot(text: str, left: str, addressed: bool) -> None:
    message = one(lambda tg: tg.send(text, chat=GROUP))
    assert (message.text, message.addressed, message.private) == (left, addressed, False)


def test_a_text_mention_without_a_username_addresses_the_bot() -> None:
    entity = {
        "type": "text_mention",
        "offset": 0,
        "length": 4,
        "user": {"id": 123456, "is_bot": True, "first_name": "F"},
    }
    message = one(lambda tg: tg.say({"text": "Fawn go on", "entities": [entity]}, chat=GROUP))
    assert (message.text, message.addressed) == ("go on", True)


def test_hidden_links_are_written_out() -> None:
    entity = {"type": "text_link", "offset": 3, "length": 4, "url": "https://x.y/z"}
    assert one(lambda tg: tg.say({"text": "😀 docs", "entities": [entity]})).text == "😀 docs (https://x.y/z)"


# Case 23 of docs/cases.md
@pytest.mark.parametrize(
    ("text", "words", "addressed"),
    [
        ("/new@fawn_bot x", "new x", True),
        ("@fawn_bot /new", "new", True),
        ("/new", "new", False),
        ("!stop", "stop", False),
    ],
)
def test_a_command_in_a_group_is_recognised(text: str, words: str, addressed: bool) -> None:
    message = one(lambda tg: tg.send(text, chat=GROUP))
    assert (message.kind, message.text, message.addressed) == (Kind.COMMAND, words, addressed)


# Case 23 of docs/cases.md
def test_a_command_for_another_bot_is_ignored() -> None:
    assert received(lambda tg: tg.send("/new@other_bot", chat=GROUP)) == []


# Case 21 of docs/cases.md
def test_a_photo_has_its_largest_size_and_its_caption() -> None:
    message = one(lambda tg: tg.send_photo(b"jpeg" * 99, caption="what is this?"))
    [file] = message.attachments
    assert (message.text, file.kind, file.name, file.size) == ("what is this?", "image", "photo_1.jpg", 396)


def test_every_kind_of_file_has_a_sensible_name() -> None:
    def act(tg: FakeTelegram) -> None:
        tg.send_document("r.csv", b"a,b")
        tg.send_document("p.png", b"x", mime="image/png")
        tg.send_voice(b"ogg")
        tg.send_audio(b"mp3")
        tg.send_video(b"mp4")
        tg.send_video_note(b"mp4")

    files = [message.attachments[0] for message in received(act)]
    assert [(file.name, file.kind) for file in files] == [
        ("r.csv", "file"),
        ("p.png", "image"),
        ("voice_3.ogg", "audio"),
        ("song.mp3", "audio"),
        ("clip.mp4", "video"),
        ("video_note_6.mp4", "video"),
    ]
    assert len({file.ref for file in files}) == 6


# Cases 25 and 34 of docs/cases.md
def test_messages_of_an_album_share_a_bundle() -> None:
    pieces = received(lambda tg: tg.send_album([b"1", b"2", b"3"], caption="compare"))
    assert len({piece.group for piece in pieces}) == 1
    assert pieces[0].group
    assert [piece.text for piece in pieces] == ["compare", "", ""]
    assert received(lambda tg: tg.send_photo(b"1"))[0].group == ""


# Case 85 of docs/cases.md
def test_a_long_paste_is_marked_as_split() -> None:
    pieces = received(lambda tg: tg.paste("x" * 9000))
    assert [piece.long for piece in pieces] == [True, True, False]


# Case 24 of docs/cases.md
def test_replies_to_the_bot_continue_and_topics_are_kept() -> None:
    def act(tg: FakeTelegram) -> None:
        bot = {"id": 123456, "is_bot": True, "first_name": "Fawn", "username": "fawn_bot"}
        answer = tg.post(tg.chat(SUPERGROUP), bot, {"text": "the answer"})
        tg.send("and then?", chat=SUPERGROUP, reply_to=answer["message_id"])
        tg.forum(SUPERGROUP - 1, 7)
        tg.send("@fawn_bot here", chat=SUPERGROUP - 1, topic=7)

    reply, topic = received(act)
    assert (reply.to_bot, reply.addressed, reply.reply_to, reply.quotes) == (True, True, "1", ())
    assert reply.thread.topic == ""  # it carries a thread id, but a plain group is one conversation
    assert topic.thread.topic == "7"


def test_the_first_message_of_a_topic_is_not_a_reply_to_its_creator() -> None:
    service = {"message_id": 7, "date": 1, "chat": {"id": GROUP, "type": "supergroup", "title": "x"}}
    bot = {"id": 123456, "is_bot": True, "first_name": "Fawn"}
    made = service | {"from": bot, "forum_topic_created": {"name": "T", "icon_color": 1}}
    content = {"text": "hi", "reply_to_message": made, "message_thread_id": 7, "is_topic_message": True}
    message = one(lambda tg: tg.say(content, chat=SUPERGROUP))
    assert (message.to_bot, message.addressed, message.reply_to, message.thread.topic) == (False, False, "", "7")


# Case 82 of docs/cases.md
def test_a_quoted_message_includes_its_file() -> None:
    def act(tg: FakeTelegram) -> None:
        said = tg.send_document("plan.pdf", b"%PDF", caption="our plan", chat=GROUP, user=5)
        tg.send("@fawn_bot sum it up", chat=GROUP, reply_to=said["message_id"])
        tg.send("@fawn_bot only this", chat=GROUP, reply_to=said["message_id"], quote="plan")

    _, whole, part = received(act)
    assert [(quote.author, quote.text, quote.kind) for quote in whole.quotes] == [("User5", "our plan", "reply")]
    assert [file.name for file in whole.attachments] == ["plan.pdf"]
    assert [quote.text for quote in part.quotes] == ["plan"]


def test_a_forwarded_message_is_context_and_not_a_command() -> None:
    message = one(lambda tg: tg.send("/stop everything", forward_from="Kim"))
    assert (message.kind, message.text) == (Kind.CHAT, "")
    assert [(quote.author, quote.text, quote.kind) for quote in message.quotes] == [
        ("Kim", "/stop everything", "forward")
    ]


# Case 80 of docs/cases.md
def test_a_reply_to_an_alert_quotes_its_links_and_buttons() -> None:
    def talk(world: FakeTelegram) -> None:
        link = {"type": "text_link", "offset": 9, "length": 7, "url": "https://wiki.example.org/disk"}
        keys = {"inline_keyboard": [[{"text": "Silence", "url": "https://alerts.example.org/s"}]]}
        keys["inline_keyboard"][0].append({"text": "Ack", "callback_data": "a"})
        content = {"text": "DiskFull runbook", "entities": [link], "reply_markup": keys}
        alert = world.post(world.chat(GROUP), {"id": 777, "is_bot": True, "first_name": "Alerts"}, content, 0)
        world.send("@fawn_bot what is this?", chat=GROUP, reply_to=alert["message_id"])

    [quote] = one(talk).quotes
    assert quote.text == "DiskFull runbook (https://wiki.example.org/disk)\nSilence (https://alerts.example.org/s)"


def test_a_reply_to_a_message_of_another_chat_brings_what_is_in_it() -> None:
    origin = {"type": "hidden_user", "date": 1, "sender_user_name": "Zed"}
    photo = {"file_id": "p1", "file_unique_id": "u", "width": 9, "height": 9, "file_size": 3}
    asked = one(lambda world: world.say({"text": "what?", "external_reply": {"origin": origin, "photo": [photo]}}))
    assert [(file.ref, file.kind) for file in asked.attachments] == [("p1", "image")]
    place = {"latitude": 3, "longitude": 4}
    asked = one(lambda world: world.say({"text": "where?", "external_reply": {"origin": origin, "location": place}}))
    assert [(quote.author, quote.text) for quote in asked.quotes] == [("Zed", "Place: 3.000000, 4.000000")]


def test_a_forwarded_file_says_whose_it_is() -> None:
    file = {"file_id": "d", "file_unique_id": "q", "file_name": "r.csv", "mime_type": "text/csv", "file_size": 3}
    message = one(lambda world: world.say({"document": file}, forward_from="Zed"))
    assert [(quote.author, quote.text, quote.kind) for quote in message.quotes] == [("Zed", "r.csv", "forward")]


# Case 86 of docs/cases.md
def test_a_rich_message_is_read_and_what_is_not_known_is_named() -> None:
    blocks = [
        {"type": "heading", "size": 1, "text": ["Disk ", {"type": "bold", "text": "full"}]},
        {"type": "paragraph", "text": {"type": "url", "text": "runbook", "url": "https://wiki.example.org/disk"}},
        {"type": "table", "cells": [[{"text": "db-3"}, {"text": {"type": "code", "text": "2 %"}}]]},
        {"type": "list", "items": [{"label": "1.", "blocks": [{"type": "paragraph", "text": "grow it"}]}]},
    ]
    message = one(lambda world: world.say({"rich_message": {"blocks": blocks}}, forward_from="Zed"))
    said = "Disk full\nrunbook (https://wiki.example.org/disk)\ndb-3 | 2 %\n1.\ngrow it"
    assert [quote.text for quote in message.quotes] == [said]
    deep: Json = {"type": "paragraph", "text": "bottom"}
    for _ in range(500):
        deep = {"type": "details", "summary": ["x"], "blocks": [deep]}
    assert "bottom" not in one(lambda world: world.say({"rich_message": {"blocks": [deep]}})).text
    unknown = one(lambda world: world.say({"hologram": {"of": "next year"}}))
    assert (unknown.kind, unknown.text, unknown.addressed) == (Kind.UNSUPPORTED, "messages of this kind", True)


def test_an_edit_names_its_message() -> None:
    def act(tg: FakeTelegram) -> None:
        said = tg.send("helo")
        tg.edit("hello", said["message_id"])
        tg.edit("hello!", said["message_id"])

    first, *edits = received(act)
    assert [(edit.kind, edit.target, edit.text) for edit in edits] == [
        (Kind.EDIT, first.key, "hello"),
        (Kind.EDIT, first.key, "hello!"),
    ]
    assert len({first.key, *(edit.key for edit in edits)}) == 3


def test_an_edit_that_adds_a_mention_is_addressed_with_all_that_the_message_has() -> None:
    def act(tg: FakeTelegram) -> None:
        said = tg.send("hello", chat=GROUP)
        tg.edit("@fawn_bot hello", said["message_id"], chat=GROUP)
        tg.edit("hello you", said["message_id"], chat=GROUP)

    said, mention, other = received(act)
    assert not said.addressed
    assert (mention.kind, mention.target, mention.text, mention.addressed) == (Kind.EDIT, said.key, "hello", True)
    assert not mention.fleeting
    assert (other.kind, other.addressed) == (Kind.EDIT, False)


@pytest.mark.parametrize(("age", "addressed"), [(0, True), (3500, True), (3700, False), (90_000, False)])
def test_a_mention_in_an_edit_of_an_old_message_does_not_count(age: int, addressed: bool) -> None:
    world = FakeTelegram()
    said = dict(world.send("@fawn_bot hi", chat=GROUP))
    found = parse_update({"update_id": 7, "edited_message": {**said, "edit_date": said["date"] + age}}, ME)
    assert isinstance(found, Message)
    assert found.addressed is addressed


# Case 84 of docs/cases.md
def test_a_migrated_group_names_its_new_id() -> None:
    message = one(lambda tg: tg.migrate(GROUP, SUPERGROUP))
    assert (message.kind, message.thread.chat, message.text) == (Kind.MOVED, str(GROUP), str(SUPERGROUP))


# Case 86 of docs/cases.md
def test_unsupported_kinds_are_named_and_those_with_words_are_read() -> None:
    def act(tg: FakeTelegram) -> None:
        tg.send_sticker()
        tg.send_poll()
        tg.send_contact()
        tg.send_location()

    sticker, *others = received(act)
    assert (sticker.kind, sticker.text) == (Kind.UNSUPPORTED, "a sticker")
    assert {message.kind for message in others} == {Kind.CHAT}
    assert [message.text for message in others] == [
        "Poll: Lunch?\n• yes (0)\n• no (0)",
        "Contact: Kim, +15550100",
        "Place: 52.500000, 13.400000",
    ]


@pytest.mark.parametrize(
    "content",
    [{"new_chat_title": "New"}, {"left_chat_member": {"id": 5, "is_bot": False, "first_name": "Kim"}}, {"text": ""}],
)
def test_service_messages_are_ignored(content: Json) -> None:
    assert received(lambda tg: tg.say(content, chat=GROUP)) == []


@pytest.mark.parametrize(("sender", "name"), [(GROUP, "Team 100"), (-1_005, "Channel 1005")])
def test_anonymous_people_are_the_chat_that_they_post_as(sender: int, name: str) -> None:
    message = one(lambda tg: tg.send("@fawn_bot hello", chat=GROUP, sent_as=sender))
    assert (message.author, message.addressed, message.text) == (Author(str(sender), name), True, "hello")


def test_a_reaction_of_an_anonymous_admin_counts() -> None:
    def act(tg: FakeTelegram) -> None:
        tg.forum(SUPERGROUP).admin = True
        tg.react("👎", tg.send("hello", chat=SUPERGROUP)["message_id"], chat=SUPERGROUP, sent_as=SUPERGROUP)

    [_, feedback] = received(act)
    assert isinstance(feedback, Message)
    assert (feedback.text, feedback.author.id) == ("down", str(SUPERGROUP))


def test_bots_and_posts_of_the_linked_channel_are_ignored() -> None:
    def act(tg: FakeTelegram) -> None:
        tg.person(5)["is_bot"] = True
        tg.send("beep", user=5, chat=GROUP)
        tg.say({"text": "news", "is_automatic_forward": True}, chat=GROUP, sent_as=-5)

    assert received(act) == []


def test_a_malformed_update_is_stored_as_unreadable() -> None:
    event = parse_update({"update_id": 7, "message": {"message_id": 1}}, ME)
    assert isinstance(event, Unreadable)
    assert event.key == "telegram:123456:update:7"
    assert b"message_id" in event.raw


VALUE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data(), field=st.sampled_from(["message", "edited_message", "callback_query"]))
@settings(max_examples=300, deadline=None)
def test_the_parser_never_raises_on_any_update(data: st.DataObject, field: str) -> None:
    world = FakeTelegram()
    said = world.send("@fawn_bot **hi** 😀", chat=GROUP)
    content: Json = {"id": "1", "from": said["from"], "message": said, "data": "a|1"} if field[0] == "c" else dict(said)
    known = [*content, "photo", "entities", "reply_to_message", "quote", "document", "forward_origin", "sticker"]
    for name in data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3)):
        content[name] = data.draw(VALUE)
    event = parse_update({"update_id": 1, field: content}, ME)
    assert event is None or isinstance(event, (Message, Unreadable))
    if isinstance(event, Message):
        event.dump()


@pytest.mark.parametrize(
    ("before", "after", "kind", "text"),
    [
        ("", "❌", Kind.COMMAND, "stop"),
        ("👍", "❌", Kind.COMMAND, "stop"),
        ("❌", "", None, ""),
        ("", "👎", Kind.FEEDBACK, "down"),
        ("👎", "👍", Kind.FEEDBACK, "up"),
        ("👎", "👎", None, ""),
        ("👎", "", Kind.FEEDBACK_REMOVED, "down"),
        ("👍", "🔥", Kind.FEEDBACK_REMOVED, "up"),
        ("", "🔥", None, ""),
    ],
)
def test_a_new_reaction_is_a_stop_or_feedback(before: str, after: str, kind: Kind | None, text: str) -> None:
    def act(tg: FakeTelegram) -> None:
        tg.post(tg.chat(42), BOT, {"text": "working"})
        tg.react(after, 1)
        tg.latest["message_reaction"]["old_reaction"] = [{"type": "emoji", "emoji": before}] if before else []

    messages = received(act)
    assert bool(messages) is bool(kind)
    for message in messages:
        assert (message.kind, message.text, message.reply_to, message.to_bot) == (kind, text, "1", True)
        assert (message.thread.chat, message.thread.topic) == ("42", ANYWHERE)
        assert not message.addressed
        assert message.author.name == "Jane"


def test_only_a_name_that_a_person_chose_is_a_title() -> None:
    def act(tg: FakeTelegram) -> None:
        tg.open_topic("please sum this up")
        tg.rename_topic(tg.open_topic("hello", name="Greetings"), "Hellos")

    found = [(message.kind, message.text) for message in received(act) if isinstance(message, Message)]
    chat = [(Kind.CHAT, "please sum this up"), (Kind.TITLE, "Greetings"), (Kind.CHAT, "hello"), (Kind.TITLE, "Hellos")]
    assert found == chat


def test_a_group_sends_reactions_only_to_administrators() -> None:
    world = FakeTelegram()
    world.post(world.chat(GROUP), BOT, {"text": "working"})
    world.react("👎", 1, chat=GROUP)
    assert not world.updates


def test_a_reaction_of_a_bot_is_ignored() -> None:
    def act(tg: FakeTelegram) -> None:
        tg.post(tg.chat(42), BOT, {"text": "working"})
        tg.react("👎", 1)
        tg.latest["message_reaction"]["user"]["is_bot"] = True

    assert received(act) == []
