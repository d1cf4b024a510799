"""An argparse parser that speaks the language of the terminal.

argparse translates through the process's global gettext domain and needs a binary catalogue for that. So this parser
overrides what argparse lets subclasses override, and recognises the faults by their English text; one that it does not
know, of another version of Python, stays English.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, NoReturn

from catalogue import N_, _, list_items

USAGE = N_("usage: {command}")
TITLES = (N_("positional arguments"), N_("options"))
CHOICE = N_("invalid choice: {value} (choose from {choices})")
MANY_CHOICES = 12  # from so many on they are not listed
FAULTS = (
    N_("argument {name}: {fault}"),
    N_("the following arguments are required: {names}"),
    N_("one of the arguments {names} is required"),
    N_("unrecognized arguments: {words}"),
    N_("expected one argument"),
    N_("expected at least one argument"),
    N_("expected at most one argument"),
    N_("expected {n} arguments"),
    N_("expected {n} argument"),
    CHOICE,
    N_("invalid {type} value: {value}"),
    N_("not allowed with argument {name}"),
    N_("ambiguous option: {option} could match {matches}"),
    N_("ignored explicit argument {value}"),
)


class HelpFormatter(argparse.HelpFormatter):
    """Translates the word "usage", and breaks lines by columns: a Chinese character has two."""

    def add_usage(self, usage: Any, actions: Iterable[Any], groups: Iterable[Any], prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, _(USAGE, command="") if prefix is None else prefix)

    def _format_usage(self, usage: Any, actions: Iterable[Any], groups: Iterable[Any], prefix: str | None) -> str:
        from wcwidth import wcswidth

        wider = wcswidth(prefix or "") - len(prefix or "")
        self._width -= wider
        try:
            return super()._format_usage(usage, actions, groups, prefix)
        finally:
            self._width += wider

    def _split_lines(self, text: str, width: int) -> list[str]:
        from wcwidth import wrap

        return wrap(" ".join(text.split()), width)


class CommandParser(argparse.ArgumentParser):
    """Parses the command line; `add_subparsers` makes parsers of this class."""

    def __init__(self, **options: Any) -> None:
        super().__init__(add_help=False, formatter_class=HelpFormatter, **options)
        self.add_argument(
            "-h", "--help", action="help", default=argparse.SUPPRESS, help=_("show this help message and exit")
        )

    def add_argument_group(self, title: str | None = None, *arguments: Any, **options: Any) -> Any:
        """Add a group, with its title translated if it is one of argparse's own."""
        return super().add_argument_group(_(title) if title in TITLES else title, *arguments, **options)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the translated fault, and exit with 2."""
        self.print_usage(sys.stderr)
        text = _("{program}: error: {fault}", program=self.prog, fault=_translate_fault(message))
        self.exit(2, f"{text}\n")


def _translate_fault(message: str) -> str:
    if found := _pattern(f"argument {{name}}: {CHOICE}").fullmatch(message):
        return _refuse_choice(found["value"].strip("'"), [each.strip("' ") for each in found["choices"].split(",")])
    for fault in FAULTS:
        if found := _pattern(fault).fullmatch(message):
            return _(fault, **{name: _translate_fault(value) for name, value in found.groupdict().items()})
    return message


def _refuse_choice(value: str, choices: list[str]) -> str:
    if close := difflib.get_close_matches(value, choices, 1):
        return _("There is no `{value}`. Did you mean `{name}`?", value=value, name=close[0])
    if len(choices) < MANY_CHOICES:
        return _("There is no `{value}`. There are: {names}", value=value, names=list_items(choices))
    return _("There is no `{value}`. `fawn help` lists the commands.", value=value)


@cache
def _pattern(fault: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(fault)), re.DOTALL)
