"""The database as one turn writes it: nothing is written under a claim that was lost."""

from __future__ import annotations

from collections.abc import Callable

from agent.core.context import T
from bot.database.database import Database, Execute
from bot.rights.claimed_run import ClaimedRun
from bot.storage.conversations import hold_claim


class ClaimLost(Exception):
    """Another worker has claimed this conversation, or may: nothing of this transaction was recorded."""


class ClaimedStore:
    """Checks the claim of a turn in each transaction, where processes share the database; calls `lost` when it is gone.

    A process that works alone cannot lose a claim: a lock keeps all others away.
    """

    def __init__(self, store: Database, job: ClaimedRun, lost: Callable[[], None]) -> None:
        self._store, self._job, self._lost = store, job, lost

    async def run(self, work: Callable[[Execute], T], *, durable: bool = True) -> T:
        """Run `work` in a transaction, as `Database.run`. Raises ClaimLost, too."""
        if not self._store.is_shared:
            return await self._store.run(work, durable=durable)

        def checked(execute: Execute) -> T:
            if not hold_claim(execute, self._job.conversation, self._job.fence, self._store.me):
                raise ClaimLost(self._job.conversation)
            return work(execute)

        try:
            return await self._store.run(checked, durable=durable)
        except ClaimLost:
            self._lost()
            raise
