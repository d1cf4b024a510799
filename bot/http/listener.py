"""Listen for HTTP in the event loop of the service, with bounds on who connects, how many, and for how long.

It listens at an address, or on a socket of this machine (`bot/http/local_socket.py`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from agent.settings.models import AgentConfigError
from bot.config.http import HttpConfig
from bot.http.exchange import WRITE_SECONDS, Exchange, Next, add_headers
from bot.http.route import BODY_BYTES, Route, route_var
from bot.http.visitors import admit_user, refuse_unencrypted
from catalogue import N_, LazyText

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 512
HEAD_SECONDS = 10.0  # in which a connection sends its first request whole
IDLE_SECONDS = 30.0  # between two requests of one connection
STOP_SECONDS = 1.0  # for answers under way at the end
UNREAD_SECONDS = 2.0  # for the rest of a body that nobody reads, before the connection closes
MAX_HEADERS = 64  # of a request
HEADER_BYTES = 8 * 1024  # of a request's line, and of each header


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
    config: HttpConfig,
    routes: Sequence[Route],
    *,
    head_seconds: float = HEAD_SECONDS,
    write_seconds: float = WRITE_SECONDS,
) -> AsyncIterator[str]:
    """Serve the routes; yields the address. Raises AgentConfigError where it cannot listen there."""

    def admit(request: web.Request, route: Route) -> None:
        if not route.plain:
            refuse_unencrypted(config, request)

    async with _connections(Exchange(config, write_seconds), routes, admit, head_seconds) as connections:
        server = await _listen(connections, config)
        address, port = server.sockets[0].getsockname()[:2]
        log.info("http.listening address=%s port=%d", address, port)
        async with server:
            yield f"http://{f'[{address}]' if ':' in address else address}:{port}"


@asynccontextmanager
async def listening_on(listener: socket.socket, routes: Sequence[Route]) -> AsyncIterator[None]:
    """Serve the routes to users of this machine, on a unix socket that listens."""

    def admit(_request: web.Request, _route: Route) -> None:
        return

    exchange = Exchange(HttpConfig(), visit=admit_user)
    async with _connections(exchange, routes, admit, HEAD_SECONDS) as connections:
        server = await asyncio.get_running_loop().create_unix_server(connections.accept, sock=listener)
        async with server:
            yield


@asynccontextmanager
async def _connections(
    exchange: Exchange,
    routes: Sequence[Route],
    admit: Callable[[web.Request, Route], None],
    head_seconds: float,
) -> AsyncIterator[_Connections]:
    """Yield what accepts the connections of an application with these routes."""
    connections: _Connections

    @web.middleware
    async def answer(request: web.Request, handler: Next) -> web.StreamResponse:
        connections.heard(request.protocol)
        return await exchange.answer(request, handler)

    app = web.Application(middlewares=[answer], client_max_size=BODY_BYTES)
    app.on_response_prepare.append(partial(add_headers, exchange.config))
    for route in routes:
        serve = partial(_serve, admit, route)
        app.router.add_route(route.method, route.path, serve)
        if route.method == "GET":
            app.router.add_route("HEAD", route.path, serve)
    runner = web.AppRunner(
        app,
        handler_cancellation=True,  # a handler ends with its client
        access_log=None,
        logger=_protocol_log(),
        keepalive_timeout=IDLE_SECONDS,
        lingering_time=UNREAD_SECONDS,
        max_headers=MAX_HEADERS,
        max_line_size=HEADER_BYTES,
        max_field_size=HEADER_BYTES,
        shutdown_timeout=STOP_SECONDS,
    )
    await runner.setup()
    if runner.server is None:
        raise RuntimeError("aiohttp prepared no server")
    connections = _Connections(runner.server, head_seconds)
    try:
        yield connections
    finally:
        await runner.cleanup()


async def _listen(connections: _Connections, config: HttpConfig) -> asyncio.Server:
    """Listen at the first address that is free. Raises AgentConfigError for none."""
    *choices, last = config.addresses
    for address in choices:
        try:
            return await asyncio.get_running_loop().create_server(connections.accept, *address)
        except OSError as error:
            log.info("http.address_in_use port=%d reason=%s", address[1], error)
    try:
        return await asyncio.get_running_loop().create_server(connections.accept, *last)
    except OSError as error:
        wrong = N_("cannot listen on {listen}: {why}")
        text = LazyText(wrong, listen=config.listen, why=error.strerror or str(error))
        raise AgentConfigError(("http", "listen"), text, N_("stop what listens there, or name another port")) from error


async def _serve(admit: Callable[[web.Request, Route], None], route: Route, request: web.Request) -> web.StreamResponse:
    route_var.set(route)
    admit(request, route)
    return await route.handle(request)


def _protocol_log() -> logging.Logger:
    """Return the log of aiohttp's protocol, which would show a stack for each request that is no HTTP: off."""
    protocol = logging.getLogger(f"{__name__}.protocol")
    protocol.setLevel(logging.CRITICAL)
    return protocol
