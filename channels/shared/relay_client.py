"""Fetch from a relay what other systems posted there, each delivery until it is stored (docs/relay.md)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

import orjson

from catalogue import _
from channels.base import Refused, TokenRejected, TryLater
from channels.shared.http_client import LONG_POLL, HttpClient, call_timeout

WAIT_SECONDS = 25.0  # for which the relay holds a question
GRACE_SECONDS = 10.0
NOT_YET_SECONDS = 0.25  # until deliveries that came too early are asked for again
MAX_ANSWER_BYTES = 16 << 20
REJECTED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a system posted: `received` is the Unix time at which the relay had it. The names of headers are small."""

    id: int
    source: str
    received: float
    headers: Mapping[str, str]
    body: bytes


class NotYet(Exception):
    """A delivery comes too early: it is offered again with those that came meanwhile."""


class RelayClient:
    """Asks one relay."""

    def __init__(self, http: HttpClient, url: str, key: str) -> None:
        self._http = http
        self._url = f"{url.rstrip('/')}/relay/take"
        self._key = key
        self._done: set[int] = set()  # stored, which the relay does not know yet

    async def fetch(
        self, sources: Collection[str], store: Callable[[Delivery], Awaitable[object]], *, wait: float = WAIT_SECONDS
    ) -> int:
        """Have `store` take what waits, or what comes soon, and return how many that were.

        What it stored is dropped by the relay with the next call. Raises ChannelError, and what `store` raises: then
        that delivery and those after it come again. NotYet of `store` holds up no other delivery.
        """
        asked = {"sources": sorted(sources), "done": sorted(self._done), "wait": wait}
        items = await self._ask(asked)
        self._done.difference_update(asked["done"])  # type: ignore[arg-type]  # its numbers
        new = [item for item in items if item.id not in self._done]
        early = 0
        for item in new:
            try:
                await store(item)
            except NotYet:
                early += 1
            else:
                self._done.add(item.id)
        if early:  # the relay offers them again at once
            await asyncio.sleep(NOT_YET_SECONDS)
        return len(new) - early

    async def probe(self) -> None:
        """Ask for nothing, to learn whether the relay takes the key. Raises ChannelError."""
        await self._ask({"sources": [], "done": [], "wait": 0.0})

    async def _ask(self, asked: Mapping[str, object]) -> list[Delivery]:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        options = {"timeout": call_timeout(WAIT_SECONDS + GRACE_SECONDS), "trace_request_ctx": LONG_POLL}
        async with self._http.request(
            "POST",
            self._url,
            data=orjson.dumps(asked),
            headers=headers,
            repeatable=True,
            allow_redirects=False,
            **options,
        ) as answer:
            if answer.status == 401:
                raise TokenRejected(_("The relay rejects the key: compare it in both places."), REJECTED_SECONDS)
            if answer.status >= 500 or answer.status == 429:
                raise TryLater(f"relay: {answer.status}")
            if answer.status != 200:
                raise Refused(_("The relay answered {status}: is this its address?", status=answer.status))
            return _read_items(await _bounded(answer.content.iter_any()))


async def _bounded(chunks: AsyncIterator[bytes]) -> bytes:
    """Return the whole answer. Raises Refused for one that no relay gives."""
    raw = bytearray()
    async for chunk in chunks:
        raw += chunk
        if len(raw) > MAX_ANSWER_BYTES:
            raise Refused(_("The relay's answer is too large."))
    return bytes(raw)


def _read_items(raw: bytes) -> list[Delivery]:
    """Return the deliveries of an answer. Raises Refused for another shape."""
    try:
        return [
            Delivery(
                int(item["id"]),
                str(item["source"]),
                float(item["received"]),
                {str(name): str(value) for name, value in item["headers"].items()},
                base64.b64decode(item["body"], validate=True),
            )
            for item in orjson.loads(raw)["items"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Refused(_("The relay's answer has another form: update Fawn on both sides.")) from None
