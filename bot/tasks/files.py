"""The files that background commands leave in outputs/: they go out with the report, in its transaction.

A turn that works in the conversation sends what is new there itself, and may not be done with it. So while one works,
or one has ended meanwhile, a job looks again, until the conversation is free.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bot.base.data_dir import conversation_folder
from bot.base.stored_files import command_folder
from bot.database.database import Database, Execute
from bot.journey import artifacts
from bot.journey.artifacts import Artifacts
from bot.journey.outbox import files_payload
from bot.storage import conversations, languages, outbox, runs, tasks
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.tasks import TaskRow
from catalogue import use_language
from channels.base import Channel
from sandbox.base import SandboxError

log = logging.getLogger(__name__)

FILES_JOB = "task-files"
AGAIN_SECONDS = 3.0  # until the next look, while a turn works


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What is new in outputs/, and the stamps of what was sent before that look; None for a look that has to wait."""

    collected: Artifacts
    before: Mapping[str, str] | None


LATER = FoundFiles(Artifacts({}), None)


@dataclass(frozen=True, slots=True)
class CommandFiles:
    """Finds the new files of the conversations in which commands ran."""

    store: Database
    channel: Callable[[str], Channel | None]
    data_dir: Path

    async def find(self, row: TaskRow) -> FoundFiles:
        """Return what is new, or LATER."""
        before, language = await self.store.run(partial(self._known, row=row))
        if before is None:
            return LATER
        channel = self.channel(row.channel)
        limit = artifacts.upload_limit(channel)
        folder = conversation_folder(self.data_dir, row.conversation)
        spool = command_folder(self.data_dir, "task", f"{row.id}:{time.time()}")
        try:
            with use_language(language):
                return FoundFiles(await artifacts.collect_artifacts(folder, spool, before, (), limit), before)
        except (OSError, SandboxError) as error:
            log.warning("task.outputs id=%d reason=%s", row.id, error)
            return LATER

    def _known(self, execute: Execute, row: TaskRow) -> tuple[dict[str, str] | None, str]:
        language = languages.language_of(execute, row.place, row.who.person)
        if conversations.is_claimed(execute, row.conversation):
            return None, language
        return runs.known_stamps(execute, row.conversation), language

    async def send(self, job: BackgroundJob) -> Callable[[Execute], object] | None:
        """Send what is new once no turn works in the conversation."""
        row = await self.store.run(partial(tasks.find_task, number=int(job.arguments["number"])))
        if row is None:
            return None
        found, key, now = await self.find(row), f"{FILES_JOB}:{row.id}:{job.due}", time.time()

        def send(execute: Execute) -> None:
            if collected := take_files(execute, row, found, now):
                enqueue_found(execute, row, collected, key, now)

        return send


def take_files(execute: Execute, row: TaskRow, found: FoundFiles, now: float) -> Artifacts | None:
    """Record that what was found is sent, and return it. None: somebody else may have sent it, and a job looks
    again."""
    is_free = not conversations.is_claimed(execute, row.conversation)
    if is_free and runs.known_stamps(execute, row.conversation) == found.before:
        runs.replace_stamps(execute, row.conversation, found.collected.stamps, found.before)
        return found.collected
    payload = {"number": row.id}
    enqueue_job(execute, key=f"{FILES_JOB}:{row.id}", kind=FILES_JOB, payload=payload, due=now + AGAIN_SECONDS)
    return None


def enqueue_found(execute: Execute, row: TaskRow, collected: Artifacts, key: str, now: float) -> None:
    """Enqueue what was found, where the task reports."""
    if collected.files:
        outbox.enqueue_files(execute, row.place, files_payload(collected.files), key=key, now=now)
