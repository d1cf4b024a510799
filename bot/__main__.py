"""The command line: `fawn run`, `chat`, `ask`, and what operators use."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import os
import pkgutil
import shutil
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import channels
from agent.models.settings import AgentConfigError
from bot.admin import commands, subparsers
from bot.admin.command_parser import CommandParser
from bot.admin.exit_codes import CONFIG, FAULT, OK, TAKEN, fail
from bot.config.loader import ConfigError, load_config, secret_texts, silence_libraries, terminal_language
from bot.config.schema import Config
from bot.config.source import ConfigSource
from bot.service.version import VERSION
from catalogue import N_, _, current_language, set_language, use_language
from sandbox.base import SandboxUnavailable

if TYPE_CHECKING:  # not before they are needed: a command must start at once
    from bot.app import App

FULL_STOP = N_("{text}.")
SWITCH_SECONDS = 0.0005  # after which a thread that computes lets the event loop go on; Python has 5 ms


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code, one of the constants above."""
    with use_language(terminal_language()):
        return _run_command(argv)


def _run_command(argv: list[str] | None) -> int:
    os.umask(0o077)  # databases, logs and backups hold people's messages
    gc.set_threshold(100_000, 50, 50)  # what a start imports stays; App sets the thresholds of the running service
    arguments = command_line_parser().parse_args(argv)
    if arguments.do is None:  # needs no configuration
        return _print_text(arguments.print)
    try:
        config = load_config(Path(arguments.config) if arguments.config else None, accounts=arguments.accounts)
        silence_libraries(config)
        if config.language != "auto":
            set_language(config.language)
        code: int = arguments.do(arguments, config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return CONFIG
    except KeyboardInterrupt:
        return FAULT
    except BrokenPipeError:  # the reader of our output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except (OSError, sqlite3.Error) as error:
        from bot.admin.local_checks import describe_system_error

        return fail(" → ".join(describe_system_error(error)), FAULT)
    return code


def command_line_parser() -> CommandParser:
    """Return the parser of the command line."""
    top = CommandParser(prog="fawn", description=_("An agent service for a team's chats."))
    top.add_argument("-V", "--version", action="version", version=f"fawn {VERSION}", help=_("print the version"))
    top.set_defaults(do=None, print="help")
    parsers = top.add_subparsers(metavar="COMMAND")

    def add(name: str, text: str, do: Callable[[argparse.Namespace, Config], int], **more: Any) -> Any:
        command = parsers.add_parser(name, help=text, description=_(FULL_STOP, text=f"{text[0].upper()}{text[1:]}"))
        command.add_argument(
            "--config", metavar="FILE", help=_("configuration file; default: ./config.yaml, if it exists")
        )
        command.set_defaults(do=do, **{"accounts": False, **more})
        return command

    add(
        "run",
        _("run the service: all configured channels, and the console on a terminal"),
        _run_service,
        alone=False,
        accounts=True,
    )
    _add_console_commands(add)
    add(
        "check",
        _("test the configuration, tokens, models and sandbox; explain how to fix each fault"),
        commands.run_check,
        accounts=True,
    )
    _add_running_service(add)
    _add_people_and_letters(add)
    _add_setup(add)
    subparsers.add_skills(add)
    subparsers.add_mcp(add)
    backup = add(
        "backup", _("back up the databases and the threads' folders"), commands.run_operation, group="", action="backup"
    )
    backup.add_argument("words", nargs=1, metavar="FILE", help=_("the .tar.gz file to create"))
    export = add("export", _("write the transcript of a thread"), commands.export_thread)
    export.add_argument("thread", metavar="THREAD", help=_("its address, as the log shows it, or the beginning of it"))
    export.add_argument("--format", choices=("md", "jsonl"), default="md", help=_("Markdown (default) or JSON lines"))
    export.add_argument("-o", dest="file", metavar="FILE", type=Path, help=_("file to write; default: standard output"))
    subparsers.add_audit(add)
    subparsers.add_permissions(add)
    box = add("sandbox", _("build the image of Docker sandboxes"), commands.build_sandbox_image)
    box.add_argument("action", choices=("build",))
    box.add_argument(
        "--base", metavar="IMAGE", default="", help=_("base image, a Debian with Python; default: python:3.12-slim")
    )
    box.add_argument("--libreoffice", action="store_true", help=_("include LibreOffice (500 MB)"))
    for name, text in {"help": _("show this text"), "version": _("print the version")}.items():
        parsers.add_parser(name, help=text).set_defaults(do=None, print=name)
    completion = parsers.add_parser("completion", help=_("print the completion script for a shell, or the manual page"))
    completion.add_argument("print", choices=("bash", "zsh", "man"), help=_("where it goes: docs/operations.md"))
    completion.set_defaults(do=None)
    text = _("print the app manifest, to paste at api.slack.com/apps")
    slack = parsers.add_parser("slack", help=text, description=_(FULL_STOP, text=f"{text[0].upper()}{text[1:]}"))
    slack.add_argument("action", choices=("manifest",))
    slack.set_defaults(do=None, print="manifest")
    return top


def _add_console_commands(add: Callable[..., Any]) -> None:
    text = _("chat in the terminal: with the running service, or else alone")
    chat = add("chat", text, _run_service, alone=True, accounts=True).add_mutually_exclusive_group()
    chat.add_argument("--new", action="store_true", help=_("begin a conversation beside yours; the default in a pipe"))
    chat.add_argument("--continue", dest="old", action="store_true", help=_("use your conversation also in a pipe"))
    ask = add(
        "ask", _("ask one thing: answer on stdout, the rest on stderr, exit code 1 on failure"), _ask, accounts=True
    )
    ask.add_argument(
        "words", nargs="*", metavar="TEXT", help=_("the request; text from a pipe is added; `-`: all of stdin")
    )
    ask.add_argument(
        "--file", action="append", default=[], type=Path, metavar="FILE", help=_("file to send; repeatable")
    )
    ask.add_argument(
        "--json", action="store_true", help=_("print text, files, seconds, tokens, state and steps as JSON")
    )
    ask.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=0.0, help=_("stop the request after so many seconds")
    )
    ask.add_argument("--quiet", action="store_true", help=_("print no progress on stderr"))
    ask.add_argument(
        "--continue", dest="name", metavar="NAME", default="", help=_("keep a conversation of this name between calls")
    )


def _add_running_service(add: Callable[..., Any]) -> None:
    text = _("read the configuration again; the running service keeps the old one if the new one has faults")
    add("reload", text, commands.reload_config)
    why = add("why", _("say why a message was not answered"), commands.run_why)
    why.add_argument(
        "what", metavar="KEY|THREAD", help=_("the key of a message or the address of a thread, from the log")
    )
    status = add("status", _("show the state of the running service"), commands.print_status)
    status.add_argument("--json", action="store_true", help=_("print it as one JSON object"))


def _add_people_and_letters(add: Callable[..., Any]) -> None:
    dead = add(
        "dead",
        _("manage dead letters: undeliverable replies and unreadable events"),
        commands.run_operation,
        group="dead",
    )
    dead.add_argument("action", choices=("list", "requeue", "drop"))
    dead.add_argument("words", nargs="*", metavar="ID", help=_("the id that `fawn dead list` shows"))
    pair = add("pair", _("manage paired users"), commands.run_operation, group="pair")
    pair.add_argument("action", choices=("list", "accept", "decline", "revoke"))
    pair.add_argument(
        "words", nargs="*", metavar="CODE | CHANNEL PERSON", help=_("the code, or whose access to revoke")
    )
    forget = add("forget", _("delete what is stored of a person, after a question"), commands.run_forget)
    forget.add_argument("channel", metavar="CHANNEL", help=_("the channel"))
    forget.add_argument("person", metavar="PERSON", help=_("the platform id"))
    forget.add_argument("--yes", action="store_true", help=_("do not ask"))

    text = _("end what a person has who is gone: schedules, tasks, grants, roles, pairing")
    offboard = add("offboard", text, commands.offboard_person)
    offboard.add_argument("channel", metavar="CHANNEL", help=_("the channel"))
    offboard.add_argument("person", metavar="PERSON", help=_("the platform id"))
    offboard.add_argument("--to", metavar="OTHER", default="", help=_("the platform id of who gets the schedules"))


def _add_setup(add: Callable[..., Any]) -> None:
    setup = add(
        "setup",
        _("connect a platform: take its tokens, test them, and let the first person in"),
        commands.set_up_channel,
    )
    setup.add_argument("channel", choices=_platform_names(), help=_("the platform"))
    setup.add_argument("--token-stdin", action="store_true", help=_("read the tokens from stdin, a line each"))
    setup.add_argument(
        "--wait", action="store_true", help=_("without a terminal: wait for the person who sends the printed word")
    )


def _platform_names() -> list[str]:
    """Return the channels that have an account, without importing them."""
    others = ("base", "shared", "console")
    return sorted(info.name for info in pkgutil.iter_modules(channels.__path__) if info.name not in others)


# ------------------------------------------------------------ the service


def _run_service(arguments: argparse.Namespace, config: Config) -> int:
    from bot.storage.database import DataDirLocked

    if not arguments.alone and not config.channels and _stdin_is_empty():
        return fail(_nothing_to_serve(config), CONFIG)
    connects = _channel_connectors(config, arguments)
    console = "console" in connects
    try:
        source = _config_source(config, arguments, log_to_file=console)
        return _with_data_dir(config, partial(_run_app, config, connects, source, banner=console), source)
    except DataDirLocked as error:
        if arguments.alone:
            return _chat_with_service(config, arguments)
        return fail(
            _(
                "{data_dir}: {error} `fawn chat` talks to a service that runs there.",
                data_dir=config.data_dir,
                error=error,
            ),
            TAKEN,
        )


def _with_data_dir(config: Config, run: Callable[[asyncio.Runner], int], source: ConfigSource) -> int:
    """Run a service that owns data_dir. Raises DataDirLocked."""
    import uvloop

    from bot.admin.local_checks import check_machine, warn_of_full_disk
    from bot.service import log
    from bot.service.data_dir import close_to_others
    from bot.service.descriptors import raise_descriptor_limit
    from bot.storage.database import DataLock
    from bot.storage.migrate import DatabaseFault

    with ExitStack() as stack:
        try:
            config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(DataLock(config.data_dir))
        except OSError as error:
            return fail(_("data_dir cannot be used: {error}", error=error), FAULT)
        log.set_up_logging(config.log, secret_texts(config), source.log_file)
        close_to_others(config.data_dir)
        raise_descriptor_limit()
        warn_of_full_disk(config.data_dir)
        if faults := [finding for finding in check_machine(config) if not finding.ok]:
            return fail("\n".join(f"{fault.subject}: {fault.text} → {fault.fix}" for fault in faults), CONFIG)
        try:
            sys.setswitchinterval(SWITCH_SECONDS)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return run(runner)
        except AgentConfigError as error:
            return fail("\n".join(fault.render() for fault in config.faults_of(error)), CONFIG)
        except SandboxUnavailable as error:
            return fail(error, CONFIG)
        except DatabaseFault as error:
            return fail(error, FAULT)


def _chat_with_service(config: Config, arguments: argparse.Namespace) -> int:
    from bot.admin.operations import NotRunning
    from bot.console.client import NO_ANSWER, attach_chat, console_settings

    try:
        whole = asyncio.run(attach_chat(config.data_dir, *console_settings(config, arguments, _has_terminal())))
        return OK if whole else FAULT
    except NotRunning:
        return fail(f"{config.data_dir}: {_(NO_ANSWER)}", TAKEN)


def _ask(arguments: argparse.Namespace, config: Config) -> int:
    from bot.console.client import NO_ANSWER, AskError, answer_for_script, ask_own_service

    source = _config_source(config, arguments, log_to_file=True)

    def serve(asking: Any) -> int:
        def run(runner: asyncio.Runner) -> int:
            return runner.run(ask_own_service(_make_app(runner, config, {}, source), asking))

        return _with_data_dir(config, run, source)

    try:
        return answer_for_script(config, arguments, serve)
    except AskError as error:
        return fail(error, TAKEN if str(error) == _(NO_ANSWER) else CONFIG)


def _stdin_is_empty() -> bool:
    """Whether nobody can write to a console: stdin is closed or /dev/null, as under systemd and in containers."""
    try:
        status = os.fstat(0)
    except OSError:
        return True
    return stat.S_ISCHR(status.st_mode) and not os.isatty(0)


def _nothing_to_serve(config: Config) -> str:
    hints = "".join(f"\n  {hint}" for hint in config.hints)
    text = _("nothing to serve: no channel is configured and there is no terminal → see docs/configuration.md")
    return f"{text}{hints}"


def _config_source(config: Config, arguments: argparse.Namespace, *, log_to_file: bool) -> ConfigSource:
    file = Path(arguments.config) if arguments.config else None
    return ConfigSource(file, config.data_dir / "fawn.log" if log_to_file else None)


def _run_app(
    config: Config, connects: dict[str, Any], source: ConfigSource, runner: asyncio.Runner, *, banner: bool
) -> int:
    app = _make_app(runner, config, connects, source)
    if banner:
        text = runner.run(_render_banner(app.config))
        if _has_terminal():
            from channels.console.tui import wrap_text

            text = wrap_text(text, shutil.get_terminal_size().columns)
        print(text, file=sys.stdout if _has_terminal() else sys.stderr, flush=True)
    return runner.run(app.run())


def _make_app(runner: asyncio.Runner, config: Config, connects: dict[str, Any], source: ConfigSource) -> App:
    from bot.app import App
    from bot.service.model_discovery import name_models

    if not all(model.model for model in config.models):  # a local server names its own
        config = replace(config, models=runner.run(name_models(config.models)))
    return App(config, connects, source)


def _has_terminal() -> bool:
    """Whether a person reads and writes at a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


async def _render_banner(config: Config) -> str:
    """Return the first lines on a terminal: the model and the sandbox. Raises SandboxUnavailable."""
    from bot.current import Current
    from bot.service.sandbox_setup import folders, sandbox_settings
    from sandbox.select import SANDBOX, select_provider

    provider, sandbox, _why = await select_provider(config.sandbox.provider, sandbox_settings(config), folders(config))
    await provider.close()
    model = next(iter(Current(config).models.values()))
    head = _("Fawn {version} · model: {model} · {source}", version=VERSION, model=model, source=config.source)
    return f"{head}\n{_(SANDBOX, description=sandbox)}"


def _channel_connectors(config: Config, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return channel name → connect function. Adds the console on a terminal, or if nothing else is configured."""
    connects: dict[str, Any] = {}
    for entry in () if arguments.alone else config.channels:
        if entry.name != "console":
            connects[entry.name] = partial(importlib.import_module(entry.module).connect, entry.settings)
    if not connects or (sys.stdin and sys.stdin.isatty()):
        from bot.console.client import console_settings
        from channels import console

        connects["console"] = partial(console.connect, *console_settings(config, arguments, _has_terminal()))
    return connects


# ------------------------------------------------------------ the rest


def _print_text(name: str) -> int:
    if name == "manifest":
        from channels.slack.manifest import app_manifest

        print(app_manifest())
    elif name in ("bash", "zsh", "man"):
        from bot.admin import shell

        with use_language("en" if name == "man" else current_language()):  # the manual page is English
            parser = command_line_parser()
        print(shell.manual_page(parser) if name == "man" else shell.completion_script(parser, name), end="")
    elif name == "version":
        print(f"fawn {VERSION}")
    else:
        command_line_parser().print_help()
    return OK


if __name__ == "__main__":
    sys.exit(main())
