"""Run a fake in its own process and control it over its control API."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson


class Remote:
    """A running fake: `await remote("send", text="hi")` calls that method and returns the JSON result."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession, pid: int = 0) -> None:
        self.base_url = base_url
        self.pid = pid
        self._session = session

    async def __call__(self, control: str, /, **arguments: Any) -> Any:
        """Raises ValueError with the error of the fake."""
        async with self._session.post(f"{self.base_url}/_control/{control}", data=orjson.dumps(arguments)) as response:
            result = orjson.loads(await response.read())
        if response.status != 200:
            raise ValueError(result["error"])
        return result


@asynccontextmanager
async def process(module: str, *arguments: str, port: int = 0) -> AsyncIterator[Remote]:
    """Run `python -m MODULE ARGUMENTS --port PORT`, yield its remote control, and end it on exit."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, "--port", str(port), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout
    try:
        line = (await asyncio.wait_for(child.stdout.readline(), 60)).decode()
        if not line.startswith("listening "):
            raise RuntimeError(f"{module} did not start")
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            yield Remote(line.split()[1], session, child.pid)
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()
