"""LangGraph checkpoints in our own two tables: only the latest of each namespace is kept.

Stock savers keep every superstep of every turn: 4.5 GB after 1,000 turns of one thread. Nothing here travels back in
time, so `put` replaces the older checkpoint and its pending writes in one transaction. Storage is the size of the
state, and there is no pruning pass. The SQL is plain enough for SQLite and PostgreSQL (`BYTEA` is a BLOB to SQLite).
"""

from __future__ import annotations

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

from agent.context import Execute, TransactionRunner

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
SELECT_CHECKPOINT_SQL = "SELECT id, kind, state, meta_kind, meta FROM checkpoints WHERE thread = :thread AND ns = :ns"
SELECT_WRITES_SQL = """SELECT task, channel, kind, value FROM checkpoint_writes
    WHERE thread = :thread AND ns = :ns AND id = :id ORDER BY path, task, idx"""
UPSERT_CHECKPOINT_SQL = """INSERT INTO checkpoints (thread, ns, id, kind, state, meta_kind, meta)
    VALUES (:thread, :ns, :id, :kind, :state, :meta_kind, :meta)
    ON CONFLICT (thread, ns) DO UPDATE SET id = excluded.id, kind = excluded.kind, state = excluded.state,
    meta_kind = excluded.meta_kind, meta = excluded.meta"""
DELETE_WRITES_SQL = "DELETE FROM checkpoint_writes WHERE thread = :thread AND ns = :ns AND id <> :id"
# A task's own namespace carries its id after a colon. When the root moves on, every task below it has ended.
DELETE_NESTED_SQL = (
    "DELETE FROM checkpoints WHERE thread = :thread AND ns LIKE '%:%'",
    "DELETE FROM checkpoint_writes WHERE thread = :thread AND ns LIKE '%:%'",
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

Row = Mapping[str, Any]
DatabaseWork = Callable[[Execute], None]


def _do_nothing(execute: Execute) -> None:
    """Nothing is held."""


@dataclass(frozen=True, slots=True)
class PendingWrites:
    """What of a thread waits in memory: a checkpoint (what writes it, and its source), and writes by checkpoint id."""

    checkpoint: DatabaseWork = _do_nothing
    source: str = ""
    writes: tuple[tuple[str, DatabaseWork], ...] = ()

    def write_all(self, execute: Execute) -> None:
        """Write it."""
        self.checkpoint(execute)
        for _, write in self.writes:
            write(execute)


class LatestCheckpointer(BaseCheckpointSaver[int]):
    """A checkpoint saver over `Database`: the latest checkpoint per (thread, namespace) and its pending writes.

    An older checkpoint that is asked for by id is simply not there, and a tuple names no parent.
    """

    def __init__(self, database: TransactionRunner) -> None:
        super().__init__()
        self._database = database
        self._held: dict[str, PendingWrites] = {}  # thread → its first checkpoints of a turn, not written yet

    async def create_tables(self) -> None:
        """Make the tables if they are missing."""

        def work(execute: Execute) -> None:
            for table in CREATE_TABLES_SQL:
                execute(table, {})

        await self._database.run(work)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint of this thread and namespace with its pending writes in the order they are applied."""
        at = _checkpoint_key(config)
        wanted = get_checkpoint_id(config)
        held = self._take_held(at)

        def work(execute: Execute) -> tuple[Row, Sequence[Row]] | None:
            held(execute)
            rows = execute(SELECT_CHECKPOINT_SQL, at)
            if not rows or (wanted and rows[0]["id"] != wanted):
                return None
            return rows[0], execute(SELECT_WRITES_SQL, {**at, "id": rows[0]["id"]})

        found = await self._database.run(work)
        return found and self._checkpoint_tuple(at, *found)

    def _checkpoint_tuple(self, at: Mapping[str, str], row: Row, writes: Sequence[Row]) -> CheckpointTuple:
        load = self.serde.loads_typed
        return CheckpointTuple(
            config={"configurable": {"thread_id": at["thread"], "checkpoint_ns": at["ns"], "checkpoint_id": row["id"]}},
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
        """Replace what this namespace held, with its writes, and drop what ended below it."""
        at = _checkpoint_key(config)
        kind, state = self.serde.dumps_typed(checkpoint)
        meta_kind, meta = self.serde.dumps_typed(get_checkpoint_metadata(config, metadata))
        row = {**at, "id": checkpoint["id"], "kind": kind, "state": state, "meta_kind": meta_kind, "meta": meta}

        def work(execute: Execute) -> None:
            execute(UPSERT_CHECKPOINT_SQL, row)
            execute(DELETE_WRITES_SQL, {**at, "id": checkpoint["id"]})
            if not at["ns"]:
                for statement in DELETE_NESTED_SQL:
                    execute(statement, {"thread": at["thread"]})

        if not self._hold_checkpoint(at, checkpoint["id"], work, str(metadata.get("source"))):
            await self._database.run(work)
        return _checkpoint_config(at, checkpoint["id"])

    def _hold_checkpoint(self, at: Mapping[str, str], id: str, work: DatabaseWork, source: str) -> bool:
        """Whether this checkpoint may wait in memory. What waited before it is replaced by it, except writes of its own
        tasks. A turn's input, and the step that only takes it in, are not worth a trip to the disk: until the model has
        answered, the inbox still has the message."""
        before = self._held.pop(at["thread"], None) if not at["ns"] else None
        early = not at["ns"] and (source == "input" or (before is not None and before.source == "input"))
        own = tuple([write for write in before.writes if write[0] == id]) if before else ()
        if early or own:
            self._held[at["thread"]] = PendingWrites(work if early else _do_nothing, source if early else "", own)
        return early

    def _take_held(self, at: Mapping[str, str]) -> DatabaseWork:
        """Writes what is held of this thread, first thing in the transaction that needs it."""
        held = None if at["ns"] else self._held.pop(at["thread"], None)
        return held.write_all if held else _do_nothing

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task wrote until its superstep is over. Ordinary writes are kept as they came first; special
        ones (errors, interrupts, resumes) have a fixed place each and the last one counts."""
        at = {
            **_checkpoint_key(config),
            "id": config["configurable"]["checkpoint_id"],
            "task": task_id,
            "path": task_path,
        }
        rows: list[tuple[str, dict[str, Any]]] = []
        for number, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, number)
            kind, data = self.serde.dumps_typed(value)
            rows.append(
                (
                    INSERT_WRITE_SQL + (ON_CONFLICT_KEEP if index >= 0 else ON_CONFLICT_REPLACE),
                    {**at, "idx": index, "channel": channel, "kind": kind, "value": data},
                )
            )

        def work(execute: Execute) -> None:
            for statement, row in rows:
                execute(statement, row)

        if at["ns"] or any(channel in WRITES_IDX_MAP for channel, _ in writes):
            await self._database.run(_run_both(self._take_held(at), work))
            return
        # What a task wrote is in the checkpoint that follows at once, and effects are in the ledger: it need not be
        # on the disk by itself. It is written with an interrupt or an error of a sibling, or when somebody looks.
        held = self._held.get(at["thread"], PendingWrites())
        self._held[at["thread"]] = replace(held, writes=(*held.writes, (at["id"], work)))

    async def flush(self, thread_id: str) -> None:
        """Write what is held of a thread. After it nothing of the thread waits in memory."""
        if held := self._held.get(thread_id):
            await self._database.run(held.write_all)
            self._held.pop(thread_id, None)  # only now: what could not be written is not lost

    async def adelete_thread(self, thread_id: str) -> None:
        """Forget everything of a thread."""
        self._held.pop(thread_id, None)

        def work(execute: Execute) -> None:
            for statement in DELETE_THREAD_SQL:
                execute(statement, {"thread": thread_id})

        await self._database.run(work)


def _run_both(first: DatabaseWork, second: DatabaseWork) -> DatabaseWork:
    def work(execute: Execute) -> None:
        first(execute)
        second(execute)

    return work


def _checkpoint_config(at: Mapping[str, str], id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": at["thread"], "checkpoint_ns": at["ns"], "checkpoint_id": id}}


def _checkpoint_key(config: RunnableConfig) -> dict[str, str]:
    given = config["configurable"]
    return {"thread": str(given["thread_id"]), "ns": given.get("checkpoint_ns", "")}
