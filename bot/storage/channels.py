"""Store what channels keep over restarts: positions, handles of events, and how far each chat was read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from agent.messages import ANYWHERE, Message, ReplyHandle, Thread
from bot.database.database import Database, Execute, StorageError
from bot.database.rows import insert_row
from channels.base import Gap, LastEvent, NotStored


def read_state(execute: Execute, channel: str) -> dict[str, str]:
    """Return what a channel keeps, as it is stored."""
    rows = execute("SELECT item, value FROM channel_state WHERE channel=:channel", {"channel": channel})
    return {str(row["item"]): str(row["value"]) for row in rows}


def list_state(execute: Execute) -> list[tuple[str, str, str]]:
    """Return channel, name and stored value of everything that is kept."""
    rows = execute("SELECT channel, item, value FROM channel_state", {})
    return [(str(row["channel"]), str(row["item"]), str(row["value"])) for row in rows]


def write_state(
    execute: Execute,
    channel: str,
    changes: Mapping[str, str | None],
    author: str = "",
    until: float | None = None,
) -> None:
    """Store these values, as they are to be stored; None deletes one. `author` is whom they are about."""
    for name, value in changes.items():
        key = {"channel": channel, "item": name}
        if value is None:
            execute("DELETE FROM channel_state WHERE channel=:channel AND item=:item", key)
        else:
            row = {**key, "value": value, "author": author, "until": until}
            insert_row(execute, "channel_state", "channel, item", row, update=("value", "author", "until"))


def replace_value(execute: Execute, channel: str, name: str, value: str) -> None:
    """Replace a stored value that is still there, and nothing else of it."""
    sql = "UPDATE channel_state SET value=:value WHERE channel=:channel AND item=:item"
    execute(sql, {"channel": channel, "item": name, "value": value})


def renew_state(execute: Execute, channel: str, name: str, value: str, until: float) -> bool:
    """Replace a value with its end; return False where it is no more."""
    sql = "UPDATE channel_state SET value=:value, until=:until WHERE channel=:channel AND item=:item RETURNING 1"
    return bool(execute(sql, {"channel": channel, "item": name, "value": value, "until": until}))


def store_handle(execute: Execute, message: Message, handle: ReplyHandle, now: float) -> None:
    """Store the handle of a message, in place of an earlier one, and drop those that have ended."""
    execute("DELETE FROM reply_handles WHERE until<=:now", {"now": now})
    values = {"chat": str(message.thread.without_topic), "message": "" if handle.of_chat else message.id}
    values |= {"token": handle.token, "author": f"{message.thread.channel}:{message.author.id}"}
    rest = ("token", "until", "author")
    insert_row(execute, "reply_handles", "chat, message", {**values, "until": handle.until}, rest)


def find_handle(execute: Execute, thread: Thread, message: str) -> ReplyHandle | None:
    """Return the handle by which to answer a message ("": none in particular), as it is stored."""
    sql = (
        "SELECT token, until, message FROM reply_handles WHERE chat=:chat AND message IN (:message, '')"
        " ORDER BY message DESC LIMIT 1"
    )
    rows = execute(sql, {"chat": str(thread.without_topic), "message": message})
    return ReplyHandle(rows[0]["token"], rows[0]["until"], not rows[0]["message"]) if rows else None


def remove_handles(execute: Execute) -> int:
    """Remove every handle; return how many."""
    return len(execute("DELETE FROM reply_handles RETURNING 1", {}))


def list_tokens(execute: Execute) -> list[tuple[str, str, str]]:
    """Return chat, message and stored token of every handle."""
    rows = execute("SELECT chat, message, token FROM reply_handles", {})
    return [(str(row["chat"]), str(row["message"]), str(row["token"])) for row in rows]


def replace_token(execute: Execute, chat: str, message: str, token: str) -> None:
    """Store a token that was sealed anew; "" drops the handle."""
    key = {"chat": chat, "message": message}
    if not token:
        execute("DELETE FROM reply_handles WHERE chat=:chat AND message=:message", key)
        return
    execute("UPDATE reply_handles SET token=:token WHERE chat=:chat AND message=:message", {**key, "token": token})


T = TypeVar("T")

OVERLAP_SECONDS = 60.0  # read again: events of one moment may be stored out of order
THREAD_SECONDS = 7 * 86400.0  # a thread without events for this long is not caught up


def advance_watermark(execute: Execute, message: Message) -> None:
    """Advance the watermarks of the message's chat and thread, also when the message is ignored."""
    thread = message.thread
    if ANYWHERE in (thread.chat, thread.topic):
        return
    for topic in {"", thread.topic}:
        execute(
            "INSERT INTO heard(channel, workspace, chat, topic, time)"
            " VALUES (:channel, :workspace, :chat, :topic, :time)"
            " ON CONFLICT(channel, workspace, chat, topic) DO UPDATE SET"
            " time=CASE WHEN excluded.time>heard.time THEN excluded.time ELSE heard.time END",
            {
                "channel": thread.channel,
                "workspace": thread.workspace,
                "chat": thread.chat,
                "topic": topic,
                "time": message.time,
            },
        )


def is_workspace(execute: Execute, channel: str, workspace: str) -> bool:
    """Return whether something was ever heard from this workspace."""
    sql = "SELECT 1 FROM heard WHERE channel=:channel AND workspace=:workspace LIMIT 1"
    return bool(execute(sql, {"channel": channel, "workspace": workspace}))


def is_chat(execute: Execute, channel: str, chat: str) -> bool:
    """Return whether something was ever heard from this chat."""
    sql = "SELECT 1 FROM heard WHERE channel=:channel AND chat=:chat LIMIT 1"
    return bool(execute(sql, {"channel": channel, "chat": chat}))


def _first_start(execute: Execute, place: dict[str, str]) -> float:
    """Return when the first gap of a workspace was opened, which stays until something is heard; 0 for this one."""
    known = execute("SELECT min(since) AS since FROM gaps WHERE channel=:channel AND workspace=:workspace", place)
    if known[0]["since"] is not None:
        return float(known[0]["since"]) - OVERLAP_SECONDS
    sql = "INSERT INTO gaps(channel, workspace, since) VALUES (:channel, :workspace, :now)"
    execute(sql, {**place, "now": time.time()})
    return 0.0


class StoredCatchUp:
    """`channels.base.CatchUpSource` in the database."""

    def __init__(self, store: Database, hours: float, most: int) -> None:
        self._store = store
        self.hours = hours
        self.most = most

    async def open_gap(self, channel: str, workspace: str) -> Gap:
        """Store where the gap begins: until it is closed, watermarks that live events advance do not count.

        Returns chats, and the threads that were used within a week.
        """
        place = {"channel": channel, "workspace": workspace}

        def work(execute: Execute) -> Gap:
            rows = execute("SELECT chat, topic, time FROM heard WHERE channel=:channel AND workspace=:workspace", place)
            if not rows:
                return Gap(since=_first_start(execute, place))
            left = execute("DELETE FROM gaps WHERE channel=:channel AND workspace=:workspace RETURNING since", place)
            since = min([max(row["time"] for row in rows), *(row["since"] for row in left)])
            [gap] = execute(
                "INSERT INTO gaps(channel, workspace, since) VALUES (:channel, :workspace, :since) RETURNING id",
                {**place, "since": since},
            )
            used = [row for row in rows if not row["topic"] or row["time"] > time.time() - THREAD_SECONDS]
            heard = [LastEvent(row["chat"], row["topic"], min(row["time"], since) - OVERLAP_SECONDS) for row in used]
            return Gap(heard, gap["id"])

        return await self._run(work)

    async def close_gap(self, gap: Gap) -> None:
        """Delete the gap. A gap that became part of a later one is deleted already."""
        await self._run(lambda execute: execute("DELETE FROM gaps WHERE id=:id", {"id": gap.id}))

    async def _run(self, work: Callable[[Execute], T]) -> T:
        try:
            return await self._store.run(work)
        except StorageError as error:
            raise NotStored(str(error)) from error
