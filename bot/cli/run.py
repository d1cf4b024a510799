"""`fawn run`: the service, with all configured channels, and the console on a terminal."""

from __future__ import annotations

import argparse
from functools import partial

from bot.cli import service
from bot.cli.command import ConfiguredCommand
from bot.cli.exit_codes import CONFIG, TAKEN, fail
from bot.config.schema import Config
from catalogue import _


def _run(arguments: argparse.Namespace, config: Config) -> int:
    from bot.storage.database import DataDirLocked

    if not config.channels and not config.http.listen and service.stdin_is_empty():
        return fail(_nothing_to_serve(config), CONFIG)
    connects = service.channel_connectors(config, arguments)
    console = "console" in connects
    try:
        source = service.config_source(config, arguments, log_to_file=console)
        return service.with_data_dir(config, partial(service.run_app, config, connects, source, banner=console), source)
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


COMMAND = ConfiguredCommand(_run, accounts=True)
