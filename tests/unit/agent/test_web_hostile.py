"""What hostile sites send: robots.txt, bodies and charsets. The loop goes on, and other people's pages come."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from aiohttp import web

from agent.web.addresses import WebError
from agent.web.fetcher import MAX_BYTES, MAX_FETCHES, WebFetcher
from agent.web.robots import MAX_RULES, parse_robots
from sandbox.inside.text_encoding import codec_of
from tests.support.growth import many_steps_seconds
from tests.support.web_server import ARTICLE, ClonedResponse, Handler, WebSite, html, serve_site

T = TypeVar("T")


@pytest.fixture
async def site() -> AsyncIterator[WebSite]:
    async with serve_site() as served:
        yield served


@asynccontextmanager
async def watched_loop() -> AsyncIterator[list[float]]:
    """Yield a list of the most CPU seconds that the loop's thread has used between two of its turns so far."""
    worst = [0.0]

    async def watch() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.01)
            worst[0] = max(worst[0], time.thread_time() - before)

    task = asyncio.create_task(watch(), name="lag")
    try:
        yield worst
    finally:
        task.cancel()


async def without_lag(work: Awaitable[T]) -> T:
    async with watched_loop() as worst:
        found = await work
    assert worst[0] < many_steps_seconds()  # what it replaces took a hundred times as long
    return found


# ---------------------------------------------------------------- robots.txt

AGENTS = b"\n".join(b"User-agent: bot%d" % n for n in range(18_000))
RULES = b"\n".join(b"Disallow: /%d" % n for n in range(18_000))
ROBOTS = {
    "agents × rules": AGENTS + b"\nUser-agent: *\n" + RULES,
    "one name for ever": b"User-agent: *\n" * 18_000 + RULES,
    "wildcards": b"User-agent: *\n" + b"Disallow: /*a*b*c$\n" * 26_000,
    "stars": b"User-agent: *\nDisallow: /" + b"*a" * 45_000 + b"b$\n",
    "groups": b"User-agent: *\nDisallow: /x\n" * 17_000,
    "empty lines": b"\n" * 500_000,
    "one line": b"x" * 500_000,
    "numbers": b"User-agent: *\nCrawl-delay: " + b"9" * 400_000,
}


@pytest.mark.parametrize("name", ROBOTS)
async def test_a_hostile_robots_txt_delays_nobody(site: WebSite, name: str) -> None:
    path = "/" + "a" * 2000
    site.pages |= {"/robots.txt": ClonedResponse(body=ROBOTS[name][: 500 << 10]), path: html(ARTICLE)}
    async with asyncio.timeout(60):
        page = await without_lag(site.fetcher().fetch(site.url(path)))
    assert page.title


async def test_rules_beyond_the_bound_are_not_kept() -> None:
    rules = await parse_robots(ROBOTS["agents × rules"], "FawnBot")
    assert len(rules.rules) == MAX_RULES


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        ("", "/a", True),
        ("User-agent: *\nDisallow: /", "/a", False),
        ("User-agent: *\nDisallow:", "/a", True),
        ("User-agent: *\nDisallow: /a", "/ab", False),
        ("User-agent: *\nDisallow: /a\nAllow: /ab", "/abc", True),
        ("User-agent: *\nAllow: /ab\nDisallow: /a", "/abc", True),
        ("User-agent: *\nDisallow: /a\nAllow: /a", "/a", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf?z", True),
        ("User-agent: *\nDisallow: /a*b*c", "/a1b2c3", False),
        ("User-agent: *\nDisallow: /a*b*c", "/a1c2b3", True),
        ("User-agent: *\nDisallow: /a$", "/ab", True),
        ("User-agent: *\nDisallow: /a*$", "/ab", False),
        ("User-agent: *\nDisallow: *", "/a", False),
        ("User-agent: *\nDisallow: /*aa$", "/aaa", False),
        ("User-agent: *\nDisallow: /aba*ba$", "/aba", True),
        ("user-agent : *  # all\n DISALLOW : /a # no", "/a", False),
        ("User-agent: *\r\nDisallow: /a\r\n", "/a", False),
        ("\ufeffUser-agent: *\nDisallow: /a", "/a", False),
        ("User-agent: FawnBot\nDisallow: /a\n\nUser-agent: *\nDisallow: /", "/b", True),
        ("User-agent: *\nDisallow: /\n\nUser-agent: fawnbot/2.0\nDisallow: /a", "/a", False),
        (
            "User-agent: FawnBot\nDisallow: /a\nUser-agent: x\nDisallow: /\nUser-agent: fawnbot\nDisallow: /b",
            "/b",
            False,
        ),
        ("User-agent: x\nUser-agent: FawnBot\nSitemap: /s\nUser-agent: y\nDisallow: /a", "/a", False),
        ("User-agent: x\nDisallow: /a", "/a", True),
        ("User-agent: FawnBots\nDisallow: /a", "/a", True),
        ("Disallow: /a", "/a", True),
        ("User-agent: *\nDisallow: /ä", "/%C3%A4", False),
        ("User-agent: *\nDisallow: /%7ejo", "/~jo", False),
        ("User-agent: *\nDisallow: /a%2fb", "/a%2Fb", False),
        ("User-agent: *\nDisallow: /a%2fb", "/a/b", True),
        ("User-agent: *\nDisallow: /*?x=", "/a?b&x=1", True),
        ("User-agent: *\nDisallow: /*x=", "/a?b&x=1", False),
    ],
)
async def test_robots_txt_is_read_as_rfc_9309_says(text: str, path: str, allowed: bool) -> None:
    assert await (await parse_robots(text.encode(), "FawnBot")).allow(path) is allowed


async def test_a_delay_is_that_of_the_own_group() -> None:
    text = b"User-agent: *\nCrawl-delay: 2.5\nDisallow: /a\nUser-agent: x\nCrawl-delay: 99"
    assert (await parse_robots(text, "FawnBot")).delay_seconds == 2.5
    assert (await parse_robots(b"User-agent: *\nCrawl-delay: nan", "FawnBot")).delay_seconds == 0.0


# ---------------------------------------------------------------- bodies


def endless(head: bytes, chunk: bytes) -> tuple[list[int], Handler]:
    """Return a count of what was written, and a page that never ends."""
    written = [0]

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Encoding": "gzip", "Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(head)
        while written[0] < 512 << 20:
            await response.write(chunk)
            written[0] += len(chunk)
        return response

    return written, answer


async def test_what_follows_compressed_data_is_not_read(site: WebSite) -> None:
    written, site.pages["/"] = endless(gzip.compress(b"the page"), b"\0" * (1 << 16))
    page = await without_lag(site.fetcher(obeys_robots=False).fetch(site.url()))
    assert page.text == "the page"
    assert written[0] < 32 << 20


async def test_compressed_data_without_content_ends_at_the_limit(site: WebSite) -> None:
    deflate = zlib.compressobj(wbits=31)
    head = deflate.compress(b"the page") + deflate.flush(zlib.Z_FULL_FLUSH)
    empty = b"\x00\x00\x00\xff\xff" * 13_000  # stored blocks of no bytes
    written, site.pages["/"] = endless(head, empty)
    page = await without_lag(site.fetcher(obeys_robots=False).fetch(site.url()))
    assert page.text.startswith("the page")
    assert page.text.endswith("[cut after 5 MB]")
    assert written[0] < MAX_BYTES + (32 << 20)


@pytest.mark.parametrize(
    "charset", ["unicode_escape", "raw_unicode_escape", "utf-7", "idna", "punycode", "rot13", "zlib", "no-such", "\xff"]
)
async def test_only_the_charsets_of_the_web_are_read(site: WebSite, charset: str) -> None:
    assert codec_of(charset) == ""
    for mime in ("text/plain", "text/html"):
        body = b"<html><body><p>\\ud800 +2AA- words</p></body></html>"
        headers = {"Content-Type": f"{mime}; charset={charset}"}
        site.pages["/"] = ClonedResponse(body=body, headers=headers)
        page = await site.fetcher(obeys_robots=False).fetch(site.url())
        assert "\\ud800 +2AA- words" in page.text
        page.text.encode()


@pytest.mark.parametrize(
    ("charset", "codec", "text"),
    [
        ("ISO-8859-1", "cp1252", "“naïve”"),
        ("Shift_JIS", "cp932", "かわうそ"),
        ("gb2312", "gb18030", "水獭"),
        ("EUC-KR", "cp949", "수달"),
        ("Big5", "big5hkscs", "水獺"),
        ("UTF8", "utf-8", "Ottër"),
        ("koi8-r", "koi8-r", "выдра"),
        ("utf-16", "utf-16-le", "выдра"),
    ],
)
async def test_a_page_is_read_in_its_charset(site: WebSite, charset: str, codec: str, text: str) -> None:
    headers = {"Content-Type": f"text/plain; charset={charset}"}
    site.pages["/"] = ClonedResponse(body=text.encode(codec), headers=headers)
    assert (await site.fetcher(obeys_robots=False).fetch(site.url())).text == text


# ---------------------------------------------------------------- neighbours


async def refusals(fetcher: WebFetcher, urls: list[str], owner: str) -> list[str]:
    found = await asyncio.gather(*(fetcher.fetch(url, owner=owner) for url in urls), return_exceptions=True)
    return [str(each) for each in found if isinstance(each, WebError)]


async def test_a_conversation_has_ten_fetches_at_once(site: WebSite) -> None:
    urls = [site.url(f"/{n}") for n in range(MAX_FETCHES + 5)]
    site.pages |= {f"/{n}": ClonedResponse(text="x", content_type="text/plain") for n in range(MAX_FETCHES + 5)}
    fetcher = site.fetcher(obeys_robots=False)
    told = await refusals(fetcher, urls, "mallory")
    assert len(told) == 5
    assert all("10 pages are being read for this conversation" in each for each in told)
    assert await refusals(fetcher, urls[-3:], "mallory") == [], "they have ended"


async def test_fetches_that_were_cancelled_leave_their_host_to_others(site: WebSite) -> None:
    site.pages |= {f"/{n}": html(ARTICLE) for n in range(301)}
    fetcher = site.fetcher(obeys_robots=False, pace_seconds=0.5)
    await fetcher.fetch(site.url("/0"), owner="otto")
    crowd = [
        asyncio.create_task(fetcher.fetch(site.url(f"/{n}"), owner=n // 10), name=f"crowd {n}") for n in range(1, 300)
    ]
    async with asyncio.timeout(60):
        while len(site.requests) < 2:  # the first of them has come through
            await asyncio.sleep(0.01)
    for task in crowd:
        task.cancel()
    await asyncio.wait(crowd)
    async with asyncio.timeout(60):  # half a second for each of the crowd would be 150
        assert (await fetcher.fetch(site.url("/300"), owner="otto")).title


async def test_conversations_that_wait_for_a_host_take_turns(site: WebSite) -> None:
    site.pages |= {f"/{n}": ClonedResponse(text="x", content_type="text/plain") for n in range(20)}
    fetcher = site.fetcher(obeys_robots=False, pace_seconds=0.2)
    many = [asyncio.create_task(fetcher.fetch(site.url(f"/{n}"), owner="many"), name=f"many {n}") for n in range(10)]
    await asyncio.sleep(0)
    await fetcher.fetch(site.url("/11"), owner="one")
    assert [path for _host, path in site.requests].index("/11") <= 3
    for task in many:
        task.cancel()
    await asyncio.wait(many)
