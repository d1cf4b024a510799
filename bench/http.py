"""Measure the HTTP door: idle streams, the first token, posts, reads, and what it costs where nothing listens.

CPU and memory are the service's own, by the kernel; times are between this process and the service, on this machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
from aiohttp import ClientSession, TCPConnector

from bench.harness import Job, Row, World, median, new_chats, show
from bench.service import Service
from bot.admin.service_client import NotRunning, call_service

HTTP = {"http": {"listen": "127.0.0.1:0"}}
STREAMS, PEOPLE = 1_000, 11  # a person may have 100
HEARTBEATS = 45.0  # seconds: three of each stream
READERS = 16  # connections that read


@asynccontextmanager
async def clients(service: Service, people: int) -> AsyncIterator[list[ClientSession]]:
    """Yield a client with a key for each of so many people."""
    address = await address_of(service)
    async with AsyncExitStack() as stack:
        made = []
        for number in range(people):
            arguments = {
                "name": f"bench-{number}",
                "person": f"telegram/{7000 + number}",
                "scopes": "threads",
                "expires": "",
            }
            answer = await call_service(service.data, "key.add", arguments)
            headers = {"Authorization": f"Bearer {answer['key']}"}
            session = ClientSession(address, headers=headers, connector=TCPConnector(limit=0))
            made.append(await stack.enter_async_context(session))
        yield made


async def address_of(service: Service) -> str:
    """Wait until the service listens; return where."""
    async with asyncio.timeout(60):
        while True:
            try:
                answer = await call_service(service.data, "web.link", {"person": "telegram/7000"})
            except (NotRunning, OSError):
                answer = {}
            if link := answer.get("link"):
                return str(link).partition("/login")[0]
            await asyncio.sleep(0.1)


async def idle_streams(world: World, full: bool) -> list[Row]:
    """Return what streams cost on which nothing happens: memory, and CPU beside that of a service without them."""
    seconds = HEARTBEATS * (4 if full else 1)
    async with world.service("fawn", more=HTTP) as service, clients(service, PEOPLE) as people:
        await world.turn(Job(new_chats(1)[0]))
        first = await open_streams(people, 2 * PEOPLE)  # what the first ones load is not the price of a stream
        await asyncio.sleep(5)
        cpu, rss = service.cpu(), service.rss()
        await asyncio.sleep(seconds)
        rest = service.cpu() - cpu
        opened = time.process_time(), service.cpu()
        streams = await open_streams(people, STREAMS)
        opening = service.cpu() - opened[1]
        await asyncio.sleep(5)
        cpu, held = service.cpu(), service.rss() - rss
        await asyncio.sleep(seconds)
        more = service.cpu() - cpu - rest
        assert all(not stream.content.at_eof() for stream in streams)
        for stream in (*first, *streams):
            stream.close()
    return [
        Row(f"{STREAMS} idle streams, memory", held, "MB", goal=20, note=f"{rss:.0f} before"),
        Row("the same, CPU more than at rest", more / seconds * 100, "%", goal=2, note=f"of a core, {seconds:.0f} s"),
        Row("opening one, CPU of the service", opening / STREAMS * 1000),
    ]


async def open_streams(people: Sequence[ClientSession], count: int) -> list[Any]:
    """Open streams of everything that a person may see, one after the other; each has begun."""
    opened = []
    for number in range(count):
        answer = await people[number % len(people)].get("/v1/events")
        answer.raise_for_status()
        opened.append(answer)
    return opened


async def first_tokens(world: World, client: ClientSession, count: int) -> list[float]:
    """Return the milliseconds from the model's first token to its event at the client."""
    found = []
    for number in range(count):
        job, thread = Job(0, tokens=5, pace=0.05), f"first-{number}"
        async with client.get(f"/v1/threads/{thread}/events") as stream:
            await stream.content.readline()
            await post(client, thread, job.text)
            async for line in stream.content:
                if line.startswith(b"event: text"):
                    at = time.monotonic()
                    break
        [request] = await world.model("requests", id=job.id)
        found.append((at - request["first"]) * 1000)
        await asyncio.sleep(0.5)  # the rest of the turn is not measured with the next one
    return found


async def post(client: ClientSession, thread: str, text: str) -> float:
    """Post a message; return the seconds until the 202."""
    began = time.monotonic()
    async with client.post(f"/v1/threads/{thread}/messages", data=orjson.dumps({"text": text}), headers=JSON) as answer:
        await answer.read()
        assert answer.status == 202, await answer.text()
    return time.monotonic() - began


JSON = {"Content-Type": "application/json"}


async def reads(service: Service, client: ClientSession, path: str, count: int) -> tuple[float, float]:
    """Read so many times over some connections; return the reads a second, and the CPU of one in milliseconds."""
    left = iter(range(count))

    async def read() -> None:
        for _number in left:
            async with client.get(path) as answer:
                await answer.read()
                assert answer.status == 200, await answer.text()

    began, cpu = time.monotonic(), service.cpu()
    await asyncio.gather(*(read() for _reader in range(READERS)))
    return count / (time.monotonic() - began), (service.cpu() - cpu) / count * 1000


async def answers(world: World, full: bool) -> list[Row]:
    """Return what a first token, a post and a read take."""
    count = 60 if full else 20
    async with world.service("fawn", more=HTTP) as service, clients(service, 1) as [client]:
        await first_tokens(world, client, 2)
        tokens = await first_tokens(world, client, count)
        posts = []
        for number in range(count * 2):
            posts.append(await post(client, f"post-{number}", Job(0, tokens=1).text) * 1000)
            await asyncio.sleep(0.3)
        await asyncio.sleep(2)
        await reads(service, client, "/v1/threads/first-0", 200)
        thread = await reads(service, client, "/v1/threads/first-0", 20_000 if full else 4_000)
        listed = await reads(service, client, "/v1/threads", 4_000 if full else 1_000)
    return [
        Row("the model's first token to its event", median(tokens), goal=2, note=f"{min(tokens):.2f} at best, wall"),
        Row("a post until its 202", median(posts), goal=5, note=f"{min(posts):.2f} at best, wall"),
        Row("CPU of reading a thread", thread[1], goal=0.5, note=f"{thread[0]:.0f} a second, wall"),
        Row("CPU of reading a list of 50 threads", listed[1], note=f"{listed[0]:.0f} a second, wall"),
    ]


async def starts(world: World, full: bool) -> list[Row]:
    """Return the CPU of a start until it listens to people, with the door and without."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for _round in range(10 if full else 4):
        for listens in (True, False):
            async with world.service("fawn", more=HTTP if listens else {}) as service:
                await world.turn(Job(new_chats(1)[0]))
                found[listens].append(service.cpu() * 1000)
    note = "until the first answer; without it, nothing of it is loaded"
    return [Row("CPU of a start that listens", min(found[True]), floor=min(found[False]), note=note)]


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals."""
    rows = [*await idle_streams(world, full), *await answers(world, full), *await starts(world, full)]
    show("HTTP", rows)
    return rows
