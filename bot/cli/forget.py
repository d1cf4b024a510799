"""`fawn forget`: delete what is stored of a person, after a question with their name and what that is."""

from __future__ import annotations

import argparse
import asyncio
import sys

from bot.admin.operations import Answer
from bot.admin.terminal import confirm, say
from bot.base.exit_codes import FAULT, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import OperationFailed, ask_service
from bot.config.schema import Config
from catalogue import _, list_items, ngettext


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("channel", metavar="CHANNEL", help=_("the channel"))
    parser.add_argument("person", metavar="PERSON", help=_("the platform id"))
    parser.add_argument("--yes", action="store_true", help=_("do not ask"))


def _run(arguments: argparse.Namespace, config: Config) -> int:
    given = {"channel": arguments.channel, "person": arguments.person}
    try:
        look = asyncio.run(ask_service(config, "forget.look", given))
        if not look["known"]:
            raise OperationFailed(
                _("nothing is stored of {person} on {channel}: `fawn pair list` shows the ids of people", **given)
            )
        if not arguments.yes and not _is_sure(_describe_traces(look, **given)):
            say(_("Nothing has changed."))
            return FAULT
        answer = asyncio.run(ask_service(config, "forget", given))
    except OperationFailed as error:
        return fail(error, FAULT)
    say(
        _(
            "Fawn forgets {person} on {channel} within moments; if it does not run, after its next start.",
            person=answer["person"],
            channel=answer["channel"],
        )
    )
    if look["paired"]:
        say(_("They may still talk to Fawn. To end that: `fawn pair revoke {channel} {person}`.", **given))
    return OK


def _is_sure(traces: str) -> bool:
    """Ask with what is stored. Raises OperationFailed where nobody can be asked, and KeyboardInterrupt."""
    say(traces)
    if not sys.stdin.isatty():
        raise OperationFailed(_("not forgotten: add --yes where nobody can be asked"))
    try:
        return confirm(_("Forget them for ever? [y/N] "), default=False)
    except EOFError:
        return False
    except KeyboardInterrupt:
        say("", _("Nothing has changed."))
        raise


def _describe_traces(look: Answer, channel: str, person: str) -> str:
    name = _("{name} ({person})", name=look["name"], person=person) if look["name"] else person
    counts = list_items(
        [
            ngettext("{n} message", "{n} messages", look["messages"]),
            ngettext("{n} conversation", "{n} conversations", look["conversations"]),
            ngettext("{n} memory", "{n} memories", look["memories"]),
            ngettext("{n} schedule", "{n} schedules", look["schedules"]),
            ngettext("{n} background task", "{n} background tasks", look["tasks"]),
        ]
    )
    return _("{name} on {channel}: {counts}.", name=name, channel=channel, counts=counts)


COMMAND = ConfiguredCommand(_run, _add_arguments)
