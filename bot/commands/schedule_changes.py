"""Pause, resume and delete a schedule, whoever may: its owner, who is told in words, or an operator over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.base.schedule_timing import next_time
from bot.commands.background import cancel_task
from bot.database.database import Execute
from bot.database.states import ScheduleState
from bot.journey import questions
from bot.service.schedule_changes import withdraw_fire
from bot.storage import schedules, tasks
from bot.storage.schedules import ScheduleRow


def pause_schedule(execute: Execute, row: ScheduleRow) -> None:
    """Let an active schedule not run until it is resumed."""
    schedules.set_schedule_state(execute, row.id, ScheduleState.PAUSED)
    withdraw_fire(execute, row)


def resume_schedule(execute: Execute, row: ScheduleRow, now: float) -> bool:
    """Continue from now: what was due during the pause is not made up for. False: it has no further time.

    Raises TimingError.
    """
    at = next_time(row.timing, now)
    if at is not None:
        schedules.set_schedule_state(execute, row.id, ScheduleState.ACTIVE, at)
    return at is not None


def delete_schedule(
    execute: Execute, row: ScheduleRow, by: str, now: float, stop_run: Callable[[int, str], None], channel: str = ""
) -> Sequence[Callable[[], None]]:
    """Delete a schedule, and end the work that it has begun. Return what to call after the commit."""
    withdraw_fire(execute, row)
    begun = [task for task in tasks.open_of_thread(execute, row.place) if task.conversation == row.conversation]
    stops = [cancel_task(execute, task, by, now, stop_run, channel) for task in begun]
    questions.close_open_questions(execute, row.conversation, now)
    schedules.delete_schedule(execute, row.id)
    return [stop for stop in stops if stop]
