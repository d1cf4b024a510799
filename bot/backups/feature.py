"""Backups at set times, as a feature."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bot.backups.writing import BACKUP_JOB, COPY_JOB, LOOK_SECONDS, BackupJobs
from bot.base.background import JobKind
from bot.base.findings import Check, Finding
from bot.commands.feature import Feature, Parts, Service
from bot.config.operations import BackupConfig
from bot.config.schema import Config
from catalogue import N_, _

SUBJECT = N_("backup at set times")


def _start(service: Service) -> Parts:
    jobs = BackupJobs(service.store, service.current, service.folders)
    return Parts({BACKUP_JOB: JobKind(jobs.write, LOOK_SECONDS), COPY_JOB: JobKind(jobs.copy)})


def _list_checks(config: Config) -> Iterator[Check]:
    if config.backup.to:
        yield Check(_(SUBJECT), partial(check_folder, config.backup))


async def check_folder(config: BackupConfig) -> Finding:
    """Look whether archives can be written to the folder, and whether the program after them exists."""
    folder = Path(config.to)
    near = next(each for each in (folder, *folder.parents) if each.exists())
    if not near.is_dir() or not os.access(near, os.W_OK | os.X_OK):
        text = _("{folder} cannot be written", folder=folder)
        return Finding("fault", _(SUBJECT), text, _("give the folder to the user that runs Fawn, or name another one"))
    if config.then and not shutil.which(config.then[0]):
        text = _("the program {name} of `then` is not installed", name=config.then[0])
        return Finding("fault", _(SUBJECT), text, _("install it, or name it with its whole path"))
    return Finding("ok", _(SUBJECT), _("archives go to {folder}", folder=folder))


FEATURE = Feature("backups", checks=_list_checks, start=_start)
