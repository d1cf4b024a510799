"""The program `fawn`: its commands by name, and the parser of the command line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from bot.base.version import VERSION
from bot.cli.command import ConfiguredCommand, PlainCommand
from bot.cli.parser import CommandParser
from catalogue import N_, _

FULL_STOP = N_("{text}.")
COMMANDS: Mapping[str, str] = {  # each is `COMMAND` in the module of its name
    "init": N_("set Fawn up: ask what cannot be found, try it, write it, and answer one message"),
    "run": N_("run the service: all configured channels, and the console on a terminal"),
    "chat": N_("chat in the terminal: with the running service, or else alone"),
    "ask": N_("ask one thing: answer on stdout, the rest on stderr, exit code 1 on failure"),
    "check": N_("test the configuration, tokens, models and sandbox; explain how to fix each fault"),
    "relay": N_("keep what is posted at a public address until Fawn fetches it"),
    "reload": N_("read the configuration again; the running service keeps the old one if the new one has faults"),
    "why": N_("say why a message was not answered"),
    "trace": N_("show what a run did, as a tree with times"),
    "logs": N_("show and follow the log of a run or a thread"),
    "top": N_("show the turns in progress, live"),
    "status": N_("show the state of the running service"),
    "dead": N_("manage dead letters: undeliverable replies and unreadable events"),
    "pair": N_("manage paired users"),
    "key": N_("make, list and revoke keys with which programs act for people over HTTP"),
    "web": N_("make a link with which one person signs in to the page, once"),
    "forget": N_("delete what is stored of a person, after a question"),
    "offboard": N_("end what a person has who is gone: schedules, tasks, grants, roles, pairing"),
    "setup": N_("connect a platform: take its tokens, test them, and let the first person in"),
    "skills": N_("list, install and change skills"),
    "mcp": N_("list the MCP servers, or sign in to one with a browser"),
    "backup": N_("back up the databases and the threads' folders"),
    "restore": N_("put a backup into an empty data_dir: whole, or not at all"),
    "migrate": N_("copy everything from SQLite to PostgreSQL, or back: whole, or not at all"),
    "drill": N_("kill, starve and restore a copy of this configuration, and count what became of each message"),
    "export": N_("write the transcript of a thread"),
    "audit": N_("verify or export the audit, or print its head, to be kept elsewhere"),
    "permissions": N_("try other rules, roles and budgets on what was recorded, before they are in force"),
    "sandbox": N_("build the image of Docker sandboxes"),
    "egress": N_("print every host and port that this configuration can reach"),
    "help": N_("show this text"),
    "version": N_("print the version"),
    "completion": N_("print the completion script for a shell, or the manual page"),
    "slack": N_("print the app manifest, to paste at api.slack.com/apps"),
}


def find_command(name: str) -> ConfiguredCommand | PlainCommand:
    """Return a command of the table, whose module is imported now."""
    command: ConfiguredCommand | PlainCommand = importlib.import_module(f"bot.cli.{name}").COMMAND
    return command


def command_first(words: Sequence[str]) -> list[str]:
    """Return a command line with `--config FILE` behind the command, where somebody wrote it before it."""
    head = 1 if words[:1] and words[0].startswith("--config=") else 2 * (words[:1] == ["--config"])
    return [*words[head : head + 1], *words[:head], *words[head + 1 :]] if len(words) > head else list(words)


def command_line_parser(words: Sequence[str] | None = None) -> CommandParser:
    """Return the parser of a command line, with the arguments of the command that `words` name; of all for None."""
    top = CommandParser(prog="fawn", description=_("An agent service for a team's chats."))
    top.add_argument("-V", "--version", action="version", version=f"fawn {VERSION}", help=_("print the version"))
    top.set_defaults(command="help")
    parsers = top.add_subparsers(metavar="COMMAND")
    named = COMMANDS if words is None else {next((word for word in words if word in COMMANDS), "")}
    for name, text in COMMANDS.items():
        words_of_it = _(text)
        description = _(FULL_STOP, text=f"{words_of_it[0].upper()}{words_of_it[1:]}")
        parser = parsers.add_parser(name, help=words_of_it, description=description)
        parser.set_defaults(command=name)
        if name in named:
            command = find_command(name)
            if isinstance(command, ConfiguredCommand):
                file = _("configuration file; default: ./config.yaml, if it exists")
                parser.add_argument("--config", metavar="FILE", help=file)
            command.arguments(parser)
    return top
