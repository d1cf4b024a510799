"""Feishu's events become messages: pure functions for any event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.messages import ANYWHERE, Kind, Message, Quote, Unreadable
from channels.feishu.events import FeishuAccount, parse_event, parse_menu
from tests.fakes.feishu import APP, BOT, DIRECT, GROUP, JANE, KIM, FakeFeishu
from tests.fakes.feishu_people import BOT_MENTION
from tests.support.alerts import ALERT_CARD_FEISHU, ALERT_CARD_LINES

ME = FeishuAccount(APP, BOT)
KIM_MENTION = {"key": "@_user_2", "id": {"union_id": "on_k", "user_id": "", "open_id": KIM}, "name": "Kim"}

Act = Callable[[FakeFeishu], object]


def received(*acts: Act) -> list[Message]:
    """Parse the actions of people in a fake that is not started."""
    world = FakeFeishu()
    for act in acts:
        act(world)
    events = [parse_event(pushed.payload, ME) for pushed in world.pushed.values()]
    assert not any(isinstance(event, Unreadable) for event in events), events
    return [event for event in events if isinstance(event, Message)]


def one(act: Act) -> Message:
    [message] = received(act)
    return message


def test_a_direct_text_is_an_addressed_message() -> None:
    message = one(lambda fs: fs.send("hello 😀"))
    assert (message.text, message.kind, message.private, message.addressed) == ("hello 😀", Kind.CHAT, True, True)
    assert str(message.thread) == f"feishu/{APP}/{DIRECT}/"
    assert message.key == f"feishu:{APP}:{message.id}"
    assert (message.author.id, message.author.guest, message.author.bot) == (JANE, False, False)
    assert Message.load(message.dump()) == message


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("@_user_1 what now?", "what now?"),
        ("@_user_1, what now?", "what now?"),
        ("@_user_1：你好", "你好"),
        ("你好 @_user_1 what now?", "你好 what now?"),
        ("what now @_user_1", "what now"),
        ("ask @_user_2 and @_user_1 please", "ask @Kim and please"),
        ("@_user_1 ask @_user_2 and @_all", "ask @Kim and @all"),
        ("@_user_1 @_user_12 stays", "@_user_12 stays"),
        ("first\n@_user_1 second", "first\nsecond"),
    ],
)
# Case 36 of docs/cases.md
def test_mention_placeholders_are_replaced_by_names(said: str, left: str) -> None:
    message = one(lambda fs: fs.message({"text": said}, chat=GROUP, mentions=[BOT_MENTION, KIM_MENTION]))
    assert message.text == left
    assert message.addressed


# Case 36 of docs/cases.md
def test_a_command_follows_the_mention() -> None:
    message = one(lambda fs: fs.send("/goal ship it", chat=GROUP))
    assert (message.kind, message.text, message.addressed) == (Kind.COMMAND, "goal ship it", True)
    assert one(lambda fs: fs.send("hello", chat=GROUP)).kind is Kind.CHAT


def test_a_mention_in_a_group_starts_a_topic_with_its_follow_ups() -> None:
    def talk(fs: FakeFeishu) -> None:
        root = fs.send("begin", chat=GROUP)
        fs.send("go on", chat=GROUP, parent=root.id, mention=False)
        fs.send("again", chat=GROUP, parent=root.id)
        fs.send("Kim?", chat=GROUP, parent=root.id, mention=False, mentions=[KIM_MENTION])
        fs.send("chatter", chat=GROUP, mention=False)

    begin, on, again = received(talk)  # messages between people are ignored
    assert begin.thread.topic == begin.id
    assert {message.thread for message in (on, again)} == {begin.thread}
    assert [message.addressed for message in (begin, on, again)] == [True, False, True]
    assert [message.follow_up for message in (begin, on, again)] == [False, True, False]
    assert {message.reply_to for message in (begin, on, again)} == {""}  # in a topic everything answers its root
    assert not begin.private


def test_a_quoting_reply_and_a_topic_in_a_direct_chat_are_recognised() -> None:
    def talk(fs: FakeFeishu) -> None:
        first = fs.send("first")
        fs.send("about that", parent=first.id, in_thread=False)
        fs.send("in a topic", parent=first.id)

    first, quoting, inside = received(talk)
    assert (quoting.thread, quoting.reply_to) == (first.thread, first.id)
    assert (inside.thread.topic, inside.reply_to) == (first.id, "")
    assert inside.private
    assert inside.addressed


def test_people_of_other_tenants_are_guests_and_own_messages_are_ignored() -> None:
    assert one(lambda fs: fs.send("hello", tenant="elsewhere")).author.guest
    assert not received(lambda fs: fs.send("my own", sender=BOT))


# Case 37 of docs/cases.md
@pytest.mark.parametrize("language", [False, True])
def test_a_rich_post_keeps_its_images_in_order(language: bool) -> None:
    content = {
        "title": "Report",
        "content": [
            [{"tag": "at", "user_id": "@_user_1", "user_name": "Fawn"}, {"tag": "text", "text": " compare "}],
            [
                {"tag": "img", "image_key": "img_a"},
                {"tag": "text", "text": " with "},
                {"tag": "img", "image_key": "img_b"},
            ],
            [{"tag": "a", "text": "here", "href": "https://x.org"}, {"tag": "emotion", "emoji_type": "SMILE"}],
            [{"tag": "at", "user_id": "@_user_2", "user_name": "Kim"}],
            [{"tag": "code_block", "language": "PYTHON", "text": "print(1)"}],
        ],
    }
    posted = {"zh_cn": content} if language else content
    message = one(lambda fs: fs.message(posted, "post", chat=GROUP, mentions=[BOT_MENTION, KIM_MENTION]))
    first, second = message.attachments
    lines = message.text.split("\n")
    assert lines[:2] == ["Report", "compare "]
    assert lines[2] == f"[image: {first.name}] with [image: {second.name}]"
    assert lines[3:] == ["here (https://x.org):SMILE:", "@Kim", "```python", "print(1)", "```"]
    assert [file.ref for file in message.attachments] == [f"{message.id}/img_a/image", f"{message.id}/img_b/image"]
    assert message.addressed
    assert first.name != second.name


@pytest.mark.parametrize(
    ("kind", "name", "attachment"),
    [("file", "报告.csv", "file"), ("image", "", "image"), ("audio", "", "audio"), ("media", "film.mp4", "video")],
)
def test_files_are_attachments(kind: str, name: str, attachment: str) -> None:
    message = one(lambda fs: fs.upload(name, b"x", kind))
    [file] = message.attachments
    assert (message.text, file.kind) == ("", attachment)
    assert file.name == name or (not name and "_" in file.name)
    assert file.ref.startswith(f"{message.id}/{'img' if kind == 'image' else 'file'}_v3_")


# Case 34 of docs/cases.md
def test_only_a_file_waits_for_further_messages() -> None:
    picture = {"content": [[{"tag": "text", "text": "look"}, {"tag": "img", "image_key": "img_a"}]]}
    told = received(
        lambda fs: fs.upload("a.csv", b"x"), lambda fs: fs.send("hello"), lambda fs: fs.message(picture, "post")
    )
    assert [message.long for message in told] == [True, False, False]


# Case 86 of docs/cases.md
@pytest.mark.parametrize(
    ("kind", "words"), [("sticker", "stickers"), ("folder", "folders"), ("hologram", "“hologram” messages")]
)
def test_unsupported_messages_are_named(kind: str, words: str) -> None:
    message = one(lambda fs: fs.message({"file_key": "x"}, kind))
    assert (message.kind, message.text) == (Kind.UNSUPPORTED, words)


@pytest.mark.parametrize(
    ("kind", "content", "text"),
    [
        ("location", {"name": "Office", "longitude": "116.1", "latitude": "39.9"}, "Place: Office, (39.9, 116.1)"),
        ("share_user", {"user_id": KIM}, f"Contact: {KIM}"),
        ("vote", {"topic": "Lunch?", "options": ["Pizza", "Soup"]}, "Poll: Lunch?\n• Pizza\n• Soup"),
        (
            "todo",
            {"summary": {"title": "", "content": [[{"tag": "text", "text": "Buy milk"}]]}, "due_time": "1764000000000"},
            "Task: Buy milk\nDue: 2025-11-24 16:00 UTC",
        ),
        (
            "share_calendar_event",
            {"summary": "Standup", "start_time": "1764000000000", "end_time": "0"},
            "Calendar: Standup\nBegins: 2025-11-24 16:00 UTC",
        ),
        ("video_chat", {"topic": "Sync", "start_time": "x"}, "Call: Sync"),
    ],
)
def test_entries_of_other_kinds_are_text(kind: str, content: dict[str, Any], text: str) -> None:
    message = one(lambda fs: fs.message(content, kind))
    assert (message.kind, message.text) == (Kind.CHAT, text)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_card_that_a_person_forwards_is_read_whole_as_anothers_words(wrapped: bool) -> None:
    content = {"user_dsl": orjson.dumps(ALERT_CARD_FEISHU).decode()} if wrapped else ALERT_CARD_FEISHU
    message = one(lambda fs: fs.message(content, "interactive"))
    assert (message.kind, message.text) == (Kind.CHAT, "")
    [quote] = message.quotes
    assert quote == Quote("somebody", "\n".join(ALERT_CARD_LINES), "forward")


def test_recalls_and_reactions_become_messages() -> None:
    def talk(fs: FakeFeishu) -> None:
        said = fs.send("what is 2+2?", chat=GROUP)
        fs.recall(said.id)
        fs.react(said.id, "CrossMark")
        fs.react(said.id, "SMILE")
        fs.react(said.id, "THUMBSUP")
        fs.unreact(said.id, "THUMBSUP")
        fs.unreact(said.id, "CrossMark")

    said, gone, stop, up, none = received(talk)
    assert [(up.kind, up.text), (none.kind, none.text)] == [(Kind.FEEDBACK, "up"), (Kind.FEEDBACK_REMOVED, "up")]
    assert (gone.kind, gone.target) == (Kind.DELETE, said.key)
    assert (stop.kind, stop.text, stop.reply_to, stop.to_bot) == (Kind.COMMAND, "stop", said.id, True)
    assert (stop.thread.chat, stop.thread.topic) == (ANYWHERE, ANYWHERE)
    assert len({message.key for message in (said, gone, stop, up, none)}) == 5


def test_a_menu_entry_with_a_command_as_key_is_a_command() -> None:
    world = FakeFeishu()
    world.choose("model_demo")
    [pushed] = world.pushed.values()
    assert parse_event(pushed.payload, ME) is None  # its chat has to be asked for
    message = parse_menu(orjson.loads(pushed.payload), ME, DIRECT, frozenset(["model"]))
    assert message
    assert (message.kind, message.text, message.thread.chat, message.author.id) == (
        Kind.COMMAND,
        "model demo",
        DIRECT,
        JANE,
    )
    assert parse_menu(orjson.loads(pushed.payload), ME, DIRECT, frozenset(["stop"])) is None


@pytest.mark.parametrize("kind", ["im.chat.updated_v1", "im.message.updated_v1", "something.new_v9"])
def test_other_events_are_ignored(kind: str) -> None:
    world = FakeFeishu()
    assert parse_event(orjson.dumps(world.event(kind, {"x": 1})), ME) is None


def test_an_event_with_another_structure_is_stored_as_unreadable() -> None:
    world = FakeFeishu()
    raw = orjson.dumps(world.event("im.message.receive_v1", {"message": {"message_id": 5}}, "ev-1"))
    event = parse_event(raw, ME)
    assert isinstance(event, Unreadable)
    assert (event.channel, event.key, event.raw) == ("feishu", f"feishu:{APP}:event:ev-1", raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
FIELDS = ["message_id", "message_type", "content", "chat_id", "chat_type", "create_time", "mentions", "root_id"]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(
        ["im.message.receive_v1", "im.message.recalled_v1", "im.message.reaction.created_v1", "card.action.trigger"]
    ),
    st.dictionaries(st.sampled_from(FIELDS), JSON),
    JSON,
    st.sampled_from(["text", "post", "interactive", "file", "image", "sticker"]),
)
def test_the_parser_never_raises(kind: str, fields: dict[str, Any], content: Any, form: str) -> None:
    raw = {"message_id": "om_x", "chat_id": "oc_x", "create_time": "1", "message_type": form}
    raw["content"] = orjson.dumps(content, default=str).decode() if _writable(content) else "{}"
    event = {"message": {**raw, **fields}, "sender": {"sender_id": {"open_id": JANE}}, "action": content}
    envelope = FakeFeishu().event(kind, event)
    if _writable(envelope):
        told = parse_event(orjson.dumps(envelope), ME)
        assert told is None or isinstance(told, (Message, Unreadable))


def _writable(value: object) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:  # an integer that is too big, half a surrogate pair
        return False
    return True
