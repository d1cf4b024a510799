"""`fawn relay`: keep what is posted at a public address until Fawn fetches it."""

from __future__ import annotations

import argparse
import asyncio

from agent.settings.models import AgentConfigError
from bot.base.exit_codes import CONFIG, FAULT, OK, TAKEN, fail
from bot.cli.command import ConfiguredCommand
from bot.config.loader import secret_texts
from bot.config.schema import Config
from catalogue import _


def _run(_arguments: argparse.Namespace, config: Config) -> int:
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


COMMAND = ConfiguredCommand(_run, accounts=True)
