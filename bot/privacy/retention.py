"""Delete what is older than `keep_days`: finished rows, idle conversations, their checkpoints and folders.

It works in small transactions, so that nothing waits for it. Open work is never deleted, however old.

Overwrite what the database still has of deleted rows, and give free pages back: in small steps, while others work.

A process that reads the database (`fawn export`) keeps the write-ahead log from being emptied. Then a job tries again
until it has finished ([decision 84](docs/decisions/0084-overwriting-in-steps.md)).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from bot.base.background import Effect
from bot.base.data_dir import conversation_folder
from bot.base.stored_files import sweep_spool
from bot.database.database import Database, StorageError
from bot.database.migrate import remove_upgrade_backups
from bot.journey.ignored import keeps_talk
from bot.journey.task_sandboxes import remove_task_folders
from bot.rights.current import Current
from bot.rights.rates import counted_since
from bot.service.channel_state import sweep_channel_files
from bot.storage import blanked, follow_ups, forgotten_accounts, overheard, retention
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.personal import Tables
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import ConversationFolders

log = logging.getLogger(__name__)

RETENTION_JOB = "retention"
ROUND_SECONDS = 3600.0  # between two rounds


class Retention:
    """Deletes what is too old. `forget` deletes the checkpoints of a conversation."""

    def __init__(
        self,
        store: Database,
        current: Current,
        folders: ConversationFolders,
        forget: Callable[[str], Awaitable[None]],
        tables: Tables,
    ) -> None:
        self._store = store
        self._folders = folders
        self._current = current
        self._data_dir = current.config.data_dir
        self._forget = forget
        self._tables = [table for table in tables if table.finished]

    async def run_job(self, _: BackgroundJob) -> None:
        """Handle the recurring job."""
        await self.round(time.time() - self._current.config.keep_days * 86400)

    async def _end_talk(self) -> int:
        """Delete the talk of groups that is older than was announced; all of it where it is kept no longer."""
        limits, now = self._current.limits, time.time()
        before = now - limits.talk_hours * 3600 if keeps_talk(limits) else now
        if not keeps_talk(limits):
            await self._store.run(overheard.end_listening)
        return await self._store.run_steps(partial(overheard.end_kept, before=before))

    async def round(self, before: float) -> None:
        """Delete everything that was finished before this unix time."""
        rows = 0
        for table in self._tables:
            delete = partial(retention.delete_finished, table=table, before=before)
            rows += await self._store.run_steps(delete)
        rows += await self._end_talk()
        unused = time.time() - retention.USAGE_SECONDS
        await self._store.run(lambda execute: forgotten_accounts.end_forgotten_usage(execute, unused))
        names = await self._store.run(partial(retention.end_names, before=before))
        counted = counted_since(self._current, time.time())
        await self._store.run(lambda execute: blanked.end_counts(execute, counted))
        await self._store.run(lambda execute: follow_ups.end_forgotten(execute, time.time()))
        await sweep_spool(self._store, self._data_dir)
        await run_file_work(remove_upgrade_backups, self._data_dir, before)
        await sweep_channel_files(self._store, self._data_dir)
        conversations = failed = 0
        while keys := await self._store.run(partial(retention.idle_conversations, before=before, skip=failed)):
            for key in keys:
                try:
                    await self._forget(key)
                    folder = conversation_folder(self._data_dir, key)
                    await remove_task_folders(self._folders, folder)
                    gone = await self._folders.remove_folder(folder)
                except StorageError:
                    raise
                except Exception:  # the boundary of one conversation: the next round tries again
                    log.exception("retention.kept conversation=%s", key)
                    gone = False
                if not gone:  # its row stays, so that the next round tries again
                    failed += 1
                    continue
                await self._store.run(partial(retention.delete_conversation, key=key))
                conversations += 1
        if rows or conversations or names:
            log.info("retention rows=%d conversations=%d names=%d", rows, conversations, names)


OVERWRITE_JOB = "overwrite"
RETRY_SECONDS = 30.0
FREE_PAGES_JOB = "free_pages"
FREE_PAGES_SECONDS = 3600.0  # between two rounds


async def overwrite_deleted(store: Database) -> bool:
    """Overwrite what the database has of deleted rows. False: another process reads it."""
    begun = time.monotonic()
    is_done = await store.overwrite_deleted()
    log.info("overwrite.done complete=%s seconds=%.1f", is_done, time.monotonic() - begun)
    return is_done


async def overwrite_now(store: Database) -> bool:
    """Overwrite, or enqueue the job that does it when nobody else reads; return whether it is done."""
    if await overwrite_deleted(store):
        return True
    await store.run(partial(_enqueue, due=time.time() + RETRY_SECONDS))
    return False


_enqueue = partial(enqueue_job, key=OVERWRITE_JOB, kind=OVERWRITE_JOB, payload={})


@dataclass(frozen=True, slots=True)
class OverwriteJobs:
    """Handles the job that overwrites later, and the one that gives back what retention has freed."""

    store: Database

    async def overwrite(self, job: BackgroundJob) -> Effect | None:
        """Overwrite, or try again in a while."""
        if await overwrite_deleted(self.store):
            return None
        return partial(_enqueue, due=time.time() + RETRY_SECONDS)

    async def free_pages(self, _: BackgroundJob) -> None:
        """Make the file smaller if many of its pages are free."""
        await self.store.free_pages()
