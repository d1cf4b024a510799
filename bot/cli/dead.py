"""`fawn dead`: list what could not be delivered or read, deliver it again, or drop it."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping

from bot.admin.operations import Answer
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import CliAction, run_action
from bot.config.schema import Config
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(ACTIONS))
    parser.add_argument("words", nargs="*", metavar="ID", help=_("the id that `fawn dead list` shows"))


def _run(arguments: argparse.Namespace, config: Config) -> int:
    return asyncio.run(run_action(config, ACTIONS[arguments.action], arguments.words))


def _describe_list(_config: Config, answer: Answer) -> str:
    return "\n".join(_describe_letter(row) for row in answer["dead"]) or _("No dead letters.")


def _describe_letter(row: Answer) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created"]))
    text = " ".join(str(row["text"]).split())[:80]
    return f"{row['id']}\t{when}\t{row['kind']}\t{row['thread']}\t{row['error']}\t{text}"


ACTIONS: Mapping[str, CliAction] = {
    "list": CliAction("dead.list", _describe_list),
    "requeue": CliAction("dead.requeue", lambda _config, answer: _("Requeued {id}.", id=answer["id"]), ("id",)),
    "drop": CliAction("dead.drop", lambda _config, answer: _("Dropped {id}.", id=answer["id"]), ("id",)),
}
COMMAND = ConfiguredCommand(_run, _add_arguments)
