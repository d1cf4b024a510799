"""Begin drills at set times, record how they went, and post it.

Define what the process of a drill is told.

Run a drill in a process of its own, in a folder that goes with it.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE

from agent.messages import Author
from bot.base.background import Effect
from bot.base.times import local_time
from bot.config.addresses import parse_chat
from bot.config.operations import Often
from bot.config.schema import Config
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.drill.report import DrillReport, render_lines
from bot.rights.current import Current
from bot.storage import languages, outbox
from bot.storage.jobs import BackgroundJob, enqueue_job
from catalogue import _
from sandbox.disk.file_threads import run_file_work
from sandbox.processes import start_process

PROGRAM = (sys.executable, "-m", "bot.drill.child")
KILLS = 20
ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DrillOrder:
    """A drill: on what `config` is read from ("": the usual file), in the empty `folder`, with `program` as Fawn."""

    folder: str = ""
    config: str = ""
    kills: int = KILLS
    answer_seconds: float = ANSWER_SECONDS  # after which a message counts as lost
    program: tuple[str, ...] = PROGRAM


PATIENT = ("nice", "-n", "10")  # a service that works beside goes first
MAX_REPORT_BYTES = 1 << 20


class DrillFailed(Exception):
    """A drill did not come to its end; the text says why."""


async def run_drill(
    config: Config, order: DrillOrder, *, before: Sequence[str] = (), log: Path | None = None
) -> DrillReport:
    """Run a drill on what `config` was read from, and return its report. Raises DrillFailed and OSError.

    `before` are words before the command, `log` is where the log of the drill's service goes. Progress is on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="fawn-drill-") as folder:
        words = json.dumps(asdict(replace(order, folder=folder, config=str(config.file or ""))))
        process = await start_process(
            *(*before, sys.executable, "-m", "bot.drill", words), stdin=DEVNULL, stdout=PIPE, limit=MAX_REPORT_BYTES
        )
        try:
            said, _none = await process.communicate()
        finally:
            if process.returncode is None:  # its service ends with it
                process.kill()
                await process.wait()
            if log:
                await run_file_work(_keep_log, folder, log)
        if process.returncode:
            raise DrillFailed(f"exit code {process.returncode}")
        return DrillReport.from_json(json.loads(said))


def _keep_log(folder: str, target: Path) -> None:
    source = Path(folder, "log")
    if source.exists():
        target.write_bytes(source.read_bytes())


log = logging.getLogger(__name__)

LOOK_JOB, DRILL_JOB = "drill", "drill.run"
LOOK_SECONDS = 3600.0  # between two looks whether a drill is planned
HOUR = 3


class DrillJobs:
    """The handlers of both jobs: one plans the next drill, the other runs it."""

    def __init__(self, current: Current, order: DrillOrder) -> None:
        self._current = current
        self._order = order

    async def look(self, _job: BackgroundJob) -> Effect | None:
        """Plan the next drill, unless it is planned."""
        return self._plan

    async def run(self, job: BackgroundJob) -> Effect | None:
        """Run a drill. Nothing happens where the configuration wants none any more, or at other times."""
        config = self._current.config
        if config.drill.schedule != job.arguments["schedule"]:
            return None
        now = time.time()
        try:
            report = await run_drill(config, self._order, before=PATIENT)
        except (DrillFailed, OSError) as error:
            log.warning("drill.failed", exc_info=error)
            event = AuditEvent(AuditKind.DRILL, what={"by": "set times"}, result="failed")
            return partial(self._record, event=event, now=now, report=None)
        result = "ok" if report.is_good else "failed"
        log.info("drill.ended result=%s", result)
        event = AuditEvent(AuditKind.DRILL, what={"by": "set times", **report.figures}, result=result)
        return partial(self._record, event=event, now=now, report=report)

    def _record(self, execute: Execute, event: AuditEvent, now: float, report: DrillReport | None) -> None:
        audit.record(execute, event)
        target = parse_chat(self._current.config.drill.to)
        with languages.speak_to(execute, target, Author("", "")):
            text = (
                render_lines(report) if report else _("The drill did not come to its end: the log has `drill.failed`.")
            )
            outbox.enqueue_notice(execute, target, text, key=f"drill:{int(now)}", now=now)
        self._plan(execute)

    def _plan(self, execute: Execute) -> None:
        config = self._current.config
        if often := config.drill.schedule:
            due = next_drill(often, time.time(), config.time_zone)
            key = f"{DRILL_JOB}:{often}"
            enqueue_job(execute, key=key, kind=DRILL_JOB, payload={"schedule": often}, due=due, keep=True)


def next_drill(often: Often, now: float, zone: str) -> float:
    """Return the unix time of the next drill after `now`: at 3 o'clock, on each day, Sundays, or the 1st."""
    local = local_time(now, zone) if zone else datetime.fromtimestamp(now, UTC).astimezone()  # of this machine
    day = local.replace(hour=HOUR, minute=0, second=0, microsecond=0)
    while day <= local or (often == "weekly" and day.weekday() != 6) or (often == "monthly" and day.day != 1):
        day += timedelta(days=1)
    return day.timestamp()
