"""The checkpointer against LangGraph's own InMemorySaver, and its intended differences."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Interrupt

from agent.core.context import Execute
from agent.turn.checkpoint_rows import ReadState, read_checkpoint
from agent.turn.checkpointer import HeldState, LatestCheckpointer
from tests.fakes.server import until
from tests.support.agent_database import SqliteDatabase
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop


@pytest.fixture
async def saver(database: SqliteDatabase) -> LatestCheckpointer:
    made = LatestCheckpointer(database)
    await made.create_tables()
    await made.create_tables()  # may run at every start
    return made


def at(thread: str = "t", ns: str = "", id: str = "") -> Any:
    configurable = {"thread_id": thread, "checkpoint_ns": ns, **({"checkpoint_id": id} if id else {})}
    return {"configurable": configurable}


def checkpoint(number: int, **values: Any) -> Any:
    made = empty_checkpoint()
    made["id"], made["ts"] = f"{number:032x}", "2026-11-22T00:00:00+00:00"
    made["channel_values"] = values
    made["channel_versions"] = dict.fromkeys(values, number)
    return made


async def put(saver: BaseCheckpointSaver[Any], number: int, thread: str = "t", ns: str = "", **values: Any) -> Any:
    made = checkpoint(number, **values)
    return await saver.aput(at(thread, ns), made, {"step": number, "source": "loop"}, made["channel_versions"])


async def rows(database: SqliteDatabase, table: str) -> int:
    return int(await database.run(lambda execute: execute(COUNT + table, {})[0]["n"]))


COUNT = "SELECT count(*) AS n FROM "
WRITES: Sequence[tuple[str, Sequence[tuple[str, Any]], str]] = [
    # task, writes, path: in the order in which a run might save them
    ("b", [("messages", ["b0"]), ("messages", ["b1"])], "~2"),
    ("a", [("messages", ["a0"])], "~1"),
    ("a", [("messages", ["late"])], "~1"),  # an ordinary write is kept as it came first
    ("c", [("__interrupt__", (Interrupt("one", id="i1"),))], "~3"),
    ("c", [("__interrupt__", (Interrupt("two", id="i2"),))], "~3"),  # a special one is replaced
    ("c", [("__resume__", ["yes"])], "~3"),
    ("00000000-0000-0000-0000-000000000000", [("messages", ["input"]), ("__resume__", "r")], ""),
]


async def test_tuples_equal_those_of_the_memory_saver(saver: LatestCheckpointer) -> None:
    found = []
    for each in (saver, InMemorySaver()):
        config = await put(each, 1, messages=[HumanMessage("hi", id="m1")], n=3, none=None)
        for task, writes, path in WRITES:
            await each.aput_writes(config, writes, task, path)
        for wanted in (at(), config):
            got = await each.aget_tuple(wanted)
            assert got is not None
            found.append((got.config, got.checkpoint, got.metadata, got.pending_writes))
    assert found[0] == found[2]
    assert found[1] == found[3]
    assert [value for _, channel, value in found[0][3] or () if channel == "messages"] == [
        ["input"],
        ["a0"],
        ["b0"],
        ["b1"],
    ]


async def test_only_the_latest_checkpoint_and_its_writes_are_kept(
    saver: LatestCheckpointer, database: SqliteDatabase
) -> None:
    first = await put(saver, 1, n=1)
    await saver.aput_writes(first, [("n", 2)], "task")
    await saver.aput_writes(at(id=f"{2:032x}"), [("n", 3)], "next")  # may be saved before its checkpoint
    second = await put(saver, 2, n=2)
    got = await saver.aget_tuple(at())
    assert got is not None
    assert got.config == second
    assert got.pending_writes == [("next", "n", 3)]
    assert got.parent_config is None
    assert await saver.aget_tuple(first) is None
    assert await saver.aget_tuple(at("other")) is None
    assert (await rows(database, "checkpoints"), await rows(database, "checkpoint_writes")) == (1, 1)


async def test_task_namespaces_are_deleted_when_the_root_advances(
    saver: LatestCheckpointer, database: SqliteDatabase
) -> None:
    await put(saver, 1, n=1)
    inner = await put(saver, 2, ns="tools:1234", n=7)
    await saver.aput_writes(inner, [("n", 8)], "t")
    await put(saver, 3, ns="tools:1234|tools:5678", n=7)
    await put(saver, 4, ns="tools", n=9)  # a sub-graph with a memory of its own has no task's id
    await put(saver, 5, thread="t2", ns="tools:1234", n=7)
    assert await saver.aget_tuple(at(ns="tools:1234")) is not None
    await put(saver, 6, n=2)
    assert await saver.aget_tuple(at()) is not None  # which writes what was held of it
    kept = await database.run(lambda execute: execute("SELECT thread, ns FROM checkpoints ORDER BY thread, ns", {}))
    assert [tuple(row) for row in kept] == [("t", ""), ("t", "tools"), ("t2", "tools:1234")]


async def test_deleting_a_thread_keeps_the_others(saver: LatestCheckpointer, database: SqliteDatabase) -> None:
    for thread in ("t1", "t2"):
        await saver.aput_writes(await put(saver, 1, thread, n=1), [("n", 2)], "task")
    await saver.adelete_thread("t1")
    assert await saver.aget_tuple(at("t1")) is None
    assert await saver.aget_tuple(at("t2")) is not None
    assert (await rows(database, "checkpoints"), await rows(database, "checkpoint_writes")) == (1, 1)


async def test_a_failed_put_keeps_the_previous_checkpoint(saver: LatestCheckpointer, database: SqliteDatabase) -> None:
    config = await put(saver, 1, n=1)
    await database.run(lambda execute: execute("ALTER TABLE checkpoint_writes RENAME TO away", {}))
    with pytest.raises(Exception, match="checkpoint_writes"):
        await put(saver, 2, n=2)
    await database.run(lambda execute: execute("ALTER TABLE away RENAME TO checkpoint_writes", {}))
    got = await saver.aget_tuple(at())
    assert got is not None
    assert got.config == config


async def test_a_held_checkpoint_waits_for_the_commit_of_its_turn(
    saver: LatestCheckpointer, database: SqliteDatabase
) -> None:
    held, other = saver.hold("t"), await put(saver, 1, "t2", n=1)
    await put(saver, 1, n=1)
    await put(saver, 2, n=2)
    assert await rows(database, "checkpoints") == 1
    state = held.take()
    assert state

    def fail(execute: Execute) -> None:
        state.save(execute)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.run(fail)
    assert held.take() is state
    await database.run(state.save)
    await put(saver, 3, n=3)  # while it is committed
    held.saved(state)
    assert held.take()
    await held.release()
    got, elsewhere = await saver.aget_tuple(at()), await saver.aget_tuple(at("t2"))
    assert got
    assert got.checkpoint["channel_values"] == {"n": 3}
    assert elsewhere
    assert elsewhere.config == other
    await put(saver, 4, n=4)  # nobody holds it
    assert held.take() is None


async def test_a_held_checkpoint_does_not_wait_for_long_and_precedes_what_its_tasks_write(
    saver: LatestCheckpointer, database: SqliteDatabase
) -> None:
    held = saver.hold("t", seconds=0.01)
    await put(saver, 1, n=1)
    await until(lambda: held.take() is None, what="the checkpoint")
    assert await rows(database, "checkpoints") == 1
    await held.release()
    held = saver.hold("t")
    await put(saver, 2, n=2)
    await put(saver, 3, ns="tools:1234", n=7)
    assert held.take() is None
    got = await saver.aget_tuple(at())
    assert got
    assert got.checkpoint["channel_values"] == {"n": 2}
    await put(saver, 4, n=4)
    held.drop()  # its turn has lost its claim
    await held.release()
    got = await saver.aget_tuple(at())
    assert got
    assert got.checkpoint["channel_values"] == {"n": 2}


async def test_the_first_look_of_a_turn_needs_no_transaction_and_is_never_outdated(
    saver: LatestCheckpointer, database: SqliteDatabase
) -> None:
    """What its claim read counts until something is written, and once."""
    config = await put(saver, 1, n=1)

    async def hold() -> HeldState:
        known = await database.run(lambda execute: ReadState(read_checkpoint(execute, {"thread": "t", "ns": ""})))
        return saver.hold("t", known)

    async def look() -> Any:
        got = await saver.aget_tuple(at())
        return got and got.checkpoint["channel_values"]["n"]

    async def overwrite(kind: str) -> None:
        await database.run(lambda execute: execute("UPDATE checkpoints SET kind=:kind", {"kind": kind}))

    held = await hold()
    await overwrite("unreadable")
    assert await look() == 1
    with pytest.raises(NotImplementedError):
        await look()  # from the database
    await overwrite("msgpack")
    await held.release()
    held = await hold()
    await put(saver, 2, n=2)
    assert await look() == 2
    await held.release()
    held = await hold()
    await saver.adelete_thread("t")
    assert await look() is None
    await held.release()
    held = await hold()  # there is none
    assert await look() is None
    await put(saver, 3, n=3)
    assert await look() == 3
    assert await saver.aget_tuple(config) is None
    await held.release()


async def test_a_failed_read_keeps_the_unsaved_state(saver: LatestCheckpointer, database: SqliteDatabase) -> None:
    made = checkpoint(1, n=1)
    config = await saver.aput(at(), made, {"step": -1, "source": "input"}, made["channel_versions"])
    await saver.aput_writes(config, [("n", 2)], "task")
    assert await rows(database, "checkpoints") == 0
    await database.run(lambda execute: execute("ALTER TABLE checkpoint_writes RENAME TO away", {}))
    with pytest.raises(Exception, match="checkpoint_writes"):
        await saver.aget_tuple(at())
    await database.run(lambda execute: execute("ALTER TABLE away RENAME TO checkpoint_writes", {}))
    got = await saver.aget_tuple(at())
    assert got is not None
    assert (got.config, got.pending_writes) == (config, [("task", "n", 2)])


async def test_storage_grows_with_the_state_not_with_the_history(bench: Bench, database: SqliteDatabase) -> None:
    script = ' ::{"steps": [{"calls": [{"name": "look", "args": {"text": "x"}}]}], "tokens": 3}'
    for number in range(12):
        await bench.run(say(f"{number}{script}", f"m{number}"))
    assert len(await bench.state()) == 12 * 4
    assert (await rows(database, "checkpoints"), await rows(database, "checkpoint_writes")) == (1, 0)


async def test_the_state_is_bounded_after_a_thousand_messages(make: Workshop, tmp_path: Path) -> None:
    bench = await make(trigger_messages=20, keep_messages=8)
    for number in range(40):
        await bench.run(say(f'turn {number} ::{{"tokens": 3}}', f"m{number}-{uuid.uuid4().hex}", name="J"))
        assert len(await bench.state()) <= 21
