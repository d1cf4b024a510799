"""`fawn slack manifest`: print the app manifest, which the app's page takes."""

from __future__ import annotations

import argparse

from bot.base.exit_codes import OK
from bot.cli.command import PlainCommand
from channels.slack.manifest import app_manifest


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("manifest",))


def _manifest(_arguments: argparse.Namespace) -> int:
    print(app_manifest())
    return OK


COMMAND = PlainCommand(_manifest, _add_arguments)
