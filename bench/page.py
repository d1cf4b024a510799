"""Measure the page: size, first text, the longest frame while an answer streams, and what the operator's screen costs.

Frames are tasks of the page's main thread, in CPU time, which other work on the machine does not change.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, CookieJar

from bench import old
from bench.harness import Job, Row, World, median, new_chats, show
from bench.service import Service
from bot.api.page.endpoints import VERSIONED, read_assets
from tests.support.browser import Browser, Tab, chromium

WORDS, PACE_MS = 3000, 2  # 500 words a second
HTTP = {"listen": "127.0.0.1:0"}
SLOW = {"latency": 300, "downloadThroughput": 50_000, "uploadThroughput": 50_000}  # 400 kbit/s
CELLS = [f"w{number}" for number in range(WORDS)]
TABLE = "| a | b | c | d |\n| - | - | - | - |\n" + "".join(
    f"| {' | '.join(CELLS[first : first + 4])} |\n" for first in range(0, WORDS, 4)
)
DONE = "!document.querySelector('.turn.running') && document.querySelector('.turn .foot button') !== null"
TRACED = ["disabled-by-default-devtools.timeline", "devtools.timeline", "toplevel", "__metadata"]


async def link_of(service: Service) -> str:
    """Return a link that signs in once."""
    command = [sys.executable, "-m", "bot", "web", "link", "--person", "telegram/7"]
    config = ["--config", str(service.data.parent / "config.yaml")]
    async with asyncio.timeout(60):
        while True:
            process = await asyncio.create_subprocess_exec(*command, *config, stdout=asyncio.subprocess.PIPE)
            out, _errors = await process.communicate()
            if found := re.search(rb"http://\S+", out):
                return found[0].decode()
            await asyncio.sleep(0.5)


@asynccontextmanager
async def traced(browser: Browser) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the list that has the events of the browser's trace when the context has ended."""
    events: list[dict[str, Any]] = []
    complete = asyncio.Event()

    def hear(method: str, params: dict[str, Any]) -> None:
        if method == "Tracing.dataCollected":
            events.extend(params["value"])
        elif method == "Tracing.tracingComplete":
            complete.set()

    browser.listeners[""] = hear
    config = {"includedCategories": TRACED, "recordMode": "recordUntilFull", "traceBufferSizeInKb": 400_000}
    await browser.call("Tracing.start", transferMode="ReportEvents", traceConfig=config)
    try:
        yield events
    finally:
        await browser.call("Tracing.end")
        await asyncio.wait_for(complete.wait(), 60)


def main_thread_tasks(events: list[dict[str, Any]]) -> list[float]:
    """Return the CPU milliseconds of each task of the busiest page's main thread."""
    threads: dict[tuple[int, int], list[float]] = {}
    named = {
        (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"
    }
    for event in events:
        if event.get("tdur") and event["name"] in ("RunTask", "ThreadControllerImpl::RunTask"):
            threads.setdefault((event["pid"], event["tid"]), []).append(event["tdur"] / 1000)
    return max((tasks for place, tasks in threads.items() if place in named), key=sum, default=[])


async def stream(tab: Tab, browser: Browser, text: str) -> tuple[list[float], float]:
    """Return the tasks while an answer streams, and the longest time between two frames (the wall's)."""
    watch = (
        "window.gaps = []; window.watch = true; (() => { let last = performance.now();"
        " const look = (now) => { window.gaps.push(now - last); last = now;"
        " if (window.watch) requestAnimationFrame(look); };"
        " requestAnimationFrame(look); })(); 0"
    )
    async with traced(browser) as events:
        await tab.eval(watch)
        await tab.send(text)
        await tab.until(f"{DONE} && document.body.innerText.includes('w{WORDS - 1}')", 120)
        gaps = await tab.eval("(window.watch = false, window.gaps)")
    return main_thread_tasks(events), max(gaps)


async def open_page(browser: Browser, service: Service) -> tuple[Tab, float]:
    """Return a tab that is signed in, and after how many milliseconds of CPU its field took text."""
    tab = await browser.tab(await link_of(service))
    await tab.until("document.querySelector('#text')")
    await tab.call("Performance.enable", timeDomain="threadTicks")
    await tab.eval("location.reload()")
    await tab.until(
        "performance.getEntriesByType('navigation')[0].type === 'reload' && document.querySelector('#text')"
    )
    ready = await tab.eval("performance.getEntriesByName('ready')[0]?.startTime ?? -1")
    return tab, float(ready)


async def open_slowly(tab: Tab) -> float:
    """Return after how many milliseconds a first load takes text over a slow line, where it waits and is not cached."""
    await tab.call("Network.setCacheDisabled", cacheDisabled=True)
    await tab.call("Network.emulateNetworkConditions", offline=False, **SLOW)
    await tab.reload()
    await tab.until("document.querySelector('#text')")
    return float(await tab.eval("performance.getEntriesByName('ready')[0].startTime"))


# ------------------------------------------------------------ the operator's screen

SPENT = 1_000_000  # calls of this month
_SPEND = (
    "INSERT INTO usage(run, conversation, agent, model, kind, input, output, cached, reasoning, seconds, at, person,"
    " chat, price, cost, began) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<:count)"
    " SELECT i, 'telegram/old/'||(i%1000)||'/#1', 'lead', 'model'||(i%5), 'turn', 1000+i%500, 100, 0, 0, 1.0,"
    " :now-(i%2500000), 'telegram:'||(i%1000), 'telegram/old/'||(i%1000)||'/', 'own', 1000+i%700, :now FROM n"
)


def spend(data: Path) -> None:
    """Create a data folder with a million finished rows, and a million calls of this month."""
    old.age(data)
    with closing(sqlite3.connect(data / "fawn.db")) as connection, connection:
        connection.execute(_SPEND, {"count": SPENT, "now": time.time()})


@asynccontextmanager
async def signed_in(service: Service) -> AsyncIterator[ClientSession]:
    """Yield a client with the session of an operator."""
    address, _hash, token = (await link_of(service)).replace("/login", "").partition("#")
    async with ClientSession(base_url=address, cookie_jar=CookieJar(unsafe=True)) as client:
        async with client.post("/page/login", json={"token": token}, headers={"Origin": address}) as answer:
            answer.raise_for_status()
        yield client


async def look(client: ClientSession, path: str) -> float:
    """Return the seconds that an answer took."""
    began = time.monotonic()
    async with client.get(path) as answer:
        answer.raise_for_status()
        await answer.read()
    return time.monotonic() - began


async def turns(world: World, count: int) -> list[float]:
    """Return the milliseconds of turns one after the other, without the model's."""
    jobs = [Job(chat) for chat in new_chats(count)]
    return [(await world.turn(job)).overhead * 1000 for job in jobs]


async def operate(world: World, full: bool) -> list[Row]:
    """Return what the operator's screen costs over a million rows: itself, and the turns beside it."""
    more = {"http": HTTP, "team": {"default_role": "operator"}}
    alone, beside, polls = [], [], []
    async with world.service("fawn", prepare=spend, more=more) as service, signed_in(service) as client:
        await turns(world, 3)
        sums = [await look(client, "/page/operate/usage")]
        sums.append(await look(client, "/page/operate/usage"))
        await look(client, "/page/operate")
        before = service.cpu()
        polls = [await look(client, "/page/operate") for _poll in range(50)]
        cpu = (service.cpu() - before) / len(polls)
        for _round in range(6 if full else 3):
            alone += await turns(world, 8)
            watching = asyncio.create_task(watch(client), name="operator")
            beside += await turns(world, 8)
            watching.cancel()
            await asyncio.wait([watching])
    return [
        Row(
            "a look of the operator's screen, CPU of the service", cpu * 1000, goal=5, note="loop and database together"
        ),
        Row("the same, until its answer came", median(polls) * 1000, note=f"{max(polls) * 1000:.0f} at worst, wall"),
        Row("first sums of a month of 1,000,000 calls", sums[0], "s", note=f"kept: {sums[1] * 1000:.0f} ms"),
        Row("a turn while an operator looks 10 times a second", median(beside), floor=median(alone)),
    ]


async def watch(client: ClientSession) -> None:
    """Look far more often than the page does, until cancelled."""
    while True:
        await look(client, "/page/operate")
        await asyncio.sleep(0.1)


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals."""
    sizes = sum(len(asset.packed) for name, asset in read_assets().items() if not VERSIONED.match(name))
    longest, of_table, gaps, ready, slow = [], [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        async with chromium(Path(folder)) as browser, world.service("fawn", more={"http": HTTP}) as service:
            for _round in range(5 if full else 2):
                tab, at = await open_page(browser, service)
                directive = f'go ::{{"id": "p{_round}", "tokens": {WORDS}, "tok_ms": {PACE_MS}}}'
                tasks, gap = await stream(tab, browser, directive)
                longest.append(max(tasks))
                directive = f"go ::{json.dumps({'id': f't{_round}', 'text': TABLE, 'tok_ms': PACE_MS})}"
                of_table.append(max((await stream(tab, browser, directive))[0]))
                gaps.append(gap)
                ready.append(at)
                slow.append(await open_slowly(tab))
                await tab.close()
    usual, worst = f"{min(ready):.0f} at best, wall", f"CPU; {max(longest):.0f} at worst"
    rows = [
        Row("the whole page, as it is sent", sizes / 1000, "KB", goal=150),
        Row(
            "from the request to a field that takes text",
            median(ready),
            goal=500,
            note=usual,
        ),
        Row("the same over a line of 400 kbit/s and 300 ms", median(slow), goal=2500, note="wall, nothing cached"),
        Row(
            f"longest task of {WORDS} words at 500/s",
            median(longest),
            goal=50,
            note=worst,
        ),
        Row(f"the same, as a table of {WORDS // 4} rows", median(of_table), goal=50, note="CPU"),
        Row("longest time between two frames then", median(gaps), note="wall, on this machine"),
    ]
    rows += await operate(world, full)
    show("Page", rows)
    return rows
