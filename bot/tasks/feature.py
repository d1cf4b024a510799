"""Background tasks as a feature."""

from __future__ import annotations

from functools import partial

from agent.core.context import TurnContext
from bot.base.background import JobKind
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.journey.running_turn import Account
from bot.journey.turn_part import TurnPart
from bot.rights import deeds
from bot.rights.claimed_run import ClaimedRun
from bot.storage import personal
from bot.tasks.command import TASK_WORDS, asks_retry, task_command, tasks_command
from bot.tasks.files import FILES_JOB, CommandFiles
from bot.tasks.reports import present_work, report_lost
from bot.tasks.runner import TAIL_JOB, CommandTasks
from bot.tasks.turns import TurnTasks
from catalogue import N_


def _start(service: Service) -> Parts:
    store, current = service.store, service.current
    files = CommandFiles(store, service.channel, current.config.data_dir)
    runner = CommandTasks(store, current, current.config.data_dir, files)

    def open_turn(job: ClaimedRun, _account: Account) -> TurnPart:
        async def prepare(context: TurnContext) -> None:
            if current.config.tasks.per_thread:
                context.background = TurnTasks(store, current, job, service.stop_run)

        return TurnPart(prepare, present=present_work)

    jobs = {TAIL_JOB: JobKind(runner.answer_tail), FILES_JOB: JobKind(files.send)}
    return Parts(jobs, {"tasks": partial(runner.serve, service.provider)}, open_turn)


FEATURE = Feature(
    "tasks",
    personal=personal.TASKS,
    commands=(
        Command("tasks", N_("what I do in the background"), tasks_command, rank=140),
        Command(
            "task",
            N_("show, cancel or repeat a background task"),
            task_command,
            TASK_WORDS,
            deeds.CHANGE_OWN,
            asks_retry,
            rank=150,
        ),
    ),
    release=report_lost,
    start=_start,
)
