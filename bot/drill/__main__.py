"""The process of a drill, without a network: `python -m bot.drill ORDER`, as JSON; prints the report as JSON.

The operator's file is read before the network goes: a `$exec:` in it may need one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from aiohttp import web

from bot.config.loader import ConfigError, load_config
from bot.config.schema import Config
from bot.drill.isolation import end_with_parent, isolate
from bot.drill.phases import Drill
from bot.drill.report import DrillReport
from bot.drill.servers import DrillModel, DrillTelegram
from bot.drill.service import DrillService, NotStarted, leave_out, write_scratch
from bot.drill.times import DrillOrder

DISK_MB = 192
OPTIONAL = ("permissions", "team")  # a service that does not start may do so without them


def main(order: DrillOrder) -> int:
    """Run one drill. Returns the exit code."""
    end_with_parent()
    folder = Path(order.folder)
    try:
        config = load_config(Path(order.config) if order.config else None)
        (folder / "disk").mkdir()
        left_out = isolate(folder / "disk", DISK_MB)  # before the first thread
        report = asyncio.run(run_drill(config, order, left_out))
    except KeyboardInterrupt:
        return 130
    except (ConfigError, NotStarted, OSError) as error:
        _say(error)
        return 1
    sys.stdout.write(json.dumps(report.to_json()))
    return 0


def _say(text: object) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


async def run_drill(config: Config, order: DrillOrder, left_out: list[str]) -> DrillReport:
    """Serve a chat and a model on loopback, and run all faults. Raises NotStarted."""
    began, at = time.monotonic(), time.time()
    telegram, model = DrillTelegram(), DrillModel()
    folder = Path(order.folder)
    data = folder / "disk" / "data"
    app = web.Application()
    telegram.add_routes(app)
    model.add_routes(app)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    service = DrillService(folder, telegram, order.program)
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        sections = write_scratch(config, folder, data, f"http://127.0.0.1:{runner.addresses[0][1]}")
        sections += await _find_a_start(service, folder)
        every = config.backup.every_hours * 3600 if config.backup.to else None
        drill = Drill(service, (telegram, model), data, order.answer_seconds, _say)
        rows = await drill.run(order.kills, disk="disk" not in left_out, backup_seconds=every)
    finally:
        await service.kill()
        await runner.cleanup()
    return DrillReport(at, time.monotonic() - began, rows, left_out, sections, service.ended)


async def _find_a_start(service: DrillService, folder: Path) -> list[str]:
    """Start the service once; return the sections without which it starts. Raises NotStarted."""
    without: list[str] = []
    while True:
        try:
            await service.start()
        except NotStarted:
            service.forget_ends()
            name = next((each for each in OPTIONAL if each not in without and leave_out(folder, each)), "")
            if not name:
                raise
            without.append(name)
        else:
            return without


if __name__ == "__main__":
    sys.exit(main(DrillOrder(**json.loads(sys.argv[1]))))
