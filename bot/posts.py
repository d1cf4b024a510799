"""What is visible of a reply, and under which message ids: kept in the store, so that a restart edits."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agent.conversation import Thread
from bot.store import Execute, Store
from channels.base import Posted


class StoredPosts:
    """`channels.base.Posts` over the store. `key` is "r<run>" for a turn's reply, "o<row>" for anything else."""

    def __init__(
        self, store: Store, key: str, thread: Thread, conversation: str = "", known: Sequence[Posted] = ()
    ) -> None:
        self.key = key
        self._store = store
        self._thread = thread
        self._conversation = conversation
        self._known = {posted.index: posted for posted in known}

    @property
    def known(self) -> Sequence[Posted]:
        """In order of their parts; id None where a post went out and its outcome is unknown."""
        return [self._known[index] for index in sorted(self._known)]

    async def sending(self, index: int) -> None:
        """Committed right before a post."""
        self._known[index] = Posted(index, None)
        await self._write(index, "")

    async def sent(self, index: int, message_id: str) -> None:
        """Committed as soon as the platform told the id."""
        self._known[index] = Posted(index, message_id)
        await self._write(index, message_id)

    async def unsent(self, index: int) -> None:
        """The platform did not take it: as if it had never been tried."""
        self._known.pop(index, None)
        values = {"reply": self.key, "part": index}
        await self._store.run(lambda execute: execute("DELETE FROM posts WHERE reply=:reply AND part=:part", values))

    async def _write(self, index: int, message_id: str) -> None:
        values = {
            "reply": self.key,
            "part": index,
            "thread": str(self._thread),
            "conversation": self._conversation,
            "id": message_id,
            "sent": int(bool(message_id)),
            "now": time.time(),
        }

        def work(execute: Execute) -> None:
            execute(
                "INSERT INTO posts(reply, part, thread, conversation, message_id, sent, created)"
                " VALUES (:reply, :part, :thread, :conversation, :id, :sent, :now)"
                " ON CONFLICT(reply, part) DO UPDATE SET message_id=excluded.message_id, sent=excluded.sent",
                values,
            )

        await self._store.run(work)


def known(execute: Execute, key: str) -> list[Posted]:
    """What the store knows of a reply's messages."""
    rows = execute("SELECT part, message_id, sent FROM posts WHERE reply=:key ORDER BY part", {"key": key})
    return [Posted(row["part"], row["message_id"] if row["sent"] else None) for row in rows]
