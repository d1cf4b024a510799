"""Run a service in this process, for `fawn run`, `chat` and `ask`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.settings.models import AgentConfigError
from bot.base.exit_codes import CONFIG, FAULT, GAVE_WAY, TAKEN, fail
from bot.base.version import VERSION
from bot.config.http import DemoHttpConfig
from bot.config.loader import has_desktop, secret_texts
from bot.config.schema import Config
from bot.config.source import ConfigSource
from catalogue import _
from sandbox.base import SandboxUnavailable

if TYPE_CHECKING:  # not before the configuration is known to be without faults: that answer comes at once
    from bot.database.data_lock import DataLock, ServiceLock
    from bot.main.app import App

SWITCH_SECONDS = 0.0005  # after which a thread that computes lets the event loop go on; Python has 5 ms


def with_data_dir(
    config: Config, run: Callable[[asyncio.Runner], int], source: ConfigSource, lock: DataLock | ServiceLock
) -> int:
    """Run a service while it holds data_dir. Raises DataDirLocked."""
    import uvloop

    from bot.base import log
    from bot.base.data_dir import close_to_others
    from bot.base.process import raise_descriptor_limit
    from bot.database.data_lock import DatabaseInUse
    from bot.database.migrate import DatabaseFault
    from bot.service.crashes import reporting_crashes
    from bot.status.local_checks import check_machine, warn_of_full_disk

    with ExitStack() as stack:
        try:
            config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(lock)
        except OSError as error:
            return fail(_("data_dir cannot be used: {error}", error=error), FAULT)
        log.set_up_logging(config.log, secret_texts(config), source.log_file)
        close_to_others(config.data_dir)
        stack.enter_context(reporting_crashes(config.data_dir))
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
        except DatabaseInUse as error:
            return fail(error, TAKEN)
        except DatabaseFault as error:
            return fail(error, FAULT)


def service_lock(config: Config) -> ServiceLock:
    """Return the lock of a service, which says in its log when it waits for a command."""
    from bot.base.log import set_up_logging
    from bot.database.data_lock import ServiceLock

    def say() -> None:
        set_up_logging(config.log, secret_texts(config), None)  # not to the file, to which the command writes
        logging.getLogger(__name__).warning("data_dir.waits — a command works on it; this start goes on when it ends")

    return ServiceLock(config.data_dir, say)


def config_source(config: Config, arguments: argparse.Namespace, *, log_to_file: bool) -> ConfigSource:
    """Return where the service reads its configuration again, and where its log goes."""
    file = Path(arguments.config) if arguments.config else None
    return ConfigSource(file, config.data_dir / "fawn.log" if log_to_file else None)


def run_app(
    config: Config,
    connects: dict[str, Any],
    source: ConfigSource,
    runner: asyncio.Runner,
    *,
    banner: bool,
    is_wanted: Callable[[], bool] | None = None,
) -> int:
    """Run the service until it is stopped, after its first lines on a terminal; return the exit code.

    That of a command ends where another service `is_wanted`, with GAVE_WAY.
    """
    if banner and has_terminal() and is_first_try(config):
        config = replace(config, http=DemoHttpConfig.on_loopback(opens=has_desktop()))
    app = make_app(runner, config, connects, source)
    if banner:
        text = runner.run(_render_banner(app.config))
        if has_terminal():
            from channels.console.tui import wrap_text

            text = wrap_text(text, shutil.get_terminal_size().columns)
        print(text, file=sys.stdout if has_terminal() else sys.stderr, flush=True)
    return runner.run(_run_until_wanted(app, is_wanted) if is_wanted else app.run())


async def _run_until_wanted(app: App, is_wanted: Callable[[], bool]) -> int:
    from bot.console.client import stop_when_wanted

    leaving = asyncio.create_task(stop_when_wanted(app, is_wanted), name="leaving")
    try:
        code = await app.run()
        return GAVE_WAY if leaving.done() else code
    finally:
        leaving.cancel()


def is_first_try(config: Config) -> bool:
    """Whether nothing is configured yet: the built-in demo answers, on the console alone."""
    return not (config.models or config.http.listen or any(entry.name != "console" for entry in config.channels))


def make_app(runner: asyncio.Runner, config: Config, connects: dict[str, Any], source: ConfigSource) -> App:
    """Return the service, which does not run yet, with the models that a local server names."""
    from bot.base.model_discovery import name_models
    from bot.main.app import App

    if not all(model.model for model in config.models):  # a local server names its own
        config = replace(config, models=runner.run(name_models(config.models)))
    return App(config, connects, source)


def has_terminal() -> bool:
    """Whether a person reads and writes at a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def stdin_is_empty() -> bool:
    """Whether nobody can write to a console: stdin is closed or /dev/null, as under systemd and in containers."""
    try:
        status = os.fstat(0)
    except OSError:
        return True
    return stat.S_ISCHR(status.st_mode) and not os.isatty(0)


async def _render_banner(config: Config) -> str:
    """Return the first lines on a terminal: the model and the sandbox. Raises SandboxUnavailable."""
    from bot.rights.current import Current
    from bot.service.sandbox_setup import folders, sandbox_settings
    from sandbox.engines.select import SANDBOX, select_provider

    provider, sandbox, _why = await select_provider(config.sandbox.provider, sandbox_settings(config), folders(config))
    await provider.close()
    model = next(iter(Current(config).models.values()))
    head = _("Fawn {version} · model: {model} · {source}", version=VERSION, model=model, source=config.source)
    return f"{head}\n{_(SANDBOX, description=sandbox)}"


def channel_connectors(config: Config, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return channel name → connect function. Adds the console on a terminal, or if nothing else is configured."""
    from bot.main.startup import platform_connectors

    connects: dict[str, Any] = dict(platform_connectors(config))
    serves_others = connects or (config.http.listen and stdin_is_empty())
    if not serves_others or (sys.stdin and sys.stdin.isatty()):
        connects |= console_connector(config, arguments)
    return connects


def console_connector(config: Config, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the connect function of the console alone, by its name."""
    from bot.console.client import console_settings
    from channels import console

    return {"console": partial(console.connect, *console_settings(config, arguments, has_terminal()))}
