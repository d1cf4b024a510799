"""The commands about the program itself: `help`, `version` and `completion`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

import shtab

from bot.base.exit_codes import OK
from bot.base.version import VERSION
from bot.cli.command import Command, PlainCommand
from bot.cli.program import command_line_parser
from catalogue import _, current_language, use_language

# ------------------------------------------------------------ fawn help


def _help(_arguments: argparse.Namespace) -> int:
    command_line_parser(()).print_help()
    return OK


# ------------------------------------------------------------ fawn version


def _version(_arguments: argparse.Namespace) -> int:
    print(f"fawn {VERSION}")
    return OK


# ------------------------------------------------------------ fawn completion


EXIT_CODES = {
    0: "healthy, or done",
    1: "not healthy, or the operation failed",
    2: "the configuration is invalid, or there is nothing to serve",
    3: "another process uses this data_dir",
    4: "the service is not running",
}


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for `shell` (bash, zsh or fish) that completes the program's commands, options and files."""
    for _name, _text, command in _commands(parser):
        for argument in _arguments(command):
            if "FILE" in str(argument.metavar):
                argument.complete = shtab.FILE  # type: ignore[attr-defined]  # how shtab wants to be told
    return str(shtab.complete(parser, shell))


def manual_page(parser: argparse.ArgumentParser) -> str:
    """Return the manual page fawn(1) as roff."""
    lines = [
        f'.TH FAWN 1 "" "Fawn {VERSION}"',
        ".SH NAME",
        f"fawn \\- {_escape(parser.description or '').rstrip('.')}",
        ".SH SYNOPSIS",
        ".B fawn",
        ".I COMMAND",
        "[options]",
        ".SH COMMANDS",
    ]
    for name, text, command in _commands(parser):
        lines += [
            ".SS " + _escape(" ".join(["fawn", name, *_usage(command)])),
            _escape(f"{text[:1].upper()}{text[1:]}."),
        ]
        for argument in _arguments(command):
            lines += [".TP", f".B {_escape(_spelling(argument))}", _escape(argument.help or _choices(argument))]
    lines.append(".SH EXIT STATUS")
    for code, text in EXIT_CODES.items():
        lines += [".TP", f".B {code}", _escape(text)]
    lines += [
        ".SH FILES",
        ".TP\n.B ./config.yaml\nThe configuration, if it exists.",
        ".TP\n.B ./.env\nSecrets and other variables. The real environment overrides it.",
    ]
    return "\n".join(lines) + "\n"


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yield name, help and parser of each command. argparse has no public way to list them."""
    for action in parser._actions:  # noqa: SLF001  see above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  see above
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001  see above
            yield from ((name, texts[name], command) for name, command in action.choices.items() if name in texts)


def _arguments(command: argparse.ArgumentParser) -> list[argparse.Action]:
    actions = command._actions  # noqa: SLF001  see _commands
    return [each for each in actions if each.help != argparse.SUPPRESS and "--help" not in each.option_strings]


def _usage(command: argparse.ArgumentParser) -> list[str]:
    positional = [action for action in _arguments(command) if not action.option_strings]
    return [_choices(action) or _spelling(action) for action in positional]


def _spelling(action: argparse.Action) -> str:
    """Return an option with the name of its value, or the name of a positional argument."""
    name = "" if action.nargs == 0 else str(action.metavar or _choices(action) or action.dest.upper())
    return f"{', '.join(action.option_strings)} {name}".strip()


def _choices(action: argparse.Action) -> str:
    return f"({'|'.join(map(str, action.choices))})" if action.choices else ""


def _escape(text: str) -> str:
    """Return plain text as roff: no line may begin with a control character, and hyphens stay hyphens."""
    plain = text.replace("%%", "%").replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("print", choices=("bash", "zsh", "fish", "man"), help=_("where it goes: docs/operations.md"))


def _complete(arguments: argparse.Namespace) -> int:
    wanted = arguments.print
    with use_language("en" if wanted == "man" else current_language()):  # the manual page is English
        parser = command_line_parser()
    print(manual_page(parser) if wanted == "man" else completion_script(parser, wanted), end="")
    return OK


COMMANDS: Mapping[str, Command] = {
    "help": PlainCommand(_help),
    "version": PlainCommand(_version),
    "completion": PlainCommand(_complete, _add_arguments),
}
