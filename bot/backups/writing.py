"""Write an archive when the latest one is old enough, delete the oldest ones, and run the operator's program after it.

The program is a job of its own, which is retried until it succeeds. It is enqueued before the archive is written, for
later, and becomes due with the archive: a crash in between cannot lose it.
"""

from __future__ import annotations

import calendar
import logging
import time
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

from agent.foreign_text import printable_text
from bot.base.background import MAX_JOB_SECONDS, Effect
from bot.base.stored_secrets import sealer_of
from bot.config.operations import BackupConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.service.backup import back_up
from bot.storage.jobs import BackgroundJob, enqueue_job
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import ConversationFolders
from sandbox.processes import start_process

log = logging.getLogger(__name__)

BACKUP_JOB, COPY_JOB = "backup", "backup.then"
LOOK_SECONDS = 300.0  # between two looks whether the latest archive is old enough
NAME = "fawn-%Y%m%d-%H%M%S.tar.gz"
PATTERN = "fawn-????????-??????.tar.gz"
MAX_SAID_CHARS = 300  # of what the program printed


class CopyFailed(Exception):
    """The program after a backup did not end with 0."""


class BackupJobs:
    """The handlers of both jobs."""

    def __init__(self, store: Database, current: Current, folders: ConversationFolders) -> None:
        self._store = store
        self._current = current
        self._folders = folders

    async def write(self, _job: BackgroundJob) -> Effect | None:
        """Write an archive if it is time. Raises OSError, which is retried."""
        config, now = self._current.config.backup, time.time()
        if not config.to or now < await run_file_work(next_backup, config):
            return None
        target = Path(config.to) / time.strftime(NAME, time.gmtime(now))
        await self._store.run(partial(_enqueue_copy, target=target, due=now + 2 * MAX_JOB_SECONDS))
        await run_file_work(partial(Path(config.to).mkdir, mode=0o700, parents=True, exist_ok=True))
        skills = Path(self._current.config.skills.custom)
        written = await back_up(
            self._store, self._current.config.data_dir, self._folders, skills, target, sealer_of(self._current.config)
        )
        for left in written["left_out"]:
            log.warning("backup.left_out what=%s", left)
        await run_file_work(delete_old_archives, config)
        log.info("backup.written bytes=%d", written["bytes"])
        event = AuditEvent(AuditKind.BACKUP, what={"by": "set times", "bytes": written["bytes"]})

        def record(execute: Execute) -> None:
            audit.record(execute, event)
            _enqueue_copy(execute, target, 0.0)

        return record

    async def copy(self, job: BackgroundJob) -> None:
        """Run the operator's program for an archive. Raises CopyFailed and OSError."""
        command, file = self._current.config.backup.then, str(job.arguments["file"])
        if not command or not await run_file_work(Path(file).exists):
            return
        argv = [word.replace("{file}", file) for word in command]
        process = await start_process(*argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True)
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            words = printable_text(said[-MAX_SAID_CHARS:].decode("utf-8", "replace").strip())
            raise CopyFailed(f"{Path(argv[0]).name} ended with {process.returncode}: {words}")
        log.info("backup.copied program=%s", Path(argv[0]).name)


def _enqueue_copy(execute: Execute, target: Path, due: float) -> None:
    enqueue_job(execute, key=f"{COPY_JOB}:{target.name}", kind=COPY_JOB, payload={"file": str(target)}, due=due)


def next_backup(config: BackupConfig) -> float:
    """Return the unix time when the next archive is due: 0 if there is none yet."""
    archives = list_archives(config)
    return written_at(archives[-1]) + config.every_hours * 3600 if archives else 0.0


def list_archives(config: BackupConfig) -> list[Path]:
    """Return the archives of set times, oldest first. Other files of the folder are none of Fawn's business."""
    return sorted(file for file in Path(config.to).glob(PATTERN) if written_at(file))


def written_at(file: Path) -> float:
    """Return the unix time in the name of an archive, 0 for another file."""
    try:
        return calendar.timegm(time.strptime(file.name, NAME))
    except ValueError:
        return 0.0


def delete_old_archives(config: BackupConfig) -> None:
    """Delete the oldest archives beyond those that stay."""
    for file in list_archives(config)[: -config.keep]:
        file.unlink(missing_ok=True)
