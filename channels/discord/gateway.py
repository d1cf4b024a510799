"""Gateway connection: watch the SDK's client, reconnect, report health.

The SDK keeps the session (IDENTIFY, RESUME, heartbeats, compression); its objects are not used: events are taken as
they are on the wire, since one that it cannot parse would end its loop.
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

from agent.secret import Secret
from channels.base import Health, Readiness
from channels.discord.texts import INTENT_REFUSED, REJECTION
from channels.shared.health import ConnectionHealth, backoff_seconds

log = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 10.0  # seconds between two tries while Discord cannot be reached
REFUSED_RETRY_SECONDS = 30.0  # …while it refuses the token
STUBBORN_RETRY_SECONDS = (
    120.0  # …while it ends our sessions: 1,000 may be begun a day, then Discord takes the token away
)
STEADY_SECONDS = 60.0  # seconds a session lives that did not fail
GREETING_TIMEOUT_SECONDS = 60.0  # seconds until a connection is ready
HEARTBEAT_TIMEOUT_SECONDS = 20.0  # seconds the SDK may try to take up a lost session
CLOSE_TIMEOUT_SECONDS = 2.0  # seconds for a close that is answered
LATE_SECONDS = 5.0  # seconds that an answer to a heartbeat may be late

LOST = "The connection to Discord is lost; connecting again."
UNREACHED = "Discord cannot be reached: its gateway does not answer; trying again."
DEAF = "Discord's gateway does not answer any more; connecting again."

INTENTS = discord.Intents(
    guilds=True, guild_messages=True, dm_messages=True, guild_reactions=True, dm_reactions=True, message_content=True
)

Event = dict[str, Any]  # the shape is Discord's


class GatewayClient(discord.Client):
    """The SDK's client; every frame goes to `take`, the loss of a connection to `lost`."""

    def __init__(
        self, take: Callable[[Event], None], lost: Callable[[], None], trust: ssl.SSLContext | None, proxy: str
    ) -> None:
        super().__init__(
            intents=INTENTS,
            connector=aiohttp.TCPConnector(limit=0, ssl=trust if trust is not None else True),
            proxy=proxy or None,
            enable_debug_events=True,  # gives us each frame
            max_messages=None,
            chunk_guilds_at_startup=False,
            guild_ready_timeout=0,
            member_cache_flags=discord.MemberCacheFlags.none(),
            allowed_mentions=discord.AllowedMentions.none(),
        )
        self._take = take
        self._lost = lost
        self._connection.parsers = {}  # no objects, no cache: see above

    def dispatch(self, event: str, /, *args: Any, **_: Any) -> None:
        if event == "socket_raw_receive":
            self._take(orjson.loads(args[0]))
        elif event == "disconnect" and not self.is_closed():
            self._lost()


async def _close_client(client: GatewayClient, task: asyncio.Task[None]) -> None:
    """Close the connection politely, but not for long: the other side may be gone. The SDK's thread ends with it."""
    closing = asyncio.create_task(client.close(), name="discord close")
    await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_SECONDS)
    if not closing.done():
        closing.cancel()
        await client.http.close()
    task.cancel()
    await asyncio.wait({closing, task})


class Gateway:
    """One bot's connection for events. `take` gets every dispatched event as {"t": name, "d": data}, in order."""

    def __init__(
        self, base_url: str, gateway_url: str, token: Secret, proxy: str, take: Callable[[Event], None]
    ) -> None:
        Route.BASE = base_url.rstrip("/")  # the SDK's only way to be told, and DEFAULT_GATEWAY too
        DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(gateway_url)
        logging.getLogger("discord").setLevel(logging.CRITICAL)  # its tracebacks repeat what we say in a line
        self._token = token
        self._proxy = proxy
        self._deliver = take
        self._vitals = ConnectionHealth("discord", log)
        self._interval = 0.0  # seconds between heartbeats
        self._acked = 0.0  # time.monotonic() of the last answer to one
        self._lost = 0.0  # …of the loss of the connection, 0 while there is one
        self._begun = 0.0  # time.monotonic() of the beginning of this client
        self._ready = 0.0  # …of its first READY
        self._failures = 0

    def readiness(self) -> Readiness:
        """Ready only if the last heartbeat was answered."""
        if self._vitals.is_ready and (late := self._heartbeat_delay()) > 0:
            return Readiness(Health.DOWN, time.time() - late, DEAF)
        return self._vitals.now

    async def run(self, trust: ssl.SSLContext | None) -> None:
        """Be connected until cancelled."""
        while True:
            client = GatewayClient(self._receive_frame, self._disconnected, trust, self._proxy)
            task = asyncio.create_task(client.start(self._token.reveal()), name="discord gateway")
            self._begun, self._ready, self._lost = time.monotonic(), 0.0, 0.0
            try:
                await self._watch_connection(client, task)
            finally:
                await _close_client(client, task)
            await asyncio.sleep(self._note_failure(None if task.cancelled() else task.exception()))

    async def _watch_connection(self, client: GatewayClient, task: asyncio.Task[None]) -> None:
        """Until the connection ends, or takes too long. One that went deaf is closed, so that the SDK resumes."""
        while not task.done():
            await asyncio.wait({task}, timeout=min(1.0, self._interval / 4 or 1.0))
            now = time.monotonic()
            if (self._lost and now - self._lost > HEARTBEAT_TIMEOUT_SECONDS) or (
                not self._ready and now - self._begun > GREETING_TIMEOUT_SECONDS
            ):
                return
            if not self._lost and self._heartbeat_delay() > 0:
                self._vitals.set_health(Health.DOWN, DEAF)
                self._lost = now
                closing = asyncio.create_task(client.ws.close(4000), name="discord deaf")
                await asyncio.wait({closing}, timeout=1.0)
                closing.cancel()

    def _heartbeat_delay(self) -> float:
        """Seconds by which the answer to a heartbeat is late."""
        if not self._interval:
            return 0.0
        return time.monotonic() - self._acked - self._interval - min(LATE_SECONDS, 2 * self._interval)

    def _receive_frame(self, frame: Event) -> None:
        match frame.get("op"):
            case 10:
                self._interval = frame["d"]["heartbeat_interval"] / 1000
                self._acked = time.monotonic()
            case 11:
                self._acked = time.monotonic()
            case 0:
                if frame["t"] in ("READY", "RESUMED"):
                    self._lost = 0.0
                    self._ready = self._ready or time.monotonic()
                    self._vitals.set_health(Health.READY)
                self._deliver(frame)

    def _disconnected(self) -> None:
        self._lost = self._lost or time.monotonic()
        self._interval = 0.0
        lost = bool(self._ready)  # Discord asks for a new connection every now and then
        self._vitals.set_health(Health.DOWN, LOST if lost else UNREACHED, usual=lost)

    # ------------------------------------------------------------ trouble

    def _note_failure(self, error: BaseException | None) -> float:
        """Take note of an ended connection; gives the seconds to wait."""
        self._failures = 1 if self._ready and time.monotonic() - self._ready > STEADY_SECONDS else self._failures + 1
        self._interval = 0.0
        most = STUBBORN_RETRY_SECONDS if self._ready else MAX_BACKOFF_SECONDS
        match error:
            case None:
                words = "Discord does not answer; connecting again."
            case discord.LoginFailure():
                words, most = REJECTION, REFUSED_RETRY_SECONDS
            case discord.PrivilegedIntentsRequired():
                words, most = INTENT_REFUSED, STUBBORN_RETRY_SECONDS
            case discord.ConnectionClosed():
                words = REJECTION if error.code == 4004 else f"Discord closed the connection ({error.code})."
                most = STUBBORN_RETRY_SECONDS
            case discord.HTTPException():
                words, most = f"Discord answered {error.status}.", REFUSED_RETRY_SECONDS
            case OSError() | aiohttp.ClientError() | AttributeError() | TimeoutError():
                # AttributeError is what the SDK raises when its very first connection fails.
                words = f"Discord cannot be reached ({type(error).__name__}); trying again."
            case _:
                log.error("discord.ended", exc_info=error)
                words = f"The connection to Discord failed ({type(error).__name__}); trying again."
        self._vitals.set_health(Health.DOWN, words)
        return backoff_seconds(self._failures, most)
