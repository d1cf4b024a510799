"""`fawn version`: print the version."""

from __future__ import annotations

import argparse

from bot.base.exit_codes import OK
from bot.base.version import VERSION
from bot.cli.command import PlainCommand


def _version(_arguments: argparse.Namespace) -> int:
    print(f"fawn {VERSION}")
    return OK


COMMAND = PlainCommand(_version)
