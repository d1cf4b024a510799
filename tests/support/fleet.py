"""Several services on one PostgreSQL database and the fake platforms: each has a data_dir of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bot.database.database import Execute, StorageError
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.support.all_platforms import AllPlatforms
from tests.support.forked_services import ROOT, Running
from tests.support.postgres import PostgresServer, database_of, shared_server
from tests.support.rigs.base import Rig
from tests.support.rigs.slack import SlackRig

REDELIVER_SECONDS = 20.0  # Slack offers an event again after 1 and 5 minutes: longer than another service needs


class Replica(AllPlatforms):
    """One of them. `program` is the folder of the version that it runs."""

    program = ROOT

    @property
    def runs(self) -> bool:
        """Whether its process lives, also while it is paused."""
        return self.process is not None and self.process.returncode is None

    @property
    def host(self) -> str:
        """Its name among those that share the database; "" before its first start."""
        path = self.data / "host"
        return path.read_text("ascii").strip() if path.exists() else ""

    def environment(self) -> dict[str, str]:
        """Without a token in it, which alone would make a channel."""
        found = super().environment() | {"PYTHONPATH": str(self.program)}
        if "telegram" not in self.names:
            del found["TELEGRAM_BOT_TOKEN"]
        return found

    async def is_connected(self) -> bool:
        """Look, after a moment, whether each channel is ready."""
        return await self._ready()

    async def spawn(self, *arguments: str) -> Running:
        self.forked = self.program == ROOT
        return await super().spawn(*arguments)

    async def replace(self, program: Path) -> tuple[float, float, int]:
        """Stop it and start another version; return how long both took, and the exit code of the first."""
        began = time.monotonic()
        code = await self.stop(90)
        stopped = time.monotonic()
        self.program = program
        await self.start()
        return stopped - began, time.monotonic() - stopped, code


class Fleet(AllPlatforms):
    """All of them together, as one service with more lives. A subclass has another `count`."""

    count = 3
    payload_text = "convert_from(payload, 'UTF8')"

    def __init__(
        self,
        folder: Path,
        model: FakeModel,
        rigs: Mapping[str, Rig],
        sections: Mapping[str, dict[str, Any]],
        settings: Mapping[str, Any],
    ) -> None:
        self.url = database_of(folder / "fleet")
        self._reader = ExitStack()
        self._execute: Execute | None = None
        shared = {**settings, "database": {"url": self.url, "replicas": True}}
        self.replicas: list[Replica] = []
        for number in range(1, self.count + 1):
            (own := folder / f"replica-{number}").mkdir()
            self.replicas.append(Replica(own, model, rigs, sections, shared))
        super().__init__(folder, model, rigs, sections, shared)
        assert isinstance(rigs["slack"], SlackRig)
        rigs["slack"].server.redeliver_after = REDELIVER_SECONDS

    @property
    def server(self) -> PostgresServer:
        return shared_server()

    async def start(self) -> None:
        """Start all, and wait until each can post to every platform, and one of them listens on each."""
        await asyncio.gather(*(each.start() for each in self.replicas))
        await until(self.is_heard, 60, "a listener on each platform")

    def is_heard(self) -> bool:
        """Whether one of them listens on each platform, and has its socket where nothing could be read later."""
        slack = self.rigs["slack"]
        assert isinstance(slack, SlackRig)
        held = self.rows("SELECT count(*) FROM leases WHERE name LIKE 'listen %'")
        return held == [(len(self.names),)] and bool(slack.server.sockets)

    async def kill(self) -> None:
        """kill -9 to all."""
        await asyncio.gather(*(each.kill() for each in self.replicas if each.process))
        self._close()

    async def stop(self, seconds: float = 60) -> int:
        """Send SIGTERM to all; return the highest exit code."""
        return max(await asyncio.gather(*(each.stop(seconds) for each in self.replicas if each.process)))

    def log(self) -> str:
        return "".join(each.log() for each in self.replicas)

    def effect_files(self) -> Iterator[Path]:
        for each in self.replicas:
            yield from each.effect_files()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Read from the database, on one connection: who talks asks often. Raises StorageError while it is away."""
        from bot.database.postgres_session import reading

        try:
            if self._execute is None:
                self._execute = self._reader.enter_context(reading(self.url, snapshot=False))
            return [tuple(row) for row in self._execute(sql, {})]
        except StorageError:
            self._close()
            raise

    def _close(self) -> None:
        self._execute = None
        try:
            self._reader.close()
        except StorageError:  # it was lost
            self._reader = ExitStack()
