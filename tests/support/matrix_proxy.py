"""Stand between the channel and a real homeserver, and cause the faults of the contract."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import aiohttp
import orjson
from aiohttp import web
from yarl import URL

from tests.fakes.server import Fault, LocalServer

_ROOM = re.compile(r"/rooms/([^/]+)/(\w+)(?:/([^/]+))?")
_HOP = {"transfer-encoding", "connection", "content-length", "content-encoding", "host"}


@dataclass(frozen=True, slots=True)
class Made:
    """A call that arrived: what it does, and in which room and thread."""

    method: str
    place: tuple[str, str]


class MatrixProxy(LocalServer):
    """Passes every call on to `target`. `places` has the topic of each (room, thread)."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target
        self.calls: list[Made] = []
        self.places: dict[tuple[str, str], int] = {}
        self._client: aiohttp.ClientSession | None = None
        self._threads: dict[str, str] = {}  # event → its thread

    def routes(self, app: web.Application) -> None:
        app.router.add_route("*", "/{path:.*}", self._pass)

    async def start(self, port: int = 0) -> MatrixProxy:
        self._client = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None))
        await super().start(port)
        return self

    async def stop(self) -> None:
        await super().stop()
        if self._client:
            await self._client.close()

    def calls_of(self, method: str) -> Sequence[object]:
        return [made for made in self.calls if made.method == method or (not method and made.method != "sync")]

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        made = self._classify(request, data)
        self.calls.append(made)
        fault = None
        if made.method != "sync":
            text = data.decode("utf-8", "replace")
            fault = self.take_fault(made.method, self.places.get(made.place, -1), text)
        if fault and not fault.after and (ended := await self._end(fault, request)):
            return ended
        answer = await self._forward(request, data)
        if made.method in ("post", "file") and isinstance(answer, web.Response) and answer.status == 200:
            assert isinstance(answer.body, bytes)
            self._threads[orjson.loads(answer.body)["event_id"]] = made.place[1]
        if fault and fault.after and (ended := await self._end(fault, request)):
            return ended
        return answer

    async def _end(self, fault: Fault, request: web.Request) -> web.StreamResponse | None:
        if fault.kind == "flood":
            body = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests"}
            body["retry_after_ms"] = int(fault.seconds * 1000)  # type: ignore[assignment] # a JSON object
            return web.json_response(body, status=429)
        if fault.kind == "error":
            if fault.body:
                return web.Response(text=fault.body, status=fault.code, content_type="text/html")
            refused = {"errcode": "M_UNKNOWN", "error": fault.description or "refused"}
            return web.json_response(refused, status=fault.code)
        return await self.suffer(fault, request)

    async def _forward(self, request: web.Request, data: bytes) -> web.StreamResponse:
        assert self._client
        head = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        url = self.target + request.raw_path
        async with self._client.request(
            request.method, URL(url, encoded=True), data=data or None, headers=head
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            if "/download/" in request.path:
                body = await answer.read()
                mime = kept.pop("Content-Type", "application/octet-stream").partition(";")[0]
                return await self.give(request, body, mime)
            return web.Response(body=await answer.read(), status=answer.status, headers=kept)

    def _classify(self, request: web.Request, data: bytes) -> Made:
        if request.path.endswith("/sync"):
            return Made("sync", ("", ""))
        found = _ROOM.search(request.raw_path)
        if not found:
            return Made("media" if "/upload" in request.path else "other", ("", ""))
        room, deed, kind = unquote(found[1]), found[2], unquote(found[3] or "")
        if deed != "send":
            return Made({"redact": "delete"}.get(deed, deed), (room, ""))
        content = orjson.loads(data)
        relation = content.get("m.relates_to") or {}
        thread = relation["event_id"] if relation.get("rel_type") == "m.thread" else ""
        if kind == "m.reaction":
            return Made("react", (room, ""))
        if relation.get("rel_type") == "m.replace":
            return Made("edit", self._place_of_edit(room, relation["event_id"]))
        return Made("file" if "/file-" in request.path else "post", (room, thread))

    def _place_of_edit(self, room: str, event: str) -> tuple[str, str]:
        return room, self._threads.get(event, "")
