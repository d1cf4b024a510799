"""Run a Node script in `clients` as a second, independent client of a fake."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.fakes.server import until

CLIENTS = Path(__file__).with_name("clients")
MODULES = Path(__file__).parents[2] / ".venv" / "clients" / "node_modules"


class Client:
    """The running client and its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def says(self) -> dict[str, Any]:
        assert self._process.stdout
        line = b""
        while not line.startswith(b"{"):  # the SDK also logs there
            line = await asyncio.wait_for(self._process.stdout.readline(), 60)
            assert line
        said: dict[str, Any] = orjson.loads(line)
        return said


def need_packages(*packages: str) -> str:
    """Return the path of node. Without it or a package the test is skipped, or fails where engines are required."""
    node = shutil.which("node")
    if not node or not all((MODULES / package).exists() for package in packages):
        problem = f"node with {' and '.join(packages)} is missing: see tests/fakes/clients"
        if os.environ.get("FAWN_REQUIRE_ENGINES") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    return node


@asynccontextmanager
async def running(
    script: str, url: str, connected: Callable[[], object], *packages: str, environment: Mapping[str, str] = {}
) -> AsyncIterator[Client]:
    """The script, which uses these packages, against the fake at `url`, from when it is `connected`.

    Without node or a package the test is skipped, or fails where FAWN_REQUIRE_ENGINES=1 wants them.
    """
    node = need_packages(*packages)
    process = await asyncio.create_subprocess_exec(
        node, str(CLIENTS / script), url, stdout=asyncio.subprocess.PIPE, env={"NODE_PATH": str(MODULES), **environment}
    )
    try:
        await until(connected, what="the client's connection")
        yield Client(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
