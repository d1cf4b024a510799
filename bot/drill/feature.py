"""Drills at set times, as a feature."""

from __future__ import annotations

from bot.base.background import JobKind
from bot.commands.feature import Feature, Parts, Service
from bot.drill.times import DRILL_JOB, LOOK_JOB, LOOK_SECONDS, DrillJobs, DrillOrder


def _start(service: Service) -> Parts:
    jobs = DrillJobs(service.current, DrillOrder())
    return Parts({LOOK_JOB: JobKind(jobs.look, LOOK_SECONDS), DRILL_JOB: JobKind(jobs.run)})


FEATURE = Feature("drill", start=_start)
