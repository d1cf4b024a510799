"""`fawn setup`: connect a platform."""

from __future__ import annotations

import argparse
import pkgutil
from pathlib import Path

import channels
from bot.admin.setup import SetupLeft, SetupOptions, SetupStopped, set_up_channel
from bot.admin.terminal import say
from bot.base.exit_codes import FAULT, INTERRUPTED, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.config.schema import Config
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("channel", choices=_platform_names(), help=_("the platform"))
    parser.add_argument("--token-stdin", action="store_true", help=_("read the tokens from stdin, a line each"))
    words = _("without a terminal: wait for the person who sends the printed word")
    parser.add_argument("--wait", action="store_true", help=words)


def _platform_names() -> list[str]:
    """Return the channels that have an account, without importing them."""
    others = ("base", "shared", "console")
    return sorted(info.name for info in pkgutil.iter_modules(channels.__path__) if info.name not in others)


def _set_up(arguments: argparse.Namespace, config: Config) -> int:
    file = Path(arguments.config) if arguments.config else None
    try:
        set_up_channel(SetupOptions(arguments.channel, file, arguments.token_stdin, arguments.wait), config)
    except SetupStopped as error:
        return fail(error, FAULT)
    except SetupLeft as left:
        say("", left)
        return INTERRUPTED
    return OK


COMMAND = ConfiguredCommand(_set_up, _add_arguments, audited=lambda given: f"setup {given.channel}")
