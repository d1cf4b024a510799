"""`fawn run`: the service, with all configured channels, and the console on a terminal."""

from __future__ import annotations

import argparse
from functools import partial

from bot.base.exit_codes import CONFIG, FAULT, TAKEN, fail
from bot.cli import service
from bot.cli.command import ConfiguredCommand
from bot.config.schema import Config
from catalogue import _, localized


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gives-way", action="store_true", help=argparse.SUPPRESS)  # to a service that starts


def _run(arguments: argparse.Namespace, config: Config) -> int:
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


COMMAND = ConfiguredCommand(_run, _add_arguments, accounts=True)
