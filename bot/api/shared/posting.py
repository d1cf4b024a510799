"""Offer what a caller says to the inbox, as the messages of any channel are."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from agent.messages import Kind, Message, Origin, Thread
from agent.stored_json import Damaged
from bot.api.shared.caller import NO_ACCESS, Caller
from bot.api.shared.uploads import Upload, record_files
from bot.commands.feature import Door
from bot.http.route import HttpProblem
from bot.storage import inbox
from bot.storage.inbox import IGNORED_KIND, InboxRow
from bot.storage.uses import RATE_LIMIT
from channels.base import Receipt

RATE = HttpProblem(
    *(429, "rate_limit", "The person of this key has sent too many messages."),
    "Wait, and send it again with another Idempotency-Key.",
    headers={"Retry-After": "60"},
)
KEY_REUSED = HttpProblem(
    *(422, "key_reused", "Another message came with this Idempotency-Key."), "Use a new key for each message."
)


def make_message(
    caller: Caller, thread: Thread, text: str, key: str, kind: Kind = Kind.CHAT, target: str = ""
) -> Message:
    """Return what the caller says in a thread."""
    values: dict[str, Any] = {"kind": kind, "target": target, "private": True, "origin": Origin.PERSON}
    return Message(thread, key, key, caller.author, text, time.time(), **values)


def make_stop(caller: Caller, thread: Thread, target: str = "") -> Message:
    """Return the command `stop` of the caller; `target` names the run, "" all of the thread."""
    return make_message(caller, thread, "stop", f"web:stop:{uuid4().hex}", Kind.COMMAND, target)


async def run_command(door: Door, caller: Caller, channel: str, words: str) -> str:
    """Run a command of the caller where they write privately on this channel; return what it says."""
    return await door.command(await make_command(door, caller, channel, words))


async def make_command(door: Door, caller: Caller, channel: str, words: str) -> Message:
    """Return a command of the caller as they would write it privately on this channel."""
    place, author = await door.store.run(partial(caller.at, channel=channel), durable=False)
    key = f"web:command:{uuid4().hex}"
    return Message(place, key, key, author, words, time.time(), Kind.COMMAND, private=True, origin=Origin.PERSON)


def event_key(thread: Thread, key: str) -> str:
    """Return the key of a message: the same for the same thread and Idempotency-Key."""
    digest = hashlib.sha256(f"{thread}\n{key}".encode()).hexdigest()
    return f"web:{digest[:40]}"


async def take(door: Door, message: Message) -> InboxRow:
    """Offer a message to the inbox; return its row after the commit. Raises HttpProblem where it is refused."""
    receipt, row = await door.receive_one(message)
    if row is None or row.kind == IGNORED_KIND:
        raise NO_ACCESS
    if receipt is Receipt.DUPLICATE and not _says(row, message):
        raise KEY_REUSED
    if row.error == RATE_LIMIT:
        raise RATE
    return row


async def take_with_files(door: Door, message: Message, upload: Upload) -> InboxRow:
    """Offer a message with files, which are kept once, as `take` does."""
    message = replace(message, attachments=upload.attachments(message.key))
    async with _taking.setdefault(message.key, asyncio.Lock()):  # not two with the same key at once
        if not await door.store.run(partial(inbox.find_message, key=message.key), durable=False):
            await door.store.run(partial(record_files, message=message))
            await upload.keep(message.key)
        return await take(door, message)


_taking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by the key of a message with files


async def offer(door: Door, message: Message) -> None:
    """Offer something new to the inbox, where rate limits count it. Raises HttpProblem where it is refused."""
    receipt, row = await door.receive_one(message)
    if receipt is not Receipt.ACCEPTED:
        raise RATE if row and row.error == RATE_LIMIT else NO_ACCESS


def _says(row: InboxRow, message: Message) -> bool:
    with suppress(Damaged):
        return (row.message.text, row.message.attachments) == (message.text, message.attachments)
    return False
