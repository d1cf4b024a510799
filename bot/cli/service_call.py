"""Ask the running service for an operation, or run it on the database when no service runs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bot.admin.operations import Answer, NotFound, Operations
from bot.admin.service_client import START_SECONDS, NotRunning, await_service, call_service
from bot.base.exit_codes import CONFIG, FAULT, OK, fail
from bot.base.stored_secrets import KeyUnknown, sealer_of
from bot.cli.parser import USAGE
from bot.config.schema import Config
from bot.database.data_lock import DatabaseInUse, DataDirLocked, DataLock
from bot.database.database import StorageError
from bot.database.migrate import DatabaseFault
from bot.service.store import NoStore, has_store, open_store, prepare_store, store_fault
from catalogue import N_, _, localized
from sandbox.disk.folders import ConversationFolders


@dataclass(frozen=True, slots=True)
class CliAction:
    """What a command does by an operation such as "dead.drop": how its answer is told, and the words it takes."""

    operation: str
    describe: Callable[[Config, Answer], str]
    words: Sequence[str] = ()


async def run_action(config: Config, action: CliAction, words: Sequence[str]) -> int:
    """Run an action and print its outcome; return the exit code."""
    if len(words) != len(action.words):
        command = " ".join(["fawn", *action.operation.split("."), *map(str.upper, action.words)])
        print(_(USAGE, command=command), file=sys.stderr)
        return CONFIG
    try:
        answer = await ask_service(config, action.operation, dict(zip(action.words, words, strict=True)))
    except OperationFailed as error:
        return fail(error, FAULT)
    print(action.describe(config, answer))
    return OK


class OperationFailed(Exception):
    """An operation failed; the text says why."""


async def ask_service(config: Config, operation: str, arguments: dict[str, Any]) -> Answer:
    """Run an operation in the service or, if none runs, on the database. Raises OperationFailed."""
    try:
        answer = await _ask_or_run(config, operation, arguments)
    except (DataDirLocked, DatabaseInUse, NotRunning, DatabaseFault, KeyUnknown, NotFound) as error:
        raise OperationFailed(localized(error)) from error
    if "error" in answer:
        raise OperationFailed(answer["error"])
    return answer


async def _ask_or_run(config: Config, operation: str, arguments: dict[str, Any]) -> Answer:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            return await call_service(config.data_dir, operation, arguments)
        except NotRunning:
            if await asyncio.to_thread(await_service, config.data_dir):  # it was starting
                return await call_service(config.data_dir, operation, arguments)
        try:
            return await _run_directly(config, operation, arguments)
        except DataDirLocked:  # a service, or another command, was faster: nothing was done yet
            if time.monotonic() > end:
                raise


def note_command(config: Config, name: str) -> None:
    """Have a row of the audit say which user of this machine gave a command, where there is an audit."""
    _note(config, "note", {"command": name}, N_("this command is not in the audit: {error}"))


def note_drill(config: Config, figures: dict[str, int | str], *, passed: bool) -> None:
    """Have a row of the audit say how a drill went, where there is an audit."""
    _note(config, "drill.note", {"figures": figures, "passed": passed}, N_("this drill is not in the audit: {error}"))


def _note(config: Config, operation: str, arguments: dict[str, Any], failed: str) -> None:
    try:
        if has_store(config):
            asyncio.run(ask_service(config, operation, arguments))
    except (OperationFailed, DatabaseFault) as error:
        print(_(failed, error=error), file=sys.stderr)


async def _run_directly(config: Config, operation: str, arguments: dict[str, Any]) -> Answer:
    if not await asyncio.to_thread(has_store, config):
        raise NoStore.of(config)
    with DataLock(config.data_dir):
        prepare_store(config)
        try:
            async with open_store(config) as store:
                folders = ConversationFolders(config.data_dir / "threads", 0)
                skills, sealer = Path(config.skills.custom), partial(sealer_of, config)
                table = Operations(store, config.data_dir, folders, lambda: skills, sealer=sealer).table()
                return await table[operation](**arguments)
        except StorageError as error:
            raise store_fault(config, error) from error
