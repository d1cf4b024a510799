"""`fawn help`: list the commands."""

from __future__ import annotations

import argparse

from bot.base.exit_codes import OK
from bot.cli.command import PlainCommand
from bot.cli.program import command_line_parser


def _help(_arguments: argparse.Namespace) -> int:
    command_line_parser(()).print_help()
    return OK


COMMAND = PlainCommand(_help)
