"""Run the service under measurement (Fawn or the floor) as a process and read its costs."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from tests.fakes.telegram import TOKEN

Kind = Literal["fawn", "floor", "openai", "langchain", "graph", "checkpoints"]
TICKS = os.sysconf("SC_CLK_TCK")
NO_LIMITS = {"overall": 1e6, "per_group": 1e6}  # rows without the platform's limits; a chat keeps its pace


@dataclass(slots=True)
class Service:
    """A running process. Figures come from /proc: its own CPU, and that of children it has waited for."""

    process: asyncio.subprocess.Process
    data: Path
    started: float  # time.monotonic()

    def cpu(self) -> float:
        """The CPU seconds so far, user and system, with ended children."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) / TICKS

    def rss(self) -> float:
        """The resident memory in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def peak(self) -> float:
        """The peak resident memory so far, in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def size(self) -> float:
        """The size of the data folder in MB."""
        return sum(p.stat().st_size for p in self.data.rglob("*") if p.is_file()) / 1e6

    async def stop(self) -> None:
        """Shut it down gracefully. Raises RuntimeError if it does not exit with 0."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self.process.wait(), 40)


@dataclass(frozen=True, slots=True)
class Setup:
    """The addresses of the fakes, and settings that differ from the defaults."""

    telegram: str
    model: str
    folder: Path
    rates: dict[str, float] = field(default_factory=dict)  # settings of the Telegram channel
    tty: bool = False  # with a terminal on stdin, so that the console runs too
    profile: Path | None = None  # where cProfile writes at the end
    memory: bool = False  # its extraction is a further model call after a turn
    more: Mapping[str, Any] = field(default_factory=dict)  # further sections

    def command(self, kind: Kind) -> list[str]:
        if kind != "fawn":
            where = ["--telegram", self.telegram, "--model", self.model]
            return [sys.executable, "-m", "bench.floor", *where, "--rung", kind]
        config = self.folder / "config.yaml"
        model = {"name": "main", "use": "langchain_openai:ChatOpenAI", "model": "any", "api_key": "none"}
        channel = {"token": TOKEN, "base_url": self.telegram, "access": {"open": True}, **self.rates}
        settings = {
            "config_version": 1,
            "data_dir": str(self.folder / "data"),
            "models": [{**model, "base_url": f"{self.model}/v1"}],
            "sandbox": {"image": "not-there"},
            "channels": {"telegram": channel},
            "limits": {"flood_messages": 1_000_000},
            "log": {"level": "warning"},
            "memory": {"enabled": self.memory, "wait_seconds": 86400},
            **self.more,
        }
        config.write_text(yaml.safe_dump(settings))
        profiler = ["-m", "cProfile", "-o", str(self.profile)] if self.profile else []
        return [sys.executable, *profiler, "-m", "bot", "run", "--config", str(config)]


@asynccontextmanager
async def started(kind: Kind, setup: Setup) -> AsyncIterator[Service]:
    """Run the service; its output goes to `output.txt` in the folder."""
    command = setup.command(kind)
    with (setup.folder / "output.txt").open("wb") as output:
        terminal, drain = _terminal() if setup.tty else (asyncio.subprocess.DEVNULL, None)
        begin = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command, stdin=terminal, stdout=terminal if setup.tty else output, stderr=output
        )
        service = Service(process, setup.folder / "data", begin)
        try:
            yield service
        finally:
            try:
                await service.stop()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                if drain is not None:
                    asyncio.get_running_loop().remove_reader(drain)
                    os.close(drain)
                    os.close(terminal)


def _terminal() -> tuple[int, int]:
    """Open a pseudo-terminal: the service gets one end, the output of the other is discarded."""
    ours, theirs = pty.openpty()
    asyncio.get_running_loop().add_reader(ours, os.read, ours, 65536)
    return theirs, ours
