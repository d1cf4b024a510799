"""Persist each event once, in order, before it is acknowledged.

`receive` returns after the commit. One transaction decides everything about an event: whether its author may talk,
whether it is new, which conversation it belongs to, and when it may be taken (pieces of an album or of a long paste
wait for each other, a flood waits for its window).
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from agent.messages import ANYWHERE, Kind, Message, Thread, Unreadable
from bot.access import AccessPolicy
from bot.commands import REGISTRY
from bot.config.schema import ServiceLimits
from bot.storage import conversations, runs, watermarks
from bot.storage.database import Database, Execute, StorageError
from channels.base import NotStored, Receipt

log = logging.getLogger(__name__)

GATHER_SECONDS = 1.0  # how long pieces wait for the next one: clients send them within a few hundred milliseconds
UNSUPPORTED = "I can't read {what} yet. Text, photos, documents, voice messages and videos work."
TURN_KINDS = (Kind.CHAT, Kind.CLICK)  # what a turn takes; the rest is answered by the bot itself


@dataclass(slots=True)
class Arrived:
    """What a commit left to do: accepted messages with their conversations; whether the bot itself says something."""

    accepted: list[tuple[str, Message]] = field(default_factory=list)
    said: bool = False


class Next(Protocol):
    """Who goes on with what arrived."""

    def woken(self, arrived: Arrived) -> None:
        """After the commit."""


class Inbox:
    """Where channels offer their events."""

    def __init__(self, store: Database, doors: AccessPolicy, limits: ServiceLimits, next: Next) -> None:
        self._store = store
        self._doors = doors
        self._limits = limits
        self._next = next

    async def receive(self, events: Sequence[Message | Unreadable]) -> list[Receipt]:
        """Store events; one receipt each, in order, after the commit. Raises NotStored: nothing was kept then."""
        return await asyncio.shield(self._receive(events))  # a caller who gives up: what is kept is gone on with

    async def _receive(self, events: Sequence[Message | Unreadable]) -> list[Receipt]:
        now = time.time()

        def work(execute: Execute) -> tuple[list[Receipt], Arrived]:
            arrived = Arrived()
            return [self._store_event_safely(execute, event, now, arrived) for event in events], arrived

        try:
            receipts, arrived = await self._store.run(work)
        except StorageError as error:
            log.error("inbox.not_stored events=%d reason=%s", len(events), error)  # noqa: TRY400 — the reason is enough
            raise NotStored(str(error)) from error
        for event, receipt in zip(events, receipts, strict=True):
            log.info("inbox.%s key=%s", receipt, event.key)
        self._next.woken(arrived)
        return receipts

    # Everything below runs inside the transaction, on the database's thread.

    def _store_event_safely(
        self, execute: Execute, event: Message | Unreadable, now: float, arrived: Arrived
    ) -> Receipt:
        """One event that cannot be kept as it is must not block those that come with it and after it."""
        try:
            return self._store_event(execute, event, now, arrived)
        except sqlite3.OperationalError:
            raise  # the store's fault: all of them are offered again
        except Exception as error:  # the boundary of one event; it becomes a dead letter
            log.exception("inbox.unreadable key=%s", event.key)
            channel = event.channel if isinstance(event, Unreadable) else event.thread.channel
            raw = repr(event).encode("utf-8", "backslashreplace")
            return self._store_unreadable(execute, Unreadable(channel, event.key, raw, repr(error)), now)

    def _store_event(self, execute: Execute, event: Message | Unreadable, now: float, arrived: Arrived) -> Receipt:
        if isinstance(event, Unreadable):
            return self._store_unreadable(execute, event, now)
        watermarks.advance_watermark(execute, event)
        if ANYWHERE in (event.thread.chat, event.thread.topic):
            if (located := _resolve_thread(execute, event)) is None:
                return Receipt.IGNORED
            event = located
        if event.kind is Kind.MOVED:
            conversations.move_thread(execute, event.thread, replace(event.thread, chat=event.text))
            return Receipt.IGNORED
        if event.kind in (Kind.EDIT, Kind.DELETE):
            return self._apply_edit(execute, event)
        if self._was_ignored(execute, event):
            return Receipt.IGNORED
        if not self._is_addressed(execute, event):
            return self._mark_ignored(execute, event, "not meant", now)
        if not self._doors.may_talk(execute, event):
            if words := self._doors.ask_pairing(execute, event, now):
                conversations.enqueue_notice(execute, event.thread, words, key=f"pair:{event.key}", now=now)
                arrived.said = True
            return self._mark_ignored(execute, event, "stranger", now)
        conversation = self._conversation_of(execute, event, now)
        if event.kind is Kind.CLICK and not runs.is_open_question(execute, conversation, event.target, now):
            return Receipt.DUPLICATE
        receipt = self._store_message(execute, event, conversation, now, arrived)
        if receipt is Receipt.ACCEPTED:
            arrived.accepted.append((conversation, event))
        return receipt

    def _mark_ignored(self, execute: Execute, event: Message, why: str, now: float) -> Receipt:
        """It is not for us, and stays so when a channel reads its history again: by then the bot may take part in that
        thread, or know that person."""
        if event.follow_up or event.addressed:
            execute(
                "INSERT INTO inbox(key, conversation, kind, author, payload, state, ready, received, error)"
                " VALUES (:key, '', 'passed', '', '', 2, 0, :now, :why) ON CONFLICT(key) DO NOTHING",
                {"key": event.key, "now": now, "why": why},
            )
        return Receipt.IGNORED

    def _was_ignored(self, execute: Execute, event: Message) -> bool:
        """Whether it was passed before; a mention that came into it since makes it ours."""
        rows = execute("SELECT id, error FROM inbox WHERE key=:key AND kind='passed'", {"key": event.key})
        if rows and event.addressed and rows[0]["error"] == "not meant":
            execute("DELETE FROM inbox WHERE id=:id", {"id": rows[0]["id"]})
            return False
        return bool(rows)

    def _store_unreadable(self, execute: Execute, event: Unreadable, now: float) -> Receipt:
        rows = execute(
            "INSERT INTO inbox(key, conversation, kind, author, payload, state, ready, received, error)"
            " VALUES (:key, '', 'unreadable', '', :raw, 3, 0, :now, :error) ON CONFLICT(key) DO NOTHING RETURNING id",
            {"key": event.key, "raw": event.raw, "now": now, "error": event.error},
        )
        return Receipt.IGNORED if rows else Receipt.DUPLICATE

    def _apply_edit(self, execute: Execute, event: Message) -> Receipt:
        """An edit or a deletion counts until a turn has begun with the message; one that is in line has not."""
        rows = execute(
            "SELECT i.id, i.conversation, i.payload, i.run FROM inbox i LEFT JOIN runs r ON r.id=i.run"
            " WHERE i.key=:key AND i.state=0 AND (i.run IS NULL OR r.state='queued')",
            {"key": event.target},
        )
        if not rows:
            return Receipt.IGNORED
        row = rows[0]
        if event.kind is Kind.DELETE and row["run"]:  # its place in the line is shown already: that reply has an end
            execute("UPDATE runs SET stop_by='withdrawn' WHERE id=:run", {"run": row["run"]})
        elif event.kind is Kind.DELETE:
            execute("UPDATE inbox SET state=2 WHERE id=:id", {"id": row["id"]})
        else:
            old = Message.load(row["payload"])
            changed = replace(old, text=event.text, quotes=event.quotes or old.quotes)
            execute("UPDATE inbox SET payload=:payload WHERE id=:id", {"payload": changed.dump(), "id": row["id"]})
        conversations.refresh_pending(execute, row["conversation"])
        return Receipt.IGNORED

    def _is_addressed(self, execute: Execute, message: Message) -> bool:
        """Addressed to the bot, in a thread that it takes part in, or a later piece of something that was."""
        if message.addressed:
            return True
        if message.kind is Kind.COMMAND:  # "!important" is none, "/roll" is another bot's
            return message.text.partition(" ")[0] in REGISTRY
        if message.follow_up and conversations.has_conversation(execute, message.thread):
            return True
        return message.kind is Kind.CHAT and bool(self._open_bundle(execute, message))

    def _open_bundle(self, execute: Execute, message: Message) -> str:
        """The bundle that this message continues: its album, or the author's long paste that still waits."""
        thread = str(message.thread)
        rows = execute(
            "SELECT i.bundle FROM inbox i JOIN addresses a ON a.conversation=i.conversation"
            " WHERE a.thread=:thread AND i.state=0 AND i.bundle IN (:album, :paste) ORDER BY i.id DESC LIMIT 1",
            {"thread": thread, "album": _album_bundle(message) or "-", "paste": _paste_bundle(message)},
        )
        return str(rows[0]["bundle"]) if rows else ""

    def _store_message(
        self, execute: Execute, message: Message, conversation: str, now: float, arrived: Arrived
    ) -> Receipt:
        bundle = ""
        if message.kind is Kind.CHAT:
            bundle = (
                _album_bundle(message)
                or self._open_bundle(execute, message)
                or (_paste_bundle(message) if message.long else "")
            )
        ready = now + GATHER_SECONDS if bundle else now
        rows = execute(
            "INSERT INTO inbox(key, conversation, kind, author, payload, ready, received, bundle)"
            " VALUES (:key, :conversation, :kind, :author, :payload, :ready, :received, :bundle)"
            " ON CONFLICT(key) DO NOTHING RETURNING id",
            {
                "key": message.key,
                "conversation": conversation,
                "kind": message.kind.value,
                "author": f"{message.thread.channel}:{message.author.id}",
                "payload": message.dump(),
                "ready": ready,
                "received": min(now, message.time),  # what an absence gathered comes at once and is no flood
                "bundle": bundle,
            },
        )
        if not rows:
            return Receipt.DUPLICATE
        row = int(rows[0]["id"])
        if message.kind is Kind.UNSUPPORTED:
            conversations.enqueue_notice(
                execute,
                message.thread,
                UNSUPPORTED.format(what=message.text),
                key=f"in:{row}",
                now=now,
                reply_to=message.id,
            )
            execute("UPDATE inbox SET state=1 WHERE id=:row", {"row": row})
            arrived.said = True
        elif message.kind in TURN_KINDS:
            if bundle:  # every piece waits for the last one
                execute(
                    "UPDATE inbox SET ready=:ready WHERE conversation=:conversation AND bundle=:bundle AND state=0",
                    {"ready": ready, "conversation": conversation, "bundle": bundle},
                )
            self._limit_flood(execute, message, row, now, arrived)
            conversations.refresh_pending(execute, conversation)
        return Receipt.ACCEPTED

    def _conversation_of(self, execute: Execute, message: Message, now: float) -> str:
        """The conversation of the bot's message that this one answers, else the address's current one."""
        if message.kind is Kind.CLICK or (message.reply_to and message.to_bot):
            rows = execute(
                "SELECT conversation FROM posts WHERE thread=:thread AND message_id=:id AND conversation<>'' LIMIT 1",
                {"thread": str(message.thread), "id": message.reply_to or message.id},
            )
            if rows:
                return str(rows[0]["conversation"])
        return conversations.current_conversation(execute, message.thread, now)

    def _limit_flood(self, execute: Execute, message: Message, row: int, now: float, arrived: Arrived) -> None:
        """Delay messages above the limit of a person, and enqueue one notice about it."""
        window, allowed = self._limits.flood_seconds, self._limits.flood_messages
        if message.time < now - window:
            return
        author = f"{message.thread.channel}:{message.author.id}"
        count = execute(
            "SELECT count(*) AS n FROM inbox WHERE author=:author AND received>:since AND kind='chat'",
            {"author": author, "since": now - window},
        )[0]["n"]
        if count <= allowed:
            return
        key = f"flood:{author}:"  # a row per notice, found again by the range of its key
        [last] = execute("SELECT max(created) AS at FROM outbox WHERE key>:key AND key<:key || '~'", {"key": key})
        until = min((last["at"] or 0.0) + window, now + window)  # less where the clock was set back
        if until < now:
            until = now + window
            arrived.said = True
            words = (
                f"You're sending faster than I can work: more than {allowed} messages in {window:g} seconds."
                f" I queued the rest and will continue in {window:g} seconds."
            )
            conversations.enqueue_notice(
                execute, message.thread, words, key=f"{key}{row}", now=now, reply_to=message.id
            )
        execute("UPDATE inbox SET ready=:ready WHERE id=:row", {"ready": until, "row": row})


def longest_wait(limits: ServiceLimits) -> float:
    """The longest time (seconds) that a message may have to wait until it is ready."""
    return max(2 * GATHER_SECONDS, limits.flood_seconds)


def extend_bundle_wait(execute: Execute, now: float) -> None:
    """After a start: pieces that wait get a little longer, their rest may still be on its way to us."""
    rows = execute(
        "UPDATE inbox SET ready=:ready WHERE state=0 AND run IS NULL AND bundle<>'' RETURNING conversation",
        {"ready": now + 2 * GATHER_SECONDS},
    )
    for conversation in {str(row["conversation"]) for row in rows}:
        conversations.refresh_pending(execute, conversation)


def _resolve_thread(execute: Execute, event: Message) -> Message | None:
    """An event that names only a message of the bot, with the thread where that stands; None when it is not ours."""
    rows = execute("SELECT thread FROM posts WHERE message_id=:id AND sent=1", {"id": event.reply_to or event.target})
    for row in rows:
        place, named = Thread.parse(row["thread"]), event.thread
        same = (place.channel, place.workspace) == (named.channel, named.workspace)
        if same and named.chat in (place.chat, ANYWHERE):
            return replace(event, thread=place)
    return None


def _album_bundle(message: Message) -> str:
    return f"album:{message.group}" if message.group else ""


def _paste_bundle(message: Message) -> str:
    return f"paste:{message.author.id}"
