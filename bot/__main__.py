"""The program: `fawn run`, `chat`, `check`, `status`, `dead`, `pair`, `backup`, `sandbox` and what platforms want."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agent.models.settings import AgentConfigError
from bot.config.loader import ConfigError, load_config, secret_texts
from bot.config.schema import Config
from bot.version import VERSION
from sandbox.base import SandboxUnavailable

OK, FAULT, CONFIG, TAKEN, NOT_RUNNING = 0, 1, 2, 3, 4
UNLIMITED_DESCRIPTORS = 65_536  # asked for where the system has no limit of its own


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code (0 well, 1 not well, 2 configuration, 3 data_dir taken, 4 not running)."""
    arguments = command_line_parser().parse_args(argv)
    if arguments.do is None:  # asked for before there is anything to configure
        return _print_slack_manifest()
    try:
        config = load_config(Path(arguments.config) if arguments.config else None)
        code: int = arguments.do(arguments, config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return CONFIG
    except KeyboardInterrupt:
        return FAULT
    return code


def command_line_parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="fawn", description="An agent service for a team's chats.")
    top.add_argument("--version", action="version", version=f"fawn {VERSION}")
    kinds = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, text: str, do: Callable[[argparse.Namespace, Config], int], **more: Any) -> Any:
        command = kinds.add_parser(name, help=text, description=text)
        command.add_argument("--config", metavar="FILE", help="default: ./config.yaml, if there is one")
        command.set_defaults(do=do, **more)
        return command

    add("run", "the service: every configured channel, and the console on a terminal", _run_service, alone=False)
    add("chat", "the console alone", _run_service, alone=True)
    add("check", "look at configuration, tokens, models and sandbox; each fault with its fix", _run_check)
    add("status", "how the running service is", _print_status)
    dead = add("dead", "replies that were refused and events that could not be read", _run_operation, group="dead")
    dead.add_argument("action", choices=("list", "requeue", "drop"))
    dead.add_argument("words", nargs="*", metavar="ID", help="which one, as `list` names it")
    pair = add("pair", "who may talk to the bot by pairing", _run_operation, group="pair")
    pair.add_argument("action", choices=("list", "accept", "revoke"))
    pair.add_argument("words", nargs="*", metavar="CODE | CHANNEL PERSON", help="the code, or whom to revoke")
    backup = add(
        "backup", "write databases and threads' folders into a .tar.gz", _run_operation, group="", action="backup"
    )
    backup.add_argument("words", nargs=1, metavar="FILE")
    box = add("sandbox", "make the image that Docker sandboxes run", _build_sandbox_image)
    box.add_argument("action", choices=("build",))
    box.add_argument("--base", metavar="IMAGE", default="", help="instead of python:3.12-slim; Debian, with Python")
    box.add_argument("--libreoffice", action="store_true", help="with LibreOffice, 500 MB more")
    slack = kinds.add_parser("slack", help="what Slack wants", description="What Slack wants.")
    slack.add_argument("action", choices=("manifest",), help="the app manifest, to paste at api.slack.com/apps")
    slack.set_defaults(do=None)
    return top


# ------------------------------------------------------------ the service


def _run_service(arguments: argparse.Namespace, config: Config) -> int:
    from bot import log
    from bot.data_dir import close_to_others
    from bot.storage.database import DataDirLocked, DataLock

    connects = _channel_connectors(config, alone=arguments.alone)
    quiet = "console" in connects
    with ExitStack() as stack:
        try:
            config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(DataLock(config.data_dir))
        except DataDirLocked as error:
            print(f"fawn: {config.data_dir}: {error}", file=sys.stderr)
            return TAKEN
        except OSError as error:
            print(f"fawn: data_dir cannot be used: {error}", file=sys.stderr)
            return FAULT
        log.set_up_logging(config.log, secret_texts(config), config.data_dir / "fawn.log" if quiet else None)
        close_to_others(config.data_dir)
        _raise_descriptor_limit()
        return _guarded(config, connects, banner=quiet)


def _guarded(config: Config, connects: dict[str, Any], *, banner: bool) -> int:
    """Run it, and tell in a sentence what only shows at the start."""
    from bot.storage.migrate import DatabaseFault

    try:
        return _run_app(config, connects, banner=banner)
    except (AgentConfigError, SandboxUnavailable) as error:
        print(f"fawn: {error}", file=sys.stderr)
        return CONFIG
    except DatabaseFault as error:
        print(f"fawn: {error}", file=sys.stderr)
        return FAULT


def _raise_descriptor_limit() -> None:
    """Take as many descriptors as the system allows: most give 1024 to a process that does not ask for more."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = UNLIMITED_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _run_app(config: Config, connects: dict[str, Any], *, banner: bool) -> int:
    import uvloop

    from bot.app import App
    from bot.model_discovery import name_models

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if not all(model.model for model in config.models):  # a local server needs no more than its URL
            config = replace(config, models=runner.run(name_models(config.models)))
        if banner:
            print(runner.run(_print_banner(config)), flush=True)
        return runner.run(App(config, connects).run())


async def _print_banner(config: Config) -> str:
    """The first lines on a terminal: who answers, and with what sandbox. Raises SandboxUnavailable."""
    from bot.app import folders, model_labels, sandbox_settings
    from sandbox.select import select_provider

    provider, sandbox = await select_provider(config.sandbox.provider, sandbox_settings(config), folders(config))
    await provider.close()
    return f"Fawn {VERSION} · model: {next(iter(model_labels(config).values()))} · {config.source}\n{sandbox}"


def _channel_connectors(config: Config, *, alone: bool) -> dict[str, Any]:
    """Channel name → what connects it. The console joins on a terminal, and when there is no other channel."""
    connects: dict[str, Any] = {}
    for entry in () if alone else config.channels:
        connects[entry.name] = partial(importlib.import_module(f"channels.{entry.name}").connect, entry.settings)
    if "console" not in connects and (not connects or (sys.stdin and sys.stdin.isatty())):
        from channels import console

        given = next(
            (entry.settings for entry in config.channels if entry.name == "console"), console.ConsoleSettings()
        )
        connects["console"] = partial(console.connect, given)
    return connects


# ------------------------------------------------------------ the rest


def _run_check(arguments: argparse.Namespace, config: Config) -> int:
    from bot.admin.doctor import render_findings, run_checks

    findings = asyncio.run(run_checks(config))
    print(render_findings(findings))
    return OK if all(finding.ok for finding in findings) else CONFIG


def _print_status(arguments: argparse.Namespace, config: Config) -> int:
    from bot.admin import operations

    try:
        report = asyncio.run(operations.call_service(config.data_dir, "status", {}))
    except operations.NotRunning as error:
        print(error, file=sys.stderr)
        return NOT_RUNNING
    print(f"Fawn {report['version']}, up {report['uptime']:.0f} s: {_status_exit_code(report)}")
    print(f"model: {report['model']}\n{report['sandbox']}")
    for name, channel in report["channels"].items():
        print(f"channel {name}: {channel['health']}{' — ' + channel['detail'] if channel['detail'] else ''}")
    print(f"turns going on: {report['live']}, waiting: {report['queued']} (oldest {report['oldest']:.0f} s)")
    print(f"replies on their way: {report['undelivered']}, dead letters: {report['dead']}")
    return OK if report["healthy"] else FAULT


def _status_exit_code(report: dict[str, Any]) -> str:
    if not report["ready"]:
        return "starting, the agent is being loaded"
    return "well" if report["healthy"] else "NOT WELL"


def _print_slack_manifest() -> int:
    from channels.slack import app_manifest

    print(app_manifest())
    return OK


def _build_sandbox_image(arguments: argparse.Namespace, config: Config) -> int:
    from sandbox.base import SandboxError
    from sandbox.docker.image_build import build_image

    try:
        built = build_image(
            config.sandbox.docker_host, config.sandbox.image, arguments.base, libreoffice=arguments.libreoffice
        )
        asyncio.run(built)
    except SandboxError as error:
        print(f"fawn: {error}", file=sys.stderr)
        return FAULT
    print(f"{config.sandbox.image} is there; `fawn check` says what is used.")
    return OK


def _run_operation(arguments: argparse.Namespace, config: Config) -> int:
    from bot.admin import cli

    words = arguments.words
    if arguments.action == "backup":  # the service has another working directory
        words = [str(Path(words[0]).absolute())]
    return asyncio.run(cli.run_operation(config.data_dir, arguments.group, arguments.action, words))


if __name__ == "__main__":
    sys.exit(main())
