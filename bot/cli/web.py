"""`fawn web link`: make a link with which one person signs in to the page."""

from __future__ import annotations

import argparse
import asyncio

from bot.base.exit_codes import FAULT, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import OperationFailed, ask_service
from bot.config.schema import Config
from bot.rights.access import LOCAL_CHANNEL
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("link",))
    text = _("who signs in, by id or name; default: you, as on the console")
    parser.add_argument("--person", metavar="CHANNEL/PERSON", default="", help=text)


def _run(arguments: argparse.Namespace, config: Config) -> int:
    from channels.console import ConsoleSettings, person_name

    person = arguments.person or f"{LOCAL_CHANNEL}/{person_name(ConsoleSettings())}"
    try:
        answer = asyncio.run(ask_service(config, "web.link", {"person": person}))
    except OperationFailed as error:
        return fail(error, FAULT)
    names = {name: answer[name] for name in ("channel", "person")}
    print(_("Opened once within 10 minutes, this signs you in as {person} of {channel}:", **names))
    print(answer["link"])
    return OK


COMMAND = ConfiguredCommand(_run, _add_arguments)
