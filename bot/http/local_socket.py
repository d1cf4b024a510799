"""Listen for HTTP on a socket in data_dir, for the users of this machine whom the kernel names.

aiohttp's server is imported when the first one connects: until then, the kernel keeps the connection.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bot.http.socket_path import SOCKET_NAME, reachable

if TYPE_CHECKING:
    from bot.http.route import Route

log = logging.getLogger(__name__)

BACKLOG = 100
LISTENER = "bot.http.listener"


@asynccontextmanager
async def serving_machine(data_dir: Path, routes: Callable[[], Sequence[Route]]) -> AsyncIterator[None]:
    """Serve the routes on the socket while the context is open.

    `routes` is called in a thread when the first one connects.
    """
    path = data_dir / SOCKET_NAME
    path.unlink(missing_ok=True)  # of a dead service: the lock guarantees that none is alive
    listener = _bind(data_dir)
    serving = asyncio.create_task(_serve(listener, routes), name="control socket")
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        listener.close()
        path.unlink(missing_ok=True)


def _bind(data_dir: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with reachable(data_dir) as path:
            listener.bind(path)
            os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
        listener.listen(BACKLOG)  # nobody can connect before the mode is set
    except BaseException:
        listener.close()
        raise
    return listener


async def _serve(listener: socket.socket, routes: Callable[[], Sequence[Route]]) -> None:
    await _wait_for_connection(listener)
    try:
        module, served = await asyncio.to_thread(lambda: (importlib.import_module(LISTENER), routes()))
        async with module.listening_on(listener, served):
            await asyncio.Event().wait()
    except Exception:  # the boundary of the socket: messages are answered without it
        log.exception("control.fault")


async def _wait_for_connection(listener: socket.socket) -> None:
    loop, connected = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, connected.set)
    try:
        await connected.wait()
    finally:
        loop.remove_reader(listener)
