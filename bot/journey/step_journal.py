"""Keep the steps of a turn where the next process finds them, when this one dies in the middle of the turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from agent.blocks import NOTED_STEP, THINKING_STEP, Block, Step
from bot.database.database import Database, Execute, StorageError
from bot.journey.claimed_store import ClaimedStore, ClaimLost
from bot.journey.feed import RunFeed
from bot.journey.running_turn import RunningTurn
from bot.journey.transcript import TranscriptRecorder, step_of
from bot.rights.claimed_run import ClaimedRun
from bot.storage import transcripts
from bot.storage.transcripts import TranscriptEntry

log = logging.getLogger(__name__)

WRITE_SECONDS = 1.0  # between two writes: a turn that is shorter writes nothing


class StepJournal:
    """A reader of one run's feed. It writes what has changed once a second, without waiting for the disk."""

    def __init__(self, store: Database, claimed: ClaimedStore, job: ClaimedRun, feed: RunFeed) -> None:
        self.transcript = TranscriptRecorder(job)
        self.has_steps = False  # some may be stored
        self._store, self._claimed = store, claimed
        self._job = job
        self._writer: asyncio.Task[None] | None = None
        feed.add_reader(self.transcript.add)
        feed.add_reader(self._add)

    def _add(self, block: Block) -> None:
        """Note that a step has changed. The transcript has seen it before."""
        is_step = isinstance(block, Step) and not block.id.startswith(NOTED_STEP)
        if is_step and self.transcript.unsaved and (self._writer is None or self._writer.done()):
            self._writer = asyncio.create_task(self._write(), name=f"steps-{self._job.run}")

    async def _write(self) -> None:
        while self.transcript.unsaved:
            await asyncio.sleep(WRITE_SECONDS)
            changed, self.has_steps = dict(self.transcript.unsaved), True
            try:
                await self._claimed.run(partial(self._save, steps=changed), durable=False)
            except ClaimLost:  # another process shows them
                return
            except StorageError as error:  # a restart then shows less; the turn itself has lost nothing
                log.warning("turn.steps_not_saved reason=%s", error)
                return
            self.transcript.note_saved(changed)

    def save(self, execute: Execute) -> None:
        """Store the steps that have changed, in a unit of work of the caller, which ends the turn here."""
        self._save(execute, self.transcript.unsaved)

    def _save(self, execute: Execute, steps: Mapping[str, TranscriptEntry]) -> None:
        if steps:
            transcripts.save_steps(execute, self._job.conversation, [*steps.values()])

    async def close(self) -> None:
        """Write no more."""
        if self._writer:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    async def recall(self, live: RunningTurn) -> None:
        """Show what sub-agents did in an earlier attempt of the run, and keep what they had begun for this one."""
        if self._job.fresh:
            return
        read = partial(transcripts.read_steps, conversation=self._job.conversation)
        stored = await self._store.run(read, durable=False)
        running = {step.id for each in stored if (step := step_of(each)).state == "running"}
        inner = [step for each in stored if (step := step_of(each)).parent]
        live.begun_steps = tuple(step for step in inner if step.id in running and step.parent in running)
        if self._job.answers or not self._job.resumed:  # the earlier run of a question shows them
            return
        self.transcript.recall_steps(stored)
        live.feed.thoughts = tuple(step for each in stored if (step := step_of(each)).id.startswith(THINKING_STEP))
        for step in inner:
            gone = step.id in running and step.parent not in running
            live.feed.publish(_stopped(step) if gone else step)


def _stopped(step: Step) -> Step:
    return Step(step.id, step.title, "stopped", step.detail, parent=step.parent)
