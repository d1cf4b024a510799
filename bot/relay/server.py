"""Run a relay: check what is posted at a public address, keep it on disk, and hand it over when Fawn asks for it.

A delivery is a file in `data_dir/relay`, whole and synced before its sender gets an answer, and there until Fawn has
said, by its number, that it is stored. So each one is handed over at least once, and Fawn, which recognises what came
before, takes it once. The relay knows what the senders sign with, and nothing of Fawn but the key it asks with.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import os
import re
import signal
import stat
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from bot.base.signatures import BadSignature, check_signature, is_needed_before_body
from bot.config.hooks import MAX_BODY_BYTES, RelayConfig, RelaySource
from bot.config.schema import Config
from bot.http.route import HttpProblem, Route, UnsignedBodies, json_response, read_headers, read_json

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

MAX_META_BYTES = 3 << 20  # developers.facebook.com/docs/graph-api/webhooks/getting-started: "up to … 3 MB"
MAX_HEADER_CHARS = 2_000
MAX_TAKEN = 50  # deliveries in one answer…
MAX_TAKEN_BYTES = 8 << 20  # …and their bodies, but for the first one
MAX_DONE = 1_000
MAX_WAIT_SECONDS = 55.0  # proxies end a silent request after a minute
MAX_WAITING = 20_000  # files
FULL_SECONDS, BUSY_SECONDS = 60, 10  # Retry-After
KEPT_HEADERS = re.compile(
    r"(?:content-type|authorization|idempotency-key|request-id|webhook-.+|sentry-.+|x-(?!forwarded|real-).+)"
)
NAME = re.compile(r"(?P<id>\d{20})\.(?P<source>[a-z0-9-]+)")
CHALLENGE = re.compile(r"[\w.-]{1,200}", re.ASCII)


class SpoolFull(Exception):
    """More waits than the disk is to hold."""


class Spool:
    """The deliveries that wait, in files, the oldest first."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._waiting: dict[int, tuple[str, int]] = {}  # number → source, bytes; the oldest first
        self._bytes = 0
        self._writing = asyncio.Lock()
        self._more = asyncio.Event()

    def load_waiting(self) -> int:
        """Read what waits since an earlier start, and return how many. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(self._folder.iterdir()):
            if found := NAME.fullmatch(path.name):
                if stat.S_ISREG((kept := path.lstat()).st_mode):  # no link to another file
                    self._add(int(found["id"]), found["source"], kept.st_size)
            elif path.suffix == ".part":  # its sender got no answer
                path.unlink()
        return len(self._waiting)

    async def keep(self, source: str, headers: Mapping[str, str], body: bytes, now: float) -> None:
        """Keep a delivery; returns once the disk has it, also when its sender leaves. Raises SpoolFull and OSError."""
        raw = orjson.dumps({"received": now, "headers": headers}) + b"\n" + body
        await asyncio.shield(asyncio.create_task(self._keep(source, raw), name=f"relay {source}"))

    async def _keep(self, source: str, raw: bytes) -> None:
        async with self._writing:
            if self._bytes + len(raw) > self._max_bytes or len(self._waiting) >= MAX_WAITING:
                raise SpoolFull
            id = max(time.time_ns(), next(reversed(self._waiting), 0) + 1)
            await asyncio.to_thread(self._write, id, source, raw)
            self._add(id, source, len(raw))
        self._more.set()

    def _add(self, id: int, source: str, size: int) -> None:
        self._waiting[id] = source, size
        self._bytes += size

    def _write(self, id: int, source: str, raw: bytes) -> None:
        path = self._path(id, source)
        part = path.with_name(f"{path.name}.part")  # no name of a delivery, whatever its source is called
        try:
            with part.open("xb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)  # the name, too
            finally:
                os.close(folder)
        except OSError:  # its sender is told to come again: what is there takes room for nothing
            for each in (part, path):
                with suppress(OSError):
                    each.unlink(missing_ok=True)
            raise

    async def wait(self, sources: Collection[str], seconds: float) -> list[int]:
        """Return the oldest deliveries of these sources; wait for one if there is none."""
        until = time.monotonic() + seconds
        while not (found := [id for id, (source, _size) in self._waiting.items() if source in sources][:MAX_TAKEN]):
            self._more.clear()
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await self._more.wait()
            except TimeoutError:
                return []
        return found

    async def read(self, ids: Iterable[int]) -> list[dict[str, Any]]:
        """Return deliveries as they are handed over."""
        found, size = list[dict[str, Any]](), 0
        for id in ids:
            if id not in self._waiting:
                continue
            source, own = self._waiting[id]
            if found and size + own > MAX_TAKEN_BYTES:
                break
            try:
                raw = await asyncio.to_thread(self._path(id, source).read_bytes)
                head, _newline, body = raw.partition(b"\n")
                told = {name: orjson.loads(head)[name] for name in ("received", "headers")}
            except (FileNotFoundError, IsADirectoryError, ValueError, KeyError, TypeError) as error:
                await asyncio.to_thread(self._set_aside, id, source, error)
                continue
            found.append({"id": id, "source": source, **told, "body": base64.b64encode(body).decode()})
            size += own
        return found

    def _set_aside(self, id: int, source: str, error: Exception) -> None:
        """Hand over the others without this one, which somebody may want to look at. It counts no more."""
        log.error("relay.damaged source=%s id=%d reason=%r", source, id, error)
        self._bytes -= self._waiting.pop(id)[1]
        path = self._path(id, source)
        with suppress(OSError):
            path.rename(path.with_name(f"{path.name}.damaged"))

    async def drop(self, ids: Iterable[int]) -> None:
        """Forget deliveries that Fawn has stored, also when it leaves meanwhile."""
        await asyncio.shield(asyncio.create_task(self._drop(ids), name="relay drop"))

    async def _drop(self, ids: Iterable[int]) -> None:
        for id in ids:
            if found := self._waiting.pop(id, None):
                self._bytes -= found[1]
                await asyncio.to_thread(self._path(id, found[0]).unlink, missing_ok=True)

    def _path(self, id: int, source: str) -> Path:
        return self._folder / f"{id:020d}.{source}"


@dataclass(slots=True)
class Relay:
    """The routes of a relay."""

    config: RelayConfig
    spool: Spool
    _bodies: UnsignedBodies = field(default_factory=UnsignedBodies)
    _latest: dict[str, deque[float]] = field(default_factory=dict)  # source → time.monotonic() of deliveries

    def routes(self) -> list[Route]:
        """Return the routes: of senders, and of Fawn."""
        return [
            Route("POST", "/hooks/{name}", self._keep, body_bytes=MAX_META_BYTES),
            Route("GET", "/hooks/{name}", self._confirm, quiet=True),
            Route("POST", "/relay/take", self._hand_over, quiet=True),
            Route("GET", "/healthz", self._live, quiet=True, plain=True),
        ]

    async def _live(self, _request: web.Request) -> web.Response:
        return json_response(200, {"alive": True})

    async def _keep(self, request: web.Request) -> web.Response:
        """Keep a delivery of a sender, and answer when the disk has it."""
        name, source = self._source(request)
        headers = read_headers(request)
        if is_needed_before_body(source.as_hook):  # a stranger's body is not read
            _prove(source, headers, b"")
        body = await self._bodies.read(request)
        _prove(source, headers, body)
        if source.signature != "meta" and len(body) > MAX_BODY_BYTES:
            raise HttpProblem(413, "too_large", f"The body has more than {MAX_BODY_BYTES} bytes.", "Send less.")
        self._count(name)
        kept = {key: value[:MAX_HEADER_CHARS] for key, value in headers.items() if KEPT_HEADERS.fullmatch(key)}
        try:
            await self.spool.keep(name, kept, body, time.time())
        except (SpoolFull, OSError) as error:
            log.error("relay.full source=%s reason=%s", name, error or "too much waits")  # noqa: TRY400 — the reason is enough
            what, again = "The relay cannot keep more now.", {"Retry-After": str(FULL_SECONDS)}
            raise HttpProblem(503, "full", what, "Send it again later.", headers=again) from None
        log.info("relay.kept source=%s bytes=%d", name, len(body))
        return json_response(202, {"state": "stored"})

    async def _confirm(self, request: web.Request) -> web.Response:
        """Answer Meta's question whether the address is the operator's.

        developers.facebook.com/docs/graph-api/webhooks/getting-started#verification-requests
        """
        from aiohttp import web

        _name, source = self._source(request)
        asked, wanted = request.query.get("hub.verify_token", ""), source.verify_token.reveal()
        challenge = request.query.get("hub.challenge", "")
        is_known = bool(wanted) and hmac.compare_digest(asked.encode(), wanted.encode())
        if request.query.get("hub.mode") != "subscribe" or not is_known or not CHALLENGE.fullmatch(challenge):
            raise HttpProblem(403, "not_verified", "The verify token does not fit.", "Compare `verify_token`.")
        return web.Response(text=challenge)

    async def _hand_over(self, request: web.Request) -> web.Response:
        """Drop what Fawn has stored, and return what waits, now or when something comes."""
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, f"Bearer {self.config.key.reveal()}".encode()):
            raise HttpProblem(401, "bad_key", "The key does not fit.", "Compare `relay.key` in both places.")
        asked = await read_json(request)
        try:
            sources, done, seconds = [*map(str, asked["sources"])], [*map(int, asked["done"])], float(asked["wait"])
        except (KeyError, TypeError, ValueError):
            raise HttpProblem(
                400, "bad_body", "`sources`, `done` and `wait` are needed.", "Update both sides."
            ) from None
        await self.spool.drop(done[:MAX_DONE])
        ids = await self.spool.wait(frozenset(sources), min(max(seconds, 0.0), MAX_WAIT_SECONDS))
        return json_response(200, {"items": await self.spool.read(ids)})

    def _source(self, request: web.Request) -> tuple[str, RelaySource]:
        name = request.match_info["name"]
        if (source := self.config.sources.get(name)) is None:
            what = "There is no source of this name."
            raise HttpProblem(404, "unknown_hook", what, "Compare the end of the address with `relay.sources`.")
        return name, source

    def _count(self, name: str) -> None:
        """Count a genuine delivery. Raises HttpProblem beyond the rate of its source."""
        now, latest = time.monotonic(), self._latest.setdefault(name, deque())
        while latest and latest[0] <= now - 60.0:
            latest.popleft()
        if len(latest) >= self.config.per_minute:
            again = {"Retry-After": str(BUSY_SECONDS)}
            raise HttpProblem(429, "too_many", "This source posts too much.", "Send it again later.", headers=again)
        latest.append(now)


def _prove(source: RelaySource, headers: Mapping[str, str], body: bytes) -> None:
    try:
        check_signature(source.as_hook, headers, body, time.time())
    except BadSignature as error:
        raise HttpProblem(401, error.code, error.what, error.fix) from error


async def serve_relay(config: Config) -> None:
    """Serve until a signal. Raises OSError for a bad folder, and AgentConfigError for an address that is in use."""
    from bot.http.listener import listening

    spool = Spool(config.data_dir / "relay", config.relay.max_mb << 20)
    waiting = spool.load_waiting()
    async with listening(config.http, Relay(config.relay, spool).routes()) as address:
        log.info("relay.ready address=%s waiting=%d", address, waiting)
        stop = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
        await stop.wait()
