"""Answer the probes of containers, clusters and monitors: `/healthz` and `/readyz`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from bot.http.route import Route, json_response
from bot.status.trouble import Trouble

Look = Callable[[], Awaitable[Sequence[Trouble]]]
FRESH_SECONDS = 1.0  # for so long all probes get one answer: asking often costs the service nothing


@dataclass(slots=True)
class HealthProbes:
    """The routes. `look` finds what keeps the service from its work."""

    look: Look
    _found: Sequence[Trouble] = ()
    _looked: float = float("-inf")
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def routes(self) -> Sequence[Route]:
        """Return the routes of both probes."""
        return [Route("GET", "/healthz", self._live, plain=True), Route("GET", "/readyz", self._ready, plain=True)]

    async def _live(self, _request: web.Request) -> web.Response:
        """Say that the event loop works: an answer says it."""
        return json_response(200, {"alive": True})

    async def _ready(self, _request: web.Request) -> web.Response:
        """Say whether messages are answered, otherwise what is broken, since when and why."""
        async with self._looking:
            if time.monotonic() - self._looked > FRESH_SECONDS:
                self._found, self._looked = await self.look(), time.monotonic()
        troubles = [each.as_json() for each in self._found]
        return json_response(503 if troubles else 200, {"ready": not troubles, "troubles": troubles})
