"""A wire-faithful Telegram Bot API server on loopback: long polling, files, limits and faults.

    async with FakeTelegram() as telegram:             # or: with FakeTelegram().in_thread() as telegram
        telegram.send("hello")                         # Jane writes in her private chat (42)
        telegram.fault("flood", "editMessageText", seconds=2)
        await telegram.wait(42, "the answer")          # until the bot's message with this text is visible
        telegram.visible(42)                           # [Shown(id=2, text="the answer", …)]

Point a client at `telegram.base_url` with the token `TOKEN`. As its own process: `python -m tests.fakes.telegram
--port N`; `POST /_control/send {"text": "hello"}` then does what `telegram.send(text="hello")` does.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from tests.fakes.model_script import without_directives
from tests.fakes.server import Fault, Json, LocalServer, main, read_form
from tests.fakes.telegram_methods import ApiError, Files, Methods
from tests.fakes.telegram_rates import Rates
from tests.fakes.telegram_world import JANE, TOKEN, Shown, said_in

__all__ = ["JANE", "TOKEN", "Call", "FakeTelegram", "Rates", "Shown"]

STRUCTURED = frozenset(  # arguments that form and multipart bodies carry as JSON text
    [
        "entities",
        "caption_entities",
        "reply_markup",
        "reply_parameters",
        "link_preview_options",
        "media",
        "commands",
        "scope",
        "reaction",
        "rich_message",
        "allowed_updates",
    ]
)
PACED = frozenset(
    [
        "sendmessage",
        "editmessagetext",
        "editmessagecaption",
        "editmessagereplymarkup",
        "sendmessagedraft",
        "sendrichmessage",
        "senddocument",
        "sendphoto",
        "sendmediagroup",
    ]
)
PHRASES = {500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}
CONFLICT = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"


@dataclass(slots=True)
class Call:
    """One call of the bot. Times are time.monotonic(), which all processes of a machine share."""

    method: str
    args: Json
    files: dict[str, tuple[str, bytes]]
    at: float
    thread: int  # the OS thread that served it
    status: int = 0  # the HTTP status answered, 0 while there is none (hanging, dropped)
    done: float = 0.0  # when it was answered

    @property
    def chat(self) -> int | None:
        raw = str(self.args.get("chat_id", ""))
        return int(raw) if raw.removeprefix("-").isdigit() else None

    @property
    def topic(self) -> int:
        return int(self.args.get("message_thread_id") or 0)

    @property
    def text(self) -> str:
        return str(self.args.get("text") or self.args.get("caption") or "")


@dataclass(slots=True)
class Delivery:
    """An update that was handed out; `at` has the time.monotonic() of every time."""

    update_id: int
    chat: int = 0
    message_id: int = 0
    at: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, update: Json) -> Delivery:
        message = update.get("message") or update.get("edited_message") or {}
        return cls(update["update_id"], message.get("chat", {}).get("id", 0), message.get("message_id", 0))


class FakeTelegram(LocalServer, Methods):
    """The server; actions of people are in `telegram_people`, the bot's methods in `telegram_methods`."""

    def __init__(self, token: str = TOKEN, *, latency: float = 0.0, rates: Rates | None = None) -> None:
        LocalServer.__init__(self, latency=latency)
        Methods.__init__(self)
        self.token = token
        self.rates = rates  # None: no limits
        self.webhook = False  # True: getUpdates is refused until deleteWebhook
        self.calls: list[Call] = []  # everything but getUpdates
        self.polls: deque[Call] = deque(maxlen=1000)
        self.delivered: dict[int, Delivery] = {}  # by update id
        self._poll_count = 0
        self._allowed: list[str] = []
        self._poll: asyncio.Future[bool] | None = None  # the poll that waits; True: a newer one came
        self._watchers: dict[int, list[Callable[[], object]]] = {}

    def routes(self, app: web.Application) -> None:
        app.router.add_route("*", "/bot{token}/{method}", self._api)
        app.router.add_get("/file/bot{token}/{path:.*}", self._download)

    # ------------------------------------------------------------ for tests

    def calls_of(self, method: str = "", chat: int | None = None, since: float = 0.0) -> list[Call]:
        """The calls of a method ("" = all) for a chat (None = all), in order of arrival."""
        wanted = method.lower()
        return [
            call
            for call in self.calls
            if wanted in ("", call.method.lower()) and chat in (None, call.chat) and call.at >= since
        ]

    async def wait(self, chat: int, text: str = "", topic: int | None = None, seconds: float = 60.0) -> Shown:
        """The first visible message of the bot with `text` in it, as soon as there is one. Raises TimeoutError.

        A directive to the model that the bot quotes does not count: it has the words of the answer to come.
        """
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        watchers = self._watchers.setdefault(chat, [])
        notify = functools.partial(loop.call_soon_threadsafe, changed.set)
        watchers.append(notify)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    changed.clear()
                    if any(text in said_in(message) for message in list(self.chat(chat).messages.values())):
                        for shown in self.visible(chat, topic):
                            if text in without_directives(shown.text):
                                return shown
                    await changed.wait()
        except TimeoutError:
            raise TimeoutError(f"no {text!r} in chat {chat}: {self.texts(chat)}") from None
        finally:
            watchers.remove(notify)

    def waiting(self) -> int:
        """How many updates are not yet confirmed."""
        return len(self.updates)

    def bulk(self, texts: dict[str, str]) -> None:
        """One message each in many private chats at once: {chat: text}."""
        for chat, text in texts.items():
            self.send(text, chat=int(chat))

    def enforce_rates(self, on: bool = True) -> None:
        """Refuse calls that come faster than Telegram allows."""
        self.rates = Rates() if on else None

    def refused(self) -> int:
        """How many calls came too fast."""
        return self.rates.refused if self.rates else 0

    def poll_count(self) -> int:
        return self._poll_count

    def first_poll(self) -> float:
        """When the first getUpdates came since the start or `forget` (of the last 1,000)."""
        return self.polls[0].at

    def sent_at(self, chat: int) -> float:
        """When the last message of a person in this chat came up."""
        ids = [u for u, delivery in self.delivered.items() if delivery.chat == chat]
        return self.pushed[ids[-1]]

    def deliveries(self, chat: int | None = None) -> list[Delivery]:
        """What was handed out to a poll, in order."""
        return [delivery for delivery in self.delivered.values() if chat in (None, delivery.chat)]

    def forget(self) -> None:
        """Empty the logs and the chats' messages: for long runs, and between two runs."""
        self.calls.clear()
        self.polls.clear()
        self._poll_count = 0
        self.delivered.clear()
        self.updates.clear()
        self.pushed.clear()
        for chat in self.chats.values():
            chat.messages.clear()
            chat.edits.clear()

    # ------------------------------------------------------------ calls

    def wake(self) -> None:
        self.call_in_loop(functools.partial(self._end_poll, conflict=False))

    async def _api(self, request: web.Request) -> web.StreamResponse:
        call = Call(request.match_info["method"], {}, {}, time.monotonic(), threading.get_ident())
        polling = call.method.lower() == "getupdates"
        if polling:
            self._poll_count += 1
        (self.polls if polling else self.calls).append(call)
        try:
            self._authorize(request.match_info["token"])
            await _read(request, call)
            fault = self.take_fault(call.method, call.chat, call.text)
            if fault and not fault.after and (answer := await self._hit(fault, request, call)):
                return answer
            self._pace(call)
            if self.latency and not polling:
                await asyncio.sleep(self.latency)
            result = await self._result(call)
            if call.chat is not None:
                for notify in tuple(self._watchers.get(call.chat, ())):
                    notify()
            if fault and fault.after and (answer := await self._hit(fault, request, call)):
                return answer
        except ApiError as error:
            refusal: Json = {"ok": False, "error_code": error.code, "description": error.description}
            if error.parameters:
                refusal["parameters"] = error.parameters
            return _answer(call, error.code, refusal)
        return _answer(call, 200, {"ok": True, "result": result})

    def _authorize(self, token: str) -> None:
        if ":" not in token:
            raise ApiError(404, "Not Found")
        if token != self.token:
            raise ApiError(401, "Unauthorized")

    async def _hit(self, fault: Fault, request: web.Request, call: Call) -> web.StreamResponse | None:
        if fault.kind == "flood":
            raise _flood(fault.seconds)
        if fault.kind == "error":
            if fault.body:
                call.status, call.done = fault.code, time.monotonic()
                return web.Response(status=fault.code, text=fault.body, content_type="text/html")
            raise ApiError(fault.code, fault.description or PHRASES.get(fault.code, "Bad Request: scripted"))
        return await self.suffer(fault, request)

    def _pace(self, call: Call) -> None:
        if self.rates and call.chat is not None and call.method.lower() in PACED:
            cost = len(call.args["media"]) if call.method.lower() == "sendmediagroup" else 1
            if late := self.rates.take(call.chat, cost):
                raise _flood(late)

    async def _result(self, call: Call) -> object:
        method: Callable[[Json, Files], Any] | None = getattr(self, f"m_{call.method.lower()}", None)
        if method is None:
            raise ApiError(404, "Not Found: method not found")
        try:
            result = method(call.args, call.files)
            return await result if inspect.isawaitable(result) else result
        except (KeyError, ValueError, TypeError) as error:
            raise ApiError(400, f"Bad Request: wrong or missing parameter {error}") from error

    # ------------------------------------------------------------ updates

    async def m_getupdates(self, args: Json, files: Files) -> list[Json]:
        """Long polling: `offset` confirms everything below it; a newer poll ends an older one with 409."""
        if self.webhook:
            raise ApiError(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook"
                " first",
            )
        self._end_poll(conflict=True)
        if args.get("allowed_updates") is not None:
            self._allowed = args["allowed_updates"]  # kept for polls that do not set it
        self._confirm(int(args.get("offset") or 0))
        loop = asyncio.get_running_loop()
        end = loop.time() + float(args.get("timeout") or 0)
        limit = min(100, int(args.get("limit") or 100))
        while not (batch := self._batch(limit)) and (left := end - loop.time()) > 0:
            mine = self._poll = loop.create_future()
            await asyncio.wait({mine}, timeout=left)
            if mine.done() and mine.result():
                raise ApiError(409, CONFLICT)
        if self.latency:
            await asyncio.sleep(self.latency)
        now = time.monotonic()
        for update in batch:
            self.delivered.setdefault(update["update_id"], Delivery.of(update)).at.append(now)
        return batch

    def m_deletewebhook(self, args: Json, files: Files) -> bool:
        self.webhook = False
        if str(args.get("drop_pending_updates")).lower() == "true":
            self.updates.clear()
        return True

    def m_getwebhookinfo(self, args: Json, files: Files) -> Json:
        url = "https://elsewhere.example/hook" if self.webhook else ""
        return {"url": url, "has_custom_certificate": False, "pending_update_count": len(self.updates)}

    def _confirm(self, offset: int) -> None:
        if offset < 0:  # only the last ones, the rest is forgotten
            offset = sorted(self.updates)[offset:][0] if self.updates else 0
        for update_id in [u for u in tuple(self.updates) if u < offset]:
            del self.updates[update_id]
            self.confirmed = max(self.confirmed, update_id)

    def _batch(self, limit: int) -> list[Json]:
        again, self.again = self.again, []
        waiting = [u for _, u in sorted(self.updates.items()) if self._wanted(u)]
        return (again + waiting)[:limit]

    def _wanted(self, update: Json) -> bool:
        """Send reactions only to bots that request them (core.telegram.org/bots/api#getupdates)."""
        return any(kind in update for kind in self._allowed) if self._allowed else "message_reaction" not in update

    def _end_poll(self, conflict: bool) -> None:
        if self._poll and not self._poll.done():
            self._poll.set_result(conflict)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["token"] != self.token:
            return web.json_response({"ok": False, "error_code": 401, "description": "Unauthorized"}, status=401)
        if (fault := self.take_fault("file")) and fault.kind != "flood":
            if fault.kind == "error":
                return web.Response(status=fault.code)
            if answer := await self.suffer(fault, request):
                return answer
        for file in self.files.values():
            if file.path == request.match_info["path"]:
                return await self.give(request, file.data, "application/octet-stream")
        return web.json_response({"ok": False, "error_code": 404, "description": "Not Found"}, status=404)


def _flood(seconds: float) -> ApiError:
    after = max(1, math.ceil(seconds))
    return ApiError(429, f"Too Many Requests: retry after {after}", {"retry_after": after})


def _answer(call: Call, status: int, body: Json) -> web.Response:
    call.status, call.done = status, time.monotonic()
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


async def _read(request: web.Request, call: Call) -> None:
    """Query, JSON, form and multipart arguments into `call`."""
    args: Json = dict(request.query)
    try:
        if request.content_type == "application/json":
            args |= orjson.loads(await request.read() or b"{}")
        else:
            form = await read_form(request)
            args |= form.texts
            call.files.update(form.files)
        for key in STRUCTURED & args.keys():
            if isinstance(args[key], str):
                args[key] = orjson.loads(args[key])
    except web.HTTPRequestEntityTooLarge as error:
        raise ApiError(413, "Request Entity Too Large") from error
    except orjson.JSONDecodeError as error:
        raise ApiError(400, "Bad Request: can't parse JSON object") from error
    call.args = args


if __name__ == "__main__":
    main(FakeTelegram())
