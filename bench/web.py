"""Measure what reading a large page costs the event loop: its delays while WebFetcher fetches and extracts 5 MB."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from agent.web.addresses import AddressGuard
from agent.web.fetcher import WebFetcher
from bench.harness import Row, World, p99, show
from tests.support.web_server import ScriptedResolver

TICK_SECONDS = 0.001
PAGE_BYTES = 5_000_000
# A server in its own process; it prints its port.
SERVER = """
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


async def delays(seconds: list[float]) -> None:
    """Record how late each tick of the loop is, until cancelled."""
    while True:
        due = time.perf_counter() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        seconds.append(time.perf_counter() - due)


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals."""
    idle: list[float] = []
    busy: list[float] = []
    took = []
    paragraph = "<p>" + "The river carries water to the sea, and 412 otters live along it. " * 10 + "</p>\n"
    with tempfile.TemporaryDirectory() as folder:
        page = "<html><title>Rivers</title><body><article>" + paragraph * (PAGE_BYTES // len(paragraph))
        await asyncio.to_thread(Path(folder, "page.html").write_text, page + "</article></body></html>")
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVER, folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            assert server.stdout
            port = int(await server.stdout.readline())
            dns = ScriptedResolver({"site.test": [["127.0.0.1"]]})
            fetcher = WebFetcher(guard=AddressGuard(frozenset({port}), frozenset({"127.0.0.1"}), dns), pace_seconds=0)
            for measured, rounds in ((idle, 0), (busy, 10 if full else 3)):
                ticker = asyncio.create_task(delays(measured), name="ticker")
                await asyncio.sleep(0 if rounds else 3)
                for number in range(rounds):
                    begun = time.perf_counter()
                    await fetcher.fetch(f"http://site.test:{port}/page.html?{number}")
                    took.append(time.perf_counter() - begun)
                ticker.cancel()
                await asyncio.wait([ticker])
        finally:
            server.kill()
            await server.wait()
    rows = [
        Row("p99 delay of the loop while a 5 MB page is read", p99(busy) * 1e3, "ms", floor=p99(idle) * 1e3, goal=20),
        Row("a 5 MB page: fetch and extraction", sorted(took)[len(took) // 2], "s"),
    ]
    show("Web", rows)
    return rows
