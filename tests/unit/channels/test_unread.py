"""What a platform sends in a form that nobody knows is said to be unread: no field of a message brings silence."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from agent.messages import Kind, Message, Thread, Unreadable
from channels.dingtalk.api import MESSAGE_TOPIC
from channels.dingtalk.events import Company
from channels.dingtalk.events import parse_event as parse_dingtalk
from channels.discord.events import DiscordAccount, read_message
from channels.feishu.events import FeishuAccount
from channels.feishu.events import parse_event as parse_feishu
from channels.shared.robot_chats import RobotAccount
from channels.slack.events import SlackAccount
from channels.slack.events import parse_payload as parse_slack
from channels.telegram.events import TelegramAccount
from channels.telegram.events import parse_update as parse_telegram
from channels.wecom.connection import MESSAGE
from channels.wecom.events import parse_callback as parse_wecom
from channels.whatsapp.events import parse_webhook
from tests.support.alerts import ALERT_CARD_FEISHU, ALERT_DISCORD_V2, GITHUB_DISCORD, GRAFANA_SLACK

Json = dict[str, Any]
Read = Callable[[Json], Message | Unreadable | None]

JANE_TELEGRAM = {"id": 7, "is_bot": False, "first_name": "Jane"}
SLACK_EVENT: Json = {
    "type": "message",
    "channel": "D1",
    "channel_type": "im",
    "user": "U1",
    "ts": "1.0",
    "text": "what is this?",
    "files": [{"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 9}],
    "attachments": [{"is_share": True, "author_name": "Ann", "text": "see", **GRAFANA_SLACK["attachments"][0]}],
    "app_context": {"entities": [{"type": "slack#/types/channel_id", "value": "C1", "team_id": "T1"}]},
}
TELEGRAM_MESSAGE: Json = {
    "message_id": 5,
    "date": 1_700_000_000,
    "chat": {"id": 7, "type": "private", "first_name": "Jane"},
    "from": JANE_TELEGRAM,
    "text": "what is this?",
    "entities": [{"type": "bold", "offset": 0, "length": 4}],
    "reply_to_message": {
        "message_id": 4,
        "date": 1_700_000_000,
        "chat": {"id": 7, "type": "private"},
        "text": "FIRING",
        "reply_markup": {"inline_keyboard": [[{"text": "Open", "url": "https://x.example.org"}]]},
    },
    "quote": {"text": "FIR", "position": 0},
    "rich_message": {"blocks": [{"type": "paragraph", "text": "x"}]},
}
DISCORD_MESSAGE: Json = {
    "id": "175928847299117063",
    "channel_id": "6000",
    "author": {"id": "2000", "username": "jane"},
    "content": "what is this?",
    "type": 0,
    "mentions": [],
    "attachments": [{"id": "1", "url": "https://cdn.example.org/a", "filename": "a.txt", "size": 3}],
    "embeds": GITHUB_DISCORD["embeds"],
    "message_reference": {"type": 1, "message_id": "3"},
    "message_snapshots": [{"message": {"content": "see", **ALERT_DISCORD_V2}}],
    "poll": {"question": {"text": "Lunch?"}, "answers": [{"answer_id": 1, "poll_media": {"text": "Soup"}}]},
}
FEISHU_EVENT: Json = {
    "sender": {"sender_id": {"open_id": "ou_jane"}, "sender_type": "user", "tenant_key": "t"},
    "message": {
        "message_id": "om_1",
        "create_time": "1764000000000",
        "chat_id": "oc_1",
        "chat_type": "p2p",
        "message_type": "interactive",
        "content": orjson.dumps(ALERT_CARD_FEISHU).decode(),
        "mentions": [{"key": "@_user_2", "id": {"open_id": "ou_kim"}, "name": "Kim"}],
    },
}
DINGTALK_EVENT: Json = {
    "conversationId": "cid1",
    "conversationType": "1",
    "msgId": "m1",
    "senderStaffId": "jane",
    "senderId": "$:jane",
    "senderCorpId": "c",
    "chatbotCorpId": "c",
    "createAt": 1_764_000_000_000,
    "msgtype": "text",
    "text": {"content": "what?", "repliedMsg": {"msgType": "text", "msgId": "m0", "content": {"text": "x"}}},
}
WECOM_EVENT: Json = {
    "msgid": "m1",
    "chattype": "single",
    "from": {"userid": "jane"},
    "msgtype": "mixed",
    "mixed": {"msg_item": [{"msgtype": "text", "text": {"content": "what?"}}]},
    "quote": {"msgtype": "text", "text": {"content": "x"}},
    "create_time": 1_764_000_000,
}
WHATSAPP_EVENT: Json = {
    "from": "4915112345678",
    "id": "wamid.1",
    "timestamp": "1764000000",
    "type": "text",
    "text": {"body": "what?"},
    "context": {"from": "15550783881", "id": "wamid.0"},
}
SLACK_ACCOUNT = SlackAccount("T1", "UBOT", "BBOT", "fawn", "Acme")
DIRECT = Thread("discord", "@me", "6000")


def read_whatsapp(raw: Any) -> Any:
    """Read the message of a webhook; None for one that is no object."""
    value = {"metadata": {"phone_number_id": "1"}, "messages": [raw]}
    found = parse_webhook(orjson.dumps({"entry": [{"changes": [{"field": "messages", "value": value}]}]}), "1")
    return found[0] if found else None


PLATFORMS: dict[str, tuple[Json, Read, set[str]]] = {  # a message, how it is read, and what it cannot do without
    "slack": (
        SLACK_EVENT,
        lambda raw: parse_slack({"event": raw, "event_id": "E", "team_id": "T1"}, SLACK_ACCOUNT),
        {"type", "channel", "user", "ts"},
    ),
    "telegram": (
        TELEGRAM_MESSAGE,
        lambda raw: parse_telegram({"update_id": 1, "message": raw}, TelegramAccount(1, "fawn_bot")),
        {"message_id", "chat", "from", "chat.id", "chat.type", "from.id", "from.is_bot"},
    ),
    "discord": (
        DISCORD_MESSAGE,
        lambda raw: read_message(raw, DIRECT, DiscordAccount("1000")),
        {"id", "channel_id", "author", "author.id", "type"},
    ),
    "feishu": (
        FEISHU_EVENT,
        lambda raw: parse_feishu(
            orjson.dumps({"header": {"event_type": "im.message.receive_v1", "event_id": "e"}, "event": raw}),
            FeishuAccount("cli_1", "ou_bot"),
        ),
        {"sender", "message", "sender.sender_type", "sender.sender_id", "sender.sender_id.open_id"}
        | {f"message.{name}" for name in ("message_id", "chat_id", "chat_type")},
    ),
    "dingtalk": (
        DINGTALK_EVENT,
        lambda raw: parse_dingtalk(
            MESSAGE_TOPIC, orjson.dumps(raw), RobotAccount("dingtalk", "ding1", "Fawn"), Company()
        ),
        {"conversationType", "msgId", "senderStaffId", "conversationId"},
    ),
    "wecom": (
        WECOM_EVENT,
        lambda raw: parse_wecom(MESSAGE, "r1", orjson.dumps(raw), RobotAccount("wecom", "bot", "Fawn")),
        {"msgid", "chattype", "from", "from.userid"},
    ),
    "whatsapp": (WHATSAPP_EVENT, lambda raw: read_whatsapp(raw), {"from", "id"}),
}
JUNK: tuple[Any, ...] = (None, 7, "odd", [], [None, 3, "x"], {}, {"type": {}, "text": []}, True)


def broken(message: Json, needed: set[str], path: str = "") -> Iterator[tuple[str, Callable[[Any], None], Json]]:
    """Yield each field, at any depth, with a copy of the message and what puts another value there."""

    def fields(value: Any, steps: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, each in inner:
            yield (*steps, name)
            yield from fields(each, (*steps, name))

    for steps in list(fields(message, ())):
        if ".".join(map(str, steps)) in needed:
            continue
        made = copy.deepcopy(message)
        place: Any = made
        for step in steps[:-1]:
            place = place[step]

        def put(value: Any, place: Any = place, last: Any = steps[-1]) -> None:
            if value is ...:
                del place[last]
            else:
                place[last] = value

        yield ".".join(map(str, steps)), put, made


def is_heard(event: Message | Unreadable | None) -> bool:
    """Whether its author gets an answer: from a turn, or in a sentence."""
    said = event.said if isinstance(event, Unreadable) else event
    return isinstance(said, Message) and said.addressed


# Case 86 of docs/cases.md
@pytest.mark.parametrize("name", PLATFORMS)
def test_a_message_with_any_field_broken_or_missing_is_never_met_with_silence(name: str) -> None:
    message, read, needed = PLATFORMS[name]
    assert isinstance(read(message), Message)
    tried = 0
    for junk in (*JUNK, ...):
        for path, put, made in broken(message, needed):
            put(junk)
            event = read(made)
            assert is_heard(event), (path, junk, event)
            if isinstance(event, Message):
                event.dump()
            tried += 1
    assert tried > 50


@pytest.mark.parametrize("name", PLATFORMS)
def test_an_unreadable_message_without_ids_is_kept_for_operators_only(name: str) -> None:
    message, read, needed = PLATFORMS[name]
    for path, put, made in broken(message, set()):
        if path in needed:
            put([])
            event = read(made)
            assert event is None or isinstance(event, (Message, Unreadable))


def test_the_sentence_is_about_the_message_and_its_own_event() -> None:
    message, read, _ = PLATFORMS["dingtalk"]
    event = read({**message, "createAt": "x"})
    assert isinstance(event, Unreadable)
    assert event.said
    assert (event.said.kind, event.said.text, event.said.id) == (Kind.UNSUPPORTED, "messages of this kind", "m1")
    assert event.said.key != event.key
