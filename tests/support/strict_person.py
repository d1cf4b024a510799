"""A person on the crypto library of Element's clients, in a Node process: strict about who signed a device."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import orjson
import pytest

from tests.fakes.node import CLIENTS, MODULES
from tests.fakes.server import until
from tests.support.synapse import Json, Person, Synapse

PACKAGE = "@matrix-org/matrix-sdk-crypto-wasm"


class StrictPerson:
    """Speaks with one bot in one encrypted room."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, account: Json, bot: str) -> None:
        self._process = process
        self._bot = bot
        self.plainly = Person(url, account)  # its account, without encryption
        self.room = ""
        self.said: list[Json] = []
        self.id = str(account["user_id"])

    @classmethod
    @asynccontextmanager
    async def start(cls, server: Synapse, account: Json, bot: str) -> AsyncIterator[Self]:
        """Begin a direct chat with the bot. Without Node.js the test is skipped, or fails where engines are wanted."""
        node = shutil.which("node")
        if not node or not (MODULES / PACKAGE).exists():
            if os.environ.get("FAWN_REQUIRE_ENGINES") == "1":
                pytest.fail(f"node with {PACKAGE} is missing: see tests/fakes/clients")
            pytest.skip(f"node with {PACKAGE} is missing: see tests/fakes/clients")
        words = [server.url, account["user_id"], account["device_id"], account["access_token"]]
        process = await asyncio.create_subprocess_exec(
            node, str(CLIENTS / "matrix_person.js"), *words, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, env={"NODE_PATH": str(MODULES)},
        )  # fmt: skip
        person = cls(process, server.url, account, bot)
        reading = asyncio.create_task(person._read(), name="strict person")
        try:
            await until(lambda: person.said, what="the person's client")
            person._tell({"room": bot})
            await until(lambda: "room" in person.said[-1], what="the room")
            person.room = str(person.said[-1]["room"])
            yield person
        finally:
            reading.cancel()
            person.plainly.close()
            process.kill()
            await process.wait()

    async def _read(self) -> None:
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            if line.startswith(b"{"):
                self.said.append(orjson.loads(line))

    def _tell(self, command: Json) -> None:
        assert self._process.stdin
        self._process.stdin.write(orjson.dumps(command) + b"\n")

    def send(self, content: Json) -> None:
        self._tell({"send": content, "to": self.room, "bot": self._bot})

    def write(self, text: str) -> None:
        self.send({"msgtype": "m.text", "body": text, "m.mentions": {}})

    @property
    def reads(self) -> list[dict[str, Any]]:
        """The contents that it could read."""
        return [each["event"] for each in self.said if "event" in each]

    @property
    def refused(self) -> list[Any]:
        """Why it could not read the others, and what came open."""
        return [each.get("refused", each.get("open")) for each in self.said if "refused" in each or "open" in each]
