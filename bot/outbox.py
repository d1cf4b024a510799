"""Make what the outbox holds visible: one lane per address, in order, each row once.

Rows are written in the transaction that ends a run; the lane delivers them through the reply that already streams
(an edit) or a new one over what `posts` knows. Retries go by the type of error; a refusal ends the row and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from agent.conversation import Final, Thread
from bot import book, posts
from bot.lease import Job
from bot.sections import Limits
from bot.store import Execute, Row, Store, StoreError
from bot.supervise import BackgroundTasks, run_forever
from channels.base import Channel, ChannelError, Gone, OutFile, Refused, Reply, TryLater, Unknown

log = logging.getLogger(__name__)

PATIENCE = 60.0  # the longest wait between two tries, unless the platform asks for more
BATCH = 500  # rows taken in one look
ACT = 2.0  # seconds between looks for rows that came without a wake-up


@dataclass(frozen=True, slots=True)
class Item:
    """A row of the outbox on its way."""

    id: int
    kind: str
    thread: Thread
    conversation: str
    run: int | None
    reply_to: str
    person: str
    payload: bytes
    attempts: int
    created: float

    @classmethod
    def of(cls, row: Row) -> Item:
        names = ("id", "kind", "conversation", "run", "reply_to", "person", "payload", "attempts", "created")
        return cls(thread=Thread.parse(row["thread"]), **{name: row[name] for name in names})

    @property
    def posts_key(self) -> str:
        return f"r{self.run}" if self.kind == "reply" else f"o{self.id}"


class Outbox:
    """All lanes. `channel` finds a connected channel by name (None while it is away)."""

    def __init__(self, store: Store, channel: Callable[[str], Channel | None], limits: Limits) -> None:
        self._store = store
        self._channel = channel
        self._limits = limits
        self._lanes: dict[Thread, deque[Item]] = {}
        self._live: dict[int, Reply] = {}  # run → the reply that streams it
        self._wake = asyncio.Event()
        self._claiming = False
        self._tasks = BackgroundTasks()

    def wake(self) -> None:
        """There may be new rows."""
        self._wake.set()

    def adopt(self, run: int, reply: Reply) -> None:
        """The end of `run` is delivered through this reply."""
        self._live[run] = reply

    def offer(self, items: Sequence[Item]) -> None:
        """Rows that were just committed as claimed: into their lanes, without another look at the store."""
        for item in items:
            self._offer(item)

    async def idle(self) -> None:
        """Wait until every row that can be delivered now is."""
        self._wake.set()
        while self._wake.is_set() or self._claiming or self._lanes:  # noqa: ASYNC110 — at the end of the process only
            await asyncio.sleep(0.01)

    async def serve(self) -> None:
        """Hand rows to their lanes until cancelled."""
        try:
            await run_forever("outbox", self._round)
        finally:
            await self._tasks.cancel()

    async def _round(self) -> None:
        self._claiming = True
        self._wake.clear()  # before the look: what is written during it is looked at again
        try:
            self.offer(items := await self._store.run(_claim))
        finally:
            self._claiming = False
        if len(items) == BATCH:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ACT):
                await self._wake.wait()

    def _offer(self, item: Item) -> None:
        lane = self._lanes.get(item.thread)
        if lane is not None:
            lane.append(item)
            return
        self._lanes[item.thread] = deque([item])
        self._tasks.start(self._run(item.thread), name=f"lane {item.thread}")

    async def _run(self, thread: Thread) -> None:
        """Deliver a lane's rows in order; the lane ends in the same step that finds it empty."""
        lane = self._lanes[thread]
        try:
            while lane:
                try:
                    await self._deliver(lane[0])
                except Exception as error:  # the boundary of one row, also of its burial
                    log.exception("outbox.fault row=%d", lane[0].id)
                    await self._end(lane[0], 3, repr(error))
                lane.popleft()
        finally:
            del self._lanes[thread]

    async def _deliver(self, item: Item) -> None:
        """Until it is visible, or never will be."""
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._show(item)
            except Refused as error:
                return await self._bury(item, error)
            except (ChannelError, StoreError) as error:
                await self._drop_live(item)
                wait = min(PATIENCE, 0.5 * 2 ** min(attempt, 10)) * random.uniform(0.8, 1.2)  # noqa: S311 — jitter
                if isinstance(error, TryLater):
                    wait = max(error.after, min(wait, 5.0) if error.after else wait)
                if isinstance(error, Unknown):
                    wait = min(wait, 1.0)
                log.warning("outbox.later row=%d attempt=%d wait=%.1f reason=%s", item.id, attempt, wait, error)
                await asyncio.sleep(wait)
            except Exception as error:  # the boundary of one row: a fault of ours must not stop the lane
                log.exception("outbox.fault row=%d", item.id)
                return await self._bury(item, error)
            else:
                await self._drop_live(item)
                return await self._end(item, 2, "")

    async def _show(self, item: Item) -> None:
        channel = self._channel(item.thread.channel)
        if channel is None:
            raise TryLater("the channel is not connected", 0.5)
        if item.kind == "file":
            file = _file(item)
            await channel.send_file(item.thread, file, await self._posts(item))
            return
        reply = self._live.get(item.run) if item.run is not None and item.kind == "reply" else None
        if reply is None:
            to = item.reply_to
            if item.kind == "ping":
                to = await self._store.run(lambda execute: _answer_of(execute, item))
            reply = channel.reply(item.thread, await self._posts(item), to=to, asker=item.person)
            if item.run is not None and item.kind == "reply":
                self._live[item.run] = reply
        final = Final.load(item.payload)
        await reply.finish(final if item.kind == "ping" else self._dated(final, item))

    async def _posts(self, item: Item) -> posts.StoredPosts:
        known = await self._store.run(lambda execute: posts.known(execute, item.posts_key))
        return posts.StoredPosts(self._store, item.posts_key, item.thread, item.conversation, known)

    def _dated(self, final: Final, item: Item) -> Final:
        """A late reply says that it is late."""
        age = time.time() - item.created
        if age < self._limits.reply_hours * 3600:
            return final
        return replace(final, text=f"_(I could not deliver this for {age / 3600:.0f} hours.)_\n\n{final.text}")

    async def _drop_live(self, item: Item) -> None:
        if item.kind == "reply" and item.run is not None and (reply := self._live.pop(item.run, None)):
            await reply.close()

    async def _bury(self, item: Item, error: Exception) -> None:
        """Refused for good: the row is a dead letter; the chat is told once, unless it is gone."""
        await self._drop_live(item)
        log.error("outbox.dead row=%d kind=%s thread=%s reason=%s", item.id, item.kind, item.thread, error)
        words = ""
        if not isinstance(error, Gone) and item.kind == "file":
            words = f"I could not send {_file(item).name}: {error}"
        elif not isinstance(error, Gone) and item.kind == "reply":
            words = "I have an answer, but this chat refused it. The operator can look with `fawn dead list`."
        await self._end(item, 4 if isinstance(error, Gone) else 3, str(error) or type(error).__name__, words)

    async def _end(self, item: Item, state: int, error: str, words: str = "") -> None:
        now = time.time()

        def work(execute: Execute) -> None:
            execute(
                "UPDATE outbox SET state=:state, error=:error, attempts=attempts+1 WHERE id=:id",
                {"state": state, "error": error, "id": item.id},
            )
            if words:
                book.say(execute, item.thread, words, key=f"dead:{item.id}", now=now, reply_to=item.reply_to)

        while True:
            try:
                await self._store.run(work)
                break
            except StoreError as fault:  # shown already: if this cannot be recorded it would be shown again
                log.error("outbox.unrecorded row=%d reason=%s", item.id, fault)  # noqa: TRY400 — the reason is enough
                await asyncio.sleep(1.0)
        if words:
            self.wake()
        if state != 3 and item.kind == "file":
            await asyncio.to_thread(_discard, _file(item).path)


def _claim(execute: Execute) -> list[Item]:
    rows = execute(
        "UPDATE outbox SET state=1 WHERE state=0 AND id IN"
        " (SELECT id FROM outbox WHERE state=0 ORDER BY id LIMIT :most) RETURNING *",
        {"most": BATCH},
    )
    items = []
    for row in sorted(rows, key=lambda row: int(row["id"])):
        try:
            items.append(Item.of(row))
        except (ValueError, TypeError, AttributeError) as error:
            log.error("outbox.damaged row=%d reason=%r", row["id"], error)  # noqa: TRY400 — the reason is enough
            execute("UPDATE outbox SET state=3, error=:error WHERE id=:id", {"error": repr(error), "id": row["id"]})
    return items


def _answer_of(execute: Execute, item: Item) -> str:
    """The message with the end of the run's answer: what a ping refers to."""
    shown = [post.id for post in posts.known(execute, f"r{item.run}") if post.id]
    return shown[-1] if shown else item.reply_to


def enqueue(execute: Execute, job: Job, kind: str, key: str, payload: bytes, now: float) -> list[Item]:
    """Write a row of a run's end, claimed by this process already: `Outbox.offer` it after the commit.

    The address is the conversation's, which may have moved since the run began. Empty when the row is there already.
    """
    rows = execute(
        "INSERT INTO outbox(key, kind, thread, conversation, run, reply_to, person, payload, state, created)"
        " VALUES (:key, :kind, (SELECT thread FROM conversations WHERE key=:conversation), :conversation, :run,"
        " :reply_to, :person, :payload, 1, :now) ON CONFLICT(key) DO NOTHING RETURNING *",
        {
            "key": key,
            "kind": kind,
            "conversation": job.conversation,
            "run": job.run,
            "reply_to": job.reply_to,
            "person": job.requester,
            "payload": payload,
            "now": now,
        },
    )
    return [Item.of(row) for row in rows]


def _discard(copy: Path) -> None:
    """Remove a file's private copy, and its folder with the last one. What stays, retention removes."""
    try:
        copy.unlink(missing_ok=True)
    except OSError as error:
        log.warning("outbox.not_removed file=%s reason=%s", copy, error)
    with contextlib.suppress(OSError):  # others are still there, or it is gone
        copy.parent.rmdir()


def _file(item: Item) -> OutFile:
    raw = orjson.loads(item.payload)
    return OutFile(Path(raw["path"]), raw["name"], raw["size"], raw["caption"])


def file_payload(file: OutFile) -> bytes:
    """What the outbox keeps of a file: where its private copy is."""
    return orjson.dumps({"path": str(file.path), "name": file.name, "size": file.size, "caption": file.caption})
