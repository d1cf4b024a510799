"""A web server on loopback for the agent's web tools, and DNS answers under a test's control."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from agent.web.addresses import AddressGuard
from agent.web.fetcher import WebFetcher

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Prose of the length that the extraction takes for an article.
ARTICLE = """<html><head><title>Otters of the Elbe</title>
<meta property="article:published_time" content="2026-03-04T10:00:00Z"></head><body>
<nav><a href="/login">Log in</a> <a href="/shop">Shop</a></nav><article><h1>Otters of the Elbe</h1>
<p>In 2025 rangers counted 412 otters along the river Elbe, which is 18 percent more than in the year before.
The animals came back after the water became cleaner, says the <a href="/study">study of the institute</a>.</p>
<p>Most otters live between Magdeburg and Wittenberge, where old branches of the river offer many hiding places.
Rangers look for their tracks in the snow, and cameras record them at night when they hunt for fish.</p>
</article><footer>Imprint and privacy policy of the website</footer></body></html>"""


@dataclass
class ScriptedResolver(AbstractResolver):
    """Answers names with lists of addresses; the last list of a name repeats."""

    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        answers = self.answers[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None: ...


@dataclass
class WebSite:
    """The server: pages by path, and the requests it got."""

    pages: dict[str, Handler | web.Response] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)  # host, path
    headers: dict[str, str] = field(default_factory=dict)  # of the latest request
    bodies: list[Any] = field(default_factory=list)
    port: int = 0
    dns: ScriptedResolver = field(default_factory=ScriptedResolver)

    def url(self, path: str = "/", host: str = "site.test") -> str:
        """Return a URL of this server, whose name resolves to it."""
        self.dns.answers.setdefault(host, [["127.0.0.1"]])
        return f"http://{host}:{self.port}{path}"

    def guard(self) -> AddressGuard:
        """Return the guard with this server as the only exception."""
        return AddressGuard(frozenset({80, 443, self.port}), frozenset({"127.0.0.1"}), self.dns)

    def fetcher(self, *, obeys_robots: bool = True, pace_seconds: float = 0.0) -> WebFetcher:
        """Return a fetcher that may read from this server."""
        return WebFetcher(obeys_robots=obeys_robots, guard=self.guard(), pace_seconds=pace_seconds)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((str(request.url.host), request.path_qs))
        self.headers = dict(request.headers)
        if request.content_type == "application/json":
            self.bodies.append(await request.json())
        page = self.pages.get(request.path)
        if page is None:
            return web.Response(status=404)
        return page.clone() if isinstance(page, ClonedResponse) else await page(request)  # type: ignore[operator]  # a handler


class ClonedResponse(web.Response):
    """A response that can be sent more than once."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.arguments = arguments

    def clone(self) -> web.Response:
        return web.Response(**self.arguments)


def html(text: str, **more: Any) -> ClonedResponse:
    """Return a page."""
    return ClonedResponse(text=text, content_type="text/html", **more)


def redirect(location: str) -> ClonedResponse:
    """Return a redirect."""
    return ClonedResponse(status=302, headers={"Location": location})


@asynccontextmanager
async def serve_site() -> AsyncIterator[WebSite]:
    """Run the server."""
    site = WebSite()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    site.port = runner.addresses[0][1]
    try:
        yield site
    finally:
        await runner.cleanup()
