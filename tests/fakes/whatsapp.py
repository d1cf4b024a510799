"""WhatsApp's Cloud API, as far as the channel uses it: messages, media, and the webhook that it posts to.

Sources: developers.facebook.com/docs/whatsapp/cloud-api: /reference/messages, /reference/media, /webhooks/components,
/reference/phone-numbers, /webhooks/payload-examples, /support/error-codes, /typing-indicators, /messages/*; and
…/docs/graph-api/webhooks/getting-started (signature, repeats). It refuses what those pages say is refused:

- a parameter that is unknown or misspelled with 100, one that is missing with 131008 (support/error-codes);
- a read mark for what no person has sent, or more than 30 days ago, with 131009 (messages/mark-message-as-read);
- the id of a file after 30 days, of one that a person sent after 7, and its address after 5 minutes
  (business-phone-numbers/media);
- `audio/ogg` that is not Opus (business-phone-numbers/media#supported-media-types);
- a template with another number of parameters than it was approved with, with 132000, and one that is paused, with
  132015 (support/error-codes);
- a token that has expired with 190 and the subcode 463 (docs/graph-api/guides/error-handling).
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

from tests.fakes.server import Fault, Json, LocalServer, main, read_form

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
DAY = 86_400.0
UPLOAD_SECONDS, RECEIVED_SECONDS, URL_SECONDS, READ_SECONDS = 30 * DAY, 7 * DAY, 300.0, 30 * DAY
MISSING, INVALID, PARAMETERS, PAUSED, EXPIRED = 131008, 131009, 132000, 132015, 190
MARK_CHARS = 512  # of biz_opaque_callback_data (reference/messages)
FIELDS = {  # of an object, by its place in a request
    "": {
        *("messaging_product", "recipient_type", "to", "type", "context", "biz_opaque_callback_data"),
        *("text", "interactive", "template", "image", "video", "audio", "document"),
    },
    "read": {"messaging_product", "status", "message_id", "typing_indicator"},
    "text": {"body", "preview_url"},
    "template": {"name", "language", "components"},
    "language": {"code", "policy"},
    "image": {"id", "link", "caption"},
    "video": {"id", "link", "caption"},
    "audio": {"id", "link", "voice"},
    "document": {"id", "link", "caption", "filename"},
    "interactive": {"type", "header", "body", "footer", "action"},
    "body": {"text"},
    "button": {"buttons"},
    "list": {"button", "sections"},
    "a button": {"type", "reply"},
    "reply": {"id", "title"},
    "section": {"title", "rows"},
    "row": {"id", "title", "description"},
    "context": {"message_id"},
}
WRONG, REENGAGE, TOO_OFTEN, UNDELIVERABLE, NO_TEMPLATE = 100, 131047, 131056, 131026, 132001
FAILURES = {  # of a message that the API took (…/cloud-api/support/error-codes)
    REENGAGE: ("Re-engagement message", "more than 24 hours"),
    UNDELIVERABLE: ("Message undeliverable", "Message Undeliverable."),
}


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
        self.parameters: dict[str, int] = {}  # template → how many it has
        self.paused: set[str] = set()  # templates
        self.expired = False  # whether the token has ended
        self.clock = time.time  # of what ends
        self.media: dict[str, tuple[str, str, bytes]] = {}  # MIME type, name, bytes
        self.ends: dict[str, float] = {}  # id of a file → until when it is there
        self.addresses: dict[str, tuple[str, float]] = {}  # token of an address → id, until when
        self.received: dict[str, float] = {}  # id of a person's message → when
        self.reads: list[tuple[str, bool]] = []  # message, whether the bot types
        self.limits = False  # whether messages to a person are counted
        self.late = False  # whether a closed window is said by a webhook only
        self.failing = 0  # the code with which messages fail that the API took
        self.held: list[Json] | None = None  # reports of failures until `report_failures`, or None to send them at once
        self.pieces = False  # whether its answers come in two packets
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
            if self.expired:
                raise Refusal(EXPIRED, "Error validating access token: Session has expired", 401)
            answer = handle()
        except Refusal as refusal:
            call.code = refusal.code
            return _problem(refusal)
        except KeyError as error:
            call.code = MISSING
            return _problem(Refusal(MISSING, f"Required parameter is missing: {error}"))
        except (TypeError, ValueError) as error:
            call.code = WRONG
            return _problem(Refusal(WRONG, f"Invalid parameter: {error!r}"))
        if fault and fault.after and (response := await self._suffer(fault, request)):
            return response
        return await self._send_in_pieces(request, answer) if self.pieces else web.json_response(answer)

    async def _send_in_pieces(self, request: web.Request, answer: Json) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in (b"{", orjson.dumps(answer)[1:]):
            await response.write(piece)
            await asyncio.sleep(0.05)  # the network's
        return response

    async def _suffer(self, fault: Fault, request: web.Request) -> web.StreamResponse | None:
        match fault.kind:
            case "flood":
                return _problem(Refusal(130429, "Rate limit hit", 429))
            case "error" if fault.body or fault.code >= 500:
                return web.Response(status=fault.code, text=fault.body or "upstream", content_type="text/html")
            case "error" if fault.code == 401:
                return _problem(Refusal(EXPIRED, "Error validating access token: Session has expired", 401))
            case "error":
                return _problem(Refusal(131009, "Parameter value is not valid", fault.code))
        return await self.suffer(fault, request)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if request.content_type != "application/json":
            return await self._answer(request, Call("post", body), lambda: _known({"content type": 1}, ""))
        if body.get("status") == "read":
            return await self._answer(request, Call("read", body), lambda: self._mark_read(body))
        kind = body.get("type", "")
        call = Call("file" if kind in KINDS else "post", body, str(body.get("to", "")))
        return await self._answer(request, call, lambda: self._send(body))

    def _mark_read(self, body: Json) -> Json:
        _known(body, "read")
        at = self.received.get(body["message_id"])
        if body["messaging_product"] != "whatsapp" or at is None or self.clock() - at > READ_SECONDS:
            raise Refusal(INVALID, "Parameter value is not valid")
        typing = body.get("typing_indicator")
        if typing is not None and typing != {"type": "text"}:
            raise Refusal(WRONG, "typing_indicator")
        self.reads.append((body["message_id"], typing is not None))
        return {"success": True}

    def _send(self, body: Json) -> Json:
        _known(body, "")
        person, kind = body["to"], body["type"]
        if not isinstance(person, str) or not re.fullmatch(r"\+?[1-9]\d{6,14}", person):
            raise Refusal(WRONG, "to")
        if len(body.get("biz_opaque_callback_data", "")) > MARK_CHARS:
            raise Refusal(WRONG, "biz_opaque_callback_data")
        quoted = _known(body.get("context", {"message_id": ""}), "context")["message_id"]
        if quoted and quoted not in self.received and quoted not in {one.id for one in self.shown}:
            raise Refusal(INVALID, "context")
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
        fails = self.failing or (REENGAGE if is_closed else 0)
        if not fails:
            self.shown.append(shown)
        self._report(shown, fails, str(body.get("biz_opaque_callback_data", "")))
        contacts = [{"input": person, "wa_id": person}]
        return {"messaging_product": "whatsapp", "contacts": contacts, "messages": [{"id": shown.id}]}

    def _shown(self, person: str, kind: str, content: Json) -> Shown:
        if kind in FIELDS:
            _known(content, kind)
        if kind == "text":
            if not isinstance(content.get("preview_url", False), bool):
                raise Refusal(WRONG, "preview_url")
            return Shown(person, kind, _text(content["body"], 4_096))
        if kind == "interactive":
            body = _known(content["body"], "body")["text"]
            return Shown(person, kind, _text(body, 1_024), options=_options(content))
        if kind == "template":
            name = content["name"]
            if self.templates.get(name) != _known(content["language"], "language")["code"]:
                raise Refusal(NO_TEMPLATE, "Template name does not exist in the translation")
            if name in self.paused:
                raise Refusal(PAUSED, "Template is paused due to low quality so it cannot be sent")
            given = sum(len(part.get("parameters", ())) for part in content.get("components", ()))
            if given != self.parameters.get(name, 0):
                raise Refusal(PARAMETERS, "Number of parameters does not match the expected number of params")
            return Shown(person, kind, f"[{content['name']}]")
        mime, name, data = self._file_of(content["id"]) or ("", "", b"")
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
        form = await read_form(request)

        def handle() -> Json:
            if "file" not in form.files or form.texts.get("messaging_product") != "whatsapp":
                raise Refusal(WRONG, "file")
            mime, (name, data) = form.texts["type"], form.files["file"]
            if mime not in UPLOADS or form.types["file"] != mime:
                raise Refusal(WRONG, f"Param file must be a file with one of the following types, not {mime}")
            if not 0 < len(data) <= UPLOADS[mime]:
                raise Refusal(131053, "Media upload error")
            if mime == "audio/ogg" and b"OpusHead" not in data[:256]:
                raise Refusal(131053, "audio/ogg: OPUS codecs only; base audio/ogg not supported")
            return {"id": self.keep(name, mime, data)}

        return await self._answer(request, Call("upload", {}, JANE), handle)

    def keep(self, name: str, mime: str, data: bytes, seconds: float = UPLOAD_SECONDS) -> str:
        """Keep a file for so long, and return its id."""
        id = str(10**15 + secrets.randbelow(10**14))
        self.media[id], self.ends[id] = (mime, name, data), self.clock() + seconds
        return id

    def _file_of(self, id: str) -> tuple[str, str, bytes] | None:
        return self.media.get(id) if self.ends.get(id, 0.0) > self.clock() else None

    async def _read(self, request: web.Request) -> web.StreamResponse:
        id = request.match_info["id"]

        def handle() -> Json:
            if id == NUMBER:
                return {"verified_name": "Fawn", "display_phone_number": f"+{DISPLAY}", "id": NUMBER}
            if (found := self._file_of(id)) is None or request.query.get("phone_number_id") != NUMBER:
                raise Refusal(WRONG, "Unsupported get request")
            mime, _name, data = found
            token = secrets.token_hex(8)
            self.addresses[token] = id, self.clock() + URL_SECONDS
            url = f"{self.base_url}/media/{token}"
            return {"url": url, "mime_type": mime, "file_size": len(data), "id": id, "messaging_product": "whatsapp"}

        return await self._answer(request, Call("account" if id == NUMBER else "media", {}), handle)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        id, until = self.addresses.get(request.match_info["id"], ("", 0.0))
        if self.clock() > until or (found := self._file_of(id)) is None:
            return web.Response(status=404)
        mime, _name, data = found
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

    def _report(self, shown: Shown, fails: int, mark: str) -> None:
        state = "failed" if fails else "sent"
        status: Json = {"id": shown.id, "status": state, "timestamp": _now(), "recipient_id": shown.person}
        status |= {"biz_opaque_callback_data": mark} if mark else {}
        if fails:
            title, details = FAILURES[fails]
            status["errors"] = [{"code": fails, "title": title, "error_data": {"details": details}}]
        if fails and self.held is not None:
            self.held.append(status)
        elif self.reports:
            self.post(statuses=[status])

    def report_failures(self) -> None:
        """Report the failures that were held back."""
        held, self.held = self.held or [], []
        for status in held:
            self.post(statuses=[status])

    def message(self, kind: str, content: Json, sender: str = JANE, **more: Any) -> str:
        """A person sends something. Returns its id."""
        id = f"wamid.HBgN{secrets.token_hex(8)}"
        self.heard[sender] = time.time()
        self.received[id] = self.clock()
        message = {"from": sender, "id": id, "timestamp": _now(), "type": kind, kind: content, **more}
        self.post(contacts=[{"profile": {"name": NAMES[sender]}, "wa_id": sender}], messages=[message])
        return id

    def send(self, text: str, sender: str = JANE, **context: Any) -> str:
        """A person writes; `context` is of a reply or a forward."""
        return self.message("text", {"body": text}, sender, **({"context": context} if context else {}))

    def upload(self, name: str, data: bytes, caption: str = "", kind: str = "document", sender: str = JANE) -> None:
        """A person sends a file."""
        mime = {"image": "image/jpeg", "audio": "audio/ogg; codecs=opus"}.get(kind, "application/octet-stream")
        content = {"id": self.keep(name, mime, data, RECEIVED_SECONDS), "mime_type": mime, "sha256": "unchecked"}
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
    more = {"error_subcode": 463} if refusal.code == EXPIRED and "expired" in refusal.details else {}
    error = {
        **more,
        "message": f"(#{refusal.code}) {refusal.details}",
        "type": kind,
        "code": refusal.code,
        "error_data": data,
    }
    return web.json_response({"error": error | {"fbtrace_id": secrets.token_hex(6)}}, status=refusal.status)


def _known(content: Json, place: str) -> Json:
    """Return an object of a request. Raises the refusal of one with a key that nobody knows."""
    if odd := content.keys() - FIELDS[place]:
        raise Refusal(WRONG, f'Unexpected key "{sorted(odd)[0]}" on param "{place}"')
    return content


def _text(text: Any, most: int) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > most:
        raise Refusal(WRONG, f"text of 1 to {most} characters")
    return text


def _options(content: Json) -> list[tuple[str, str]]:
    """Return the buttons or rows (…/messages/interactive-reply-buttons-messages, …/interactive-list-messages)."""
    action = _known(content["action"], content["type"])
    if content["type"] == "button":
        replies = [_known(button["reply"], "reply") for button in action["buttons"] if _known(button, "a button")]
        if any(button["type"] != "reply" for button in action["buttons"]):
            raise Refusal(WRONG, "type of a button")
        most, title, id = 3, 20, 256
    elif content["type"] == "list":
        _text(action["button"], 20)
        sections = action["sections"]
        if not 1 <= len(sections) <= 10 or (len(sections) > 1 and not all("title" in each for each in sections)):
            raise Refusal(WRONG, "sections")
        replies = [_known(row, "row") for section in sections for row in _known(section, "section")["rows"]]
        if any(len(section.get("title", "")) > 24 for section in sections):
            raise Refusal(WRONG, "title of a section")
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
