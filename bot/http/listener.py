"""Listen for HTTP in the event loop of the service, with bounds on who connects, how many, and for how long."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from agent.models.settings import AgentConfigError
from bot.config.http import HttpConfig
from catalogue import N_, LazyText

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 512
HEAD_SECONDS = 10.0  # in which a connection sends its first request whole
IDLE_SECONDS = 30.0  # between two requests of one connection
STOP_SECONDS = 1.0  # for answers under way at the end
MAX_BODY_BYTES = 64 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class _Connections:
    """The open connections: a protocol for each. One that sends no request in time is closed."""

    make: Callable[[], RequestHandler]
    head_seconds: float
    _silent: dict[RequestHandler, asyncio.TimerHandle] = field(default_factory=dict)

    def accept(self) -> RequestHandler:
        """Make the protocol of a new connection."""
        protocol = self.make()
        loop = asyncio.get_running_loop()
        self._silent[protocol] = loop.call_later(self.head_seconds, self._close, protocol)
        if len(self._silent) > MAX_CONNECTIONS:  # the oldest one without a request makes room
            oldest = next(iter(self._silent))
            self._silent[oldest].cancel()
            self._close(oldest)
        return protocol

    def heard(self, protocol: RequestHandler) -> None:
        """Note that a connection sent a whole request; between requests, aiohttp closes it when it is idle."""
        if timer := self._silent.pop(protocol, None):
            timer.cancel()

    def _close(self, protocol: RequestHandler) -> None:
        self._silent.pop(protocol, None)
        if protocol.transport:
            protocol.transport.abort()


@asynccontextmanager
async def listening(
    config: HttpConfig, routes: Sequence[web.AbstractRouteDef], *, head_seconds: float = HEAD_SECONDS
) -> AsyncIterator[str]:
    """Serve the routes; yields the address. Raises ConfigError where it cannot listen there."""
    connections: _Connections

    @web.middleware
    async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
        connections.heard(request.protocol)
        refuse_strangers(config, request)
        return await handler(request)

    app = web.Application(middlewares=[bound], client_max_size=MAX_BODY_BYTES)
    app.add_routes(routes)
    runner = web.AppRunner(
        app,
        handler_cancellation=True,  # a handler ends with its client
        access_log=None,
        keepalive_timeout=IDLE_SECONDS,
        shutdown_timeout=STOP_SECONDS,
    )
    await runner.setup()
    if runner.server is None:
        raise RuntimeError("aiohttp prepared no server")
    connections = _Connections(runner.server, head_seconds)
    try:
        try:
            server = await asyncio.get_running_loop().create_server(connections.accept, *config.address)
        except OSError as error:
            wrong = N_("cannot listen on {listen}: {why}")
            text = LazyText(wrong, listen=config.listen, why=error.strerror or str(error))
            raise AgentConfigError(
                ("http", "listen"), text, N_("stop what listens there, or name another port")
            ) from error
        address, port = server.sockets[0].getsockname()[:2]
        log.info("http.listening address=%s port=%d", address, port)
        async with server:
            yield f"http://{f'[{address}]' if ':' in address else address}:{port}"
    finally:
        await runner.cleanup()


def refuse_strangers(config: HttpConfig, request: web.Request) -> None:
    """Raise the refusal of a peer that may not connect, and of a foreign name: a page in a browser can use one."""
    if not may_connect(config, str(request.remote)):
        raise web.HTTPForbidden(text="This address may not connect. The operator names addresses in http.peers.\n")
    if not is_own_name(config, request.url.host or ""):
        raise web.HTTPMisdirectedRequest(text="This name is not served here. The operator names names in http.hosts.\n")


def may_connect(config: HttpConfig, address: str) -> bool:
    """Return whether the other end of a connection, by its address, is this machine or a peer."""
    peer = ipaddress.ip_address(address.partition("%")[0])  # without the zone of a link-local one
    if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped:
        peer = peer.ipv4_mapped
    return peer.is_loopback or any(peer in network for network in config.networks)


def is_own_name(config: HttpConfig, name: str) -> bool:
    """Return whether a request may name its server so. No page can make a browser believe an address is its own."""
    if name in ("localhost", *config.hosts):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
