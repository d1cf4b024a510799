"""Platform message ids of each reply, so that a restart edits instead of posting again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from agent.messages import ReplyHandle, Thread
from bot.database.database import Execute, WorkRunner
from bot.database.rows import insert_row
from channels.base import SentMessage

# Parts below 0 are earlier messages of part 0: a person deleted them, and another one took their place.
#
# A channel may store "id/handle", where the handle is what it needs to edit the message; events have only the id, or
# "/handle".
_HAS_ID = (
    "(message_id=:id OR (message_id>:id || '/' AND message_id<:id || '0')"
    " OR (instr(message_id, '/')>0 AND substr(message_id, instr(message_id, '/'))=:id))"
)


class StoredSentMessages:
    """`channels.base.SentMessages` in the database. `key` is "r<run>" for a reply, "o<outbox row>" for the rest."""

    def __init__(
        self,
        store: WorkRunner,
        key: str,
        thread: Thread,
        conversation: str = "",
        known: Sequence[SentMessage] = (),
        handle: ReplyHandle | None = None,
    ) -> None:
        self.key = key
        self._store = store
        self._thread = thread
        self._conversation = conversation
        self._known = {posted.index: posted for posted in known}
        self._handle = handle
        self.on_first: Callable[[], object] = bool  # called once a message is visible, where none was before
        self.turn_works: Callable[[], bool] = bool  # whether the durable commit that ends its turn follows

    @property
    def known(self) -> Sequence[SentMessage]:
        """The messages in the order of their parts; id None where the outcome of a post is unknown."""
        return [self._known[index] for index in sorted(self._known)]

    @property
    def reply_handle(self) -> str:
        """The token of the handle of the message that is answered, while it lasts."""
        return self._handle.current if self._handle else ""

    async def sending(self, index: int, handle: str = "") -> None:
        """Record a post right before it."""
        await self._write(SentMessage(index, None, self._unknown(index) + 1, handle))

    async def sent(self, index: int, message_id: str) -> None:
        """Record the message id as soon as the platform returns it."""
        if not any(posted.id for posted in self._known.values()):
            self.on_first()
        posted = SentMessage(index, message_id, max(1, self._unknown(index)))
        await self._write(posted, durable=not self.turn_works())

    async def adopt(self, index: int, candidates: Sequence[str]) -> str | None:
        """Record the first of these messages that no reply has, and return its id."""
        sql = "SELECT 1 FROM posts WHERE message_id=:id AND thread=:thread AND sent=1"

        def work(execute: Execute) -> SentMessage | None:
            for message_id in candidates:
                if not execute(sql, {"id": message_id, "thread": str(self._thread)}):
                    posted = SentMessage(index, message_id, max(1, self._unknown(index)))
                    self._insert(execute, posted)
                    return posted
            return None

        adopted = await self._store.run(work)
        if adopted:
            self._known[index] = adopted
        return adopted.id if adopted else None

    async def unsent(self, index: int) -> None:
        """Forget a post that the platform refused."""
        known = self._known.get(index)
        if known and (before := self._unknown(index) - 1) > 0:
            await self._write(replace(known, posts=before))
            return
        self._known.pop(index, None)
        values = {"reply": self.key, "part": index}
        await self._store.run(lambda execute: execute("DELETE FROM posts WHERE reply=:reply AND part=:part", values))

    async def found_deleted(self, index: int) -> None:
        """Keep the id of the first message, whose deletion by a person ends the turn. (The channel itself deletes later
        parts.)"""
        known = self._known.get(index)
        if index == 0 and known and known.id:
            await self._store.run(partial(self._keep_earlier, message_id=known.id))

    def _keep_earlier(self, execute: Execute, message_id: str) -> None:
        [row] = execute("SELECT min(part) AS lowest FROM posts WHERE reply=:reply", {"reply": self.key})
        part = min(row["lowest"] or 0, 0) - 1
        self._insert(execute, SentMessage(part, message_id))

    async def record_questions(self, questions: Mapping[int, str]) -> None:
        """Record which messages show which question."""
        sql = "UPDATE posts SET question=:question WHERE reply=:reply AND part=:part"
        rows = [{"reply": self.key, "part": part, "question": question} for part, question in questions.items()]
        await self._store.run(lambda execute: [execute(sql, values) for values in rows])

    def _unknown(self, index: int) -> int:
        known = self._known.get(index)
        return known.posts if known and known.id is None else 0

    async def _write(self, posted: SentMessage, *, durable: bool = True) -> None:
        self._known[posted.index] = posted
        # A person waits for the post: it does not wait for what the end of a turn writes at the same time.
        await self._store.run(lambda execute: self._insert(execute, posted), durable=durable, first=True)

    def _insert(self, execute: Execute, posted: SentMessage) -> None:
        values = {
            "reply": self.key,
            "part": posted.index,
            "thread": str(self._thread),
            "conversation": self._conversation,
            "message_id": posted.id or posted.handle,
            "sent": int(bool(posted.id)),
            "posts": posted.posts,
            "created": time.time(),
        }
        insert_row(execute, "posts", "reply, part", values, ("message_id", "sent", "posts"))


def is_of_run(key: str) -> bool:
    """Return whether the key of a reply is that of a run's one."""
    return key.startswith("r")


def known_messages(execute: Execute, key: str) -> list[SentMessage]:
    """Return the stored messages of a reply. Where the outcome of a post is unknown, `message_id` is its handle."""
    sql = "SELECT part, message_id, sent, posts FROM posts WHERE reply=:key AND part>=0 ORDER BY part"
    rows = execute(sql, {"key": key})
    return [
        SentMessage(row["part"], row["message_id"], row["posts"])
        if row["sent"]
        else SentMessage(row["part"], None, row["posts"], row["message_id"])
        for row in rows
    ]


def reset_posts(execute: Execute, key: str) -> None:
    """Count the posts of a reply anew: it may be repeated as often as a new one."""
    execute("UPDATE posts SET posts=1 WHERE reply=:key AND sent=0", {"key": key})


def threads_of_message(execute: Execute, message_id: str) -> list[Thread]:
    """Return the addresses where a message of the bot has this id."""
    rows = execute(f"SELECT thread FROM posts WHERE {_HAS_ID} AND sent=1", {"id": message_id})
    return [Thread.parse(row["thread"]) for row in rows]


def conversation_of_message(execute: Execute, thread: Thread, message_id: str) -> str:
    """Return the conversation that a message of the bot belongs to; "" for none."""
    rows = execute(
        f"SELECT conversation FROM posts WHERE thread=:thread AND {_HAS_ID} AND conversation<>'' LIMIT 1",
        {"thread": str(thread), "id": message_id},
    )
    return str(rows[0]["conversation"]) if rows else ""


def reply_of_message(execute: Execute, thread: Thread, message_id: str) -> tuple[str, int] | None:
    """Return the key of the reply that a message of the bot belongs to, and which part it is; None for another one."""
    sql = f"SELECT reply, part FROM posts WHERE thread=:thread AND {_HAS_ID} AND sent=1 AND part>=0 LIMIT 1"
    rows = execute(sql, {"thread": str(thread), "id": message_id})
    return (str(rows[0]["reply"]), int(rows[0]["part"])) if rows else None


def forget_post(execute: Execute, reply: str, part: int) -> None:
    """Forget one message of a reply, which is not visible: it is posted again with the reply."""
    execute("DELETE FROM posts WHERE reply=:reply AND part=:part", {"reply": reply, "part": part})


def run_of_message(execute: Execute, thread: Thread, message_id: str, *, begins: bool = False) -> int | None:
    """Return the run whose reply a message of the bot belongs to, or only begins or began with; None for another."""
    sql = f"""
        SELECT reply FROM posts
        WHERE thread=:thread AND {_HAS_ID} AND reply LIKE 'r%' AND (part<=0 OR NOT :begins) LIMIT 1"""
    rows = execute(sql, {"thread": str(thread), "id": message_id, "begins": begins})
    return int(rows[0]["reply"][1:]) if rows else None


def replies_with_question(execute: Execute, question: str, thread: Thread) -> dict[str, list[str]]:
    """Return the ids of the messages that show a question there, by the keys of their replies, the oldest first."""
    sql = (
        "SELECT reply, message_id FROM posts WHERE question=:question AND question<>'' AND thread=:thread AND sent=1"
        " ORDER BY created, part"
    )
    found: dict[str, list[str]] = {}
    for row in execute(sql, {"question": question, "thread": str(thread)}):
        found.setdefault(row["reply"], []).append(str(row["message_id"]).partition("/")[0] or row["message_id"])
    return found


def question_of_message(execute: Execute, thread: Thread, message_id: str) -> str:
    """Return the id of the question that a message of the bot shows; "" for none."""
    sql = f"SELECT question FROM posts WHERE thread=:thread AND {_HAS_ID} AND question<>'' LIMIT 1"
    rows = execute(sql, {"thread": str(thread), "id": message_id})
    return str(rows[0]["question"]) if rows else ""


def message_of_question(execute: Execute, thread: Thread, question: str) -> str:
    """Return the id of the message at an address that shows a question; "" for none."""
    sql = "SELECT message_id FROM posts WHERE thread=:thread AND question=:id AND sent=1 ORDER BY created DESC LIMIT 1"
    rows = execute(sql, {"thread": str(thread), "id": question})
    return str(rows[0]["message_id"]).partition("/")[0] if rows else ""
