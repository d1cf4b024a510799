"""`fawn drill`: kill, starve and restore a copy of this configuration, and count what became of each message."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from bot.base.exit_codes import FAULT, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import note_drill
from bot.config.schema import Config
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=_("print it as one JSON object"))
    parser.add_argument("--kills", type=_whole, default=20, metavar="N", help=_("how often it is killed; default: 20"))
    parser.add_argument("--log", metavar="FILE", help=_("keep the log of the drill's service in this file"))


def _whole(text: str) -> int:
    if not 1 <= int(text) <= 1000:
        raise ValueError(text)
    return int(text)


def _drill(arguments: argparse.Namespace, config: Config) -> int:
    from bot.drill.order import DrillOrder
    from bot.drill.report import render_table
    from bot.drill.running import DrillFailed, run_drill

    log = Path(arguments.log) if arguments.log else None
    try:
        report = asyncio.run(run_drill(config, DrillOrder(kills=arguments.kills), log=log))
    except (DrillFailed, OSError) as error:
        return fail(_("the drill did not come to its end: {error}", error=error), FAULT)
    note_drill(config, report.figures, passed=report.is_good)
    print(json.dumps(report.to_json()) if arguments.json else render_table(report))
    return OK if report.is_good else FAULT


COMMAND = ConfiguredCommand(_drill, _add_arguments, accounts=True)
