"""`fawn offboard`: end what a person has who is gone."""

from __future__ import annotations

import argparse
import asyncio

from bot.admin.operations import Answer
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import CliAction, run_action
from bot.config.schema import Config
from bot.service.offboarding_words import describe_offboarding, describe_rest
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("channel", metavar="CHANNEL", help=_("the channel"))
    parser.add_argument("person", metavar="PERSON", help=_("the platform id"))
    parser.add_argument("--to", metavar="OTHER", default="", help=_("the platform id of who gets the schedules"))


def _run(arguments: argparse.Namespace, config: Config) -> int:
    return asyncio.run(run_action(config, OFFBOARD, (arguments.channel, arguments.person, arguments.to)))


def _describe(config: Config, answer: Answer) -> str:
    return "\n".join([*describe_offboarding(answer), *describe_rest(config, answer)])


OFFBOARD = CliAction("offboard", _describe, ("channel", "person", "to"))
COMMAND = ConfiguredCommand(_run, _add_arguments)
