"""The commands that run the service or talk with it: `run`, `chat`, `ask`, `reload` and `relay`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from agent.settings.models import AgentConfigError
from bot.admin.service_client import NotRunning, call_service
from bot.base.exit_codes import CONFIG, FAULT, GAVE_WAY, NOT_RUNNING, OK, TAKEN, fail
from bot.cli import service
from bot.cli.command import Command, ConfiguredCommand
from bot.config.loader import secret_texts
from bot.config.schema import Config
from catalogue import _, list_items, localized

# ------------------------------------------------------------ fawn run


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gives-way", action="store_true", help=argparse.SUPPRESS)  # to a service that starts


def _run_run(arguments: argparse.Namespace, config: Config) -> int:
    from bot.database.data_lock import DataDirBusy, DataDirLocked, DataLock

    if not config.channels and not config.http.listen and service.stdin_is_empty():
        return fail(_nothing_to_serve(config), CONFIG)
    connects = service.channel_connectors(config, arguments)
    console = "console" in connects
    try:
        source = service.config_source(config, arguments, log_to_file=console)
        run = partial(service.run_app, config, connects, source, banner=console)
        if arguments.gives_way:
            own = DataLock(config.data_dir)
            return service.with_data_dir(config, partial(run, is_wanted=own.is_wanted), source, own)
        return service.with_data_dir(config, run, source, service.service_lock(config))
    except DataDirBusy as error:  # a supervisor starts it again
        return fail(f"{config.data_dir}: {localized(error)}", FAULT)
    except DataDirLocked as error:
        return fail(
            _(
                "{data_dir}: {error} `fawn chat` talks to a service that runs there.",
                data_dir=config.data_dir,
                error=error,
            ),
            TAKEN,
        )


def _nothing_to_serve(config: Config) -> str:
    hints = "".join(f"\n  {hint}" for hint in config.hints)
    text = _(
        "nothing to serve: no channel is configured and there is no terminal → connect one with `fawn setup telegram` "
        "(or slack, discord, feishu, dingtalk, wecom, wechat, matrix, whatsapp)"
    )
    return f"{text}{hints}"


def _add_address_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names a service elsewhere."""
    parser.add_argument("--url", default="", metavar="URL", help=_("talk with the service at this address over HTTP"))
    parser.add_argument(
        "--key",
        default="",
        metavar="KEY",
        help=_(
            "the key for --url, which `fawn key add` printed; $FAWN_KEY or the file $FAWN_KEY_FILE hide it from others"
        ),
    )


# ------------------------------------------------------------ fawn chat


def _add_chat_arguments(parser: argparse.ArgumentParser) -> None:
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--new", action="store_true", help=_("begin a conversation beside yours; the default in a pipe"))
    kept.add_argument("--continue", dest="old", action="store_true", help=_("use your conversation also in a pipe"))
    _add_address_arguments(parser)


def _chat(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.url:
        return _chat_elsewhere(config, arguments)
    from bot.admin.service_client import NotRunning, await_service

    try:
        while (code := _chat_alone(config, arguments)) == GAVE_WAY:
            if await_service(config.data_dir):
                return _chat_with_service(config, arguments)
        return code
    except NotRunning as error:
        return fail(f"{config.data_dir}: {error}", TAKEN)


def _chat_alone(config: Config, arguments: argparse.Namespace) -> int:
    """Run a service for this chat. Returns GAVE_WAY where another process works on data_dir, or waits to.

    What comes from a pipe is answered whole: the service that waits begins after it.
    """
    from bot.database.data_lock import DataDirLocked, DataLock

    source = service.config_source(config, arguments, log_to_file=True)
    connects = service.console_connector(config, arguments)
    lock = DataLock(config.data_dir)
    run = partial(service.run_app, config, connects, source, banner=True)
    if service.has_terminal():
        run = partial(run, is_wanted=lock.is_wanted)
    try:
        return service.with_data_dir(config, run, source, lock)
    except DataDirLocked:
        return GAVE_WAY


def _chat_with_service(config: Config, arguments: argparse.Namespace) -> int:
    from bot.console.client import attach_chat, console_settings

    whole = asyncio.run(attach_chat(config.data_dir, *console_settings(config, arguments, service.has_terminal())))
    return OK if whole else FAULT


def _chat_elsewhere(config: Config, arguments: argparse.Namespace) -> int:
    from bot.console.client import console_settings
    from bot.console.remote import RemoteError, chat_by_url

    try:
        chat_by_url(arguments, *console_settings(config, arguments, service.has_terminal()))
    except RemoteError as error:
        return fail(error, CONFIG)
    return OK


# ------------------------------------------------------------ fawn ask


def _add_ask_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="TEXT", help=_("the request; text from a pipe is added; `-`: all of stdin")
    )
    parser.add_argument(
        "--file", action="append", default=[], type=Path, metavar="FILE", help=_("file to send; repeatable")
    )
    parser.add_argument(
        "--json", action="store_true", help=_("print text, files, seconds, tokens, state and steps as JSON")
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=0.0, help=_("stop the request after so many seconds")
    )
    parser.add_argument("--quiet", action="store_true", help=_("print no progress on stderr"))
    parser.add_argument(
        "--continue", dest="name", metavar="NAME", default="", help=_("keep a conversation of this name between calls")
    )
    _add_address_arguments(parser)


def _ask(arguments: argparse.Namespace, config: Config) -> int:
    from bot.console.client import AskError, ServiceSilent, answer_for_script, ask_own_service
    from bot.database.data_lock import DataLock

    if arguments.url:
        return _ask_elsewhere(arguments, config)
    source = service.config_source(config, arguments, log_to_file=True)

    def serve(asking: Any) -> int:
        lock = DataLock(config.data_dir)

        def run(runner: asyncio.Runner) -> int:
            return runner.run(ask_own_service(service.make_app(runner, config, {}, source), asking, lock.is_wanted))

        return service.with_data_dir(config, run, source, lock)

    try:
        return answer_for_script(config, arguments, serve)
    except AskError as error:
        return fail(error, TAKEN if isinstance(error, ServiceSilent) else CONFIG)


def _ask_elsewhere(arguments: argparse.Namespace, config: Config) -> int:
    from bot.console.client import AskError, console_settings, make_ask_view
    from bot.console.remote import RemoteError, ask_by_url

    try:
        settings, place = console_settings(config, arguments, has_terminal=False)
        return ask_by_url(arguments, make_ask_view(settings, place, arguments), place)
    except (AskError, RemoteError) as error:
        return fail(error, CONFIG)


# ------------------------------------------------------------ fawn reload


def _reload(_arguments: argparse.Namespace, config: Config) -> int:
    try:
        answer = asyncio.run(call_service(config.data_dir, "reload", {}))
    except NotRunning as error:
        return fail(error, NOT_RUNNING)
    if "error" in answer:
        return fail(answer["error"], FAULT)
    if faults := answer["faults"]:
        print("\n".join(faults), file=sys.stderr)
        return fail(_("the new configuration was refused; the one before stays in force"), CONFIG)
    if changed := answer["changed"]:
        print(_("The configuration is reloaded. Changed: {sections}.", sections=list_items(changed)))
    else:
        print(_("The configuration is reloaded. No section has changed."))
    if needs_restart := answer["not_applied"]:
        print(_("A restart is needed for: {sections}.", sections=list_items(needs_restart)))
    for line in answer["others"]:
        print(line)
    return OK


# ------------------------------------------------------------ fawn relay


def _relay(_arguments: argparse.Namespace, config: Config) -> int:
    from bot.base.log import set_up_logging
    from bot.database.data_lock import DataDirLocked, ServiceLock
    from bot.relay.server import serve_relay

    if not config.relay.sources:
        text = _("nobody may post here → name who in `relay: {sources: …}`; docs/relay.md shows how")
        return fail(text, CONFIG)
    try:
        config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ServiceLock(config.data_dir):
            set_up_logging(config.log, secret_texts(config), None)
            asyncio.run(serve_relay(config))
    except DataDirLocked as error:
        return fail(error, TAKEN)
    except AgentConfigError as error:
        return fail("\n".join(fault.render() for fault in config.faults_of(error)), CONFIG)
    except OSError as error:
        return fail(_("data_dir cannot be used: {error}", error=error), FAULT)
    return OK


COMMANDS: Mapping[str, Command] = {
    "run": ConfiguredCommand(_run_run, _add_run_arguments, accounts=True),
    "chat": ConfiguredCommand(_chat, _add_chat_arguments, accounts=True),
    "ask": ConfiguredCommand(_ask, _add_ask_arguments, accounts=True),
    "reload": ConfiguredCommand(_reload),
    "relay": ConfiguredCommand(_relay, accounts=True),
}
