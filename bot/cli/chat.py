"""`fawn chat`: talk with the running service at its console, or else run one alone."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial

from bot.base.exit_codes import CONFIG, FAULT, GAVE_WAY, OK, TAKEN, fail
from bot.cli import service
from bot.cli.command import ConfiguredCommand
from bot.cli.elsewhere import add_arguments
from bot.config.schema import Config
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--new", action="store_true", help=_("begin a conversation beside yours; the default in a pipe"))
    kept.add_argument("--continue", dest="old", action="store_true", help=_("use your conversation also in a pipe"))
    add_arguments(parser)


def _chat(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.url:
        return _chat_elsewhere(config, arguments)
    from bot.admin.service_client import NotRunning, await_service

    try:
        while (code := _chat_alone(config, arguments)) == GAVE_WAY:
            if await_service(config.data_dir):
                return _chat_with_service(config, arguments)
        return code
    except NotRunning as error:
        return fail(f"{config.data_dir}: {error}", TAKEN)


def _chat_alone(config: Config, arguments: argparse.Namespace) -> int:
    """Run a service for this chat. Returns GAVE_WAY where another process works on data_dir, or waits to.

    What comes from a pipe is answered whole: the service that waits begins after it.
    """
    from bot.database.data_lock import DataDirLocked, DataLock

    source = service.config_source(config, arguments, log_to_file=True)
    connects = service.console_connector(config, arguments)
    lock = DataLock(config.data_dir)
    run = partial(service.run_app, config, connects, source, banner=True)
    if service.has_terminal():
        run = partial(run, is_wanted=lock.is_wanted)
    try:
        return service.with_data_dir(config, run, source, lock)
    except DataDirLocked:
        return GAVE_WAY


def _chat_with_service(config: Config, arguments: argparse.Namespace) -> int:
    from bot.console.client import attach_chat, console_settings

    whole = asyncio.run(attach_chat(config.data_dir, *console_settings(config, arguments, service.has_terminal())))
    return OK if whole else FAULT


def _chat_elsewhere(config: Config, arguments: argparse.Namespace) -> int:
    from bot.console.client import console_settings
    from bot.console.remote import RemoteError, chat_by_url

    try:
        chat_by_url(arguments, *console_settings(config, arguments, service.has_terminal()))
    except RemoteError as error:
        return fail(error, CONFIG)
    return OK


COMMAND = ConfiguredCommand(_chat, _add_arguments, accounts=True)
