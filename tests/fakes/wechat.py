"""Tencent's iLink for robots of WeChat, and its server of files, as far as the channel uses them.

Sources: @tencent-weixin/openclaw-weixin 2.4.9 (docs/protocol.md, src/api, src/cdn), whose own client was run against an
earlier form of this fake; rules of sending from operators' reports: openclaw-weixin#81 (ten messages), #204 (24 hours),
#69 (a scan elsewhere ends the login), cc-connect#1640 (three in a second). Each of these is `{"ret": -2}`.

It refuses what Tencent's client never sends: another form of a header (src/api/api.ts, buildHeaders) or of `base_info`
(sanitizeBotAgent), a field that src/api/types.ts does not name, a media item without its size (src/messaging/send.ts),
an upload of other bytes than were announced (src/cdn/upload.ts), and tokens, cursors and tickets that nobody gave. The
codes of these refusals are our own: no source names them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
import time
from collections.abc import Mapping
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
VERSION = "2.4.9"
AGENT = re.compile(r"[\w.-]{1,32}/[\w.+-]{1,32}( [\w.-]{1,32}/[\w.+-]{1,32})*", re.ASCII)  # api.ts, sanitizeBotAgent
FIELDS = {  # of each call, beside base_info (api.ts)
    "getupdates": {"get_updates_buf"},
    "sendmessage": {"msg"},
    "getconfig": {"ilink_user_id", "context_token"},
    "sendtyping": {"ilink_user_id", "typing_ticket", "status"},
    "getuploadurl": {
        *("filekey", "media_type", "to_user_id", "rawsize", "rawfilemd5", "filesize"),
        *("thumb_rawsize", "thumb_rawfilemd5", "thumb_filesize", "no_need_thumb", "aeskey"),
    },
}
MESSAGE = {  # of a message that is sent (send.ts)
    *("from_user_id", "to_user_id", "client_id", "message_type", "message_state", "item_list", "context_token"),
    "run_id",
}
MEDIA = {"encrypt_query_param", "aes_key", "encrypt_type"}
CONTENT = {  # of an item: fields that it must have (send.ts)
    1: {"text"},
    2: {"media", "mid_size"},
    4: {"media", "file_name", "len"},
    5: {"media", "video_size"},
}
MEDIA_TYPES = {1: 2, 2: 5, 3: 4}  # of an upload (types.ts, UploadMediaType) → of the item that shows it
ITEMS = {1: "text_item", 2: "image_item", 4: "file_item", 5: "video_item"}


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
        self.contexts: dict[str, set[str]] = {}  # person → tokens that they were given
        self.tickets: dict[str, str] = {}  # person → ticket of typing
        self.uploads: dict[str, Json] = {}  # parameter of an upload → what was announced
        self.sizes: dict[str, tuple[int, int]] = {}  # parameter of a download → kind of item, encrypted bytes
        self._new = asyncio.Event()

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/ilink/bot/{verb}", self._bot)
        app.router.add_get("/ilink/bot/get_qrcode_status", self._code_status)
        app.router.add_post("/c2c/upload", self._take_file)
        app.router.add_get("/c2c/download", self._give_file)

    # ------------------------------------------------------------ calls

    async def _bot(self, request: web.Request) -> web.StreamResponse:
        verb, body = request.match_info["verb"], orjson.loads(await request.read())
        if not _is_signed(request.headers):
            return _json({"errcode": -1, "errmsg": "headers"})
        if verb == "get_bot_qrcode":
            if request.query.get("bot_type") != "3" or not isinstance(body.get("local_token_list"), list):
                return _json({"errcode": -1, "errmsg": "bot_type"})
            code = secrets.token_hex(8)
            self.codes[code] = {"status": "wait"}
            return _json({"qrcode": code, "qrcode_img_content": f"https://liteapp.weixin.qq.com/q/{code}"})
        given = request.headers
        if given.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _json({"errcode": -14, "errmsg": "session timeout"})
        about = body.pop("base_info", {})
        if about.keys() != {"channel_version", "bot_agent"} or not AGENT.fullmatch(about["bot_agent"]):
            return _json({"errcode": -1, "errmsg": "base_info"})
        if verb not in FIELDS or not body.keys() <= FIELDS[verb]:
            return _json({"errcode": -1, "errmsg": f"{verb}: {sorted(body)}"})
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
            case "error" if fault.code == 401:
                return _json({"errcode": -14, "errmsg": "session timeout"})
            case "error":
                return _json({"ret": -1, "errmsg": "refused"})
        return await self.suffer(fault, request)

    async def _updates(self, body: Json) -> web.Response:
        if (seen := _position(body["get_updates_buf"], len(self.messages))) is None:
            return _json({"errcode": -1, "errmsg": "get_updates_buf"})
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
                if body["context_token"] not in self.contexts.get(body["ilink_user_id"], ()):
                    return {"ret": -1, "errmsg": "context_token"}
                ticket = self.tickets.setdefault(body["ilink_user_id"], secrets.token_urlsafe(12))
                return {"ret": 0, "typing_ticket": ticket}
            case "sendtyping":
                person = body["ilink_user_id"]
                if self.tickets.get(person) != body["typing_ticket"] or body["status"] not in (1, 2):
                    return {"ret": -1, "errmsg": "typing_ticket"}
                self.typing.append(person)
                return {"ret": 0}
            case "getuploadurl":
                size, key = (body["rawsize"] // 16 + 1) * 16, bytes.fromhex(body["aeskey"])
                hexes = re.fullmatch(r"[0-9a-f]{32}", body["filekey"]) and re.fullmatch(
                    r"[0-9a-f]{32}", body["rawfilemd5"]
                )
                if body["filesize"] != size or len(key) != 16 or not hexes or body["media_type"] not in MEDIA_TYPES:
                    return {"ret": -1, "errmsg": "getuploadurl"}
                param = f"up-{body['filekey']}"
                self.uploads[param] = body
                return {"upload_param": param}
        return {"ret": -1, "errmsg": f"unknown {verb}"}

    def _send(self, message: Json) -> Json:
        person, [item] = message["to_user_id"], message["item_list"]
        if (message["message_type"], message["message_state"]) != (2, 2) or item["type"] not in ITEMS:
            return {"ret": -1, "errmsg": "message"}
        if not message.keys() <= MESSAGE or message["from_user_id"] != "" or not message["client_id"]:
            return {"ret": -1, "errmsg": f"message: {sorted(message)}"}
        if message["context_token"] and message["context_token"] not in self.contexts.get(person, ()):
            return {"ret": -1, "errmsg": "context_token"}
        if item.keys() != {"type", ITEMS[item["type"]]} or item[ITEMS[item["type"]]].keys() != CONTENT[item["type"]]:
            return {"ret": -1, "errmsg": f"item: {item}"}
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
            kind, size = self.sizes.get(media["encrypt_query_param"], (0, 0))
            if media.keys() != MEDIA or media["encrypt_type"] != 1 or kind != item["type"]:
                return {"ret": -1, "errmsg": "media"}
            plain = self.uploads[media["encrypt_query_param"].replace("down", "up", 1)]["rawsize"]
            told = {2: content.get("mid_size"), 4: content.get("len"), 5: content.get("video_size")}[kind]
            if told != {2: size, 4: str(plain), 5: size}[kind]:
                return {"ret": -1, "errmsg": "size"}
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
        """Take the encrypted bytes that were announced, once (cdn-upload.ts: refusals are in a header)."""
        told = self.uploads.get(request.query.get("encrypted_query_param", ""))
        name, data = f"down-{request.query['filekey']}", await request.read()
        if told is None or told["filekey"] != request.query["filekey"] or name in self.blobs:
            return web.Response(status=403, headers={"x-error-message": "no such upload"})
        plain = aes(bytes.fromhex(told["aeskey"]), data, decrypt=True) if len(data) == told["filesize"] else b""
        digest = hashlib.md5(plain, usedforsecurity=False).hexdigest()
        if (len(data), len(plain), digest) != (told["filesize"], told["rawsize"], told["rawfilemd5"]):
            return web.Response(status=400, headers={"x-error-message": "other bytes than were announced"})
        if (fault := self.take_fault("cdn")) and fault.kind == "error":
            return web.Response(status=fault.code, headers={"x-error-message": "no"})
        self.blobs[name] = data
        self.sizes[name] = MEDIA_TYPES[told["media_type"]], len(data)
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
        token = secrets.token_hex(8)
        self.contexts.setdefault(sender, set()).add(token)
        head = {"message_id": id, "from_user_id": sender, "to_user_id": BOT, "context_token": token}
        rest = {"create_time_ms": int(time.time() * 1000), "message_type": 1, "message_state": 2}
        self.messages.append({**head, **rest, "item_list": list(items)})
        self.call_in_loop(self._new.set)
        return id

    def send(self, text: str, sender: str = JANE, **more: Any) -> int:
        """A person writes."""
        return self.message({"type": 1, "text_item": {"text": text}, **more}, sender=sender)

    def upload(
        self, name: str, data: bytes, kind: int = 4, *, hexed: bool = True, beside: bool = False, sender: str = JANE
    ) -> None:
        """A person sends a file; the key of a picture may be Base64 of its bytes, or stand `beside` it (types.ts)."""
        key, blob = secrets.token_bytes(16), secrets.token_hex(6)
        self.blobs[blob] = aes(key, data)
        media = {
            "encrypt_query_param": blob,
            "aes_key": base64.b64encode(key.hex().encode() if hexed else key).decode(),
        }
        if beside:
            del media["aes_key"]
        content: Json = {"media": media} | ({"aeskey": key.hex()} if beside else {})
        content |= {"file_name": name, "len": str(len(data))} if kind == 4 else {}
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


def _is_signed(given: Mapping[str, str]) -> bool:
    """Return whether a POST has the headers of Tencent's client (api.ts, buildHeaders)."""
    major, minor, patch = map(int, VERSION.split("."))
    try:
        number = int(base64.b64decode(given.get("X-WECHAT-UIN", ""), validate=True))
    except ValueError:
        return False
    return (
        0 <= number < 1 << 32
        and given.get("iLink-App-Id") == "bot"
        and given.get("iLink-App-ClientVersion") == str(major << 16 | minor << 8 | patch)
        and given.get("AuthorizationType") == "ilink_bot_token"
        and given.get("Content-Type") == "application/json"
    )


def _position(cursor: str, most: int) -> int | None:
    """Return the position of a cursor; None for one that nobody gave."""
    try:
        found = int(base64.b64decode(cursor, validate=True)) if cursor else 0
    except ValueError:
        return None
    return found if 0 <= found <= most else None


def _json(value: Json) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


if __name__ == "__main__":
    main(FakeWeChat())
