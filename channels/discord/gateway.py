"""Gateway connection: watch the SDK's client, reconnect, report health.

The SDK handles the session (IDENTIFY, RESUME, heartbeats, compression). Its objects are not used, because an event that
it cannot parse would end its loop: frames are taken as they arrive.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import discord
import orjson
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from agent.settings.network import choose_proxy, describe_failure
from channels.base import Health, Readiness
from channels.discord import DiscordSettings
from channels.discord.api import INTENT_REFUSED, TOKEN_REJECTED
from channels.shared.event_connection import ConnectionHealth

log = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 10.0  # while Discord cannot be reached
REFUSED_RETRY_SECONDS = 30.0  # while it refuses the token
SESSION_RETRY_SECONDS = 120.0  # while it ends sessions: after 1,000 new ones a day, Discord resets the token
STEADY_SECONDS = 60.0  # a session that lasts longer did not fail
READY_TIMEOUT_SECONDS = 60.0  # until a connection is ready
RESUME_TIMEOUT_SECONDS = 20.0  # for the SDK to resume a lost session
CLOSE_TIMEOUT_SECONDS = 2.0
# Discord asks for 41 s, and allows more where they are needed (…/events/gateway#heartbeat-interval):
# a connection that has fallen silent is noticed after 25 s.
MAX_HEARTBEAT_SECONDS = 20.0
HEARTBEAT_MARGIN_SECONDS = 5.0  # the acknowledgement of a heartbeat may be late

CONNECTION_LOST = "The connection to Discord was lost; reconnecting."
GATEWAY_UNREACHABLE = "Discord's gateway cannot be reached; retrying."
HEARTBEAT_UNANSWERED = "Discord's gateway stopped answering; reconnecting."

INTENTS = discord.Intents(
    guilds=True, guild_messages=True, dm_messages=True, guild_reactions=True, dm_reactions=True, message_content=True
)

Event = dict[str, Any]  # Discord defines the shape


class _QuickHeartbeats(discord.gateway.KeepAliveHandler):
    """The SDK's heartbeats, more often than Discord asks for them."""

    def __init__(self, *args: Any, interval: float | None = None, **more: Any) -> None:
        super().__init__(*args, interval=min(interval or MAX_HEARTBEAT_SECONDS, MAX_HEARTBEAT_SECONDS), **more)


class GatewayClient(discord.Client):
    """The SDK's client. It passes every frame to `on_frame` and calls `on_lost` when a connection is lost.

    Everything undocumented of the SDK is used only in this class; the version is bound to a minor one for it.
    """

    def __init__(
        self,
        settings: DiscordSettings,
        on_frame: Callable[[Event], None],
        on_lost: Callable[[], None],
        trust: ssl.SSLContext,
    ) -> None:
        Route.BASE = settings.base_url.rstrip("/")  # the SDK has no other setting for this, nor for the next
        DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(settings.gateway_url)
        discord.gateway.KeepAliveHandler = _QuickHeartbeats  # type: ignore[misc]  # nor for this
        super().__init__(
            intents=INTENTS,
            connector=aiohttp.TCPConnector(limit=0, ssl=trust),
            proxy=choose_proxy(settings.base_url, settings.proxy),
            enable_debug_events=True,  # dispatches raw frames
            max_messages=None,
            chunk_guilds_at_startup=False,
            guild_ready_timeout=0,
            member_cache_flags=discord.MemberCacheFlags.none(),
            allowed_mentions=discord.AllowedMentions.none(),
        )
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._connection.parsers = {}  # no objects, no cache: see above

    def dispatch(self, event: str, /, *args: Any, **_: Any) -> None:
        if event == "socket_raw_receive":
            self._on_frame(orjson.loads(args[0]))
        elif event == "disconnect" and not self.is_closed():
            self._on_lost()

    async def close_socket(self) -> None:
        """Close the connection, so that the SDK resumes the session over a new one."""
        await self.ws.close(4000)

    async def drop_session(self) -> None:
        """Close the HTTP session of a client whose `close` hangs."""
        await self.http.close()


async def _close_client(client: GatewayClient, task: asyncio.Task[None]) -> None:
    """Close the connection within the timeout; the server may not answer. The SDK's heartbeat thread ends with it."""
    closing = asyncio.create_task(client.close(), name="discord close")
    await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_SECONDS)
    if not closing.done():
        closing.cancel()
        await client.drop_session()
    task.cancel()
    await asyncio.wait({closing, task})


class Gateway:
    """One bot's event connection. `on_event` takes every event as {"t": name, "d": data}, in order."""

    def __init__(self, settings: DiscordSettings, on_event: Callable[[Event], None]) -> None:
        logging.getLogger("discord").setLevel(logging.CRITICAL)  # its tracebacks repeat what this module logs in a line
        self._settings = settings
        self._on_event = on_event
        self._health = ConnectionHealth("discord", log)
        self._heartbeat_seconds = 0.0  # the interval, 0 without a connection
        self._acknowledged_at = 0.0  # all three: time.monotonic()
        self._lost_at = 0.0  # 0 while connected
        self._started_at = 0.0

    def readiness(self) -> Readiness:
        """Ready only if the last heartbeat was acknowledged."""
        if self._health.is_ready and (late := self._heartbeat_delay()) > 0:
            return Readiness(Health.DOWN, time.time() - late, HEARTBEAT_UNANSWERED)
        return self._health.now

    async def run(self, trust: ssl.SSLContext) -> None:
        async def connect() -> tuple[str, float]:
            client = GatewayClient(self._settings, self._receive_frame, self._note_loss, trust)
            task = asyncio.create_task(client.start(self._settings.token.reveal()), name="discord gateway")
            self._started_at, self._lost_at = time.monotonic(), 0.0
            try:
                await self._watch_connection(client, task)
            finally:
                await _close_client(client, task)
            self._heartbeat_seconds = 0.0
            return _describe_end(None if task.cancelled() else task.exception(), was_ready=bool(self._health.ready_at))

        await self._health.supervise(connect, STEADY_SECONDS)

    async def _watch_connection(self, client: GatewayClient, task: asyncio.Task[None]) -> None:
        """Return when the connection ends or a timeout passes. Without heartbeats it is closed, so the SDK resumes."""
        while not task.done():
            await asyncio.wait({task}, timeout=min(1.0, self._heartbeat_seconds / 4 or 1.0))
            now = time.monotonic()
            if (self._lost_at and now - self._lost_at > RESUME_TIMEOUT_SECONDS) or (
                not self._health.ready_at and now - self._started_at > READY_TIMEOUT_SECONDS
            ):
                return
            if not self._lost_at and self._heartbeat_delay() > 0:
                self._health.set_health(Health.DOWN, HEARTBEAT_UNANSWERED)
                self._lost_at = now
                closing = asyncio.create_task(client.close_socket(), name="discord close silent connection")
                await asyncio.wait({closing}, timeout=1.0)
                closing.cancel()

    def _heartbeat_delay(self) -> float:
        """Return how many seconds the acknowledgement of a heartbeat is overdue."""
        interval = self._heartbeat_seconds
        if not interval:
            return 0.0
        return time.monotonic() - self._acknowledged_at - interval - min(HEARTBEAT_MARGIN_SECONDS, 2 * interval)

    def _receive_frame(self, frame: Event) -> None:
        match frame.get("op"):
            case 10:  # hello
                self._heartbeat_seconds = min(frame["d"]["heartbeat_interval"] / 1000, MAX_HEARTBEAT_SECONDS)
                self._acknowledged_at = time.monotonic()
            case 11:  # heartbeat acknowledged
                self._acknowledged_at = time.monotonic()
            case 0:  # event
                if frame["t"] in ("READY", "RESUMED"):
                    self._lost_at = 0.0
                    self._health.set_health(Health.READY)
                self._on_event(frame)

    def _note_loss(self) -> None:
        self._lost_at = self._lost_at or time.monotonic()
        self._heartbeat_seconds = 0.0
        was_ready = bool(self._health.ready_at)  # Discord asks for a new connection every now and then
        self._health.set_health(Health.DOWN, CONNECTION_LOST if was_ready else GATEWAY_UNREACHABLE, usual=was_ready)


def _describe_end(error: BaseException | None, *, was_ready: bool) -> tuple[str, float]:
    """Return why a client ended, and the longest time to wait before the next one."""
    match error:
        case None:
            detail = "Discord does not answer; reconnecting."
        case discord.LoginFailure():
            return TOKEN_REJECTED, REFUSED_RETRY_SECONDS
        case discord.PrivilegedIntentsRequired():
            return INTENT_REFUSED, SESSION_RETRY_SECONDS
        case discord.ConnectionClosed():
            closed = f"Discord closed the connection ({error.code})."
            return TOKEN_REJECTED if error.code == 4004 else closed, SESSION_RETRY_SECONDS
        case discord.HTTPException():
            return f"Discord answered {error.status}.", REFUSED_RETRY_SECONDS
        case OSError() | aiohttp.ClientError() | AttributeError() | TimeoutError():
            # The SDK raises AttributeError when its very first connection fails.
            detail = f"Discord cannot be reached ({describe_failure(error)}); retrying."
        case _:
            log.error("discord.ended", exc_info=error)
            detail = f"The connection to Discord failed ({type(error).__name__}); retrying."
    return detail, SESSION_RETRY_SECONDS if was_ready else MAX_BACKOFF_SECONDS
