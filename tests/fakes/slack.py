"""A wire-faithful Slack on loopback: Web API, Socket Mode, file host, response URLs, limits and faults.

    async with FakeSlack() as slack:                   # or: with FakeSlack().in_thread() as slack
        ts = slack.send("<@U0FAWN> hello")             # Jane writes in #ops
        slack.fault("flood", "chat.update", seconds=2)
        await slack.wait("the answer", thread=ts)      # until the bot's message with this text is visible
        slack.visible(thread=ts)                       # [Shown(ts="…", text="the answer", …)]

Point a client at `slack.api_url` with `BOT_TOKEN` and `APP_TOKEN`. As its own process: `python -m tests.fakes.slack
--port N`; `POST /_control/send {"text": "hello"}` then does what `slack.send(text="hello")` does.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from tests.fakes.model_script import without_directives
from tests.fakes.server import Fault, Json, LocalServer, main, read_form
from tests.fakes.slack_methods import ApiError
from tests.fakes.slack_people import People
from tests.fakes.slack_rates import Rates
from tests.fakes.slack_scopes import needed_scopes
from tests.fakes.slack_world import APP_TOKEN, BOT, BOT_TOKEN, JANE, OPS, TEAM, Post, Shown, Workspace

__all__ = ["APP_TOKEN", "BOT", "BOT_TOKEN", "JANE", "OPS", "TEAM", "Call", "FakeSlack", "Rates", "Shown", "Workspace"]

STRUCTURED = ("blocks", "chunks", "metadata", "files")  # JSON text in forms and queries


@dataclass(slots=True)
class Call:
    """One call. Times are time.monotonic(), which all processes of a machine share."""

    method: str
    args: Json
    team: str
    at: float
    status: int = 0  # the HTTP status answered, 0 while there is none
    error: str = ""
    done: float = 0.0

    @property
    def channel(self) -> str:
        return str(self.args.get("channel") or self.args.get("channel_id") or "")

    @property
    def text(self) -> str:
        return orjson.dumps(self.args, default=str).decode()


@dataclass(slots=True)
class Socket:
    ws: web.WebSocketResponse
    request: web.Request
    app_token: str
    deaf: bool = False


@dataclass(slots=True)
class Envelope:
    """An envelope to acknowledge: `ids` are the envelope ids of its deliveries, `acks` the answers."""

    kind: str
    payload: Json
    accepts: bool
    app_token: str
    ids: list[str] = field(default_factory=list)
    acks: list[Json] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    lost: bool = False  # no client was connected during Slack's few minutes of retries, so it is lost


class FakeSlack(LocalServer, People):
    """The server; actions of people are in `slack_people`, the methods in `slack_methods`."""

    def __init__(self, *workspaces: Workspace, latency: float = 0.0, redeliver_after: float = 1.0) -> None:
        LocalServer.__init__(self, latency=latency)
        People.__init__(self, *workspaces)
        self.redeliver_after = redeliver_after  # seconds without an ack; Slack itself: 3, then a minute, five minutes
        self.calls: list[Call] = []
        self.envelopes: dict[str, Envelope] = {}
        self.sockets: list[Socket] = []
        self.tickets: dict[str, str] = {}  # ticket → app token
        self.opens = 0
        self.refuse_handshakes = 0
        self.login_page = False  # the file host rejects the token
        self.app_scopes = {"connections:write"}  # of the app-level token
        self.names_scopes = True  # its answers name the scopes
        self.limits = False  # True: Slack's tiers hold
        self.rates = Rates()

    @property
    def api_url(self) -> str:
        return f"{self.base_url}/api/"

    def routes(self, app: web.Application) -> None:
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/link/", self._link)
        app.router.add_post("/upload/v1/{file}", self._upload)
        app.router.add_get("/files-pri/{file}/download/{name}", self._download)
        app.router.add_get("/login", _login)
        app.router.add_post("/commands/{path:.*}", self._response_url)

    # ------------------------------------------------------------ for tests

    def calls_of(self, method: str = "", text: str = "") -> list[Call]:
        """The calls of a method ("" = all) with `text` in their arguments, in order of arrival."""
        return [call for call in list(self.calls) if method in ("", call.method) and text in call.text]

    async def wait(
        self, text: str, channel: str = OPS, thread: str | None = None, team: str = TEAM, seconds: float = 60.0
    ) -> Shown:
        """The first visible message of the bot with `text` in it, outside quoted directives. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for shown in self.visible(channel, thread, team):
                if text in without_directives(shown.text):
                    return shown
            await asyncio.sleep(0.005)
        raise TimeoutError(f"no {text!r} in {channel} {thread}: {self.texts(channel, thread, team)}")

    def acked(self, key: str) -> bool:
        return bool(self.envelopes[key].acks)

    def abort(self) -> None:
        """Break every socket without a close frame."""
        for socket in self.sockets:
            if socket.request.transport:
                self.call_in_loop(socket.request.transport.abort)

    def deafen(self) -> None:
        """Keep the sockets open, but send nothing."""
        for socket in self.sockets:
            socket.deaf = True

    def refresh(self) -> None:
        """Ask every client to reconnect."""
        self.call_in_loop(lambda: asyncio.ensure_future(self._refresh()))

    def redeliver(self) -> None:
        """Send the last envelope again, with the same event."""
        envelope = list(self.envelopes.values())[-1]
        self.call_in_loop(lambda: asyncio.ensure_future(self._send(envelope)))

    def forget(self) -> None:
        """Empty the logs and the conversations' messages."""
        self.calls.clear()
        self.envelopes.clear()
        for place in self.conversations.values():
            place.posts.clear()

    # ------------------------------------------------------------ the Web API

    async def _api(self, request: web.Request) -> web.StreamResponse:
        call = Call(request.match_info["method"], {}, "", time.monotonic())
        self.calls.append(call)
        try:
            call.args = await _arguments(request)
            workspace = self._authorize(call, request.headers.get("Authorization", ""))
            fault = self.take_fault(call.method, text=call.text)
            if fault and not fault.after and (answer := await self._hit(fault, request, call)):
                return answer
            if late := self.rates.late(call.method, call.team, call.channel) if self.limits else 0.0:
                return _flood(call, late)
            if self.latency:
                await asyncio.sleep(self.latency)
            result = self._result(call, workspace)
            if fault and fault.after and (answer := await self._hit(fault, request, call)):
                return answer
        except ApiError as error:
            call.error = error.error
            return _answer(call, {"ok": False, "error": error.error, **error.more})
        named = {"X-OAuth-Scopes": ",".join(sorted(self.scopes))} if self.names_scopes else {}
        return _answer(call, {"ok": True, **result}, named)

    def _authorize(self, call: Call, header: str) -> Workspace:
        token = header.removeprefix("Bearer ")
        if call.method == "apps.connections.open":
            found = next((w for w in self.workspaces.values() if w.app_token == token), None)
            if not found and token.startswith("xoxb-"):
                raise ApiError("not_allowed_token_type")
        else:
            found = next((w for w in self.workspaces.values() if w.bot_token == token), None)
        if not found:
            raise ApiError("invalid_auth" if token else "not_authed")
        call.team = found.team
        granted = self.app_scopes if call.method == "apps.connections.open" else self.scopes
        place = self.conversations.get((found.team, call.channel))
        needed = needed_scopes(call.method, place.kind if place else "", str(call.args.get("types") or ""))
        if missing := [scope for scope in needed if scope not in granted]:
            raise ApiError("missing_scope", needed=missing[0], provided=",".join(sorted(granted)))
        return found

    async def _hit(self, fault: Fault, request: web.Request, call: Call) -> web.StreamResponse | None:
        if fault.kind == "flood":
            return _flood(call, fault.seconds)
        if fault.kind == "error":
            if fault.description:
                raise ApiError(fault.description)
            call.status, call.done = fault.code, time.monotonic()
            return web.Response(status=fault.code, text=fault.body or "upstream error", content_type="text/html")
        return await self.suffer(fault, request)

    def _result(self, call: Call, workspace: Workspace) -> Json:
        if call.method == "apps.connections.open":
            self.opens += 1
            ticket = uuid.uuid4().hex
            self.tickets[ticket] = workspace.app_token
            return {"url": f"{self.base_url.replace('http', 'ws')}/link/?ticket={ticket}&app_id=A0FAWN"}
        method = getattr(self, f"m_{call.method.replace('.', '_')}", None)
        if method is None:
            raise ApiError("unknown_method", req_method=call.method)
        try:
            result: Json = method(workspace, call.args)
        except (KeyError, ValueError, TypeError) as error:
            raise ApiError("invalid_arguments", detail=str(error)) from error
        return result

    async def _response_url(self, request: web.Request) -> web.Response:
        """At most five uses; `markdown_text` is not understood here; no `ts` comes back."""
        place = self.responses.get(request.match_info["path"])
        args = orjson.loads(await request.read())
        self.calls.append(Call("response_url", args, "", time.monotonic()))
        if fault := self.take_fault("response_url"):
            return web.Response(status=fault.code)
        if place is None or place["uses"] < 1:
            return web.json_response({"ok": False, "error": "used_url" if place else "expired_url"}, status=404)
        place["uses"] -= 1
        workspace = self.workspaces[place["team"]]
        posts = self.conversation(place["channel"], place["team"]).posts
        args.pop("markdown_text", None)
        post = posts.get(place.get("ts", "")) if args.get("replace_original") else None
        if post is None:
            post = Post(self.ts(), place["channel"], workspace.bot, bot_id=workspace.bot_id)
            post.only_for = "" if args.get("response_type") == "in_channel" else place["user"]
        try:
            self._fill(post, args)
        except ApiError as error:
            return web.json_response({"ok": False, "error": error.error}, status=400)
        place["ts"], posts[post.ts] = post.ts, post
        return web.Response(text="ok")

    # ------------------------------------------------------------ files

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        """The raw body (Python's SDK) or a multipart form (JavaScript's)."""
        self.calls.append(Call("upload", {"file": request.match_info["file"]}, "", time.monotonic()))
        if fault := self.take_fault("upload"):
            if fault.kind in ("error", "flood"):
                return web.Response(status=429 if fault.kind == "flood" else fault.code)
            if answer := await self.suffer(fault, request):
                return answer
        stored = self.files[request.match_info["file"]]
        if request.content_type == "multipart/form-data":
            [(_name, data)] = (await read_form(request)).files.values()
        else:
            data = await request.read()
        if len(data) != stored.size:
            return web.Response(status=400, text="length")
        stored.data = data
        return web.Response(text=f"OK - {len(data)}")

    async def _download(self, request: web.Request) -> web.StreamResponse:
        """Without a valid token, return a login page, as the real host does."""
        self.calls.append(Call("download", {}, "", time.monotonic()))
        team, _, file = request.match_info["file"].rpartition("-")
        if (fault := self.take_fault("download")) and (answer := await self.suffer(fault, request)):
            return answer
        if request.headers.get("Authorization") != f"Bearer {self.workspaces[team].bot_token}" or self.login_page:
            if self.login_page:
                return await _login(request)
            raise web.HTTPFound("/login")
        stored = self.files[file]
        return await self.give(request, stored.data, stored.mime)

    # ------------------------------------------------------------ Socket Mode

    async def _link(self, request: web.Request) -> web.StreamResponse:
        app_token = self.tickets.pop(request.query.get("ticket", ""), "")  # good for one use
        if self.refuse_handshakes > 0 or not app_token:
            self.refuse_handshakes -= 1
            return web.Response(status=408)
        ws = web.WebSocketResponse(autoping=False)
        await ws.prepare(request)
        socket = Socket(ws, request, app_token)
        self.sockets.append(socket)
        count = sum(other.app_token == app_token for other in self.sockets)
        hello = {"num_connections": count, "connection_info": {"app_id": "A0FAWN"}}
        await ws.send_json({"type": "hello", "debug_info": {"host": "applink-1"}, **hello})
        for envelope in list(self.envelopes.values()):
            if not (envelope.acks or envelope.lost) and envelope.kind == "events_api":
                await self._send(envelope)
        try:
            async for message in ws:
                if socket.deaf:
                    continue
                if message.type is WSMsgType.PING:
                    await ws.pong(message.data)
                elif message.type is WSMsgType.TEXT:
                    ack = orjson.loads(message.data)
                    for envelope in self.envelopes.values():
                        if ack["envelope_id"] in envelope.ids:
                            envelope.acks.append(ack)
        finally:
            self.sockets.remove(socket)
        return ws

    def deliver(self, kind: str, payload: Json, *, accepts: bool = False) -> str:
        key = str(payload.get("event_id") or payload["trigger_id"])
        team = payload.get("team_id") or payload["team"]["id"]
        envelope = Envelope(kind, payload, accepts, self.workspaces[team].app_token)
        self.envelopes[key] = envelope
        self.call_in_loop(lambda: asyncio.ensure_future(self._offer(envelope)))
        return key

    async def _offer(self, envelope: Envelope) -> None:
        """Deliver until it is acknowledged: four times at most, an interaction only once."""
        envelope.lost = not any(socket.app_token == envelope.app_token for socket in self.sockets)
        for _ in range(4 if envelope.kind == "events_api" and not envelope.lost else 1):
            with suppress(ConnectionError):  # the client has just gone: the next try may find it again
                await self._send(envelope)
            await asyncio.sleep(self.redeliver_after)
            if envelope.acks:
                return

    async def _send(self, envelope: Envelope) -> None:
        socket = next((s for s in reversed(self.sockets) if s.app_token == envelope.app_token), None)
        if socket is None or socket.ws.closed:
            return
        envelope.ids.append(str(uuid.uuid4()))
        envelope.at.append(time.monotonic())
        made: dict[str, Any] = {"envelope_id": envelope.ids[-1], "type": envelope.kind, "payload": envelope.payload}
        made["accepts_response_payload"] = envelope.accepts
        if envelope.kind == "events_api":
            tries = len(envelope.ids) - 1
            made |= {"retry_attempt": tries, "retry_reason": "timeout" if tries else ""}
        if not socket.deaf:
            await socket.ws.send_json(made)

    async def _refresh(self) -> None:
        for socket in list(self.sockets):
            await socket.ws.send_json({"type": "disconnect", "reason": "refresh_requested", "debug_info": {}})


async def _login(request: web.Request) -> web.Response:
    return web.Response(text="<!DOCTYPE html><html>Sign in to Slack</html>", content_type="text/html")


def _flood(call: Call, seconds: float) -> web.Response:
    call.status, call.done, call.error = 429, time.monotonic(), "ratelimited"
    after = str(max(1, round(seconds + 0.499)))
    body = orjson.dumps({"ok": False, "error": "ratelimited"})
    return web.Response(body=body, status=429, headers={"Retry-After": after}, content_type="application/json")


def _answer(call: Call, body: Json, headers: dict[str, str] | None = None) -> web.Response:
    call.status, call.done = 200, time.monotonic()
    return web.Response(body=orjson.dumps(body), headers=headers, content_type="application/json", charset="utf-8")


async def _arguments(request: web.Request) -> Json:
    """JSON, form and query arguments; the SDKs use all three."""
    args: Json = dict(request.query)
    if request.content_type == "application/json":
        args |= orjson.loads(await request.read() or b"{}")
    else:
        args |= (await read_form(request)).texts
    for key in STRUCTURED:
        if isinstance(args.get(key), str):
            args[key] = orjson.loads(args[key])
    return args


if __name__ == "__main__":
    main(FakeSlack())
