"""Delete what is older than `keep_days`: finished rows, idle conversations, their checkpoints and folders.

In small steps, so that nobody waits for it. Open work is never touched, however old.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bot.background import run_forever
from bot.storage.database import Database, Execute, StorageError
from bot.turn_runner import conversation_folder
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.removal import remove_tree

log = logging.getLogger(__name__)

ROUND_SECONDS = 3600.0  # seconds between two rounds
BATCH_ROWS = 200  # rows in one transaction

_FINISHED = {
    "inbox": "state>0 AND received<:before",
    "outbox": "state IN (2, 4) AND created<:before",
    "posts": "created<:before",
    "runs": "finished IS NOT NULL AND finished<:before",
    "people": "allowed=0 AND until<:before AND notify IS NULL",
    "heard": "topic<>'' AND time<:before",
}


class Retention:
    """`forget` deletes a conversation's checkpoints."""

    def __init__(
        self,
        store: Database,
        data_dir: Path,
        folders: ConversationFolders,
        keep_days: float,
        forget: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._folders = folders
        self._data_dir = data_dir
        self._keep = keep_days * 86400
        self._forget = forget

    async def serve(self) -> None:
        """A round now and every hour, until cancelled."""
        await run_forever("retention", self._hour)

    async def _hour(self) -> None:
        try:
            await self.round(time.time() - self._keep)
        except (StorageError, OSError) as error:
            log.warning("retention.later reason=%s", error)
        await asyncio.sleep(ROUND_SECONDS)

    async def round(self, before: float) -> None:
        """Forget everything finished before this unix time."""
        rows = 0
        for table, finished in _FINISHED.items():
            while deleted := await self._store.run(lambda execute: _delete_rows(execute, table, finished, before)):  # noqa: B023 — awaited here
                rows += deleted
                await asyncio.sleep(0.05)
        await self._sweep_spool()
        conversations = failed = 0
        while keys := await self._store.run(lambda execute: _idle_conversations(execute, before, failed)):  # noqa: B023 — awaited here
            for key in keys:
                try:
                    await self._forget(key)
                    gone = await self._folders.remove_folder(conversation_folder(self._data_dir, key))
                except StorageError:
                    raise
                except Exception:  # the boundary of one conversation: the next round tries it again
                    log.exception("retention.kept conversation=%s", key)
                    gone = False
                if not gone:  # its row stays, so that it is tried again
                    failed += 1
                    continue
                await self._store.run(lambda execute: _delete_conversation(execute, key))  # noqa: B023 — awaited here
                conversations += 1
        if rows or conversations:
            log.info("retention rows=%d conversations=%d", rows, conversations)

    async def _sweep_spool(self) -> None:
        """Copies of files whose reply is out, or was dropped: a crash between the two left them."""
        spool = self._data_dir / "spool"
        folders = await run_file_work(lambda: [path.name for path in spool.glob("[0-9]*")])
        needed = await self._store.run(_spooled_runs) if folders else set()
        for name in set(folders) - needed:
            await run_file_work(remove_tree, spool / name)


def _spooled_runs(execute: Execute) -> set[str]:
    """Runs whose copies are still needed: under way, on their way out, or dead letters that may be sent again."""
    rows = execute(
        "SELECT run FROM outbox WHERE kind='file' AND state IN (0, 1, 3)"
        " UNION SELECT id FROM runs WHERE state IN ('queued', 'running')",
        {},
    )
    return {str(row["run"]) for row in rows}


def _delete_rows(execute: Execute, table: str, finished: str, before: float) -> int:
    return len(
        execute(
            f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {finished} LIMIT :step) RETURNING 1",  # noqa: S608 — constants
            {"before": before, "step": BATCH_ROWS},
        )
    )


def _idle_conversations(execute: Execute, before: float, skip: int) -> list[str]:
    rows = execute(
        "SELECT key FROM conversations WHERE used<:before AND pending=0 AND owner IS NULL"
        " ORDER BY used, key LIMIT 20 OFFSET :skip",
        {"before": before, "skip": skip},
    )
    return [str(row["key"]) for row in rows]


def _delete_conversation(execute: Execute, key: str) -> None:
    if not execute(
        "DELETE FROM conversations WHERE key=:key AND pending=0 AND owner IS NULL RETURNING key", {"key": key}
    ):
        return  # somebody wrote meanwhile: it goes on, with an empty memory
    for table in ("outputs", "ledger"):
        execute(f"DELETE FROM {table} WHERE conversation=:key", {"key": key})  # noqa: S608 — constants
    execute("UPDATE addresses SET conversation='' WHERE conversation=:key", {"key": key})
