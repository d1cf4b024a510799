"""Platform message ids of each reply, so that a restart edits instead of posting again."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agent.messages import Thread
from bot.storage.database import Database, Execute
from channels.base import SentMessage


class StoredSentMessages:
    """`channels.base.SentMessages` over the store. `key` is "r<run>" for a turn's reply, "o<row>" for anything else."""

    def __init__(
        self, store: Database, key: str, thread: Thread, conversation: str = "", known: Sequence[SentMessage] = ()
    ) -> None:
        self.key = key
        self._store = store
        self._thread = thread
        self._conversation = conversation
        self._known = {posted.index: posted for posted in known}

    @property
    def known(self) -> Sequence[SentMessage]:
        """In order of their parts; id None where a post went out and its outcome is unknown."""
        return [self._known[index] for index in sorted(self._known)]

    async def sending(self, index: int) -> None:
        """Committed right before a post."""
        await self._write(SentMessage(index, None, self._unknown(index) + 1))

    async def sent(self, index: int, message_id: str) -> None:
        """Committed as soon as the platform told the id."""
        await self._write(SentMessage(index, message_id))

    async def unsent(self, index: int) -> None:
        """The platform did not take it: as if this post had never been tried."""
        if (before := self._unknown(index) - 1) > 0:
            await self._write(SentMessage(index, None, before))
            return
        self._known.pop(index, None)
        values = {"reply": self.key, "part": index}
        await self._store.run(lambda execute: execute("DELETE FROM posts WHERE reply=:reply AND part=:part", values))

    def _unknown(self, index: int) -> int:
        known = self._known.get(index)
        return known.posts if known and known.id is None else 0

    async def _write(self, posted: SentMessage) -> None:
        self._known[posted.index] = posted
        values = {
            "reply": self.key,
            "part": posted.index,
            "thread": str(self._thread),
            "conversation": self._conversation,
            "id": posted.id or "",
            "sent": int(bool(posted.id)),
            "posts": posted.posts,
            "now": time.time(),
        }

        def work(execute: Execute) -> None:
            execute(
                "INSERT INTO posts(reply, part, thread, conversation, message_id, sent, posts, created)"
                " VALUES (:reply, :part, :thread, :conversation, :id, :sent, :posts, :now)"
                " ON CONFLICT(reply, part) DO UPDATE SET message_id=excluded.message_id, sent=excluded.sent,"
                " posts=excluded.posts",
                values,
            )

        await self._store.run(work)


def known_messages(execute: Execute, key: str) -> list[SentMessage]:
    """What the store knows of a reply's messages."""
    rows = execute("SELECT part, message_id, sent, posts FROM posts WHERE reply=:key ORDER BY part", {"key": key})
    return [SentMessage(row["part"], row["message_id"] if row["sent"] else None, row["posts"]) for row in rows]
