"""WhatsApp's Cloud API, as far as the channel uses it: messages, media, and the webhook that it posts to.

Sources: developers.facebook.com/docs/whatsapp/cloud-api: /reference/messages, /reference/media, /webhooks/components,
/reference/phone-numbers, /webhooks/payload-examples, /support/error-codes, /typing-indicators, /messages/*; and
…/docs/graph-api/webhooks/getting-started (signature, repeats). It refuses what those pages say is refused.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from tests.fakes.server import Fault, Json, LocalServer, main

NUMBER, TOKEN, APP_SECRET = "106540352242922", "EAAwhatsapp-token", "app-secret-of-whatsapp"
VERIFY_TOKEN = "verify-whatsapp"
DISPLAY = "15550783881"
JANE, KIM = "4915112345678", "4915187654321"
NAMES = {JANE: "Jane Doe", KIM: "Kim Lee"}
VERSION = "/v23.0"
WINDOW_SECONDS = 86_400.0  # …/guides/send-messages#customer-service-windows
PAIR_BURST, PAIR_SECONDS = 45, 6.0  # …/overview#pair-rate-limits
UPLOADS = {  # …/reference/media#supported-media-types, bytes
    **dict.fromkeys(("audio/aac", "audio/mp4", "audio/mpeg", "audio/amr", "audio/ogg"), 16 << 20),
    **dict.fromkeys(("image/jpeg", "image/png"), 5 << 20),
    **dict.fromkeys(("video/mp4", "video/3gpp"), 16 << 20),
    **dict.fromkeys(
        (
            *("text/plain", "application/pdf", "application/msword", "application/vnd.ms-excel"),
            "application/vnd.ms-powerpoint",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        ),
        100 << 20,
    ),
}
KINDS = {"image": "image/", "video": "video/", "audio": "audio/", "document": ""}
WRONG, REENGAGE, TOO_OFTEN, UNDELIVERABLE, NO_TEMPLATE = 100, 131047, 131056, 131026, 132001


class Refusal(Exception):
    """A call that the platform refuses."""

    def __init__(self, code: int, details: str, status: int = 400) -> None:
        super().__init__(details)
        self.code, self.details, self.status = code, details, status


@dataclass(slots=True)
class Shown:
    """A message of the bot, as the person sees it."""

    person: str
    kind: str
    text: str = ""
    name: str = ""
    data: bytes = b""
    options: list[tuple[str, str]] = field(default_factory=list)  # title, id
    id: str = field(default_factory=lambda: f"wamid.HBgM/{secrets.token_hex(8)}==")  # base64: it may have a slash
    at: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Call:
    """One call of the bot."""

    method: str
    body: Json
    place: str = ""
    code: int = 0


class FakeWhatsApp(LocalServer):
    """The server. `shown` is what people see, `webhook` where it posts to."""

    body_limit = 128 << 20

    def __init__(self) -> None:
        super().__init__()
        self.webhook = ""
        self.shown: list[Shown] = []
        self.calls: list[Call] = []
        self.places: dict[str, int] = {JANE: 0}
        self.heard: dict[str, float] = {}  # person → time.time() of their last message
        self.templates = {"fawn_answer_waits": "en"}
        self.media: dict[str, tuple[str, str, bytes]] = {}  # MIME type, name, bytes
        self.reads: list[tuple[str, bool]] = []  # message, whether the bot types
        self.limits = False  # whether messages to a person are counted
        self.late = False  # whether a closed window is said by a webhook only
        self.reports = True  # whether it says what became of messages
        self._last = b""

    def routes(self, app: web.Application) -> None:
        app.router.add_post(f"{VERSION}/{NUMBER}/messages", self._messages)
        app.router.add_post(f"{VERSION}/{NUMBER}/media", self._upload)
        app.router.add_get(f"{VERSION}/{{id}}", self._read)
        app.router.add_get("/media/{id}", self._file)

    # ------------------------------------------------------------ calls

    async def _answer(self, request: web.Request, call: Call, handle: Any) -> web.StreamResponse:
        self.calls.append(call)
        fault = self.take_fault(call.method, self.places.get(call.place))
        if fault and not fault.after and (response := await self._suffer(fault, request)):
            return response
        try:
            if request.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refusal(190, "Invalid OAuth access token", 401)
            answer = handle()
        except Refusal as refusal:
            call.code = refusal.code
            return _problem(refusal)
        except (KeyError, TypeError, ValueError) as error:
            call.code = WRONG
            return _problem(Refusal(WRONG, f"Invalid parameter: {error!r}"))
        if fault and fault.after and (response := await self._suffer(fault, request)):
            return response
        return web.json_response(answer)

    async def _suffer(self, fault: Fault, request: web.Request) -> web.StreamResponse | None:
        match fault.kind:
            case "flood":
                return _problem(Refusal(130429, "Rate limit hit", 429))
            case "error" if fault.body or fault.code >= 500:
                return web.Response(status=fault.code, text=fault.body or "upstream", content_type="text/html")
            case "error":
                return _problem(Refusal(131009, "Parameter value is not valid", fault.code))
        return await self.suffer(fault, request)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if body.get("status") == "read":
            return await self._answer(request, Call("read", body), lambda: self._mark_read(body))
        kind = body.get("type", "")
        call = Call("file" if kind in KINDS else "post", body, str(body.get("to", "")))
        return await self._answer(request, call, lambda: self._send(body))

    def _mark_read(self, body: Json) -> Json:
        typing = body.get("typing_indicator")
        if typing is not None and typing != {"type": "text"}:
            raise Refusal(WRONG, "typing_indicator")
        self.reads.append((body["message_id"], typing is not None))
        return {"success": True}

    def _send(self, body: Json) -> Json:
        person, kind = body["to"], body["type"]
        if body["messaging_product"] != "whatsapp" or body.get("recipient_type") != "individual":
            raise Refusal(WRONG, "messaging_product")
        if person not in NAMES:
            raise Refusal(UNDELIVERABLE, "Message undeliverable")
        shown = self._shown(person, kind, body[kind])
        is_closed = kind != "template" and time.time() - self.heard.get(person, 0.0) > WINDOW_SECONDS
        if is_closed and not self.late:
            raise Refusal(REENGAGE, "Message failed to send because more than 24 hours have passed")
        latest = [one for one in self.shown if one.person == person and one.at > time.monotonic() - PAIR_SECONDS]
        if self.limits and len(latest) >= PAIR_BURST:
            raise Refusal(TOO_OFTEN, "Too many messages sent from the sender phone number to the same recipient")
        if not is_closed:
            self.shown.append(shown)
        self._report(shown, "failed" if is_closed else "sent", str(body.get("biz_opaque_callback_data", "")))
        contacts = [{"input": person, "wa_id": person}]
        return {"messaging_product": "whatsapp", "contacts": contacts, "messages": [{"id": shown.id}]}

    def _shown(self, person: str, kind: str, content: Json) -> Shown:
        if kind == "text":
            if not isinstance(content.get("preview_url", False), bool):
                raise Refusal(WRONG, "preview_url")
            return Shown(person, kind, _text(content["body"], 4_096))
        if kind == "interactive":
            return Shown(person, kind, _text(content["body"]["text"], 1_024), options=_options(content))
        if kind == "template":
            if self.templates.get(content["name"]) != content["language"]["code"]:
                raise Refusal(NO_TEMPLATE, "Template name does not exist in the translation")
            return Shown(person, kind, f"[{content['name']}]")
        mime, name, data = self.media.get(content["id"], ("", "", b""))
        if not mime.startswith(KINDS[kind]) or not mime or (kind == "document" and mime.startswith(("image", "video"))):
            raise Refusal(131053, "Media upload error")
        if kind == "audio" and "caption" in content:
            raise Refusal(WRONG, "caption")
        caption = content.get("caption", "")
        if len(caption) > 1_024:
            raise Refusal(131009, "caption")
        return Shown(person, kind, caption, content.get("filename", "") or name, data)

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        """Take a file. The name of a picture is not shown to people; here it is, for the tests."""
        form = await request.post()
        file = form.get("file")

        def handle() -> Json:
            if not isinstance(file, web.FileField) or form.get("messaging_product") != "whatsapp":
                raise Refusal(WRONG, "file")
            mime, data = str(form["type"]), file.file.read()
            if mime not in UPLOADS or file.content_type != mime:
                raise Refusal(WRONG, f"Param file must be a file with one of the following types, not {mime}")
            if not 0 < len(data) <= UPLOADS[mime]:
                raise Refusal(131053, "Media upload error")
            return {"id": self.keep(file.filename, mime, data)}

        return await self._answer(request, Call("upload", {}, JANE), handle)

    def keep(self, name: str, mime: str, data: bytes) -> str:
        """Keep a file, and return its id."""
        id = str(10**15 + secrets.randbelow(10**14))
        self.media[id] = (mime, name, data)
        return id

    async def _read(self, request: web.Request) -> web.StreamResponse:
        id = request.match_info["id"]

        def handle() -> Json:
            if id == NUMBER:
                return {"verified_name": "Fawn", "display_phone_number": f"+{DISPLAY}", "id": NUMBER}
            if id not in self.media or request.query.get("phone_number_id") != NUMBER:
                raise Refusal(WRONG, "Unsupported get request")
            mime, _name, data = self.media[id]
            url = f"{self.base_url}/media/{id}"
            return {"url": url, "mime_type": mime, "file_size": len(data), "id": id, "messaging_product": "whatsapp"}

        return await self._answer(request, Call("account" if id == NUMBER else "media", {}), handle)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        mime, _name, data = self.media[request.match_info["id"]]
        if (fault := self.take_fault("download")) and fault.kind == "error":
            return web.Response(status=fault.code)
        return await self.give(request, data, mime)

    # ------------------------------------------------------------ the webhook

    def post(self, **value: Any) -> None:
        """Post an event, again and again until it is taken: Meta does so for days."""
        content = {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": DISPLAY, "phone_number_id": NUMBER},
            **value,
        }
        entry = {"id": "102290129340398", "changes": [{"field": "messages", "value": content}]}
        body = orjson.dumps({"object": "whatsapp_business_account", "entry": [entry]})
        if "messages" in value:
            self._last = body
        self._deliver(body)

    def _deliver(self, body: bytes) -> None:
        signature = f"sha256={hmac.digest(APP_SECRET.encode(), body, 'sha256').hex()}"
        headers = {"X-Hub-Signature-256": signature, "Content-Type": "application/json"}

        async def deliver() -> None:
            async with aiohttp.ClientSession() as client:
                while True:
                    try:
                        async with client.post(self.webhook, data=body, headers=headers) as answer:
                            if answer.status < 300:
                                return
                    except aiohttp.ClientError:
                        pass
                    await asyncio.sleep(0.1)

        self.start_task(deliver)

    def _report(self, shown: Shown, state: str, mark: str) -> None:
        status: Json = {"id": shown.id, "status": state, "timestamp": _now(), "recipient_id": shown.person}
        status |= {"biz_opaque_callback_data": mark} if mark else {}
        if state == "failed":
            title = "Re-engagement message"
            status["errors"] = [{"code": REENGAGE, "title": title, "error_data": {"details": "more than 24 hours"}}]
        if self.reports:
            self.post(statuses=[status])

    def message(self, kind: str, content: Json, sender: str = JANE, **more: Any) -> str:
        """A person sends something. Returns its id."""
        id = f"wamid.HBgN{secrets.token_hex(8)}"
        self.heard[sender] = time.time()
        message = {"from": sender, "id": id, "timestamp": _now(), "type": kind, kind: content, **more}
        self.post(contacts=[{"profile": {"name": NAMES[sender]}, "wa_id": sender}], messages=[message])
        return id

    def send(self, text: str, sender: str = JANE, **context: Any) -> str:
        """A person writes; `context` is of a reply or a forward."""
        return self.message("text", {"body": text}, sender, **({"context": context} if context else {}))

    def upload(self, name: str, data: bytes, caption: str = "", kind: str = "document", sender: str = JANE) -> None:
        """A person sends a file."""
        mime = {"image": "image/jpeg", "audio": "audio/ogg; codecs=opus"}.get(kind, "application/octet-stream")
        content = {"id": self.keep(name, mime, data), "mime_type": mime, "sha256": "unchecked"}
        content |= {"filename": name} if kind == "document" else {}
        self.message(kind, content | ({"caption": caption} if caption else {}), sender)

    def press(self, label: str, person: str = JANE) -> None:
        """Press a button, or choose a row. Raises StopIteration if no message has it."""
        found = ((one, each) for one in reversed(self.visible(person)) for each in one.options)
        shown, (title, id) = next((one, each) for one, each in found if each[0] == label)
        kind = "button_reply" if len(shown.options) <= 3 else "list_reply"
        content = {"type": kind, kind: {"id": id, "title": title}}
        self.message("interactive", content, person, context={"from": DISPLAY, "id": shown.id})

    def react(self, emoji: str, person: str = JANE) -> None:
        """React to the bot's last message; "" takes the reaction back."""
        content = {"message_id": self.visible(person)[-1].id} | ({"emoji": emoji} if emoji else {})
        self.message("reaction", content, person)

    def redeliver(self) -> None:
        """Post the last event of a person again."""
        self._deliver(self._last)

    def visible(self, person: str = JANE) -> list[Shown]:
        """Return the bot's messages to a person."""
        return [one for one in self.shown if one.person == person]

    def calls_of(self, method: str) -> list[Call]:
        """Return the calls of a kind; "" for all."""
        return [call for call in self.calls if method in ("", call.method)]


def _now() -> str:
    return str(int(time.time()))


def _problem(refusal: Refusal) -> web.Response:
    """Return an error as …/support/error-codes shows it."""
    data = {"messaging_product": "whatsapp", "details": refusal.details}
    kind = "OAuthException"
    error = {"message": f"(#{refusal.code}) {refusal.details}", "type": kind, "code": refusal.code, "error_data": data}
    return web.json_response({"error": error | {"fbtrace_id": secrets.token_hex(6)}}, status=refusal.status)


def _text(text: Any, most: int) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > most:
        raise Refusal(WRONG, f"text of 1 to {most} characters")
    return text


def _options(content: Json) -> list[tuple[str, str]]:
    """Return the buttons or rows (…/messages/interactive-reply-buttons-messages, …/interactive-list-messages)."""
    action = content["action"]
    if content["type"] == "button":
        replies = [button["reply"] for button in action["buttons"] if button["type"] == "reply"]
        most, title, id = 3, 20, 256
    elif content["type"] == "list":
        _text(action["button"], 20)
        sections = action["sections"]
        if not 1 <= len(sections) <= 10 or (len(sections) > 1 and not all("title" in each for each in sections)):
            raise Refusal(WRONG, "sections")
        replies = [row for section in sections for row in section["rows"]]
        most, title, id = 10, 24, 200
    else:
        raise Refusal(WRONG, "type")
    found = [(_text(reply["title"], title), _text(reply["id"], id)) for reply in replies]
    if not 1 <= len(found) <= most or len({id for _title, id in found}) < len(found):
        raise Refusal(WRONG, f"1 to {most} options with ids of their own")
    if content["type"] == "button" and len({shown for shown, _id in found}) < len(found):
        raise Refusal(WRONG, "button titles must be unique")
    if any(len(reply.get("description", "")) > 72 for reply in replies) or re.search(
        r"\n", "".join(t for t, _ in found)
    ):
        raise Refusal(WRONG, "description")
    return found


if __name__ == "__main__":
    main(FakeWhatsApp())
