"""`fawn why`: say what happened to a message, or to the latest ones of a thread."""

from __future__ import annotations

import argparse
import asyncio

from bot.base.exit_codes import FAULT, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import OperationFailed, ask_service
from bot.config.schema import Config
from bot.status.silence import describe_silence
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("the key of a message or the address of a thread, from the log")
    parser.add_argument("what", metavar="KEY|THREAD", help=words)


def _run(arguments: argparse.Namespace, config: Config) -> int:
    return asyncio.run(_print_reasons(config, arguments.what))


async def _print_reasons(config: Config, what: str) -> int:
    try:
        answer = await ask_service(config, "why", {"what": what})
    except OperationFailed as error:
        return fail(error, FAULT)
    print(describe_silence(answer))
    return OK if answer["known"] else FAULT


COMMAND = ConfiguredCommand(_run, _add_arguments)
