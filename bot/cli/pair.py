"""`fawn pair`: list who is paired or waits for it, let somebody in, or end that."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping

from bot.admin.operations import Answer
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import CliAction, run_action
from bot.config.schema import Config
from bot.service.offboarding_words import describe_rest
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(ACTIONS))
    words = _("the code, or whose access to revoke")
    parser.add_argument("words", nargs="*", metavar="CODE | CHANNEL PERSON", help=words)


def _run(arguments: argparse.Namespace, config: Config) -> int:
    return asyncio.run(run_action(config, ACTIONS[arguments.action], arguments.words))


def _describe_list(_config: Config, answer: Answer) -> str:
    return "\n".join(_describe_person(row) for row in answer["people"]) or _("No paired users.")


def _describe_accepted(_config: Config, answer: Answer) -> str:
    return _(
        "{name} ({person}) can now talk to the bot on {channel}.",
        name=answer["name"],
        person=answer["person"],
        channel=answer["channel"],
    )


def _describe_declined(_config: Config, answer: Answer) -> str:
    return _(
        "Declined {name} ({person}) on {channel}.",
        name=answer["name"],
        person=answer["person"],
        channel=answer["channel"],
    )


def _describe_revoked(config: Config, answer: Answer) -> str:
    words = _("Revoked the access of {person} on {channel}.", person=answer["person"], channel=answer["channel"])
    return "\n".join([words, *describe_rest(config, answer)])


def _describe_person(row: Answer) -> str:
    decided = {-1: _("declined"), 1: _("operator") if row["operator"] else _("paired")}
    state = decided.get(row["allowed"], _("waiting, code {code}", code=row["code"]))
    return f"{row['channel']}\t{row['person']}\t{row['name']}\t{state}"


ACTIONS: Mapping[str, CliAction] = {
    "list": CliAction("pair.list", _describe_list),
    "accept": CliAction("pair.accept", _describe_accepted, ("code",)),
    "decline": CliAction("pair.decline", _describe_declined, ("code",)),
    "revoke": CliAction("pair.revoke", _describe_revoked, ("channel", "person")),
}
COMMAND = ConfiguredCommand(_run, _add_arguments)
