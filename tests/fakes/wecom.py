"""WeCom's gateway for smart robots, as far as the channel uses it: the long connection and the file server.

Sources: developer.work.weixin.qq.com/document/path/101463 (long connection), 101031 (answers), 101032 (cards), 100719
(messages), 101027 (events); @wecom/aibot-node-sdk 1.0.7, and what operators measured: hermes-agent#29667, #47564,
#47573, #52820, multica. Where no source names a code, the fake's own one is said to be one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson
from aiohttp import WSMsgType, web
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.fakes.server import Fault, Json, LocalServer, main

BOT, SECRET = "aibot-fawn", "wecom-secret"
JANE, KIM = "JaneDoe", "KimLee"
NAME = "Fawn"
GROUP = "wrGROUP{}"
STREAM_SECONDS = 600.0  # from the first frame on, however many follow (measured: 600 taken, 630 refused)
CLICK_SECONDS = 5.0
MAX_CONTENT_BYTES = 20_480  # of a text, in UTF-8
MAX_FEEDBACK_BYTES = 256  # …/101031, feedback.id
MAX_FRAMES = 85  # of a stream (measured)
MAX_PIECE_BYTES, MAX_PIECES = 512 << 10, 100
MAX_BYTES = {"file": 20 << 20, "image": 10 << 20, "video": 10 << 20, "voice": 2 << 20}
MINUTE_MESSAGES, HOUR_MESSAGES = 30, 1_000  # of a conversation
TASK_ID = re.compile(r"[A-Za-z0-9_@-]{1,128}")
OLD, EXPIRED, DEAD = 846605, 846608, 846609
TOO_OFTEN, BAD_ARGUMENT, BAD_TYPE = 45009, 40058, 40008
OWN_BAD_SECRET, OWN_NO_CHAT, OWN_TASK_TAKEN = 853000, 846610, 846611  # the fake's own: no source names them


class Refusal(Exception):
    """A call that the platform refuses."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


@dataclass(slots=True)
class Event:
    """An event of a person, until a line took it. `taken` names the lines that had it."""

    frame: Json
    chat: str
    kind: str
    at: float = field(default_factory=time.monotonic)
    taken: bool = False
    answered: bool = False


@dataclass(slots=True)
class Shown:
    """A message of the robot, as people see it. `id` is a stream's or a card's task."""

    chat: str
    kind: str
    text: str = ""
    id: str = ""
    name: str = ""
    data: bytes = b""
    buttons: list[Json] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    finished: bool = True
    frames: int = 1
    feedback: str = ""


@dataclass(slots=True)
class Call:
    """One call of the robot."""

    method: str
    body: Json
    place: str
    at: float
    code: int = 0


class FakeWeCom(LocalServer):
    """The server. `shown` is what people see, `calls` what the robot sent."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = False  # whether messages of a conversation are counted
        self.stream_seconds = STREAM_SECONDS
        self.shown: list[Shown] = []
        self.calls: list[Call] = []
        self.events: dict[str, Event] = {}  # by req_id
        self.places: dict[str, int] = {}  # chat → its number in faults
        self.known: set[str] = set()  # chats in which somebody wrote to the robot
        self.uploads: dict[str, Json] = {}
        self.media: dict[str, tuple[str, str, bytes]] = {}  # kind, name, bytes
        self.files: dict[str, tuple[str, bytes]] = {}  # what people sent, encrypted
        self.line: web.WebSocketResponse | None = None  # the subscribed one
        self.lines: list[web.WebSocketResponse] = []
        self.deaf = False
        self.dead = False  # the line is open, but not subscribed any more (hermes-agent#29667)

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/"

    def routes(self, app: web.Application) -> None:
        app.router.add_get("/", self._connect)
        app.router.add_get("/file/{name}", self._file)

    # ------------------------------------------------------------ the line

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        line = web.WebSocketResponse(max_msg_size=0)
        await line.prepare(request)
        self.lines.append(line)
        async for message in line:
            if message.type is not WSMsgType.TEXT:
                continue
            if self.deaf and line is self.line:
                continue
            if not await self._take(line, orjson.loads(message.data), request):
                break
        self.lines.remove(line)
        if self.line is line:
            self.line = None
        return line

    async def _take(self, line: web.WebSocketResponse, frame: Json, request: web.Request) -> bool:
        """Answer a call. Returns False if the line ends."""
        command, req_id, body = frame["cmd"], frame["headers"]["req_id"], frame.get("body") or {}
        call = Call(_method(command, body), body, self._place(req_id, body), time.monotonic())
        fault = None
        if command not in ("ping", "aibot_subscribe"):
            self.calls.append(call)
            again = body.get("stream") and any(one.id == body["stream"]["id"] for one in self.shown)
            call.method = "edit" if again else call.method
            fault = self.take_fault(call.method, self.places.get(call.place), orjson.dumps(body).decode())
        if fault and not fault.after and (code := await self._suffer(fault, request)) is not None:
            return await self._answer(line, req_id, code) if code else False
        answer: Json = {}
        try:
            answer = await self._handle(line, command, req_id, body)
        except Refusal as refusal:
            call.code = refusal.code
            return await self._answer(line, req_id, refusal.code, refusal.words)
        except (KeyError, TypeError, ValueError) as error:  # a field is missing, or is none of its kind
            call.code = BAD_ARGUMENT
            return await self._answer(line, req_id, BAD_ARGUMENT, f"invalid parameter: {error!r}")
        if fault and fault.after and (code := await self._suffer(fault, request)) is not None:
            return await self._answer(line, req_id, code) if code and fault.code < 500 else False
        return await self._answer(line, req_id, 0, "ok", answer)

    async def _answer(
        self, line: web.WebSocketResponse, req_id: str, code: int, words: str = "", body: Json | None = None
    ) -> bool:
        answer: Json = {"headers": {"req_id": req_id}, "errcode": code, "errmsg": words or f"error {code}"}
        with suppress(ConnectionError):
            await line.send_str(orjson.dumps(answer | ({"body": body} if body else {})).decode())
        return True

    async def _suffer(self, fault: Fault, request: web.Request) -> int | None:
        """Return the code of the answer, 0 for none at all, None to go on."""
        match fault.kind:
            case "flood":
                return TOO_OFTEN
            case "error":
                return BAD_ARGUMENT if fault.code < 500 else -1
            case "drop":
                if request.transport:
                    request.transport.abort()
                return 0
            case "slow":
                await asyncio.sleep(fault.seconds)
                return None
        await asyncio.Event().wait()
        return None

    async def _handle(self, line: web.WebSocketResponse, command: str, req_id: str, body: Json) -> Json:
        if command == "aibot_subscribe":
            await self._subscribe(line, body)
            return {}
        if line is not self.line or self.dead:
            raise Refusal(DEAD, "aibot websocket not subscribed")
        match command:
            case "ping":
                return {}
            case "aibot_respond_msg":
                self._respond(req_id, body)
            case "aibot_respond_update_msg":
                self._update_card(req_id, body)
            case "aibot_send_msg":
                self._send(body)
            case "aibot_upload_media_init":
                return self._begin_upload(body)
            case "aibot_upload_media_chunk":
                return self._take_piece(body)
            case "aibot_upload_media_finish":
                return self._end_upload(body)
            case _:
                raise Refusal(BAD_TYPE, f"unknown command {command}")
        return {}

    async def _subscribe(self, line: web.WebSocketResponse, body: Json) -> None:
        """Take a line in place of another one, which is told so and closed."""
        if (body.get("bot_id"), body.get("secret")) != (BOT, SECRET):
            raise Refusal(OWN_BAD_SECRET, "invalid bot_id or secret")
        old, self.line, self.deaf, self.dead = self.line, line, False, False
        if old is not None and not old.closed:
            event = {"msgtype": "event", "aibotid": BOT, "event": {"eventtype": "disconnected_event"}}
            head = {"req_id": secrets.token_hex(8)}
            frame = {"cmd": "aibot_event_callback", "headers": head, "body": {"msgid": secrets.token_hex(8), **event}}
            with suppress(ConnectionError):
                await old.send_str(orjson.dumps(frame).decode())
            self.start_task(lambda: _close(old))
        self.start_task(self._push_pending)

    async def _push_pending(self) -> None:
        """Push what no line took, also again after a reconnect (hermes-agent#47573): events are not acknowledged."""
        for event in [*self.events.values()]:
            if not event.taken and self.line is not None and not self.deaf:
                with suppress(ConnectionError):
                    await self.line.send_str(orjson.dumps(event.frame).decode())
                    event.taken = True

    # ------------------------------------------------------------ what the robot says

    def _respond(self, req_id: str, body: Json) -> None:
        """Answer a message (…/101031): only with its own req_id, and with streams, which the same id replaces."""
        event = self.events.get(req_id)
        if event is None or event.kind != "message":
            raise Refusal(OLD, "invalid req_id")
        if body.get("msgtype") != "stream":
            raise Refusal(BAD_TYPE, f"cannot answer with {body.get('msgtype')}")
        stream = body["stream"]
        text = stream.get("content", "")
        if len(text.encode()) > MAX_CONTENT_BYTES:
            raise Refusal(BAD_ARGUMENT, "content exceeds 20480 bytes")
        if not text:
            raise Refusal(BAD_ARGUMENT, "empty content")  # clients go on showing that it loads
        known = next((one for one in self.shown if one.kind == "stream" and one.id == stream["id"]), None)
        if known is None:
            self._count(event.chat)
            known = Shown(event.chat, "stream", id=stream["id"], frames=0)
            known.feedback = _feedback_id(stream)
            self.shown.append(known)
        elif known.finished or time.monotonic() - known.began > self.stream_seconds or known.frames >= MAX_FRAMES:
            raise Refusal(EXPIRED, "stream message update expired (>10 minutes), cannot update")
        known.text, known.finished, known.frames = text, bool(stream.get("finish")), known.frames + 1

    def _send(self, body: Json) -> None:
        """Post without being asked (…/101463): not as plain text, and only where somebody wrote before."""
        kind, chat = str(body.get("msgtype")), self._chat_of(body)
        if kind not in ("markdown", "template_card", "file", "image"):
            raise Refusal(BAD_TYPE, "invalid message type")
        if chat not in self.known:
            raise Refusal(OWN_NO_CHAT, "no conversation")
        if kind in ("file", "image"):
            self._count(chat)
            media = self.media.get(body[kind]["media_id"])
            if media is None or media[0] != kind:
                raise Refusal(40007, "invalid media_id")
            self.shown.append(Shown(chat, kind, name=media[1], data=media[2]))
            return
        if kind == "markdown":
            text = body["markdown"]["content"]
            if not text or len(text.encode()) > MAX_CONTENT_BYTES:
                raise Refusal(BAD_ARGUMENT, "content is empty or exceeds 20480 bytes")
            self._count(chat)
            self.shown.append(Shown(chat, kind, text, feedback=_feedback_id(body["markdown"])))
            return
        card = _checked_card(body["template_card"])
        if any(one.id == card["task_id"] for one in self.shown):
            raise Refusal(OWN_TASK_TAKEN, "task_id is not unique")
        self._count(chat)
        self.shown.append(
            Shown(chat, kind, card["main_title"]["title"], id=card["task_id"], buttons=card["button_list"])
        )

    def _update_card(self, req_id: str, body: Json) -> None:
        """Change a card in the five seconds after a press (…/101032), under its own task id."""
        event = self.events.get(req_id)
        if event is None or event.kind != "click" or time.monotonic() - event.at > CLICK_SECONDS:
            raise Refusal(OLD, "invalid req_id")
        if body.get("response_type") != "update_template_card":
            raise Refusal(BAD_ARGUMENT, "response_type")
        card = _checked_card(body["template_card"])
        pressed = event.frame["body"]["event"]["template_card_event"]
        if card["task_id"] != pressed["task_id"]:
            raise Refusal(BAD_ARGUMENT, "task_id")
        event.answered = True
        shown = next(one for one in self.shown if one.id == card["task_id"])
        shown.text, shown.buttons = card["main_title"]["title"], card["button_list"]

    def _count(self, chat: str) -> None:
        if not self.limits:
            return
        now = time.monotonic()
        for most, seconds in ((MINUTE_MESSAGES, 60.0), (HOUR_MESSAGES, 3600.0)):
            if sum(one.chat == chat and one.began > now - seconds for one in self.shown) >= most:
                raise Refusal(TOO_OFTEN, "api freq out of limit")

    # ------------------------------------------------------------ files

    def _begin_upload(self, body: Json) -> Json:
        size, pieces, kind = body["total_size"], body["total_chunks"], body["type"]
        if kind not in MAX_BYTES or not 5 <= size <= MAX_BYTES[kind] or not 1 <= pieces <= MAX_PIECES:
            raise Refusal(40006, "invalid media size")
        upload = secrets.token_hex(6)
        self.uploads[upload] = {**body, "pieces": {}}
        return {"upload_id": upload}

    def _take_piece(self, body: Json) -> Json:
        piece = base64.b64decode(body["base64_data"], validate=True)
        if len(piece) > MAX_PIECE_BYTES:
            raise Refusal(40006, "invalid chunk size")
        self.uploads[body["upload_id"]]["pieces"][body["chunk_index"]] = piece
        return {}

    def _end_upload(self, body: Json) -> Json:
        upload = self.uploads[body["upload_id"]]
        data = b"".join(upload["pieces"].get(index, b"") for index in range(upload["total_chunks"]))
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if (len(data), digest) != (upload["total_size"], upload["md5"]):
            raise Refusal(40007, "invalid media")
        media = f"media-{secrets.token_hex(8)}"
        self.media[media] = (upload["type"], upload["filename"], data)
        return {"type": upload["type"], "media_id": media, "created_at": str(int(time.time()))}

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name, data = self.files[request.match_info["name"]]
        if (fault := self.take_fault("download")) and fault.kind == "error":
            return web.Response(status=fault.code)
        disposition = f"attachment; filename*=UTF-8''{quote(name)}"
        return await self.give(request, data, "application/octet-stream", Content_Disposition=disposition)

    # ------------------------------------------------------------ people

    def event(self, kind: str, body: Json, chat: str, person: str) -> str:
        """Push an event; returns its req_id."""
        req_id, is_group = secrets.token_hex(8), not chat.startswith("@")
        command = "aibot_msg_callback" if kind == "message" else "aibot_event_callback"
        body = {
            "msgid": secrets.token_hex(12),
            "create_time": int(time.time()),
            "aibotid": BOT,
            "chattype": "group" if is_group else "single",
            "from": {"userid": person},
            **({"chatid": chat} if is_group else {}),
            **body,
        }
        frame = {"cmd": command, "headers": {"req_id": req_id}, "body": body}
        self.events[req_id] = Event(frame, chat, kind)
        if kind == "message":
            self.known.add(chat)
        self.start_task(self._push_pending)
        return req_id

    def message(self, kind: str, content: Json, *, chat: str = "", sender: str = JANE, **more: Any) -> str:
        """A person writes to the robot, or mentions it in a group. Returns the req_id."""
        return self.event("message", {"msgtype": kind, kind: content, **more}, chat or f"@{sender}", sender)

    def send(self, text: str, *, chat: str = "", mention: bool = True, sender: str = JANE, **more: Any) -> str:
        """A person writes. In a group the robot gets only what mentions it, with the mention."""
        if chat:
            if text.startswith(f"@{NAME} "):
                text, mention = text.removeprefix(f"@{NAME} "), True
            if not mention:
                return ""
            text = f"@{NAME} {text}"
        return self.message("text", {"content": text}, chat=chat, sender=sender, **more)

    def upload(self, name: str, data: bytes, kind: str = "file", *, sender: str = JANE) -> None:
        """A person sends a file: encrypted under a key of its own, padded to 32 bytes (…/100719)."""
        key, file = secrets.token_bytes(32), secrets.token_hex(6)
        pad = 32 - len(data) % 32
        cipher = Cipher(algorithms.AES256(key), modes.CBC(key[:16])).encryptor()
        self.files[file] = (name, cipher.update(data + bytes([pad]) * pad) + cipher.finalize())
        content = {"url": f"{self.base_url}/file/{file}", "aeskey": base64.b64encode(key).decode()}
        self.message(kind, content, sender=sender)

    def redeliver(self) -> None:
        """Push the last event again, as after a reconnect."""
        frame = orjson.dumps([*self.events.values()][-1].frame).decode()

        async def push() -> None:
            if self.line is not None:
                await self.line.send_str(frame)

        self.start_task(push)

    def press(self, label: str, chat: str, person: str = JANE) -> str:
        """Press a button. Raises StopIteration if no card has it."""
        cards = (one for one in reversed(self.shown) if one.chat == chat and one.kind == "template_card")
        card, button = next((one, each) for one in cards for each in one.buttons if each["text"] == label)
        pressed = {"card_type": "button_interaction", "event_key": button["key"], "task_id": card.id}
        event = {"eventtype": "template_card_event", "template_card_event": pressed}
        return self.event("click", {"msgtype": "event", "event": event}, chat, person)

    def rate(self, answer: str, kind: int, chat: str, person: str = JANE) -> None:
        """Press 👍 (1) or 👎 (2) under an answer, or take it back (3)."""
        event = {"eventtype": "feedback_event", "feedback_event": {"id": answer, "type": kind}}
        self.event("feedback", {"msgtype": "event", "event": event}, chat, person)

    def visible(self, chat: str) -> list[Shown]:
        """Return the robot's messages in a chat."""
        return [one for one in self.shown if one.chat == chat]

    # ------------------------------------------------------------ for tests

    def abort(self) -> None:
        """Break every line."""
        for line in self.lines:
            if line._req is not None and line._req.transport:
                line._req.transport.abort()

    def deafen(self) -> None:
        """Keep the line open, but send nothing over it, and answer nothing."""
        self.deaf = True

    def calls_of(self, method: str) -> list[Call]:
        """Return the calls of a kind; "" for all."""
        return [call for call in self.calls if method in ("", call.method)]

    def _chat_of(self, body: Json) -> str:
        """Return the chat of a post. `chat_type` is 1 for a person, 2 for a group; the vendor's SDK leaves it out."""
        person = f"@{body['chatid']}"
        is_person = body.get("chat_type") == 1 or (not body.get("chat_type") and person in self.known)
        return person if is_person else str(body["chatid"])

    def _place(self, req_id: str, body: Json) -> str:
        event = self.events.get(req_id)
        return event.chat if event else self._chat_of(body) if "chatid" in body else ""


def group(number: int) -> str:
    """Return the id of a group."""
    return GROUP.format(number)


def _feedback_id(content: Json) -> str:
    """Return the id under which people rate a message, "" without one. Raises Refusal."""
    id = str((content.get("feedback") or {}).get("id", ""))
    if len(id.encode()) > MAX_FEEDBACK_BYTES:
        raise Refusal(BAD_ARGUMENT, "feedback.id exceeds 256 bytes")
    return id


def _method(command: str, body: Json) -> str:
    if command == "aibot_respond_update_msg":
        return "update"
    if command.startswith("aibot_upload"):
        return "upload"
    return "file" if body.get("msgtype") in ("file", "image") else "post"


def _checked_card(card: Json) -> Json:
    """Return a card with buttons (…/101032). Raises Refusal."""
    if card.get("card_type") != "button_interaction" or not card.get("main_title", {}).get("title"):
        raise Refusal(BAD_ARGUMENT, "template_card")
    buttons = card.get("button_list") or []
    if not 1 <= len(buttons) <= 6 or any(not one["text"] or len(one["key"].encode()) > 1024 for one in buttons):
        raise Refusal(BAD_ARGUMENT, "button_list")
    if not TASK_ID.fullmatch(card.get("task_id", "")):
        raise Refusal(BAD_ARGUMENT, "task_id")
    return card


async def _close(line: web.WebSocketResponse) -> None:
    await line.close()


if __name__ == "__main__":
    main(FakeWeCom())
