"""A small model server and a small Telegram Bot API server on loopback, for the people of a drill.

It has the methods that the channel calls, with the refusals that its errors are read from (core.telegram.org/bots/api,
tdlib/telegram-bot-api). An update is handed out until an offset above it confirms it, as the real server does.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
from aiohttp import web

Json = dict[str, Any]

HELD = "-held"  # the end of a word whose answer waits until the drill wants it
WORD = re.compile(rf"drill-\d+(?:{HELD})?")
PACE_SECONDS = 0.05  # between two pieces of an answer
HELPER = "Drill"  # the answer to everything but a message of a person: titles and the like


def answer_to(word: str) -> str:
    """Return the answer to a word, which no part of it contains."""
    return f"Whole answer to {word}!"


class DrillModel:
    """The server. Words that end with HELD are answered once `released` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.released = asyncio.Event()

    def add_routes(self, app: web.Application) -> None:
        """Have an application answer as the API does."""
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "drill", "object": "model", "owned_by": "fawn"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        body: Json = orjson.loads(await request.read())
        words = [*dict.fromkeys(WORD.findall(_last_words(body)))] if body.get("tools") else []
        if any(word.endswith(HELD) for word in words):
            await self.released.wait()
        text = "\n".join(map(answer_to, words)) or HELPER
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        head = {"id": f"chatcmpl-{self.calls}", "created": 1, "model": "drill"}
        if body.get("stream"):
            return await _stream(request, body, head, text, usage)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return web.Response(body=orjson.dumps(whole), content_type="application/json")


async def _stream(request: web.Request, body: Json, head: Json, text: str, usage: Json) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    deltas: list[tuple[Json, str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in re.findall(r"\S+\s*", text)]
    deltas.append(({}, "stop"))
    for delta, reason in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        event = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        await answer.write(b"data: " + orjson.dumps(event) + b"\n\n")
        await asyncio.sleep(PACE_SECONDS)
    if (body.get("stream_options") or {}).get("include_usage"):
        counted = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        await answer.write(b"data: " + orjson.dumps(counted) + b"\n\n")
    await answer.write(b"data: [DONE]\n\n")
    await answer.write_eof()
    return answer


def _last_words(body: Json) -> str:
    """Return what people said since the last answer."""
    said: list[str] = []
    for message in reversed(body["messages"]):
        if message["role"] not in ("user", "system"):
            break
        if message["role"] == "user":
            content = message.get("content") or ""
            said.append(content if isinstance(content, str) else orjson.dumps(content).decode())
    return "\n".join(reversed(said))


BOT: Mapping[str, Any] = {
    "id": 1000000001, "is_bot": True, "first_name": "Drill", "username": "fawn_drill_bot", "can_join_groups": False,
    "can_read_all_group_messages": False, "supports_inline_queries": False,
}  # fmt: skip
TOKEN = f"{BOT['id']}:drill-drill-drill-drill-drill-drill"
MAX_TEXT_UNITS = 4096
POSTS = frozenset({"sendmessage", "editmessagetext"})
HEAD_SECONDS = 50.0  # of a poll, at most


class TelegramRefusal(Exception):
    """The server refuses a call; the text is Telegram's description."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


class DrillTelegram:
    """The server, with the people who write to it: `write`, and what they see: `visible`."""

    def __init__(self) -> None:
        self.polls = 0  # calls of getUpdates so far
        self.gateway_faults = 0  # so many next posts have their effect, and are answered 504
        self.suffered = 0  # posts that were answered so
        self.deaf = False  # polls are never answered, those that wait included
        self.unanswered = 0  # polls that this happened to
        self._updates: dict[int, Json] = {}
        self._chats: defaultdict[int, dict[int, str]] = defaultdict(dict)  # the bot's messages by chat
        self._people: set[int] = set()
        self._ids: Iterator[int] = itertools.count(1)
        self._changed = asyncio.Event()
        self._methods: Mapping[str, Callable[[Json], Any]] = {
            "getme": lambda _given: BOT,
            "deletewebhook": lambda _given: True,
            "setmycommands": lambda _given: True,
            "sendchataction": lambda _given: True,
            "answercallbackquery": lambda _given: True,
            "setmessagereaction": lambda _given: True,
            "sendmessagedraft": lambda _given: True,
            "sendmessage": self._send,
            "editmessagetext": self._edit,
            "editmessagereplymarkup": self._described,
            "deletemessage": self._delete,
        }

    def add_routes(self, app: web.Application) -> None:
        """Have an application answer as the Bot API does."""
        app.router.add_post("/bot{token}/{method}", self._answer)

    # ------------------------------------------------------------ people

    def write(self, chat: int, text: str) -> None:
        """A person writes to the bot in their private chat."""
        self._people.add(chat)
        id, person = next(self._ids), {"id": chat, "is_bot": False, "first_name": f"Drill {chat}"}
        where = {"id": chat, "type": "private", "first_name": person["first_name"]}
        message = {"message_id": id, "from": person, "chat": where, "date": int(time.time()), "text": text}
        self._updates[id] = {"update_id": id, "message": message}
        self._wake()

    def visible(self, chat: int) -> list[str]:
        """Return the texts of the bot that this person sees."""
        return [*self._chats[chat].values()]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is so, looked at after each call."""
        while not holds():
            changed = self._changed
            await changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ------------------------------------------------------------ calls

    async def _answer(self, request: web.Request) -> web.Response:
        method = request.match_info["method"].lower()
        try:
            if request.match_info["token"] != TOKEN:
                raise TelegramRefusal(401, "Unauthorized")
            given = await _arguments(request)
            result = await self._get_updates(given) if method == "getupdates" else self._call(method, given)
        except TelegramRefusal as error:
            body = {"ok": False, "error_code": error.code, "description": str(error)}
            return web.Response(body=orjson.dumps(body), status=error.code, content_type="application/json")
        self._wake()
        if method in POSTS and self.gateway_faults > 0:
            self.gateway_faults, self.suffered = self.gateway_faults - 1, self.suffered + 1
            return web.Response(status=504, text="<html>504 Gateway Time-out</html>", content_type="text/html")
        return web.Response(body=orjson.dumps({"ok": True, "result": result}), content_type="application/json")

    def _call(self, method: str, given: Json) -> Any:
        if method not in self._methods:
            raise TelegramRefusal(404, "Not Found: method not found")
        return self._methods[method](given)

    async def _get_updates(self, given: Json) -> list[Json]:
        self.polls += 1
        self._wake()
        if self.deaf:
            await self._keep_silent()
        offset = int(given.get("offset") or 0)
        self._updates = {id: update for id, update in self._updates.items() if id >= offset}
        seconds = min(HEAD_SECONDS, float(given.get("timeout") or 0))
        try:
            async with asyncio.timeout(seconds):
                await self.until(lambda: bool(self._updates) or self.deaf)
        except TimeoutError:
            return []
        if self.deaf:
            await self._keep_silent()
        return [self._updates[id] for id in sorted(self._updates)][:100]

    async def _keep_silent(self) -> None:
        self.unanswered += 1
        await asyncio.Event().wait()  # the other end gives up

    def _send(self, given: Json) -> Json:
        chat, text = self._chat(given), _text(given)
        id = next(self._ids)
        self._chats[chat][id] = text
        return self._described(given | {"message_id": id})

    def _edit(self, given: Json) -> Json:
        chat, text, id = self._chat(given), _text(given), int(given.get("message_id") or 0)
        if id not in self._chats[chat]:
            raise TelegramRefusal(400, "Bad Request: message to edit not found")
        self._chats[chat][id] = text
        return self._described(given)

    def _delete(self, given: Json) -> bool:
        if self._chats[self._chat(given)].pop(int(given.get("message_id") or 0), None) is None:
            raise TelegramRefusal(400, "Bad Request: message to delete not found")
        return True

    def _described(self, given: Json) -> Json:
        chat, id = self._chat(given), int(given.get("message_id") or 0)
        if id not in self._chats[chat]:
            raise TelegramRefusal(400, "Bad Request: message to edit not found")
        where = {"id": chat, "type": "private", "first_name": f"Drill {chat}"}
        return {
            "message_id": id, "from": BOT, "chat": where, "date": int(time.time()), "text": self._chats[chat][id],
        }  # fmt: skip

    def _chat(self, given: Json) -> int:
        raw = str(given.get("chat_id") or "")
        if not raw.removeprefix("-").isdecimal() or int(raw) not in self._people:
            raise TelegramRefusal(400, "Bad Request: chat not found")
        return int(raw)


def _text(given: Json) -> str:
    text = str(given.get("text") or "")
    if not text.strip():
        raise TelegramRefusal(400, "Bad Request: message text is empty")
    if len(text.encode("utf-16-le")) // 2 > MAX_TEXT_UNITS:
        raise TelegramRefusal(400, "Bad Request: message is too long")
    return text


async def _arguments(request: web.Request) -> Json:
    if request.content_type != "application/json":  # of a call without arguments, or with a file, which none here takes
        return {}
    given = orjson.loads(await request.read() or b"{}")
    return given if isinstance(given, dict) else {}
