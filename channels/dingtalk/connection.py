"""The stream: receive frames over one WebSocket, and acknowledge each event when it is persisted.

Frames: github.com/open-dingtalk/dingtalk-stream-sdk-python, dingtalk_stream/frames.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp
import orjson

from channels.base import ChannelError, Health
from channels.dingtalk.api import DingTalkApi
from channels.shared.health import ConnectionHealth

log = logging.getLogger(__name__)

STEADY_SECONDS = 30.0  # a connection that lasts longer did not fail
MAX_BACKOFF_SECONDS = 30.0  # between two connections

HandleEvent = Callable[[str, bytes], Awaitable[object]]
"""Stores one event (its topic and data), and returns the answer to a click, None for a message."""


class StreamConnection:
    """One connection; a lost one is replaced."""

    def __init__(self, api: DingTalkApi) -> None:
        self._api = api
        self.health = ConnectionHealth("dingtalk", log)

    async def run(self, handle_event: HandleEvent) -> None:
        """Pass events to `handle_event` until cancelled, in the order of arrival; none waits for another's commit."""
        async with asyncio.TaskGroup() as handlers:
            await self.health.supervise(partial(self._connect_once, handle_event, handlers), STEADY_SECONDS)

    async def _connect_once(self, handle_event: HandleEvent, handlers: asyncio.TaskGroup) -> tuple[str, float]:
        """Serve one connection, and the next one if the platform asks for it.

        Returns why it ended, and the longest time to wait before the next one.
        """
        is_replaced = True
        while is_replaced:
            try:
                async with await self._api.open_stream() as stream:
                    self.health.set_health(Health.READY)
                    is_replaced = await self._read_frames(stream, handle_event, handlers)
            except (ChannelError, aiohttp.ClientError, OSError) as error:
                return f"The DingTalk connection failed ({error or type(error).__name__}).", MAX_BACKOFF_SECONDS
        return "The connection to DingTalk was lost.", MAX_BACKOFF_SECONDS

    async def _read_frames(
        self, stream: aiohttp.ClientWebSocketResponse, handle_event: HandleEvent, handlers: asyncio.TaskGroup
    ) -> bool:
        """Handle frames until the connection ends. Returns True if the platform asked for a new one."""
        async for message in stream:
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            frame: dict[str, Any] = orjson.loads(message.data)
            match frame["type"], frame["headers"]["topic"]:
                case "SYSTEM", "disconnect":
                    return True
                case "SYSTEM", "ping":
                    await _acknowledge(stream, frame, frame["data"])
                case "CALLBACK", _:
                    handling = _handle_frame(stream, frame, handle_event)
                    handlers.create_task(handling, name=f"dingtalk event {frame['headers']['messageId']}")
        return False


async def _handle_frame(stream: aiohttp.ClientWebSocketResponse, frame: Any, handle_event: HandleEvent) -> None:
    answer = await handle_event(frame["headers"]["topic"], frame["data"].encode())
    await _acknowledge(stream, frame, orjson.dumps({"response": answer}).decode())


async def _acknowledge(stream: aiohttp.ClientWebSocketResponse, frame: Any, data: str) -> None:
    headers = {"messageId": frame["headers"]["messageId"], "contentType": "application/json"}
    body = {"code": 200, "headers": headers, "message": "OK", "data": data}
    try:
        await stream.send_str(orjson.dumps(body).decode())
    except (aiohttp.ClientError, OSError) as error:  # the platform sends the event again over the next connection
        log.debug("dingtalk.not_acknowledged reason=%s", type(error).__name__)
