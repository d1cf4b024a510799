"""Per-chat watermarks for catching up after downtime."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from agent.messages import ANYWHERE, Message
from bot.database.database import Database, Execute, StorageError
from channels.base import Gap, LastEvent, NotStored

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
