"""Wait for the redirect that ends a sign-in: a browser of this machine opens it, or a person pastes its address."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from catalogue import _

LOOPBACK = "127.0.0.1"
PATH = "/callback"
LOOPBACK_NAMES = (LOOPBACK, "localhost", "::1")
MAX_INPUT_BYTES = 1 << 16


class RedirectWaiter:
    """Takes addresses until one has the parameters of this sign-in, which its `state` proves."""

    def __init__(self) -> None:
        self.redirect_uri = ""
        self.is_listening = False
        self._state = ""
        self._found: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()

    async def wait(self, state: str) -> Mapping[str, str]:
        """Return the parameters of the redirect."""
        self._state = state
        return await self._found

    def accept(self, address: str) -> str:
        """Take an address if it belongs to this sign-in. Return what to tell the person."""
        found = dict(parse_qsl(urlsplit(address.strip()).query))
        if not found.keys() & {"code", "error"}:
            return _("This is not the address of the last page: it contains `code=` or `error=`. Copy all of it.")
        if not self._state or found.get("state") != self._state:
            return _("This address belongs to another sign-in. Open the address that the terminal shows now.")
        if not self._found.done():
            self._found.set_result(found)
        if "error" in found:
            return _("The sign-in was not allowed. You can close this page; the terminal says more.")
        return _("Fawn has received the sign-in. You can close this page; the terminal says whether it works.")

    async def answer(self, request: web.Request) -> web.Response:
        """Take the address that a browser opened."""
        headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        return web.Response(text=self.accept(str(request.rel_url)), headers=headers)


@asynccontextmanager
async def open_redirect(redirect_uri: str) -> AsyncIterator[RedirectWaiter]:
    """Listen at a redirect address if it is one of this machine; "" takes a free port."""
    waiter = RedirectWaiter()
    wanted = urlsplit(redirect_uri or f"http://{LOOPBACK}:0{PATH}")
    app = web.Application()
    app.router.add_get(wanted.path or "/", waiter.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        if wanted.hostname in LOOPBACK_NAMES:
            try:
                await web.TCPSite(runner, LOOPBACK, wanted.port if wanted.port is not None else 80).start()
                waiter.is_listening = True
            except OSError:  # the port is taken: the person can still paste the address
                if not redirect_uri:
                    raise
        waiter.redirect_uri = redirect_uri or f"http://{LOOPBACK}:{runner.addresses[0][1]}{PATH}"
        yield waiter
    finally:
        await runner.cleanup()


@asynccontextmanager
async def pasted_lines(descriptor: int, take: Callable[[str], None]) -> AsyncIterator[None]:
    """Call `take` with each line that is written to a terminal or a pipe."""
    loop = asyncio.get_running_loop()
    rest = b""

    def read() -> None:
        nonlocal rest
        data = os.read(descriptor, MAX_INPUT_BYTES)  # does not block: it is readable
        if not data:
            loop.remove_reader(descriptor)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                take(line.decode("utf-8", "replace"))

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:  # a file or /dev/null: there is nobody who pastes
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
