"""Hold the line: one WebSocket for events and calls, each call with an answer by its `req_id`.

Frames and commands: developer.work.weixin.qq.com/document/path/101463, and @wecom/aibot-node-sdk 1.0.7. An answer has
no command: `{headers: {req_id}, errcode, errmsg, body?}`. Events are not acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import aiohttp
import orjson

from agent.messages import Thread
from catalogue import N_, _
from channels.base import Health, OutcomeUnknown, TryLater, Unattended
from channels.shared.event_connection import MAX_BACKOFF_SECONDS, EventConnection
from channels.shared.http_client import CodedRefusal, HttpClient, RateLimited, mapped_network_errors
from channels.shared.robot_chats import is_group
from channels.shared.visible_text import dict_of
from channels.wecom import NAME, WeComSettings

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0  # for the answer to a call
LINE_SECONDS = 2.0  # a call waits so long for a line that is being replaced
PING_SECONDS = 10.0  # between two pings; a line that does not answer one in ANSWER_SECONDS is dead
REJECTED_SECONDS = 60.0  # between two lines while the robot's id or secret is rejected
BUSY_SECONDS = 2.0  # after a rate limit, which names no time
MAX_FRAME_BYTES = 4 << 20
CLOSING = aiohttp.ClientWSTimeout(ws_close=2.0)  # for the other side's goodbye

MESSAGE, EVENT = "aibot_msg_callback", "aibot_event_callback"
RESPOND, UPDATE_CARD, SEND = "aibot_respond_msg", "aibot_respond_update_msg", "aibot_send_msg"

SYSTEM_BUSY = -1
NOT_SUBSCRIBED = 846609  # the line is dead although it is open (hermes-agent#29667, #47564)
STREAM_ENDED = 846608  # its last frame came, or it is older than ten minutes
_ENDED = frozenset({846604, 846605, STREAM_ENDED})  # the others: the id of an old event
_LIMITED = frozenset({45009, 45033, 846607})
SUPERSEDED = 6000  # a later frame of the same stream came first: nothing is lost

DISPLACED = N_(
    "Another program connected as this WeCom robot, and WeCom allows one connection. Stop the other program, then"
    " restart Fawn."
)
REJECTED = N_("WeCom rejects the robot's Bot ID or Secret ({code}): copy both again.")
LOST = N_("The connection to WeCom was lost.")


class WeComRefusal(CodedRefusal):
    """The platform refused a call."""

    platform = "WeCom"


class AnswerEnded(WeComRefusal):
    """What the call answers is over: its event is too old, or its stream has ended."""


class Displaced(Exception):
    """Another line of the same robot took over: another attempt would throw that one out."""


HandleEvent = Callable[[str, str, bytes], Coroutine[Any, Any, None]]
"""Handles one event: its command, its `req_id`, and its body as JSON."""


class WeComConnection(EventConnection[HandleEvent]):
    """One line; a lost one is replaced."""

    def __init__(self, settings: WeComSettings, http: HttpClient) -> None:
        super().__init__(NAME, "WeCom", log)
        self._settings = settings
        self._http = http
        self._socket: aiohttp.ClientWebSocketResponse | None = None  # the subscribed line
        self._subscribed = asyncio.Event()  # while there is a line
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._numbers = itertools.count(1)

    # ------------------------------------------------------------ calls

    async def call(self, command: str, body: Mapping[str, Any] | None, req_id: str = "") -> Mapping[str, Any]:
        """Make a call and return the body of its answer. Calls with one `req_id` go one after the other.

        Raises ChannelError: Unattended without a line, OutcomeUnknown without an answer.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LINE_SECONDS):
                await self._subscribed.wait()
        if self._socket is None:
            raise Unattended(_(LOST))
        return await self._call(self._socket, command, body, req_id)

    async def send(self, thread: Thread, kind: str, content: Mapping[str, Any]) -> None:
        """Post a message of the robot into a chat."""
        chat = {"chatid": thread.chat.removeprefix("@"), "chat_type": 2 if is_group(thread) else 1}
        await self.call(SEND, {**chat, "msgtype": kind, kind: content})

    async def send_markdown(self, thread: Thread, text: str, **more: object) -> None:
        await self.send(thread, "markdown", {"content": text, **more})

    async def _call(
        self, socket: aiohttp.ClientWebSocketResponse, command: str, body: Mapping[str, Any] | None, req_id: str = ""
    ) -> Mapping[str, Any]:
        req_id = req_id or f"{command}_{int(time.time() * 1000)}_{next(self._numbers)}"
        frame: dict[str, Any] = {"cmd": command, "headers": {"req_id": req_id}} | (
            {} if body is None else {"body": body}
        )
        lock = self._locks.setdefault(req_id, asyncio.Lock())
        async with lock:
            answer = await self._exchange(socket, req_id, orjson.dumps(frame).decode())
        if code := int(answer.get("errcode") or 0):
            self._raise_refusal(code, str(answer.get("errmsg") or "refused"))
        found: Mapping[str, Any] = answer["body"]
        return found

    async def _exchange(self, socket: aiohttp.ClientWebSocketResponse, req_id: str, frame: str) -> Mapping[str, Any]:
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[req_id] = future
        try:
            self._http.check_may_call()
            with mapped_network_errors("WeCom"):
                await socket.send_str(frame)
            async with asyncio.timeout(ANSWER_SECONDS):
                return await future
        except TimeoutError:
            raise OutcomeUnknown("WeCom did not answer") from None
        finally:
            del self._waiting[req_id]

    def _raise_refusal(self, code: int, message: str) -> None:
        if code in _ENDED:
            raise AnswerEnded(code, message)
        if code in _LIMITED:
            raise RateLimited("WeCom", BUSY_SECONDS)
        if code == NOT_SUBSCRIBED and self._reader is not None:
            self._socket = None
            self._subscribed.clear()
            self._reader.cancel()  # the line is closed and replaced
        if code in (SYSTEM_BUSY, NOT_SUBSCRIBED):
            raise TryLater(f"WeCom: {message[:300]} ({code})")
        if code != SUPERSEDED:
            raise WeComRefusal(code, message)

    # ------------------------------------------------------------ the line

    async def probe(self) -> None:
        """Open a line without subscribing to events, which would end another one. Raises ChannelError."""
        await (await self._open()).close()

    async def _open(self) -> aiohttp.ClientWebSocketResponse:
        with mapped_network_errors("WeCom", repeatable=True):
            url = self._settings.gateway_url
            return await self._http.session.ws_connect(
                url, proxy=self._http.proxy_for(url), max_msg_size=MAX_FRAME_BYTES, timeout=CLOSING
            )

    async def _subscribe(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        secret = self._settings.secret.reveal()
        await self._call(socket, "aibot_subscribe", {"bot_id": self._settings.bot_id, "secret": secret})

    async def _connect_once(self, handle_event: HandleEvent, handlers: asyncio.TaskGroup) -> tuple[str, float]:
        try:
            async with await self._open() as socket:
                return await self._serve(socket, handle_event, handlers)
        except Displaced:
            self.health.set_health(Health.DOWN, _(DISPLACED))
            await asyncio.Event().wait()  # for a restart
            raise

    async def _serve(
        self, socket: aiohttp.ClientWebSocketResponse, handle_event: HandleEvent, handlers: asyncio.TaskGroup
    ) -> tuple[str, float]:
        reader = asyncio.create_task(self._read(socket, handle_event, handlers), name="wecom line")
        try:
            try:
                await self._subscribe(socket)
            except WeComRefusal as error:
                return _(REJECTED, code=error.code), REJECTED_SECONDS
            self._socket, self._reader = socket, reader
            self._subscribed.set()
            self.health.set_health(Health.READY)
            while not reader.done():
                await asyncio.wait({reader}, timeout=PING_SECONDS)
                if not reader.done():
                    await self._call(socket, "ping", None)
            if not reader.cancelled():
                await reader
            return _(LOST), MAX_BACKOFF_SECONDS
        finally:
            self._socket = self._reader = None
            self._subscribed.clear()
            if not reader.done():
                reader.cancel()
                await asyncio.wait({reader})

    async def _read(
        self, socket: aiohttp.ClientWebSocketResponse, handle_event: HandleEvent, handlers: asyncio.TaskGroup
    ) -> None:
        """Read frames until the line ends. Raises Displaced."""
        try:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    break
                frame = _read_frame(message.data)
                req_id, command = str(frame["headers"].get("req_id", "")), frame.get("cmd")
                if command in (MESSAGE, EVENT):
                    if dict_of(frame["body"].get("event")).get("eventtype") == "disconnected_event":
                        raise Displaced
                    handling = handle_event(command, req_id, orjson.dumps(frame["body"]))
                    handlers.create_task(handling, name=f"wecom event {req_id}")
                elif (future := self._waiting.get(req_id)) and not future.done():
                    future.set_result(frame)
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(OutcomeUnknown("the connection to WeCom was lost"))


def _read_frame(text: str) -> dict[str, Any]:
    """Return a frame with a head and a body; an unknown shape has empty ones."""
    try:
        frame = dict_of(orjson.loads(text))
    except orjson.JSONDecodeError:
        frame = {}
    return {**frame, "headers": dict_of(frame.get("headers")), "body": dict_of(frame.get("body"))}
