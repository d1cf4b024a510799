"""Pages that do not end: while they are fetched for one person, another one on another platform is answered."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.fakes.server import until
from tests.support.all_platforms import AllPlatforms
from tests.support.service_process import ask
from tests.support.web_server import WebSite, serve_site

PIECE = 1 << 16
HOSTS = ("deep.test", "endless.test", "bomb.test", "robots.test")


def make_parts() -> dict[str, tuple[dict[str, str], bytes, bytes]]:
    """Return heads, what comes first, and what comes after the wait, by host."""
    return {
        "deep.test": ({"Content-Type": "text/html"}, b"<html><body>" + b"<div>" * 200_000, b"<p>text"),
        "endless.test": ({"Content-Type": "text/html"}, b"<p>x " * 200_000, b"<p>x " * PIECE),
        "bomb.test": (
            {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
            gzip.compress(bytes(1 << 20)),
            gzip.compress(bytes(1 << 26)),
        ),
        "robots.test": (
            {"Content-Type": "text/plain"},
            b"".join(b"User-agent: bot%d\n" % number for number in range(6_000)) + b"User-agent: *\n",
            b"".join(b"Disallow: /%d*a*b\n" % number for number in range(6_000)),
        ),
    }


class HostileSite:
    """Sends the first part of each answer, and the rest without end when it may go on."""

    def __init__(self) -> None:
        self._parts = make_parts()
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.goes_on = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request to any of the hosts."""
        host = str(request.url.host)
        if request.path == "/robots.txt" and host != "robots.test":
            return web.Response(status=404)
        heads, first, rest = self._parts[host]
        response = web.StreamResponse(headers=heads)
        await response.prepare(request)
        self.begun.append(host)
        try:
            await response.write(first)
            await self.goes_on.wait()
            while True:
                await response.write(rest)
        except ConnectionError:
            return response
        finally:
            self.ended.append(host)


@pytest.fixture
async def hostile() -> AsyncIterator[tuple[HostileSite, WebSite]]:
    made = HostileSite()
    async with serve_site() as site:  # a proxy that answers for every host
        site.pages |= dict.fromkeys(("/", "/page", "/robots.txt"), made.answer)
        yield made, site


async def test_the_answer_of_another_person_does_not_wait_for_a_hostile_page(
    tmp_path: Path, hostile: tuple[HostileSite, WebSite]
) -> None:
    pages, site = hostile
    proxy = {"proxy": f"http://127.0.0.1:{site.port}"}
    async with AllPlatforms.open(tmp_path, ("telegram", "slack"), web=proxy) as service:
        victim, other = service.rigs["telegram"], service.rigs["slack"]
        for number, host in enumerate(HOSTS):
            step = {"calls": [{"name": "web_fetch", "args": {"url": f"http://{host}/page"}}]}
            text = ask(steps=[step], text=f"fetched {host}", id=f"h-{number}")
            victim.mutter(text, 11 + number, mention=True)
        await until(lambda: set(pages.begun) == set(HOSTS), 60, "the fetches")
        other.mutter(ask(text="answered meanwhile", id="o-1"))
        assert await service.shows("slack", "answered meanwhile") == ["answered meanwhile"]
        assert pages.ended == []  # the order of events: nobody waited for a page
        pages.goes_on.set()
        other.mutter(ask(text="answered again", id="o-2"))
        await service.shows("slack", "answered again")
        for number, host in enumerate(HOSTS):
            await service.shows("telegram", f"fetched {host}", 11 + number)
        await service.quiet()
        assert sorted(set(pages.ended)) == sorted(HOSTS)
        assert "Traceback" not in service.log()
