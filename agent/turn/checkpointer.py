"""A LangGraph checkpointer that stores only the latest checkpoint of each namespace.

Stock savers store every superstep of every turn: 4.5 GB after 1,000 turns of one thread. Fawn does not travel back in
time, so `aput` replaces the older checkpoint and its pending writes in one transaction: storage is the size of the
state, and nothing needs pruning. The SQL suits SQLite and PostgreSQL (`BYTEA` is a BLOB to SQLite).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from agent.core.context import Execute, TransactionRunner
from agent.turn.checkpoint_rows import CheckpointRows, ReadState, Row, read_checkpoint

CREATE_TABLES_SQL = (
    """CREATE TABLE IF NOT EXISTS checkpoints (
        thread TEXT NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL,
        kind TEXT NOT NULL, state BYTEA NOT NULL, meta_kind TEXT NOT NULL, meta BYTEA NOT NULL,
        PRIMARY KEY (thread, ns))""",
    """CREATE TABLE IF NOT EXISTS checkpoint_writes (
        thread TEXT NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL,
        task TEXT NOT NULL, idx INTEGER NOT NULL, path TEXT NOT NULL,
        channel TEXT NOT NULL, kind TEXT NOT NULL, value BYTEA NOT NULL,
        PRIMARY KEY (thread, ns, id, task, idx))""",
)
UPSERT_CHECKPOINT_SQL = """INSERT INTO checkpoints (thread, ns, id, kind, state, meta_kind, meta)
    VALUES (:thread, :ns, :id, :kind, :state, :meta_kind, :meta)
    ON CONFLICT (thread, ns) DO UPDATE SET id = excluded.id, kind = excluded.kind, state = excluded.state,
    meta_kind = excluded.meta_kind, meta = excluded.meta"""
DELETE_WRITES_SQL = "DELETE FROM checkpoint_writes WHERE thread = :thread AND ns = :ns AND id <> :id"
# The namespace of a task ends in a colon and the task's id. When the root gets a new checkpoint, its tasks have ended.
DELETE_NESTED_SQL = (
    "DELETE FROM checkpoints WHERE thread = :thread AND ns LIKE '%:%'",
    "DELETE FROM checkpoint_writes WHERE thread = :thread AND (ns LIKE '%:%' OR (ns = :ns AND id <> :id))",
)
INSERT_WRITE_SQL = """INSERT INTO checkpoint_writes (thread, ns, id, task, idx, path, channel, kind, value)
    VALUES (:thread, :ns, :id, :task, :idx, :path, :channel, :kind, :value)
    ON CONFLICT (thread, ns, id, task, idx) DO """
ON_CONFLICT_KEEP = "NOTHING"
ON_CONFLICT_REPLACE = (
    "UPDATE SET channel = excluded.channel, kind = excluded.kind, value = excluded.value, path = excluded.path"
)
DELETE_THREAD_SQL = (
    "DELETE FROM checkpoints WHERE thread = :thread",
    "DELETE FROM checkpoint_writes WHERE thread = :thread",
)

log = logging.getLogger(__name__)

HOLD_SECONDS = 2.0  # after which the checkpoint of a turn no longer waits for a commit of that turn
DatabaseWork = Callable[[Execute], None]


@dataclass(frozen=True, slots=True)
class UnsavedState:
    """What a thread has not written yet: an early checkpoint with its source, and task writes by checkpoint id."""

    checkpoint: DatabaseWork | None = None
    source: str = ""
    writes: tuple[tuple[str, DatabaseWork], ...] = ()

    def save(self, execute: Execute) -> None:
        """Write everything in this transaction."""
        if self.checkpoint:
            self.checkpoint(execute)
        for _, write in self.writes:
            write(execute)


class LatestCheckpointer(BaseCheckpointSaver[int]):
    """Stores the latest checkpoint of each thread and namespace, with its pending writes.

    An older checkpoint is not found by its id, and a tuple does not name its parent.
    """

    def __init__(self, database: TransactionRunner) -> None:
        super().__init__()
        self._database = database
        self._unsaved: dict[str, UnsavedState] = {}  # by thread
        self._held: dict[str, HeldState] = {}  # by thread

    async def create_tables(self) -> None:
        """Create the tables if they do not exist."""
        await self._run_statements(CREATE_TABLES_SQL, {})

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the latest checkpoint of this thread and namespace, with its pending writes in order."""
        key = _checkpoint_key(config)
        wanted = get_checkpoint_id(config)
        if not key["ns"]:
            await self.flush(key["thread"])

        known = [] if key["ns"] else self._take_known(key["thread"])
        found = known[0] if known else await self._database.run(lambda each: read_checkpoint(each, key), durable=False)
        if found is None or (wanted and found.checkpoint["id"] != wanted):
            return None
        return self._checkpoint_tuple(key, *found)

    def _take_known(self, thread: str) -> list[CheckpointRows | None]:
        """Return what the claim of a turn has read, for its first look. Whatever is written makes it outdated."""
        held = self._held.get(thread)
        return held.known.take() if held and held.known else []

    def _checkpoint_tuple(self, key: Mapping[str, str], row: Row, writes: Sequence[Row]) -> CheckpointTuple:
        load = self.serde.loads_typed
        return CheckpointTuple(
            config=_checkpoint_config(key, row["id"]),
            checkpoint=load((row["kind"], bytes(row["state"]))),
            metadata=load((row["meta_kind"], bytes(row["meta"]))),
            pending_writes=[(w["task"], w["channel"], load((w["kind"], bytes(w["value"])))) for w in writes],
        )

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Replace the checkpoint of this namespace and its writes; delete the namespaces of ended tasks."""
        key = _checkpoint_key(config)

        def work(execute: Execute) -> None:  # serializes only what is written: the next checkpoint replaces early ones
            kind, state = self.serde.dumps_typed(checkpoint)
            meta_kind, meta = self.serde.dumps_typed(get_checkpoint_metadata(config, metadata))
            row = {**key, "id": checkpoint["id"], "kind": kind, "state": state, "meta_kind": meta_kind, "meta": meta}
            execute(UPSERT_CHECKPOINT_SQL, row)
            for statement in (DELETE_WRITES_SQL,) if key["ns"] else DELETE_NESTED_SQL:
                execute(statement, {**key, "id": checkpoint["id"]})

        self._take_known(key["thread"])
        if key["ns"]:
            await self._save_root(key["thread"])
        if key["ns"] or not self._defer(key["thread"], checkpoint["id"], work, str(metadata.get("source"))):
            await self._runner(key["thread"]).run(work)
        return _checkpoint_config(key, checkpoint["id"])

    def _defer(self, thread: str, id: str, work: DatabaseWork, source: str) -> bool:
        """Return whether a root checkpoint may stay in memory for now.

        It replaces the unsaved state before it, except the writes of its own tasks. The checkpoints of a turn's input
        are not worth a commit: until the model has answered, the inbox still has the message. Those after it wait for
        the next commit of a turn that holds them.
        """
        before = self._unsaved.pop(thread, UnsavedState())
        early = "input" in (source, before.source)
        own = tuple([write for write in before.writes if write[0] == id])
        held = self._held.get(thread) if source == "loop" else None
        if held and not early:
            held.wait()
        if early or held or own:
            waits = early or bool(held)
            self._unsaved[thread] = UnsavedState(work if waits else None, source if waits else "", own)
        return early or bool(held)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote until its superstep ends.

        Of ordinary writes the first counts; special ones (errors, interrupts, resumes) have a fixed index each, and the
        last counts.
        """
        key = _checkpoint_key(config)
        id = config["configurable"]["checkpoint_id"]

        def work(execute: Execute) -> None:
            for number, (channel, value) in enumerate(writes):
                index = WRITES_IDX_MAP.get(channel, number)
                kind, data = self.serde.dumps_typed(value)
                row = {"id": id, "task": task_id, "path": task_path, "idx": index, "channel": channel}
                statement = INSERT_WRITE_SQL + (ON_CONFLICT_KEEP if index >= 0 else ON_CONFLICT_REPLACE)
                execute(statement, {**key, **row, "kind": kind, "value": data})

        special = any(channel in WRITES_IDX_MAP for channel, _ in writes)
        self._take_known(key["thread"])
        if key["ns"]:
            await self._save_root(key["thread"])
        elif special:
            await self.flush(key["thread"])
        if special or key["ns"]:
            await self._runner(key["thread"]).run(work)
            return
        # The next checkpoint contains ordinary writes, and the ledger records effects: they need no commit of their
        # own. They are written before an interrupt, an error or a read.
        unsaved = self._unsaved.get(key["thread"], UnsavedState())
        self._unsaved[key["thread"]] = replace(unsaved, writes=(*unsaved.writes, (id, work)))

    def hold(
        self,
        thread_id: str,
        known: ReadState | None = None,
        seconds: float = HOLD_SECONDS,
        database: TransactionRunner | None = None,
    ) -> HeldState:
        """Keep the checkpoints of a thread in memory, for the commits of its turn, until that releases them.

        `known` is what its claim read. After some `seconds`, a checkpoint waits no longer. `database` takes what the
        turn writes, and refuses it once others have the thread: what an earlier turn left unsaved is then outdated.
        """
        if database:
            self._unsaved.pop(thread_id, None)
        held = self._held[thread_id] = HeldState(self, thread_id, known, seconds, database or self._database)
        return held

    def _runner(self, thread: str) -> TransactionRunner:
        """Return what takes the writes of a thread."""
        held = self._held.get(thread)
        return held.database if held else self._database

    def unsaved(self, thread_id: str) -> UnsavedState | None:
        """Return what a thread has not written yet."""
        return self._unsaved.get(thread_id)

    def saved(self, thread_id: str, state: UnsavedState) -> None:
        """Forget what was committed. What another task added meanwhile stays unsaved."""
        self._take_known(thread_id)
        if self._unsaved.get(thread_id) is state:
            del self._unsaved[thread_id]

    async def flush(self, thread_id: str, database: TransactionRunner | None = None) -> None:
        """Write the unsaved state of a thread; to `database`, where its turn is held no more."""
        if unsaved := self._unsaved.get(thread_id):
            await (database or self._runner(thread_id)).run(unsaved.save)
            self.saved(thread_id, unsaved)  # not before the commit, so that a failure loses nothing

    async def _save_root(self, thread: str) -> None:
        """Write the checkpoint in which a task runs, before what that task writes."""
        if (unsaved := self._unsaved.get(thread)) and unsaved.checkpoint:
            await self.flush(thread)

    def release(self, held: HeldState) -> None:
        """Keep the checkpoints of this turn no longer. The next turn of its thread may have begun."""
        if self._held.get(held.thread) is held:
            del self._held[held.thread]

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints and writes of a thread."""
        self._unsaved.pop(thread_id, None)
        self._take_known(thread_id)
        await self._run_statements(DELETE_THREAD_SQL, {"thread": thread_id})

    async def _run_statements(self, statements: Sequence[str], values: Mapping[str, str]) -> None:
        def work(execute: Execute) -> None:
            for statement in statements:
                execute(statement, values)

        await self._database.run(work)


class HeldState:
    """The checkpoints of one turn, which wait for its next commit. None of them waits for long."""

    def __init__(
        self,
        saver: LatestCheckpointer,
        thread: str,
        known: ReadState | None,
        seconds: float,
        database: TransactionRunner,
    ) -> None:
        self.database = database
        self.thread = thread
        self.known = known
        self._seconds = seconds
        self._saver = saver
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    def take(self) -> UnsavedState | None:
        """Return what the next commit saves; call `saved` after it."""
        return self._saver.unsaved(self.thread)

    def saved(self, state: UnsavedState) -> None:
        """Note that this was committed."""
        self._saver.saved(self.thread, state)

    def drop(self) -> None:
        """Forget what is not saved: it must not be, or cannot be."""
        if state := self.take():
            self.saved(state)

    def wait(self) -> None:
        """Let a checkpoint wait for a commit, but not for the rest of a long model or tool call."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._flush_at_last)

    def _flush_at_last(self) -> None:
        self._timer = None
        self._flushing = asyncio.create_task(self._flush(), name=f"checkpoint {self.thread}")

    async def _flush(self) -> None:
        try:
            await self._saver.flush(self.thread, self.database)
        except Exception:  # the next commit of the turn saves it, or reports the fault
            log.exception("checkpoint.not_saved thread=%s", self.thread)

    async def release(self) -> None:
        """End the hold, and write what no commit has saved."""
        self._saver.release(self)
        if self._timer:
            self._timer.cancel()
        if self._flushing:
            await self._flushing
        await self._flush()


def _checkpoint_config(key: Mapping[str, str], id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": key["thread"], "checkpoint_ns": key["ns"], "checkpoint_id": id}}


def _checkpoint_key(config: RunnableConfig) -> dict[str, str]:
    given = config["configurable"]
    return {"thread": str(given["thread_id"]), "ns": given.get("checkpoint_ns", "")}
