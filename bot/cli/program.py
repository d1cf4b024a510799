"""The program `fawn`: its commands by name, and the parser of the command line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from bot.base.version import VERSION
from bot.cli.command import Command, ConfiguredCommand
from bot.cli.parser import CommandParser
from catalogue import N_, _

FULL_STOP = N_("{text}.")
GROUPS: Mapping[str, Mapping[str, str]] = {
    N_("Start"): {
        "init": N_("set up Fawn: ask a few questions, test the answers and save them"),
        "setup": N_("connect a platform: test its tokens and let the first person in"),
        "check": N_("test the configuration, tokens, models and sandbox, and say how to fix each fault"),
        "skills": N_("list, install and change skills"),
        "mcp": N_("list the MCP servers, or sign in to one with a browser"),
        "sandbox": N_("build the image of Docker sandboxes"),
        "slack": N_("print the app manifest for api.slack.com/apps"),
    },
    N_("Run"): {
        "run": N_("run the service: all configured channels, and the console on a terminal"),
        "chat": N_("chat in the terminal, with the running service or without one"),
        "ask": N_("ask one thing: answer on stdout, the rest on stderr, exit code 1 on failure"),
        "reload": N_("reload the configuration; a faulty one changes nothing"),
        "relay": N_("receive webhooks on a public host and hold them until Fawn fetches them"),
    },
    N_("Look"): {
        "status": N_("show the state of the running service"),
        "top": N_("show the turns in progress, live"),
        "why": N_("say why a message was not answered"),
        "trace": N_("show what a run did, as a tree with times"),
        "logs": N_("show and follow the log of a run or a thread"),
        "dead": N_("list, retry or drop failed deliveries and unreadable events"),
        "egress": N_("list every host and port that this configuration can reach"),
        "drill": N_("kill, starve and restore a copy of this configuration, and count lost messages"),
    },
    N_("People"): {
        "pair": N_("let new people in, and list or remove paired ones"),
        "key": N_("make, list and revoke API keys of people"),
        "web": N_("make a one-time link that signs a person in to the page"),
        "permissions": N_("try other rules, roles and budgets on past activity"),
        "forget": N_("delete a person's data, after a question"),
        "offboard": N_("remove a departed person's access and work"),
    },
    N_("Data"): {
        "backup": N_("back up the databases and the threads' folders"),
        "restore": N_("restore a backup into an empty data_dir, completely or not at all"),
        "migrate": N_("copy everything from SQLite to PostgreSQL or back, completely or not at all"),
        "export": N_("write the transcript of a thread"),
        "audit": N_("verify or export the audit log, or print its head for safekeeping"),
    },
    N_("Help"): {
        "help": N_("show this text"),
        "version": N_("print the version"),
        "completion": N_("print the completion script for a shell, or the manual page"),
    },
}
COMMANDS: Mapping[str, str] = {name: text for group in GROUPS.values() for name, text in group.items()}
ALIASES = {"check": ["doctor"]}
ALONE = frozenset({"skills", "mcp", "status", "top", "permissions", "audit"})  # the others share the module of a group
MODULES: Mapping[str, str] = {
    name: name if name in ALONE else title.lower() for title, group in GROUPS.items() for name in group
}


def find_command(name: str) -> Command:
    """Return a command of the table, whose module is imported now."""
    command: Command = importlib.import_module(f"bot.cli.{MODULES[name]}").COMMANDS[name]
    return command


def command_first(words: Sequence[str]) -> list[str]:
    """Return a command line with `--config FILE` behind the command, that stands before it."""
    head = 1 if words[:1] and words[0].startswith("--config=") else 2 * (words[:1] == ["--config"])
    return [*words[head : head + 1], *words[:head], *words[head + 1 :]] if len(words) > head else list(words)


class ProgramParser(CommandParser):
    """The parser of the whole command line, whose help lists the commands in groups."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = self.add_subparsers(metavar="COMMAND", parser_class=CommandParser)

    def format_help(self) -> str:
        """Return the usage, the groups of commands and the options."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        rows = {row.dest: row for row in self.commands._choices_actions}  # noqa: SLF001 — argparse lists them nowhere else
        for title, names in GROUPS.items():
            formatter.start_section(_(title))
            formatter.add_arguments([rows[name] for name in names])
            formatter.end_section()
        return formatter.format_help()


def command_line_parser(words: Sequence[str] | None = None) -> CommandParser:
    """Return the parser of a command line, with the arguments of the command that `words` name; of all for None."""
    top = ProgramParser(prog="fawn", description=_("An agent service for a team's chats."))
    top.add_argument("-V", "--version", action="version", version=f"fawn {VERSION}", help=_("print the version"))
    top.set_defaults(command="help")
    called = {alias: name for name, aliases in ALIASES.items() for alias in aliases} | {name: name for name in COMMANDS}
    named = COMMANDS if words is None else {called[next((word for word in words if word in called), "help")]}
    for name, text in COMMANDS.items():
        words_of_it = _(text)
        description = _(FULL_STOP, text=f"{words_of_it[0].upper()}{words_of_it[1:]}")
        aliases = ALIASES.get(name, [])
        parser = top.commands.add_parser(name, help=words_of_it, description=description, aliases=aliases)
        parser.set_defaults(command=name)
        if name in named:
            command = find_command(name)
            if isinstance(command, ConfiguredCommand):
                file = _("configuration file; default: $FAWN_CONFIG, ./config.yaml or ~/.config/fawn/config.yaml")
                parser.add_argument("--config", metavar="FILE", help=file)
            command.arguments(parser)
    return top
