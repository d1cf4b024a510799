"""Tencent's iLink for robots of WeChat, and its server of files, as far as the channel uses them.

Sources: @tencent-weixin/openclaw-weixin 2.4.9 (docs/protocol.md, src/api, src/cdn), whose own client was run against an
earlier form of this fake; rules of sending from operators' reports: openclaw-weixin#81 (ten messages), #204 (24 hours),
#69 (a scan elsewhere ends the login), cc-connect#1640 (three in a second). Each of these is `{"ret": -2}`.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from tests.fakes.server import Fault, Json, LocalServer, main

BOT, JANE, KIM = "fawn@im.bot", "jane@im.wechat", "kim@im.wechat"
WINDOW_SECONDS, BUDGET = 86_400.0, 10
FIRST_ID = 7_500_000_000_000_000_001  # above 2**53: bare numbers on the wire
MAX_WRONG_NUMBERS = 3  # our own figure: login-qr.ts says only that there is a bound
ITEMS = {1: "text_item", 2: "image_item", 4: "file_item", 5: "video_item"}
HEADERS = ("X-WECHAT-UIN", "iLink-App-Id", "iLink-App-ClientVersion", "Authorization")


@dataclass(slots=True)
class Shown:
    """A message of the robot, as the person sees it."""

    person: str
    kind: int
    text: str = ""
    name: str = ""
    data: bytes = b""
    client_id: str = ""
    context: str = ""


@dataclass(slots=True)
class Call:
    """One call of the robot."""

    method: str
    body: Json
    place: str = ""
    code: int = 0


@dataclass(slots=True)
class Window:
    """What a person's last message allows."""

    at: float
    left: int = BUDGET
    sent: list[float] = field(default_factory=list)


class FakeWeChat(LocalServer):
    """The server. `shown` is what people see."""

    def __init__(self, hold: float = 1.0) -> None:
        super().__init__()
        self.hold = hold  # seconds of a poll
        self.fast = False  # whether three messages in a second are refused
        self.budget = True
        self.messages: list[Json] = []
        self.shown: list[Shown] = []
        self.calls: list[Call] = []
        self.places: dict[str, int] = {JANE: 0}
        self.tokens: dict[str, str] = {}  # token → person
        self.codes: dict[str, Json] = {}
        self.windows: dict[str, Window] = {}
        self.blobs: dict[str, bytes] = {}
        self.typing: list[str] = []
        self._new = asyncio.Event()

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/ilink/bot/{verb}", self._bot)
        app.router.add_get("/ilink/bot/get_qrcode_status", self._code_status)
        app.router.add_post("/c2c/upload", self._take_file)
        app.router.add_get("/c2c/download", self._give_file)

    # ------------------------------------------------------------ calls

    async def _bot(self, request: web.Request) -> web.StreamResponse:
        verb, body = request.match_info["verb"], orjson.loads(await request.read())
        if verb == "get_bot_qrcode":
            code = secrets.token_hex(8)
            self.codes[code] = {"status": "wait"}
            return _json({"qrcode": code, "qrcode_img_content": f"https://liteapp.weixin.qq.com/q/{code}"})
        given = request.headers
        if given.get("AuthorizationType") != "ilink_bot_token" or any(name not in given for name in HEADERS):
            return _json({"errcode": -1, "errmsg": "headers"})
        if given["Authorization"].removeprefix("Bearer ") not in self.tokens:
            return _json({"errcode": -14, "errmsg": "session timeout"})
        if "base_info" not in body:
            return _json({"errcode": -1, "errmsg": "base_info"})
        if verb == "getupdates":
            if (fault := self.take_fault("poll")) and (response := await self._suffer(fault, request)):
                return response
            return await self._updates(body)
        message = body.get("msg") or {}
        kind = next((item["type"] for item in message.get("item_list", ())), 0)
        method = {"sendmessage": "post" if kind == 1 else "file", "getuploadurl": "upload"}.get(verb, verb)
        call = Call(method, body, str(message.get("to_user_id", "")))
        self.calls.append(call)
        fault = self.take_fault(method, self.places.get(call.place))
        if fault and not fault.after and (response := await self._suffer(fault, request)):
            return response
        answer = self._handle(verb, body)
        call.code = int(answer.get("ret") or answer.get("errcode") or 0)
        if fault and fault.after and (response := await self._suffer(fault, request)):
            return response
        return _json(answer)

    async def _suffer(self, fault: Fault, request: web.Request) -> web.StreamResponse | None:
        match fault.kind:
            case "flood":
                return web.Response(status=429)
            case "error" if fault.body or fault.code >= 500:
                return web.Response(status=fault.code, text=fault.body)
            case "error":
                return _json({"ret": -1, "errmsg": "refused"})
        return await self.suffer(fault, request)

    async def _updates(self, body: Json) -> web.Response:
        seen = int(base64.b64decode(body["get_updates_buf"]) or 0) if body.get("get_updates_buf") else 0
        until = time.monotonic() + self.hold
        while len(self.messages) <= seen and time.monotonic() < until:
            self._new.clear()
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await self._new.wait()
            except TimeoutError:
                break
        cursor = base64.b64encode(str(len(self.messages)).encode()).decode()
        return _json({"ret": 0, "msgs": self.messages[seen:], "get_updates_buf": cursor})

    def _handle(self, verb: str, body: Json) -> Json:
        match verb:
            case "sendmessage":
                return self._send(body["msg"])
            case "getconfig":
                return {"ret": 0, "typing_ticket": "ticket"}
            case "sendtyping":
                self.typing.append(body["ilink_user_id"])
                return {"ret": 0 if body["typing_ticket"] == "ticket" and body["status"] in (1, 2) else -1}
            case "getuploadurl":
                size, key = (body["rawsize"] // 16 + 1) * 16, bytes.fromhex(body["aeskey"])
                right = body["filesize"] == size and len(key) == 16 and len(body["filekey"]) == 32
                return {"upload_param": f"up-{body['filekey']}"} if right else {"ret": -1}
        return {"ret": -1, "errmsg": f"unknown {verb}"}

    def _send(self, message: Json) -> Json:
        person, [item] = message["to_user_id"], message["item_list"]
        if (message["message_type"], message["message_state"]) != (2, 2) or item["type"] not in ITEMS:
            return {"ret": -1, "errmsg": "message"}
        window, now = self.windows.get(person), time.time()
        if window is None or now - window.at > WINDOW_SECONDS or (self.budget and window.left <= 0):
            return {"ret": -2}
        window.sent = [at for at in window.sent if now - at < 1]
        if self.fast and len(window.sent) >= 2:
            return {"ret": -2, "errmsg": "prepare failed"}
        content = item[ITEMS[item["type"]]]
        shown = Shown(person, item["type"], client_id=message["client_id"], context=message["context_token"])
        if item["type"] == 1:
            shown.text = content["text"]
            if not 0 < len(shown.text) <= 4_000:
                return {"ret": -1, "errmsg": "text"}
        else:
            media = content["media"]
            key = bytes.fromhex(base64.b64decode(media["aes_key"]).decode())
            shown.data = aes(key, self.blobs[media["encrypt_query_param"]], decrypt=True)
            shown.name = content.get("file_name", "") or shown.data[:60].decode(
                "utf-8", "replace"
            )  # pictures have none
        window.left -= 1
        window.sent.append(now)
        self.shown.append(shown)
        return {"ret": 0, "message_id": FIRST_ID + 10**6 + len(self.shown)}

    async def _code_status(self, request: web.Request) -> web.StreamResponse:
        if (fault := self.take_fault("code")) and (response := await self._suffer(fault, request)):
            return response
        state = self.codes.get(request.query["qrcode"], {"status": "expired"})
        if "number" in state:
            return _json({"status": self._check_number(state, request.query.get("verify_code", ""))})
        for _look in range(50):
            if state["status"] != "wait":
                break
            await asyncio.sleep(0.02)
        return _json(state)

    def _check_number(self, state: Json, given: str) -> str:
        """Return the status of a code whose scan a number must confirm; three wrong ones block it (login-qr.ts)."""
        if given == state["number"]:
            del state["number"]
            state["status"] = "scaned"
            return "scaned"
        state["wrong"] = state.get("wrong", 0) + bool(given)
        return "verify_code_blocked" if state["wrong"] >= MAX_WRONG_NUMBERS else "need_verifycode"

    async def _take_file(self, request: web.Request) -> web.StreamResponse:
        name = f"down-{request.query['filekey']}"
        self.blobs[name] = await request.read()
        return web.Response(headers={"x-encrypted-param": name})

    async def _give_file(self, request: web.Request) -> web.StreamResponse:
        if (fault := self.take_fault("download")) and fault.kind == "error":
            return web.Response(status=fault.code)
        data = self.blobs.get(request.query["encrypted_query_param"])
        return web.Response(status=404) if data is None else await self.give(request, data, "application/octet-stream")

    # ------------------------------------------------------------ people

    def scan(self, code: str, person: str = JANE) -> str:
        """Confirm a code; an older login of this person ends."""
        token = self.login(person)
        given = {"bot_token": token, "ilink_bot_id": BOT, "baseurl": self.base_url, "ilink_user_id": person}
        self.codes[code] |= {"status": "confirmed", **given}
        return token

    def want_number(self, code: str, number: str) -> None:
        """Have the telephone show a number that must be typed where the code is shown."""
        self.codes[code] |= {"number": number, "status": "need_verifycode"}

    def login(self, person: str = JANE) -> str:
        """Return a new token of a person; the older ones end (#69)."""
        token = secrets.token_hex(8)
        self.tokens = {each: owner for each, owner in self.tokens.items() if owner != person} | {token: person}
        return token

    def message(self, *items: Json, sender: str = JANE) -> int:
        """A person sends items. Returns the id."""
        self.windows[sender] = Window(time.time())
        id = FIRST_ID + len(self.messages)
        head = {"message_id": id, "from_user_id": sender, "to_user_id": BOT, "context_token": secrets.token_hex(8)}
        rest = {"create_time_ms": int(time.time() * 1000), "message_type": 1, "message_state": 2}
        self.messages.append({**head, **rest, "item_list": list(items)})
        self.call_in_loop(self._new.set)
        return id

    def send(self, text: str, sender: str = JANE, **more: Any) -> int:
        """A person writes."""
        return self.message({"type": 1, "text_item": {"text": text}, **more}, sender=sender)

    def upload(self, name: str, data: bytes, kind: int = 4, *, hexed: bool = True, sender: str = JANE) -> None:
        """A person sends a file; the key of a picture may be Base64 of its bytes."""
        key, blob = secrets.token_bytes(16), secrets.token_hex(6)
        self.blobs[blob] = aes(key, data)
        media = {
            "encrypt_query_param": blob,
            "aes_key": base64.b64encode(key.hex().encode() if hexed else key).decode(),
        }
        content: Json = {"media": media} | ({"file_name": name, "len": str(len(data))} if kind == 4 else {})
        self.message({"type": kind, ITEMS[kind]: content}, sender=sender)

    def redeliver(self) -> None:
        """Give the last message again."""
        self.messages.append(self.messages[-1])
        self.call_in_loop(self._new.set)

    def visible(self, person: str = JANE) -> list[Shown]:
        return [one for one in self.shown if one.person == person]

    def calls_of(self, method: str) -> list[Call]:
        """Return the calls of a kind; "" for all."""
        return [call for call in self.calls if method in ("", call.method)]


def aes(key: bytes, data: bytes, *, decrypt: bool = False) -> bytes:
    """AES-128-ECB with PKCS#7 (src/cdn/aes-ecb.ts)."""
    cipher = Cipher(algorithms.AES128(key), modes.ECB())  # noqa: S305 — WeChat's choice
    if decrypt:
        step, undo = cipher.decryptor(), PKCS7(128).unpadder()
        return undo.update(step.update(data) + step.finalize()) + undo.finalize()
    pad, step = PKCS7(128).padder(), cipher.encryptor()
    return step.update(pad.update(data) + pad.finalize()) + step.finalize()


def _json(value: Json) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


if __name__ == "__main__":
    main(FakeWeChat())
