"""A wire-faithful DingTalk on loopback: the stream with its frames, messages of the robot, AI cards, files.

    async with FakeDingTalk() as ding:
        ding.send("hello")                     # Jane writes to the robot
        ding.send("hello", chat=group(1))      # … mentions it in a group
        ding.fault("flood", "card.stream")
        ding.visible(group(1))                 # the robot's messages there

Point a client at `ding.base_url` with `CLIENT` and `SECRET`. As its own process:
`python -m tests.fakes.dingtalk --port N`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from tests.fakes.dingtalk_methods import (
    BOT,
    CLIENT,
    CORP,
    GROUP,
    JANE,
    KIM,
    SECRET,
    TEMPLATE,
    Files,
    Methods,
    Refusal,
    Shown,
)
from tests.fakes.server import Fault, Json, LocalServer, main, read_form

__all__ = ["CLIENT", "JANE", "KIM", "SECRET", "TEMPLATE", "FakeDingTalk", "Shown", "group"]

MESSAGES, CLICKS = "/v1.0/im/bot/messages/get", "/v1.0/card/instances/callback"
ROBOT, CARD, STREAMING = "qyapi_robot_sendmsg", "Card.Instance.Write", "Card.Streaming.Write"
ROUTES: dict[tuple[str, str], tuple[str, str, str]] = {  # → our name of it, the Python method, the permission
    ("POST", "/v1.0/robot/groupMessages/send"): ("message.send", "group_send", ROBOT),
    ("POST", "/v1.0/robot/oToMessages/batchSend"): ("message.send", "oto_send", ROBOT),
    ("POST", "/v1.0/robot/groupMessages/recall"): ("message.recall", "group_recall", ROBOT),
    ("POST", "/v1.0/robot/otoMessages/batchRecall"): ("message.recall", "oto_recall", ROBOT),
    ("POST", "/v1.0/robot/emotion/reply"): ("reaction", "react", ""),
    ("POST", "/v1.0/robot/emotion/recall"): ("reaction.recall", "unreact", ""),
    ("POST", "/v1.0/card/instances/createAndDeliver"): ("card.create", "card_create", CARD),
    ("POST", "/v1.0/card/instances/deliver"): ("card.deliver", "card_deliver", CARD),
    ("PUT", "/v1.0/card/instances"): ("card.update", "card_update", CARD),
    ("PUT", "/v1.0/card/streaming"): ("card.stream", "card_stream", STREAMING),
    ("POST", "/v1.0/robot/messageFiles/download"): ("file.download", "download", ROBOT),
    ("POST", "/media/upload"): ("media.upload", "upload", ""),
}


def group(number: int) -> str:
    """Return the conversation id of a group."""
    return GROUP.format(number)


@dataclass(slots=True)
class Call:
    """One call of the bot. `place` is the chat that it concerns, `at` time.monotonic()."""

    method: str
    body: Json
    place: str
    at: float
    status: int = 0


@dataclass(slots=True)
class Pushed:
    """An event on its way: until one of its frames is acknowledged it comes again, in a new frame."""

    topic: str
    data: Json
    frames: list[str] = field(default_factory=list)
    answers: list[Json] = field(default_factory=list)


class FakeDingTalk(LocalServer, Methods):
    """The server; state and API methods are in `dingtalk_methods`."""

    patience = 1.0  # seconds for an acknowledgement; integrators saw repeats after 16 and 60 s

    def __init__(self) -> None:
        LocalServer.__init__(self)
        Methods.__init__(self)
        self.token = f"t-{uuid.uuid4().hex}"
        self.token_calls = 0
        self.calls: list[Call] = []
        self.places: dict[str, int] = {}  # chat → its number in faults
        self.pushed: list[Pushed] = []
        self.sockets: list[web.WebSocketResponse] = []
        self.tickets: set[str] = set()
        self.pongs: list[Json] = []
        self.deaf = False
        self._numbers = itertools.count(1)

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/v1.0/oauth2/accessToken", self._token)
        app.router.add_post("/v1.0/gateway/connections/open", self._open)
        app.router.add_get("/connect", self._socket)
        app.router.add_get("/files/{code}", self._file)
        app.router.add_route("*", "/{path:.*}", self._call)

    # ------------------------------------------------------------ the stream

    async def _open(self, request: web.Request) -> web.StreamResponse:
        """Give a ticket for one connection (github.com/open-dingtalk/dingtalk-stream-sdk-python, stream.py)."""
        if (fault := self.take_fault("open")) and (suffered := await self._suffer(fault, request)):
            return suffered
        body = await request.json()
        if (body.get("clientId"), body.get("clientSecret")) != (CLIENT, SECRET):
            return web.json_response({"code": "authFailed", "message": "鉴权失败"}, status=401)
        topics = {(one["type"], one["topic"]) for one in body["subscriptions"]}
        if not topics >= {("CALLBACK", MESSAGES), ("CALLBACK", CLICKS)}:
            return web.json_response({"code": "param.invalid", "message": "subscriptions"}, status=400)
        ticket = uuid.uuid4().hex
        self.tickets.add(ticket)
        return web.json_response({"endpoint": f"ws://127.0.0.1:{self.port}/connect", "ticket": ticket})

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self.tickets:
            return web.Response(status=401)
        self.tickets.remove(ticket)
        socket = web.WebSocketResponse(autoping=False, max_msg_size=0)
        await socket.prepare(request)
        self.deaf = False
        self.sockets.append(socket)
        await self._send(socket, "SYSTEM", "CONNECTED", {})
        await self._send(socket, "SYSTEM", "ping", {"opaque": ticket})
        async for message in socket:
            if self.deaf:
                continue
            if message.type is WSMsgType.PING:
                await socket.pong(message.data)
            elif message.type is WSMsgType.TEXT:
                self._acknowledged(orjson.loads(message.data))
        if socket in self.sockets:
            self.sockets.remove(socket)
        return socket

    async def _send(self, socket: web.WebSocketResponse, kind: str, topic: str, data: Json) -> str:
        """Send a frame and return its id (…/dingtalk_stream/frames.py)."""
        id = f"frame-{next(self._numbers)}"
        headers = {"appId": "a", "connectionId": "c", "contentType": "application/json", "messageId": id}
        headers |= {"time": str(int(time.time() * 1000)), "topic": topic}
        frame = {"specVersion": "1.0", "type": kind, "headers": headers, "data": orjson.dumps(data).decode()}
        await socket.send_str(orjson.dumps(frame).decode())
        return id

    def _acknowledged(self, answer: Json) -> None:
        data = orjson.loads(answer["data"])
        if "opaque" in data:
            self.pongs.append(data)
            return
        assert answer["code"] == 200
        assert answer["headers"]["contentType"] == "application/json"
        event = next((one for one in self.pushed if answer["headers"]["messageId"] in one.frames), None)
        if event is None:  # some clients acknowledge the other frames of SYSTEM, too
            return
        first = not event.answers
        event.answers.append(data)
        update = data["response"]
        if event.topic == CLICKS and update and first:
            self.set_variables(event.data["outTrackId"], update)

    def deliver(self, topic: str, data: Json) -> Pushed:
        """Push an event, in a new frame each time, until it is acknowledged."""
        event = Pushed(topic, data)
        self.pushed.append(event)

        async def push() -> None:
            while not event.answers:
                if self.sockets and not self.deaf:  # with several connections one of them gets it
                    with suppress(ConnectionError):  # it is being closed
                        event.frames.append(await self._send(self.sockets[-1], "CALLBACK", topic, data))
                await asyncio.sleep(self.patience)

        self.start_task(push)
        return event

    def redeliver(self) -> None:
        """Push the last event again, although it was acknowledged."""
        self.deliver(self.pushed[-1].topic, self.pushed[-1].data)

    def abort(self) -> None:
        """Break every connection."""
        for socket in self.sockets:
            if socket._req is not None and socket._req.transport:
                socket._req.transport.abort()
        self.sockets.clear()

    def deafen(self) -> None:
        """Keep connections open, but send nothing, until a new one is opened."""
        self.deaf = True

    async def ask_to_reconnect(self) -> None:
        """Tell the client to open another connection, as before an upgrade of the gateway."""
        await self._send(self.sockets[-1], "SYSTEM", "disconnect", {"reason": "upgrade"})

    # ------------------------------------------------------------ calls

    async def _call(self, request: web.Request) -> web.StreamResponse:
        body, files = await _read(request)
        name, python, scope = ROUTES.get((request.method, request.path), ("unknown", "", ""))
        call = Call(name, body, _place(body, self.cards, self.shown), time.monotonic())
        self.calls.append(call)
        fault = self.take_fault(name, self.places.get(call.place))
        if fault and not fault.after and (suffered := await self._suffer(fault, request)):
            return suffered
        try:
            if not python:
                raise Refusal("InvalidAction.NotFound", "Specified api is not found", 404)
            self._check_token(request, name)
            self.check(request.path, scope)
            answer: Json = getattr(self, f"m_{python}")(body=body, files=files, query=dict(request.query))
        except Refusal as refusal:
            call.status = refusal.status
            if name == "media.upload":  # the older API: status 200 and a number
                return web.json_response({"errcode": int(refusal.code), "errmsg": refusal.words})
            said = {"code": refusal.code, "message": refusal.words, "requestid": "r", **refusal.more}
            return web.json_response(said, status=refusal.status)
        if fault and fault.after and (suffered := await self._suffer(fault, request)):
            return suffered
        call.status = 200
        return web.json_response(answer)

    def _check_token(self, request: web.Request, name: str) -> None:
        if name == "media.upload":
            if request.query.get("access_token") != self.token:
                raise Refusal("40014", "不合法的access_token")
        elif request.headers.get("x-acs-dingtalk-access-token") != self.token:
            raise Refusal("InvalidAuthentication", "不合法的access_token")

    def m_download(self, body: Json, **_: Any) -> Json:
        """Return a temporary link (…/download-the-file-content-of-the-robot-receiving-message)."""
        self._check_robot(body)
        if body.get("downloadCode") not in self.codes:
            raise Refusal("invalidParameter.robotCode.downloadCode", "下载码有误或者已经过期")
        return {"downloadUrl": f"{self.base_url}/files/{body['downloadCode']}"}

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return await self.give(request, self.codes[request.match_info["code"]][1], "application/octet-stream")

    async def _token(self, request: web.Request) -> web.StreamResponse:
        """Give the token (…/obtain-the-access-token-of-an-internal-app): the same one for 7200 s."""
        self.token_calls += 1
        if (fault := self.take_fault("token")) and (suffered := await self._suffer(fault, request)):
            return suffered
        body = await request.json()
        if (body.get("appKey"), body.get("appSecret")) != (CLIENT, SECRET):
            words = "无效的clientId或者clientSecret"
            return web.json_response({"code": "invalidClientIdOrSecret", "message": words}, status=400)
        return web.json_response({"accessToken": self.token, "expireIn": 7200})

    def expire(self) -> None:
        """Invalidate the token."""
        self.token = f"t-{uuid.uuid4().hex}"

    async def _suffer(self, fault: Fault, request: web.Request) -> web.StreamResponse | None:
        if fault.kind == "flood":  # DingTalk does not say how long
            code = "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"
            return web.json_response({"code": code, "message": "too many calls"}, status=403)
        if fault.kind == "error":
            if fault.body:
                return web.Response(text=fault.body, status=fault.code, content_type="text/html")
            code = fault.description or ("system.error" if fault.code >= 500 else "invalidParameter.param.invalid")
            return web.json_response({"code": code, "message": code}, status=fault.code)
        return await self.suffer(fault, request)

    # ------------------------------------------------------------ people

    def message(self, kind: str, content: Json, *, chat: str = "", sender: str = JANE, **more: Any) -> str:
        """A person writes to the robot, or mentions it in a group (…/robot-receive-message). Returns its id."""
        id = f"msg{uuid.uuid4().hex}+w=="
        conversation = chat or f"cidDIRECT{sender}=="
        self.heard[id] = conversation
        event: Json = {
            "conversationId": conversation,
            "conversationType": "2" if chat else "1",
            "chatbotCorpId": CORP,
            "chatbotUserId": BOT,
            "msgId": id,
            "senderNick": self.names.get(sender, sender),
            "senderStaffId": sender,
            "senderCorpId": CORP,
            "senderId": f"$:LWCP_v1:${sender}",
            "isAdmin": False,
            "createAt": int(time.time() * 1000),
            "sessionWebhookExpiredTime": int(time.time() * 1000) + 5_400_000,
            "sessionWebhook": "https://oapi.dingtalk.com/robot/sendBySession?session=x",
            "robotCode": CLIENT,
            "msgtype": kind,
            "text" if kind == "text" else "content": content,
            **({"isInAtList": True, "atUsers": [{"dingtalkId": BOT}], "conversationTitle": "g"} if chat else {}),
            **more,
        }
        self.deliver(MESSAGES, {name: value for name, value in event.items() if value is not None})
        return id

    def send(self, text: str, *, chat: str = "", mention: bool = True, **more: Any) -> None:
        """A person writes. In a group the robot gets only what mentions it, without the mention."""
        if chat:
            if text.startswith("@Fawn "):
                text, mention = text.removeprefix("@Fawn "), True
            if not mention:
                return
            text = f" {text}"
        self.message("text", {"content": text}, chat=chat, **more)

    def quote(self, text: str, shown: Shown, *, sender: str = JANE) -> None:
        """A person quotes a message of the robot: the event names it by the key that its post returned, a card by the
        `carrierId` of its delivery; `msgId` is an id that the robot never got
        (github.com/soimy/openclaw-channel-dingtalk, src/messaging/quoted-ref.ts)."""
        kind = "interactiveCard" if shown.card else "markdown"
        replied = {"msgType": kind, "msgId": f"msg{uuid.uuid4().hex}+q==", "senderId": BOT, "content": {}}
        content = {"content": f" {text}", "isReplyMsg": True, "repliedMsg": replied}
        chat = "" if shown.chat.startswith("@") else shown.chat
        self.message("text", content, chat=chat, sender=sender, originalProcessQueryKey=shown.key)

    def upload(self, name: str, data: bytes, kind: str = "file", **more: Any) -> None:
        """A person sends a file; pictures, voice messages and videos come without a name."""
        code = uuid.uuid4().hex
        self.codes[code] = (name, data)
        self.message(kind, {"downloadCode": code, **({"fileName": name} if kind == "file" else {})}, **more)

    def press(self, label: str, chat: str, person: str = JANE, **more: Any) -> Pushed:
        """Click a button (…/event-callback-card). Raises StopIteration if no card has it."""
        cards = (one for one in reversed(self.shown) if one.chat == chat and self.cards.get(one.card))
        card, button = next((one, button) for one in cards for button in self.buttons(one) if button["text"] == label)
        variables = self.cards[card.card].variables
        params = {"ask": variables["ask"], "option": button["value"]}
        content = {"cardPrivateData": {"actionIds": ["option"], "params": params}}
        event = {"type": "actionCallback", "outTrackId": card.card, "corpId": CORP, "userId": person, "userIdType": 1}
        return self.deliver(CLICKS, {**event, "content": orjson.dumps(content).decode(), **more})

    # ------------------------------------------------------------ for tests

    def calls_of(self, *methods: str) -> list[Call]:
        """The calls of these methods ("card." = all that begin so; none = all), in order of arrival."""
        return [call for call in self.calls if call.method.startswith(methods or ("",))]


def _place(body: Json, cards: Json, shown: list[Shown]) -> str:
    """Return the chat of a call."""
    if chat := body.get("openConversationId"):
        return str(chat)
    if people := body.get("userIds"):
        return f"@{people[0]}"
    if space := str(body.get("openSpaceId") or ""):
        kind, _, id = space.removeprefix("dtv1.card//").partition(".")
        return f"@{id}" if kind == "IM_ROBOT" else id
    return next((one.chat for one in shown if one.card and one.card == body.get("outTrackId")), "")


async def _read(request: web.Request) -> tuple[Json, Files]:
    if request.content_type != "multipart/form-data":
        raw = await request.read()
        return (orjson.loads(raw) if raw else {}), {}
    return {}, (await read_form(request)).files


if __name__ == "__main__":
    main(FakeDingTalk())
