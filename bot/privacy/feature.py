"""Privacy as a feature: retention, `/forget me` and `/export me`."""

from __future__ import annotations

from bot.base.background import JobKind
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.commands.table import Press
from bot.privacy import command
from bot.privacy.command import privacy_command
from bot.privacy.forgetting import ConversationCleaner, ForgetJobs, ThreadDeletion, end_lately
from bot.privacy.own_data import EXPORT_JOB, ExportJobs, export_command
from bot.privacy.retention import (
    FREE_PAGES_JOB,
    FREE_PAGES_SECONDS,
    OVERWRITE_JOB,
    RETENTION_JOB,
    ROUND_SECONDS,
    OverwriteJobs,
    Retention,
)
from bot.storage.web import FORGET_THREAD_JOB
from catalogue import N_


def _start(service: Service) -> Parts:
    store, current = service.store, service.current
    folders, forget = service.folders, service.forget_checkpoint
    cleaner = ConversationCleaner(current.config.data_dir, service.provider, folders, forget)
    upkeep = OverwriteJobs(store)
    jobs = ForgetJobs(store, current, cleaner, service.stop_run, service.begins_work, service.personal)
    return Parts(
        {
            RETENTION_JOB: JobKind(Retention(store, current, folders, forget, service.personal).run_job, ROUND_SECONDS),
            command.FORGET_PERSON_JOB: JobKind(jobs.forget_person),
            command.LATELY_JOB: JobKind(end_lately),
            FORGET_THREAD_JOB: JobKind(ThreadDeletion(jobs).delete),
            OVERWRITE_JOB: JobKind(upkeep.overwrite),
            FREE_PAGES_JOB: JobKind(upkeep.free_pages, FREE_PAGES_SECONDS),
            EXPORT_JOB: JobKind(ExportJobs(store, current, service.personal).export),
        }
    )


FEATURE = Feature(
    "privacy",
    commands=(
        Command("privacy", N_("what I keep, and for how long"), privacy_command, rank=240),
        Command("export", N_("get what I have stored of you as a file"), export_command, "me", rank=250),
        Command("forget", N_("have me forget you"), command.forget_command, "me", rank=260),
    ),
    presses={command.PREFIX: Press("forget", command.OPTIONS, command.check_press, command.answer_press)},
    start=_start,
)
