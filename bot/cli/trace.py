"""`fawn trace`: show what a run did, as a tree with times."""

from __future__ import annotations

import argparse
import asyncio
import json

from agent.foreign_text import printable_text
from bot.admin.run_trace import render_trace
from bot.base.exit_codes import FAULT, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import OperationFailed, ask_service
from bot.config.schema import Config
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("the number of the run (`run=` in the log), the key of a message, or the id of a trace")
    parser.add_argument("what", metavar="RUN|KEY|TRACE", help=words)
    parser.add_argument("--json", action="store_true", help=_("print the rows as one JSON object"))


def _trace(arguments: argparse.Namespace, config: Config) -> int:
    try:
        found = asyncio.run(ask_service(config, "trace", {"what": arguments.what}))
    except OperationFailed as error:
        return fail(error, FAULT)
    if not found:
        text = _(
            "there is no run {what}: the log names it as `run=`, `fawn why THREAD` shows what became of messages, and"
            " `keep_days` ends what is stored",
            what=arguments.what,
        )
        return fail(text, FAULT)
    print(json.dumps(found) if arguments.json else printable_text(render_trace(found)))
    return OK


COMMAND = ConfiguredCommand(_trace, _add_arguments)
