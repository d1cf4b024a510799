"""Run a drill in a process of its own, in a folder that goes with it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from subprocess import DEVNULL, PIPE

from bot.config.schema import Config
from bot.drill.order import DrillOrder
from bot.drill.report import DrillReport
from sandbox.disk.file_threads import run_file_work
from sandbox.processes import start_process

PATIENT = ("nice", "-n", "10")  # a service that works beside goes first
MAX_REPORT_BYTES = 1 << 20


class DrillFailed(Exception):
    """A drill did not come to its end; the text says why."""


async def run_drill(
    config: Config, order: DrillOrder, *, before: Sequence[str] = (), log: Path | None = None
) -> DrillReport:
    """Run a drill on what `config` was read from, and return its report. Raises DrillFailed and OSError.

    `before` are words before the command, `log` is where the log of the drill's service goes. Progress is on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="fawn-drill-") as folder:
        words = json.dumps(asdict(replace(order, folder=folder, config=str(config.file or ""))))
        process = await start_process(
            *(*before, sys.executable, "-m", "bot.drill", words), stdin=DEVNULL, stdout=PIPE, limit=MAX_REPORT_BYTES
        )
        try:
            said, _none = await process.communicate()
        finally:
            if process.returncode is None:  # its service ends with it
                process.kill()
                await process.wait()
            if log:
                await run_file_work(_keep_log, folder, log)
        if process.returncode:
            raise DrillFailed(f"exit code {process.returncode}")
        return DrillReport.from_json(json.loads(said))


def _keep_log(folder: str, target: Path) -> None:
    source = Path(folder, "log")
    if source.exists():
        target.write_bytes(source.read_bytes())
