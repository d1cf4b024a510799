"""Watches: read a page, and begin a run only if its text has changed."""

from __future__ import annotations

import difflib
import logging
import time
from functools import partial

from agent.messages import Quote
from agent.web.addresses import WebError
from bot.base.background import Effect
from bot.database.database import Database, Execute
from bot.database.states import FireResult, ScheduleState
from bot.rights.current import Current
from bot.schedules.firing import begin_run, pause_and_say
from bot.schedules.proposals import may_read_page
from bot.service.schedule_changes import short_words
from bot.storage import languages, schedules
from bot.storage.jobs import BackgroundJob
from bot.storage.schedules import ScheduleRow
from catalogue import N_, _

log = logging.getLogger(__name__)

MAX_SEEN_CHARS = 50_000  # of a page, which are stored and compared
MAX_CHANGES_CHARS = 6_000  # which the run gets
MAX_FAILURES = 5  # in a row
UNREADABLE = N_("⏸ I paused schedule {number} (“{what}”): I could not read its page {count} times in a row ({reason}).")
FAULT = N_("a fault inside Fawn")
FORBIDDEN = N_("⏸ I paused schedule {number} (“{what}”): the rules no longer let me read its page.")


class WatchJobs:
    """Reads the pages of watches."""

    def __init__(self, store: Database, current: Current) -> None:
        self._store = store
        self._current = current

    async def check(self, job: BackgroundJob) -> Effect | None:
        """Handle the job of one fire: read the page, and return what stores the outcome."""
        number, due = int(job.arguments["schedule"]), float(job.arguments["due"])
        row, is_allowed = await self._store.run(partial(self._find, number=number))
        if row is None:
            return None
        text, fault = "", ""
        if (fetcher := self._current.fetcher) and is_allowed:
            try:
                page = await fetcher.fetch(row.url, max_age_seconds=0, owner=("watch", row.owner))
                text = page.text[:MAX_SEEN_CHARS]
            except WebError as error:
                fault = str(error)
            except Exception:  # the boundary of one watch: its owner is told
                log.exception("watch.fault schedule=%d", number)
                fault = FAULT
        else:
            fault = FORBIDDEN

        def record(execute: Execute) -> None:
            still = schedules.find_schedule(execute, number)
            if still is None or still.url != row.url:  # deleted or changed meanwhile
                return
            with languages.speak_to(execute, still.place, still.who.person):
                if fault:
                    self._record_fault(execute, still, due, fault)
                else:
                    _record_text(execute, still, due, text)

        return record

    def _find(self, execute: Execute, number: int) -> tuple[ScheduleRow | None, bool]:
        """Return a schedule, and whether its owner may have its page read now."""
        row = schedules.find_schedule(execute, number)
        return row, row is not None and may_read_page(execute, self._current, row.place, row.owner, row.url)

    def _record_fault(self, execute: Execute, row: ScheduleRow, due: float, fault: str) -> None:
        now, access = time.time(), self._current.access
        schedules.set_fire_result(execute, row.id, due, FireResult.UNREADABLE)
        count = schedules.count_failure(execute, row.id)
        if row.state == ScheduleState.ACTIVE and fault == FORBIDDEN:
            pause_and_say(execute, access, row, short_words(row, FORBIDDEN), now)
        elif row.state == ScheduleState.ACTIVE and count >= MAX_FAILURES:
            pause_and_say(execute, access, row, short_words(row, UNREADABLE, count=count, reason=_(fault)), now)


def _record_text(execute: Execute, row: ScheduleRow, due: float, text: str) -> None:
    """Store the text. If there was another one before, begin a run with the difference."""
    schedules.record_seen(execute, row.id, text)
    if not row.seen or row.seen == text:
        schedules.set_fire_result(execute, row.id, due, FireResult.UNCHANGED)
        return
    changes = Quote(row.url, describe_changes(row.seen, text), "page")
    begin_run(execute, row, due, time.time(), (changes,))


def describe_changes(before: str, after: str) -> str:
    """Return the difference of two texts, cut to what a run gets."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "now", n=1, lineterm="")
    text = "\n".join(lines)
    return text if len(text) <= MAX_CHANGES_CHARS else f"{text[:MAX_CHANGES_CHARS]}\n[the difference goes on]"
