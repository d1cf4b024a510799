"""A wire-faithful Feishu open platform on loopback: the long connection with its frames, messages, cards, files.

    async with FakeFeishu() as feishu:
        feishu.send("hello")                       # Jane writes in her direct chat
        feishu.send("hello", chat=GROUP)           # … mentions the bot in a group
        feishu.fault("flood", "card.write", seconds=2)
        feishu.visible(GROUP, root)                # the bot's messages in that topic

Point a client at `feishu.base_url` with `APP` and `SECRET`. As its own process: `python -m tests.fakes.feishu
--port N`.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import itertools
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson
from aiohttp import WSMsgType, web

from tests.fakes.feishu_frames import Frame
from tests.fakes.feishu_people import People
from tests.fakes.feishu_rest import Files, Rates
from tests.fakes.feishu_world import (
    APP,
    BOT,
    DIRECT,
    GROUP,
    JANE,
    KIM,
    REACTION_SCOPES,
    REACTIONS,
    SECRET,
    TENANT,
    Refusal,
    Said,
)
from tests.fakes.server import Fault, Json, LocalServer, main, read_form, until

__all__ = ["APP", "BOT", "DIRECT", "GROUP", "JANE", "KIM", "SECRET", "TENANT", "Call", "FakeFeishu", "Said"]

ROUTES: tuple[tuple[str, str, str, str], ...] = (  # HTTP method, path, our name of it, the Python method
    ("POST", r"im/v1/messages", "message.send", "send"),
    ("GET", r"im/v1/messages", "message.list", "list"),
    ("GET", r"im/v1/messages/(?P<id>[^/]+)", "message.get", "get"),
    ("POST", r"im/v1/messages/(?P<id>[^/]+)/reply", "message.send", "reply"),
    ("PUT", r"im/v1/messages/(?P<id>[^/]+)", "message.update", "update"),
    ("DELETE", r"im/v1/messages/(?P<id>[^/]+)", "message.recall", "recall"),
    ("POST", r"im/v1/messages/(?P<id>[^/]+)/reactions", "reaction", "react"),
    ("DELETE", r"im/v1/messages/(?P<id>[^/]+)/reactions/(?P<reaction>[^/]+)", "reaction.delete", "unreact"),
    ("GET", r"im/v1/chats/(?P<id>[^/]+)", "chat", "chat"),
    ("POST", r"im/v1/files", "file.upload", "file"),
    ("POST", r"im/v1/images", "file.upload", "image"),
    ("GET", r"contact/v3/users/(?P<id>[^/]+)", "user", "user"),
    ("GET", r"bot/v3/info", "bot", "bot"),
    ("GET", r"application/v6/scopes", "scopes", "scopes"),
    ("POST", r"cardkit/v1/cards", "card.create", "card_create"),
    ("POST", r"cardkit/v1/cards/id_convert", "card.find", "card_find"),
    ("PUT", r"cardkit/v1/cards/(?P<id>[^/]+)", "card.replace", "card_replace"),
    ("PATCH", r"cardkit/v1/cards/(?P<id>[^/]+)/settings", "card.settings", "card_settings"),
    ("PUT", r"cardkit/v1/cards/(?P<id>[^/]+)/elements/(?P<element>\w+)", "card.element", "card_element"),
    ("PUT", r"cardkit/v1/cards/(?P<id>[^/]+)/elements/(?P<element>\w+)/content", "card.write", "card_write"),
)
RESOURCE = re.compile(r"im/v1/messages/(?P<id>[^/]+)/resources/(?P<key>[^/]+)")
NO_SCOPE = "Access denied. One of the following scopes is required. Please apply in the developer console."


@dataclass(slots=True)
class Call:
    """One call of the bot. `at` is time.monotonic()."""

    method: str
    body: Json
    place: str  # the chat, or the root of the topic, that it concerns
    at: float
    text: str = ""
    status: int = 0


@dataclass(slots=True)
class Pushed:
    """An event on its way: until it is acknowledged it comes again."""

    payload: bytes
    at: list[float] = field(default_factory=list)
    answers: list[Json] = field(default_factory=list)


class FakeFeishu(LocalServer, People):
    """The server; the state is in `feishu_world`, people in `feishu_people`, REST methods in `feishu_rest`."""

    patience = 1.0  # seconds for an acknowledgement; the real one waits 3
    retries: tuple[float, ...] = (0.3, 0.6, 1.0, 2.0, 4.0)  # …and pushes again after 15 s, 5 min, 1 h, 6 h
    fragments = 1  # frames that an event is cut into
    endpoint_error = 0
    socket_host = ""  # the event endpoint to announce instead of this server

    def __init__(self, app: str = APP, secret: str = SECRET, *, latency: float = 0.0) -> None:
        LocalServer.__init__(self, latency=latency)
        People.__init__(self)
        self.app, self.secret = app, secret
        self.token = f"t-{uuid.uuid4().hex}"
        self.token_calls = self.endpoint_calls = self.pings = 0
        self.calls: list[Call] = []
        self.rates: Rates | None = None  # None: no limits of the app
        self.places: dict[str, int] = {}  # chat or root → its number in faults
        self.pushed: dict[str, Pushed] = {}
        self.sockets: list[web.WebSocketResponse] = []
        self.deaf = False
        self._numbers = itertools.count(1)
        self.config = {"ReconnectCount": -1, "ReconnectInterval": 1, "ReconnectNonce": 0, "PingInterval": 1}

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/callback/ws/endpoint", self._endpoint)
        app.router.add_get("/ws/v2", self._socket)
        app.router.add_route("*", "/open-apis/{path:.*}", self._rest)

    # ------------------------------------------------------------ the long connection

    async def _endpoint(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.endpoint_calls += 1
        if fault := self.take_fault("endpoint"):
            return web.json_response({"code": 1, "msg": fault.description or "busy"})
        if self.endpoint_error:
            return web.json_response({"code": self.endpoint_error, "msg": "no"})
        if (body.get("AppID"), body.get("AppSecret")) != (self.app, self.secret):
            return web.json_response({"code": 514, "msg": "app_id or app_secret is invalid"})
        number = next(self._numbers)
        host = self.socket_host or f"ws://127.0.0.1:{self.port}"
        url = f"{host}/ws/v2?fpid=493&aid=552564&device_id={number}&service_id=33554678&ticket=x"
        return web.json_response({"code": 0, "msg": "", "data": {"URL": url, "ClientConfig": self.config}})

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=False, max_msg_size=0)
        await socket.prepare(request)
        self.deaf = False
        self.sockets.append(socket)
        for event_id, event in list(self.pushed.items()):  # events not acknowledged while no client was connected
            if not self.acknowledged(event_id):
                await self._push(event_id, event)
        async for message in socket:
            if self.deaf:
                continue
            if message.type is WSMsgType.PING:
                await socket.pong(message.data)
            elif message.type is WSMsgType.BINARY:
                await self._frame(socket, Frame.decode(message.data))
        if socket in self.sockets:
            self.sockets.remove(socket)
        return socket

    async def _frame(self, socket: web.WebSocketResponse, frame: Frame) -> None:
        if frame.method == 0 and frame.headers.get("type") == "ping":
            self.pings += 1
            await socket.send_bytes(Frame(0, {"type": "pong"}, orjson.dumps(self.config)).encode())
        elif frame.method == 1 and (event := self.pushed.get(frame.headers["message_id"])):
            answer = orjson.loads(frame.payload)
            if answer.get("data"):
                answer["data"] = orjson.loads(base64.b64decode(answer["data"]))
            event.answers.append(answer)
            self.end_click(frame.headers["message_id"], answer.get("data"))

    def deliver(self, event: Json) -> str:
        """Push an event repeatedly until it is acknowledged; return the frame's id."""
        event_id, kind = uuid.uuid4().hex, event["header"]["event_type"]
        if kind not in self.events or (kind in REACTIONS and not REACTION_SCOPES & self.scopes):
            return ""  # the app has not subscribed to it, or may not see it
        self.pushed[event_id] = Pushed(orjson.dumps(event))

        async def push() -> None:
            for pause in (0.0, *self.retries):
                await asyncio.sleep(pause)
                if self.acknowledged(event_id):
                    return
                await self._push(event_id, self.pushed[event_id])
                await asyncio.sleep(self.patience)

        self.start_task(push)
        return event_id

    def redeliver(self, event_id: str = "") -> None:
        """Push an event (the last one) again, whatever was answered."""
        known = event_id or list(self.pushed)[-1]
        copy = self.pushed[known].payload
        self.deliver(orjson.loads(copy))

    def acknowledged(self, event_id: str) -> bool:
        return any(answer["code"] == 200 for answer in self.pushed[event_id].answers)

    def answer(self, event_id: str) -> Json | None:
        """Return the bot's answer to an event (the toast of a click)."""
        return next((a.get("data") for a in self.pushed[event_id].answers if a["code"] == 200), None)

    async def _push(self, event_id: str, event: Pushed) -> None:
        if not self.sockets or self.deaf:
            return
        event.at.append(time.monotonic())
        size = -(-len(event.payload) // self.fragments)
        for number in range(self.fragments):
            headers = {"type": "event", "message_id": event_id, "trace_id": "t", "sum": str(self.fragments)}
            piece = event.payload[number * size : (number + 1) * size]
            frame = Frame(1, {**headers, "seq": str(number)}, piece, sequence=next(self._numbers))
            with suppress(ConnectionError):  # its connection has just ended: the event is pushed again later
                await self.sockets[-1].send_bytes(frame.encode())  # with several connections one of them gets it

    def abort(self) -> None:
        """Break every connection."""
        for socket in self.sockets:
            if socket._req is not None and socket._req.transport:
                socket._req.transport.abort()
        self.sockets.clear()

    def deafen(self) -> None:
        """Keep connections open, but send nothing, until a new one is opened."""
        self.deaf = True

    # ------------------------------------------------------------ REST

    async def _rest(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        body, files = await _body(request)
        if path == "auth/v3/tenant_access_token/internal":
            return await self._token(request, body)
        name, run, text = self._match(request, path, body, files)
        place = self._place(path, body)
        call = Call(name, body, place, time.monotonic(), text)
        self.calls.append(call)
        if self.latency:
            await asyncio.sleep(self.latency)
        fault = self.take_fault(name, self.places.get(place), text)
        if fault and not fault.after and (suffered := await self._suffer(fault, request)):
            return suffered
        try:
            if request.headers.get("Authorization") != f"Bearer {self.token}":
                raise Refusal(99991663, "Invalid access token for authorization. Please make a test attempt with it.")
            if self.rates and self.rates.exceeds(name):
                raise Refusal(99991400, "request trigger frequency limit", 429)
            if not self.may_call(name):
                raise Refusal(99991672, NO_SCOPE)
            answer = run()
            if isinstance(answer, Awaitable):
                answer = await answer
        except Refusal as refusal:
            call.status = refusal.status
            headers = {"x-ogw-ratelimit-reset": "1"} if refusal.status == 429 else {}
            said = {"code": refusal.code, "msg": refusal.words}
            return web.json_response(said, status=refusal.status, headers=headers)
        if fault and fault.after and (suffered := await self._suffer(fault, request)):
            return suffered
        call.status = 200
        if isinstance(answer, web.StreamResponse):
            return answer
        whole = answer if name == "bot" else {"data": answer}  # an old method: its answer has no `data`
        return web.json_response({"code": 0, "msg": "success", **whole})

    def _match(self, request: web.Request, path: str, body: Json, files: Files) -> tuple[str, Callable[[], Any], str]:
        query = dict(request.query)
        if found := RESOURCE.fullmatch(path):
            return "resource", lambda: self._resource(request, found["id"], found["key"], query), ""
        text = str(body.get("content") or body.get("data") or body.get("card") or "")
        method = request.method
        for verb, pattern, name, python in ROUTES:
            if verb == method and (known := re.fullmatch(pattern, path)):
                whole = {"body": body, "files": files, "query": query, **known.groupdict()}
                return name, functools.partial(getattr(self, f"m_{python}"), **whole), text
        return "unknown", lambda: _refuse(404, "404 page not found"), text

    def _place(self, path: str, body: Json) -> str:
        """Return the chat, or the topic's root, of a call."""
        if chat := body.get("receive_id"):
            return str(chat)
        if found := re.match(r"im/v1/messages/([^/]+)", path):
            said = self.messages.get(found[1])
        else:
            card = re.match(r"cardkit/v1/cards/([^/]+)", path)
            said = next((m for m in self.messages.values() if card and m.card == card[1]), None)
        if said is None:
            return ""
        return said.root or (said.id if self.chats.get(said.chat) != "p2p" else said.chat)

    def _resource(self, request: web.Request, message_id: str, key: str, query: Json) -> Awaitable[web.StreamResponse]:
        said = self.messages.get(message_id)
        if said is None or key not in orjson.dumps(said.content).decode() or key not in self.files:
            raise Refusal(234003, "File not in msg.")
        if query.get("type") != ("image" if key.startswith("img") else "file"):
            raise Refusal(234001, "Invalid request param.")
        name, data = self.files[key]
        if len(data) > 100 << 20:
            raise Refusal(234037, "Downloaded file size exceeds limit.")
        disposition = f"attachment; filename*=UTF-8''{quote(name)}"
        return self.give(request, data, "application/octet-stream", Content_Disposition=disposition)

    async def _token(self, request: web.Request, body: Json) -> web.StreamResponse:
        self.token_calls += 1
        fault = self.take_fault("token")
        if fault and (suffered := await self._suffer(fault, request)):
            return suffered
        if body.get("app_id") != self.app:
            return web.json_response({"code": 10003, "msg": "invalid param"})
        if body.get("app_secret") != self.secret:
            return web.json_response({"code": 10014, "msg": "app secret invalid"})
        return web.json_response({"code": 0, "msg": "ok", "tenant_access_token": self.token, "expire": 7200})

    def expire(self) -> None:
        """Invalidate the token."""
        self.token = f"t-{uuid.uuid4().hex}"

    async def _suffer(self, fault: Fault, request: web.Request) -> web.StreamResponse | None:
        if fault.kind == "flood":
            words = {"code": 99991400, "msg": "request trigger frequency limit"}
            return web.json_response(words, status=429, headers={"x-ogw-ratelimit-reset": f"{fault.seconds:g}"})
        if fault.kind == "error":
            if fault.body:
                return web.Response(text=fault.body, status=fault.code, content_type="text/html")
            return web.json_response({"code": 230099, "msg": fault.description or "fault"}, status=fault.code)
        return await self.suffer(fault, request)

    # ------------------------------------------------------------ for tests

    async def wait(self, text: str, chat: str = DIRECT, root: str = "", seconds: float = 60.0) -> str:
        """Return the first visible message of the bot with `text` in it. Raises TimeoutError."""
        await until(lambda: any(text in shown for shown in self.visible(chat, root)), seconds, text)
        return next(shown for shown in self.visible(chat, root) if text in shown)

    def calls_of(self, *methods: str) -> list[Call]:
        """The calls of these methods ("card." = all that begin so; none = all), in order of arrival."""
        return [call for call in self.calls if call.method.startswith(methods or ("",))]


def _refuse(code: int, words: str) -> Json:
    raise Refusal(code, words, 404)


async def _body(request: web.Request) -> tuple[Json, Files]:
    if request.content_type != "multipart/form-data":
        raw = await request.read()
        return (orjson.loads(raw) if raw else {}), {}
    form = await read_form(request)
    return form.texts, form.files


if __name__ == "__main__":
    main(FakeFeishu())
