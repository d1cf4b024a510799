"""`fawn ask`: answer one request for a person or a script."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from bot.base.exit_codes import CONFIG, TAKEN, fail
from bot.cli import service
from bot.cli.command import ConfiguredCommand
from bot.cli.elsewhere import add_arguments
from bot.config.schema import Config
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="TEXT", help=_("the request; text from a pipe is added; `-`: all of stdin")
    )
    parser.add_argument(
        "--file", action="append", default=[], type=Path, metavar="FILE", help=_("file to send; repeatable")
    )
    parser.add_argument(
        "--json", action="store_true", help=_("print text, files, seconds, tokens, state and steps as JSON")
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=0.0, help=_("stop the request after so many seconds")
    )
    parser.add_argument("--quiet", action="store_true", help=_("print no progress on stderr"))
    parser.add_argument(
        "--continue", dest="name", metavar="NAME", default="", help=_("keep a conversation of this name between calls")
    )
    add_arguments(parser)


def _ask(arguments: argparse.Namespace, config: Config) -> int:
    from bot.console.client import AskError, ServiceSilent, answer_for_script, ask_own_service
    from bot.database.data_lock import DataLock

    if arguments.url:
        return _ask_elsewhere(arguments, config)
    source = service.config_source(config, arguments, log_to_file=True)

    def serve(asking: Any) -> int:
        lock = DataLock(config.data_dir)

        def run(runner: asyncio.Runner) -> int:
            return runner.run(ask_own_service(service.make_app(runner, config, {}, source), asking, lock.is_wanted))

        return service.with_data_dir(config, run, source, lock)

    try:
        return answer_for_script(config, arguments, serve)
    except AskError as error:
        return fail(error, TAKEN if isinstance(error, ServiceSilent) else CONFIG)


def _ask_elsewhere(arguments: argparse.Namespace, config: Config) -> int:
    from bot.console.client import AskError, console_settings, make_ask_view
    from bot.console.remote import RemoteError, ask_by_url

    try:
        settings, place = console_settings(config, arguments, has_terminal=False)
        return ask_by_url(arguments, make_ask_view(settings, place, arguments), place)
    except (AskError, RemoteError) as error:
        return fail(error, CONFIG)


COMMAND = ConfiguredCommand(_ask, _add_arguments, accounts=True)
