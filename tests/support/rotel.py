"""Run Rotel (rotel.dev), a collector for OpenTelemetry that reads OTLP by a schema of its own, in Rust.

It is a program in the wheel `rotel`, which exists for Linux on x86-64. What it takes it sends on at once, as protobuf.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.server import until
from tests.support.ports import free_port


def need_rotel() -> Path:
    """Return the program; skip where there is none."""
    found = importlib.util.find_spec("rotel")
    if not found or not found.submodule_search_locations:
        pytest.skip("there is no wheel of rotel for this machine")
    return Path(found.submodule_search_locations[0]) / "rotel-agent"


@asynccontextmanager
async def rotel(folder: Path, send_to: str) -> AsyncIterator[str]:
    """Yield the address of a collector that sends what it takes to `send_to`. Its log is `folder/rotel.log`."""
    http, grpc = free_port(), free_port()
    words = ["start", "--otlp-http-endpoint", f"127.0.0.1:{http}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}"]
    words += ["--exporter", "otlp", "--otlp-exporter-endpoint", send_to, "--otlp-exporter-protocol", "http"]
    words += ["--disable-batching", "--pid-file", str(folder / "rotel.pid"), "--log-file", str(folder / "rotel-daemon")]
    with (folder / "rotel.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(need_rotel(), *words, cwd=folder, stdout=log, stderr=log, env={})
    try:
        await until(lambda: _listens(http), what="Rotel")
        yield f"http://127.0.0.1:{http}/v1/traces"
    finally:
        process.terminate()
        await process.wait()


def _listens(port: int) -> bool:
    """Say whether something listens there, by the kernel's table: a connection would be a line of its log."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[1] == f"0100007F:{port:04X}" and row.split()[3] == "0A" for row in rows)
