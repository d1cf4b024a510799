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

from catalogue import N_, _
from channels.base import ChannelError, Health, OutcomeUnknown, Refused, TryLater, Unattended
from channels.shared.health import ConnectionHealth
from channels.shared.http_client import HttpClient, RateLimited, mapped_network_errors
from channels.wecom import NAME, WeComSettings

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0  # for the answer to a call
LINE_SECONDS = 2.0  # a call waits so long for a line that is being replaced
PING_SECONDS = 10.0  # between two pings; a line that does not answer one in ANSWER_SECONDS is dead
STEADY_SECONDS = 30.0  # a line that lasts longer did not fail
MAX_BACKOFF_SECONDS = 30.0  # between two lines
REJECTED_SECONDS = 60.0  # …while the robot's id or secret is rejected
BUSY_SECONDS = 2.0  # after a rate limit, which names no time
MAX_FRAME_BYTES = 4 << 20
CLOSING = aiohttp.ClientWSTimeout(ws_close=2.0)  # for the other side's goodbye

MESSAGE, EVENT = "aibot_msg_callback", "aibot_event_callback"
RESPOND, UPDATE_CARD, SEND = "aibot_respond_msg", "aibot_respond_update_msg", "aibot_send_msg"

SYSTEM_BUSY = -1
NOT_SUBSCRIBED = 846609  # the line is dead although it is open (hermes-agent#29667, #47564)
_ENDED = frozenset({846604, 846605, 846608})  # the id of an old event, or a stream older than ten minutes
_LIMITED = frozenset({45009, 45033, 846607})
SUPERSEDED = 6000  # a later frame of the same stream came first: nothing is lost

DISPLACED = N_(
    "Another program connected as this WeCom robot, and WeCom allows one connection. Stop the other program, then"
    " restart Fawn."
)
REJECTED = N_("WeCom rejects the robot's Bot ID or Secret ({code}): copy both again.")
LOST = N_("The connection to WeCom was lost.")


class WeComRefusal(Refused):
    """The platform refused a call, with a code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"WeCom: {message[:300]} ({code})")
        self.code = code


class AnswerEnded(WeComRefusal):
    """What the call answers is over: its event is too old, or its stream has lasted ten minutes."""


class Displaced(Exception):
    """Another line of the same robot took over: another attempt would throw that one out."""


HandleEvent = Callable[[str, str, bytes], Coroutine[Any, Any, None]]
"""Handles one event: its command, its `req_id`, and its body as JSON."""


class WeComConnection:
    """One line; a lost one is replaced."""

    def __init__(self, settings: WeComSettings, http: HttpClient) -> None:
        self._settings = settings
        self._http = http
        self._socket: aiohttp.ClientWebSocketResponse | None = None  # the subscribed line
        self._subscribed = asyncio.Event()  # while there is a line
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._numbers = itertools.count(1)
        self.health = ConnectionHealth(NAME, log)

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
        if code == SYSTEM_BUSY:
            raise TryLater(f"WeCom: {message[:300]} ({code})")
        if code == NOT_SUBSCRIBED:
            self._drop_line()
            raise TryLater(f"WeCom: {message[:300]} ({code})")
        if code != SUPERSEDED:
            raise WeComRefusal(code, message)

    def _drop_line(self) -> None:
        """Have the line closed and replaced."""
        self._socket = None
        self._subscribed.clear()
        if self._reader is not None:
            self._reader.cancel()

    # ------------------------------------------------------------ the line

    async def run(self, handle_event: HandleEvent) -> None:
        """Pass events to `handle_event` until cancelled, in the order of arrival; none waits for another's commit."""
        async with asyncio.TaskGroup() as handlers:
            try:
                await self.health.supervise(lambda: self._connect_once(handle_event, handlers), STEADY_SECONDS)
            except Displaced:
                self.health.set_health(Health.DOWN, _(DISPLACED))
                await asyncio.Event().wait()

    async def probe(self) -> None:
        """Open a line without subscribing to events, which would end another one. Raises ChannelError."""
        await (await self._open()).close()

    async def _open(self) -> aiohttp.ClientWebSocketResponse:
        with mapped_network_errors("WeCom", repeatable=True):
            return await self._http.session.ws_connect(
                self._settings.gateway_url, proxy=self._http.proxy, max_msg_size=MAX_FRAME_BYTES, timeout=CLOSING
            )

    async def _subscribe(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        secret = self._settings.secret.reveal()
        await self._call(socket, "aibot_subscribe", {"bot_id": self._settings.bot_id, "secret": secret})

    async def _connect_once(self, handle_event: HandleEvent, handlers: asyncio.TaskGroup) -> tuple[str, float]:
        """Serve one line. Returns why it ended, and the longest time to wait before the next one."""
        try:
            async with await self._open() as socket:
                return await self._serve(socket, handle_event, handlers)
        except (ChannelError, aiohttp.ClientError, OSError) as error:
            return f"The WeCom connection failed ({error or type(error).__name__}).", MAX_BACKOFF_SECONDS

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
                    if _event_type(frame) == "disconnected_event":
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
        frame = orjson.loads(text)
    except orjson.JSONDecodeError:
        frame = {}
    frame = frame if isinstance(frame, dict) else {}
    head, body = frame.get("headers"), frame.get("body")
    return {**frame, "headers": head if isinstance(head, dict) else {}, "body": body if isinstance(body, dict) else {}}


def _event_type(frame: Mapping[str, Any]) -> object:
    event = frame["body"].get("event")
    return event.get("eventtype") if isinstance(event, dict) else None
