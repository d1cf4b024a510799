"""Data as versions of Fawn wrote it, in `released/`. `python -m tests.support.released_data` writes that of this one.

Run it before a version is tagged (docs/operations.md), by the code of that version. What it has done by then is a
backup, taken while a turn worked, so that every later version is tried on it: tests/e2e/test_upgrade.py.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bot.base.version import VERSION
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, bash

FOLDER = Path(__file__).with_name("released")
GROUP = -1001
SETTINGS: dict[str, Any] = {
    "schedules": {"least_minutes": 0},
    "keep_days": 36500,
    "audit": {"days": 0},
    "skills": {"allow": ["smoke-test"]},
}
FIRST, WRITTEN = "the first answer", "written by a tool"
WORKING = "the answer that was under way"
READ = "Read the news"


async def write(file: Path) -> None:
    """Have a service do a bit of everything, and save what it has stored."""
    with tempfile.TemporaryDirectory() as folder:
        async with FakeTelegram() as telegram, FakeModel() as model:
            service = Service(Path(folder), telegram, model, SETTINGS)
            service.forked = False
            await service.start()
            try:
                await _talk(service, telegram)
                code, said = await _command(service, "backup", "saved.tar.gz")
            finally:
                await service.kill()
        if code:
            raise SystemExit(said)
        file.parent.mkdir(exist_ok=True)
        shutil.move(Path(folder) / "saved.tar.gz", file)
    file.chmod(0o644)


async def _talk(service: Service, telegram: FakeTelegram) -> None:
    telegram.send(ask(steps=[bash(f"echo '{WRITTEN}' >notes")], text=FIRST))
    await telegram.wait(JANE, FIRST, seconds=60)
    once = {"name": "schedule", "args": {"action": "create", "what": READ, "at": "2099-01-01T09:00:00+00:00"}}
    telegram.send(ask(steps=[{"calls": [once]}], text="proposed"))
    shown = await telegram.wait(JANE, "Shall I", seconds=60)
    [yes] = [data for label, data in shown.buttons if label == "Yes"]
    telegram.click(yes, shown.id, chat=JANE, user=JANE)
    await until(lambda: service.rows("SELECT next_at FROM schedules WHERE next_at > 0"), 60, "the schedule")
    telegram.send("@fawn_bot hello", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "You said", seconds=60)
    code, said = await _command(service, "key", "add", "script", "--person", f"telegram/{JANE}")
    if code:
        raise SystemExit(said)
    await service.quiet(60)
    begun = service.log().count("tool.begin")
    telegram.send(ask(steps=[bash("sleep 600")], text=WORKING))
    await until(lambda: service.log().count("tool.begin") > begun, 60, "the tool")


async def _command(service: Service, *words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", *words, "--config", "config.yaml"), cwd=service.folder,
        env=service.environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


if __name__ == "__main__":
    asyncio.run(write(FOLDER / f"fawn-{VERSION}.tar.gz"))
