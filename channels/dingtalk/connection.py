"""The stream: receive frames over one WebSocket, and acknowledge each event when it is persisted.

Frames: github.com/open-dingtalk/dingtalk-stream-sdk-python, dingtalk_stream/frames.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson

from channels.base import Health
from channels.dingtalk.api import DingTalkApi
from channels.shared.event_connection import MAX_BACKOFF_SECONDS, EventConnection

log = logging.getLogger(__name__)

HandleEvent = Callable[[str, bytes], Awaitable[object]]
"""Stores one event (its topic and data), and returns the answer to a click, None for a message."""


class StreamConnection(EventConnection[HandleEvent]):
    """One connection; a lost one is replaced."""

    def __init__(self, api: DingTalkApi) -> None:
        super().__init__("dingtalk", "DingTalk", log)
        self._api = api

    async def _connect_once(self, handle_event: HandleEvent, handlers: asyncio.TaskGroup) -> tuple[str, float]:
        is_replaced = True
        while is_replaced:  # the platform asks for the next one
            async with await self._api.open_stream() as stream:
                self.health.set_health(Health.READY)
                is_replaced = await self._read_frames(stream, handle_event, handlers)
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
