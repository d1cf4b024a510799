"""Until when each chat was heard: what a channel needs to read on where it stopped, kept with every event."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from agent.conversation import ANYWHERE, Message
from bot.sections import CatchUp
from bot.store import Execute, Store
from channels.base import Heard

OVERLAP = 60.0  # seconds read again: events that came together need not have been stored in their order
THREADS = 7 * 86400.0  # seconds after which nobody goes on in a thread


def note(execute: Execute, message: Message) -> None:
    """This was heard, whatever becomes of it."""
    thread = message.thread
    if ANYWHERE in (thread.chat, thread.topic):
        return
    for topic in {"", thread.topic}:
        execute(
            "INSERT INTO heard(channel, workspace, chat, topic, time)"
            " VALUES (:channel, :workspace, :chat, :topic, :time)"
            " ON CONFLICT(channel, workspace, chat, topic) DO UPDATE SET time=max(time, excluded.time)",
            {
                "channel": thread.channel,
                "workspace": thread.workspace,
                "chat": thread.chat,
                "topic": topic,
                "time": message.time,
            },
        )


class StoredPast:
    """`channels.base.Past` over the store."""

    def __init__(self, store: Store, settings: CatchUp) -> None:
        self._store = store
        self.hours = settings.hours
        self.most = settings.messages

    async def heard(self, channel: str, workspace: str) -> Sequence[Heard]:
        """Chats, and threads that were used within a week."""
        values = {"channel": channel, "workspace": workspace, "since": time.time() - THREADS}
        rows = await self._store.run(
            lambda execute: execute(
                "SELECT chat, topic, time FROM heard WHERE channel=:channel AND workspace=:workspace"
                " AND (topic='' OR time>:since)",
                values,
            )
        )
        return [Heard(row["chat"], row["topic"], row["time"] - OVERLAP) for row in rows]

    async def ours(self, channel: str, messages: Sequence[str]) -> set[str]:
        """Those of these messages that are kept as posts."""
        values = {"thread": f"{channel}/%", "ids": json.dumps(messages)}
        rows = await self._store.run(
            lambda execute: execute(
                "SELECT message_id FROM posts WHERE message_id IN (SELECT value FROM json_each(:ids))"
                " AND thread LIKE :thread",
                values,
            )
        )
        return {str(row["message_id"]) for row in rows}
