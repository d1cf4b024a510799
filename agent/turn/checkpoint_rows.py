"""The rows of a thread's latest checkpoint. Whoever reads them needs nothing of LangGraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent.core.context import Execute

SELECT_CHECKPOINT_SQL = "SELECT id, kind, state, meta_kind, meta FROM checkpoints WHERE thread = :thread AND ns = :ns"
SELECT_WRITES_SQL = """SELECT task, channel, kind, value FROM checkpoint_writes
    WHERE thread = :thread AND ns = :ns AND id = :id ORDER BY path, task, idx"""

Row = Mapping[str, Any]


class CheckpointRows(NamedTuple):
    """A stored checkpoint, and what its tasks wrote before their superstep ended."""

    checkpoint: Row
    writes: Sequence[Row]


class ReadState:
    """What a claim read of its thread. It is used once: what is written later, it does not have."""

    def __init__(self, rows: CheckpointRows | None) -> None:
        self._rows: list[CheckpointRows | None] = [rows]

    def take(self) -> list[CheckpointRows | None]:
        """Return the rows (None: the thread has no checkpoint) as the only element; an empty list from then on."""
        rows, self._rows = self._rows, []
        return rows


def read_checkpoint(execute: Execute, key: Mapping[str, str], *, has_tasks: bool = True) -> CheckpointRows | None:
    """Return the rows of this `thread` and namespace `ns`. What has no unfinished tasks has no writes."""
    rows = execute(SELECT_CHECKPOINT_SQL, key)
    if not rows:
        return None
    return CheckpointRows(rows[0], execute(SELECT_WRITES_SQL, {**key, "id": rows[0]["id"]}) if has_tasks else ())
