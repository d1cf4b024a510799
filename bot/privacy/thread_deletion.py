"""The job that deletes the conversations of a thread over HTTP, which its person has deleted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from bot.base.jobs import Effect
from bot.base.web_files import WebFiles
from bot.database.web_people import WEB
from bot.privacy.forgetting import BUSY_SECONDS, ForgetJobs
from bot.storage import retention
from bot.storage.forgetting import PersonKey, Traces
from bot.storage.jobs import BackgroundJob, enqueue_job


@dataclass(frozen=True, slots=True)
class ThreadDeletion:
    """Handles the jobs. `forgetting` deletes what a conversation holds of its person, which is all of it."""

    forgetting: ForgetJobs

    async def delete(self, job: BackgroundJob) -> Effect | None:
        """Handle a job; what a turn still works in is deleted later."""
        given, busy = job.arguments, []
        store = self.forgetting.store
        for key in given["conversations"]:
            if await self.forgetting.clean(PersonKey(WEB, given["person"]), key, Traces(), private=True):
                await store.run(partial(retention.delete_conversation, key=key))
            else:
                busy.append(key)
        await WebFiles(self.forgetting.cleaner.data_dir).sweep(store)
        if busy:
            again, due = {**given, "conversations": busy}, time.time() + BUSY_SECONDS
            return partial(enqueue_job, key=job.key, kind=job.kind, payload=again, due=due)
        return None
