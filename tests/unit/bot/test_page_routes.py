"""What the cookie of the page opens: what its modules ask, and nothing for a page of another address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import ClientSession, DummyCookieJar
from multidict import CIMultiDict

from bot.api.feature import FEATURE
from bot.api.page.endpoints import STATIC
from bot.api.page.opened import OPENED
from bot.commands.feature import Door
from bot.config.http import HttpConfig
from bot.http.listener import listening
from bot.http.route import Route
from tests.unit.bot.test_http_door import Idle

PLACE = re.compile(r"\$\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
FORGED = (  # headers of a request that a page of another address, or one with another name, has a browser send
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example:8484"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:9"},  # another port of this machine
    {"Origin": "http://localhost:9", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
)


@pytest.fixture
def routes(tmp_path: Path) -> list[Route]:
    current, idle = SimpleNamespace(config=SimpleNamespace(data_dir=tmp_path)), Idle()
    door = Door(idle, current, None, None, None, None, None, idle, None, None)  # type: ignore[arg-type]  # no service is needed
    assert FEATURE.routes
    return [*FEATURE.routes(door)]


def asked_by_modules() -> Iterator[str]:
    """Yield the paths of the API as the modules of the page write them, with `{}` for what they put in."""
    for module in STATIC.glob("*.js"):
        for literal in re.findall(r"[\"`](?:/page)?(/v1/[^\"`]*)[\"`]", PLACE.sub("{}", module.read_text())):
            path = literal.partition("?")[0]
            yield path if path.endswith("/{}") else path.removesuffix("{}")  # a query


def test_the_cookie_opens_what_the_modules_ask_and_no_other_route(routes: list[Route]) -> None:
    served = {f"{route.method} {route.path}" for route in routes}
    assert served >= OPENED, "each is a route of the API"
    wrapped = {f"{route.method} {route.path.removeprefix('/page')}" for route in routes if "/page/v1/" in route.path}
    assert wrapped == OPENED
    asked, opened = [*asked_by_modules()], {name.partition(" ")[2] for name in OPENED}
    for path in asked:
        assert any(begins(each, path) and each.count("/") == path.count("/") for each in opened), path
    files = {"/v1/files/{file}"}  # which the service names in its answers
    assert {each for each in opened - files if not any(begins(each, path) for path in asked)} == set()


def begins(route: str, path: str) -> bool:
    """Return whether the path of a route begins as a module writes it."""
    parts = zip(route.split("/"), path.split("/"), strict=False)
    return route.count("/") >= path.count("/") and all(part in (name, "{}") for name, part in parts)


async def test_no_page_of_another_address_is_answered_whatever_it_asks(routes: list[Route]) -> None:
    """Each route below /page, and each method there: with the cookie of a reader, as a browser would send it."""
    pages = [route for route in routes if route.path.startswith(("/page", "/login"))]
    assert len(pages) > 50
    async with listening(HttpConfig("127.0.0.1:0"), pages) as address:
        cookie = {"Cookie": f"fawn-{address.rpartition(':')[2]}=stolen"}
        async with ClientSession(base_url=address, cookie_jar=DummyCookieJar()) as client:
            for path in sorted({re.sub(r"\{\w+\}", "7", route.path) for route in pages}):
                for method in METHODS:
                    for forged in FORGED:
                        async with client.request(method, path, headers={**cookie, **forged}) as answer:
                            assert answer.status in (403, 421), (method, path, forged, answer.status)


async def test_each_write_names_its_page_and_a_cookie_alone_opens_nothing(routes: list[Route]) -> None:
    """A write without `Origin` is refused before anything is looked up; an asset and the sign-in need no session."""
    pages = [route for route in routes if route.path.startswith("/page")]
    async with listening(HttpConfig("127.0.0.1:0"), pages) as address, ClientSession(base_url=address) as client:
        for route in pages:
            path = re.sub(r"\{\w+\}", "7", route.path)
            if route.method not in ("GET", "HEAD"):
                async with client.request(route.method, path) as answer:
                    assert (answer.status, (await answer.json())["code"]) == (403, "foreign_page"), path
                twice = CIMultiDict([("Origin", address), ("Origin", address)])  # a browser sends one
                async with client.request(route.method, path, headers=twice) as answer:
                    assert answer.status == 403, path
            for origin in (address.replace("http:", "ftp:"), f"{address}.evil.example", address + "0"):
                async with client.request(route.method, path, headers={"Origin": origin}) as answer:
                    assert answer.status == 403, (path, origin)
