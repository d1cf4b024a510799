"""Tell both when the time of what was handed over is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bot.base.jobs import Effect
from bot.database import audit
from bot.database.database import Execute
from bot.storage import hand_overs
from bot.storage.jobs import BackgroundJob
from bot.waiting.hand_over import names_of, record_hand_over, tell_one
from catalogue import N_, _

OVER_FOR_DEPUTY = N_("Your time in place of {person} is over: you do not stand in for them any more.")
OVER_FOR_GIVER = N_("The time is over in which {person} answered in your place. What waits for you waits for you only.")


@dataclass(frozen=True, slots=True)
class HandOverEnds:
    """Handles the jobs that are due when the time of a hand-over is over. `clock` returns the unix time."""

    clock: Callable[[], float] = time.time

    async def end(self, job: BackgroundJob) -> Effect | None:
        """Return what ends it and tells both; nothing happens where one of them has ended it, or it was forgotten."""
        id, now = int(job.arguments["id"]), self.clock()

        def expire(execute: Execute) -> None:
            if (row := hand_overs.expire(execute, id, now)) is None:
                return
            giver, deputy = names_of(row)
            record_hand_over(execute, row, None, "", audit.person_name(row.channel, row.deputy), "expired")
            tell_one(execute, row, row.deputy, lambda: _(OVER_FOR_DEPUTY, person=giver), now)
            tell_one(execute, row, row.giver, lambda: _(OVER_FOR_GIVER, person=deputy), now)

        return expire
