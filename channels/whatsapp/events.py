"""Read what WhatsApp posts to a webhook: messages, presses, reactions, and what became of the bot's messages.

Shapes: developers.facebook.com/docs/whatsapp/cloud-api/webhooks/components and …/payload-examples.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from agent.messages import Attachment, Author, Kind, Message, Origin, Quote, Thread, Unreadable
from channels.base import parse_command_text
from channels.shared.robot_chats import RobotAccount, make_click
from channels.shared.texts import feedback_of
from channels.shared.visible_text import dict_of, dicts_in, labelled, make_unread, text_of, with_author
from channels.whatsapp import NAME
from channels.whatsapp.api import WINDOW_OVER

MAX_TEXT_CHARS = 65_536  # of a message that a person writes
MAX_CONTACTS = 20
SIGNATURE = "x-hub-signature-256"
_MEDIA: Mapping[str, tuple[Literal["file", "image", "audio", "video"], str, str]] = {
    "image": ("image", "image_{}.jpg", "image/jpeg"),
    "sticker": ("image", "sticker_{}.webp", "image/webp"),
    "audio": ("audio", "voice_{}.ogg", "audio/ogg"),
    "video": ("video", "video_{}.mp4", "video/mp4"),
    "document": ("file", "file_{}", "application/octet-stream"),
}
_SILENT = frozenset({"system", "request_welcome"})  # a changed number, an opened chat

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Status:
    """What became of a message of the bot: "sent", "delivered", "read" or "failed", with a code."""

    message: str
    person: str
    state: str
    mark: str = ""
    code: int = 0
    reason: str = ""


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether Meta signed these bytes (…/webhooks/getting-started#event-notifications)."""
    wanted = f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}"
    return hmac.compare_digest(headers.get(SIGNATURE, "").encode("utf-8", "surrogateescape"), wanted.encode())


def parse_webhook(body: bytes, number: str) -> list[Message | Unreadable | Status]:
    """Read one delivery, which may have many events; one of an unknown shape does not stop the others."""
    try:
        entries = [*dicts_in(dict_of(orjson.loads(body)).get("entry"))]
    except orjson.JSONDecodeError as error:
        key = f"{NAME}:{number}:event:{hashlib.blake2b(body, digest_size=16).hexdigest()}"
        return [Unreadable(NAME, key, body, str(error))]
    found: list[Message | Unreadable | Status] = []
    for change in (change for entry in entries for change in dicts_in(entry.get("changes"))):
        value = dict_of(change.get("value"))
        if change.get("field") == "messages" and dict_of(value.get("metadata")).get("phone_number_id") == number:
            found += _parse_value(value, number)
    return found


def _parse_value(value: Json, number: str) -> Iterator[Message | Unreadable | Status]:
    names = {
        text_of(contact.get("wa_id")): text_of(dict_of(contact.get("profile")).get("name"))
        for contact in dicts_in(value.get("contacts"))
    }
    for event in dicts_in(value.get("messages")):
        try:
            if (message := _parse_message(event, number, names)) is not None:
                yield message
        except Exception as error:  # noqa: BLE001 — the boundary of one event
            raw = orjson.dumps(event)
            id = text_of(event.get("id")) or hashlib.blake2b(raw, digest_size=16).hexdigest()
            lost = Unreadable(NAME, f"{NAME}:{number}:event:{id}", raw, f"{type(error).__name__}: {error}")
            yield with_author(lost, lambda event=event: _unread(event, number))  # type: ignore[misc]  # a default
    yield from (_parse_status(each) for each in dicts_in(value.get("statuses")))


def _unread(event: Json, number: str) -> Message:
    person, id = str(event["from"]), str(event["id"])
    return make_unread(Thread(NAME, number, person), f"{NAME}:{number}:{id}", id, person, private=True)


def undelivered(status: Status, number: str) -> Message:
    """Return the event that says that a message of the bot did not arrive. It waits where the window was closed."""
    thread, author = Thread(NAME, number, status.person), Author(status.person, f"+{status.person}")
    why, key = f"{status.reason or '-'} ({status.code})", f"{NAME}:{number}:undelivered:{status.message}"
    return Message(
        thread, key, status.message, author, why, time.time(), Kind.UNDELIVERED,
        target="again" if status.code == WINDOW_OVER else "", private=True, addressed=False, to_bot=True,
        reply_to=status.message, origin=Origin.PERSON,
    )  # fmt: skip


def _parse_status(event: Json) -> Status:
    error = next(dicts_in(event.get("errors")), {})
    code = error.get("code")
    return Status(
        text_of(event.get("id")),
        text_of(event.get("recipient_id")),
        text_of(event.get("status")),
        text_of(event.get("biz_opaque_callback_data")),
        code if isinstance(code, int) else 0,
        text_of(dict_of(error.get("error_data")).get("details")) or text_of(error.get("title")),
    )


def _parse_message(event: Json, number: str, names: Mapping[str, str]) -> Message | None:
    kind, id, person = str(event["type"]), str(event["id"]), str(event["from"])
    if kind in _SILENT:
        return None
    common: dict[str, Any] = {
        "thread": Thread(NAME, number, person),
        "key": f"{NAME}:{number}:{id}",
        "id": id,
        "author": Author(person, names.get(person) or f"+{person}"),
        "time": float(event["timestamp"]),
        "private": True,
        "origin": Origin.PERSON,
    }
    if kind == "reaction":
        return _parse_reaction(event["reaction"], common)
    if kind == "interactive":
        return _parse_press(event["interactive"], event, common)
    content = dict_of(event.get(kind))
    context = dict_of(event.get("context"))
    said = _text_of(kind, event, content)[:MAX_TEXT_CHARS]
    files = _files_of(kind, content, id)
    quotes: tuple[Quote, ...] = ()
    if context.get("forwarded") or context.get("frequently_forwarded"):
        said, quotes = "", (Quote("somebody", said, "forward"),) if said else ()
    replied = text_of(context.get("id"))
    command = None if files or quotes else parse_command_text(said)
    shape = Kind.CHAT if command is None else Kind.COMMAND
    if not (said or files or quotes):
        shape, said = Kind.UNSUPPORTED, f"“{kind}” messages"
    return Message(
        text=said if command is None else command,
        kind=shape,
        attachments=files,
        quotes=quotes,
        long=bool(files) and not said,  # the app sends files one by one
        reply_to=replied,
        to_bot=bool(replied) and text_of(context.get("from")) != person,
        **common,
    )


def _text_of(kind: str, event: Json, content: Json) -> str:
    """Return what a person reads of a message."""
    match kind:
        case "text":
            return text_of(content.get("body"))
        case "button":  # of a template
            return text_of(content.get("text"))
        case "location":
            place = labelled(content.get("name"), content.get("address"))
            return "\n".join(filter(None, (place, f"{content['latitude']}, {content['longitude']}")))
        case "contacts":
            cards = [*dicts_in(event.get("contacts"))][:MAX_CONTACTS]
            return "\n".join(
                labelled(
                    dict_of(card.get("name")).get("formatted_name"),
                    ", ".join(text_of(phone.get("phone")) for phone in dicts_in(card.get("phones"))),
                )
                for card in cards
            )
    return text_of(content.get("caption"))


def _files_of(kind: str, content: Json, message: str) -> tuple[Attachment, ...]:
    if kind not in _MEDIA or "id" not in content:
        return ()
    family, name, mime = _MEDIA[kind]
    short = hashlib.blake2b(message.encode(), digest_size=3).hexdigest()
    given = text_of(content.get("filename")) or name.format(short)
    said = text_of(content.get("mime_type")).partition(";")[0]
    return (Attachment(str(content["id"]), given, said or mime, None, family),)


def _parse_reaction(reaction: Json, common: dict[str, Any]) -> Message | None:
    """Read a 👍 or 👎 on the bot's message. One without an emoji was taken back, whichever it was."""
    emoji = text_of(reaction.get("emoji"))
    said = feedback_of(emoji)
    if emoji and not said:
        return None
    kind, text = (Kind.FEEDBACK, said) if said else (Kind.FEEDBACK_REMOVED, "up")
    target = str(reaction["message_id"])
    return Message(text=text, kind=kind, addressed=False, to_bot=True, reply_to=target, **common)


def _parse_press(interactive: Json, event: Json, common: dict[str, Any]) -> Message | None:
    """Read a pressed button, or a chosen row of a list."""
    pressed = dict_of(interactive.get(text_of(interactive.get("type"))))
    if not text_of(pressed.get("id")).startswith("{"):
        return None
    data = orjson.loads(str(pressed["id"]))
    card = text_of(dict_of(event.get("context")).get("id"))
    me = RobotAccount(NAME, common["thread"].workspace, "")
    click = make_click(me, common["thread"], common["author"], card, str(data["ask"]), str(data["option"]))
    return replace(click, id=common["id"], time=common["time"], private=True)
