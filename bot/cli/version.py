"""`fawn version`: print the version."""

from __future__ import annotations

import argparse

from bot.cli.command import PlainCommand
from bot.cli.exit_codes import OK
from bot.service.version import VERSION


def _version(_arguments: argparse.Namespace) -> int:
    print(f"fawn {VERSION}")
    return OK


COMMAND = PlainCommand(_version)
