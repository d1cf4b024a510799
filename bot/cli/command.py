"""Define what a command of the command line does: its arguments, and whether it reads the configuration."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from bot.config.schema import Config


def _no_arguments(_parser: argparse.ArgumentParser) -> None:
    """Add none."""


def _not_audited(_arguments: argparse.Namespace) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class ConfiguredCommand:
    """A command that reads the configuration: `run` returns the exit code, `arguments` adds to the command's parser.

    With `accounts`, the configuration has the models and channels, too, whose secrets must be there then.
    `audited` returns the name under which the audit says which user of the machine gave the command; "" for none.
    """

    run: Callable[[argparse.Namespace, Config], int]
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments
    accounts: bool = False
    audited: Callable[[argparse.Namespace], str] = _not_audited


@dataclass(frozen=True, slots=True)
class PlainCommand:
    """A command that needs no configuration: `run` returns the exit code, `arguments` adds to the command's parser."""

    run: Callable[[argparse.Namespace], int]
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments


Command = ConfiguredCommand | PlainCommand
