"""Ask the running service over its socket: HTTP/1.1 with the standard library, which loads in a tenth of the time."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from bot.database.data_lock import is_held, is_service_waiting
from bot.http.socket_path import reachable
from catalogue import N_, _, current_language

NO_SERVICE = N_("no Fawn is running on {data_dir}: check `data_dir` or --config")
SILENT = N_("another process works there, but does not answer. Stop it first.")
OTHER_VERSION = N_("the running Fawn answered something else: it is of another version, so restart it")
BROKE_OFF = N_("the connection to the running Fawn ended before it answered")
BLOCK_BYTES = 1 << 20  # of events, read at once
START_SECONDS = 60.0  # in which a process that holds data_dir listens, or ends
POLL_SECONDS = 0.05
ENDED_ERRORS = (OSError, ValueError, http.client.HTTPException)  # ValueError: a socket that was closed meanwhile


class NotRunning(Exception):
    """No service runs on this data_dir."""


class _Connection(http.client.HTTPConnection):
    """One request to the socket, made in a thread. `abort` ends it from another one."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__("localhost")
        self._data_dir = data_dir
        self._opened: socket.socket | None = None  # also where http.client has given it to the answer
        self._is_aborted = False

    def connect(self) -> None:
        """Connect to the socket. Raises NotRunning."""
        self.sock = self._opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with reachable(self._data_dir) as path:
                self.sock.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            raise NotRunning(_(NO_SERVICE, data_dir=self._data_dir)) from None
        if self._is_aborted:
            raise ConnectionAbortedError

    def post(self, path: str, content: Mapping[str, Any]) -> http.client.HTTPResponse:
        """Send the request; return the beginning of its answer."""
        headers = {"Content-Type": "application/json", "Accept-Language": current_language(), "Connection": "close"}
        self.request("POST", path, orjson.dumps(content), headers)
        return self.getresponse()

    def abort(self) -> None:
        """End what waits for it."""
        self._is_aborted = True
        if self._opened:
            with contextlib.suppress(OSError):  # it has ended
                self._opened.shutdown(socket.SHUT_RDWR)


def await_service(data_dir: Path) -> bool:
    """Wait while data_dir is held and nobody listens there: a service starts, or a command works.

    Returns whether a service listens; else data_dir is free. Raises NotRunning after a minute. Blocks. Do not call it
    in a process that holds a lock on data_dir.
    """
    end = time.monotonic() + START_SECONDS
    while is_held(data_dir):
        if not is_service_waiting(data_dir) and _listens(data_dir):  # else that one listens soon
            return True
        if time.monotonic() > end:
            raise NotRunning(_(SILENT))
        time.sleep(POLL_SECONDS)
    return False


def _listens(data_dir: Path) -> bool:
    connection = _Connection(data_dir)
    try:
        connection.connect()
    except (NotRunning, *ENDED_ERRORS):
        return False
    finally:
        _end(connection)
    return True


async def call_service(data_dir: Path, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the running service for an operation; the answer of a refused one has `error`. Raises NotRunning."""

    def ask() -> dict[str, Any]:
        with connection.post(f"/v1/machine/operations/{quote(operation, safe='')}", arguments) as response:
            answer = orjson.loads(response.read())
            return answer if response.status == http.client.OK else {"error": answer["title"]}

    connection = _Connection(data_dir)
    try:
        return await asyncio.to_thread(ask)
    except ConnectionError:
        return {"error": _(BROKE_OFF)}
    except (http.client.HTTPException, orjson.JSONDecodeError):
        return {"error": _(OTHER_VERSION)}
    finally:
        _end(connection)


@dataclass(slots=True)
class ServiceConsole:
    """A console that is attached to the service: what it shows comes as events, what it sends is posted."""

    data_dir: Path
    id: str
    _stream: _Connection
    _response: http.client.HTTPResponse

    async def calls(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield the name and the data of each event. Raises ConnectionError where the service broke off."""
        async for name, data in _read_events(self._response):
            yield name, data

    async def send(self, event: Mapping[str, Any]) -> None:
        """Send what was typed, pressed or confirmed. Raises ConnectionError."""
        connection = _Connection(self.data_dir)

        def send() -> None:
            with connection.post(f"/v1/machine/consoles/{self.id}/events", event) as response:
                if response.status != http.client.NO_CONTENT:
                    raise ConnectionAbortedError(orjson.loads(response.read())["title"])

        try:
            await asyncio.to_thread(send)
        except (NotRunning, *ENDED_ERRORS) as error:
            raise ConnectionAbortedError(str(error)) from error
        finally:
            _end(connection)

    def close(self) -> None:
        """Leave."""
        self._stream.abort()


async def attach_console(data_dir: Path, hello: Mapping[str, Any]) -> ServiceConsole:
    """Attach a console to the running service. Raises NotRunning, and ConnectionError where it is refused."""
    stream = _Connection(data_dir)
    try:
        response = await asyncio.to_thread(stream.post, "/v1/machine/consoles", hello)
        if response.status != http.client.OK:
            raise ConnectionRefusedError(orjson.loads(await asyncio.to_thread(response.read))["title"])
        async for _name, data in _read_events(response):
            return ServiceConsole(data_dir, data["console"], stream, response)
        raise ConnectionAbortedError(_(BROKE_OFF))
    except (http.client.HTTPException, orjson.JSONDecodeError, KeyError):
        _end(stream)
        raise ConnectionRefusedError(_(OTHER_VERSION)) from None
    except BaseException:
        _end(stream)
        raise


def _end(connection: _Connection) -> None:
    connection.abort()
    connection.close()


async def _read_events(response: http.client.HTTPResponse) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield server-sent events as the service writes them: one line `event`, one line `data`."""
    left = b""
    while True:
        try:
            block = await asyncio.to_thread(_read, response)
        except ENDED_ERRORS as error:
            raise ConnectionAbortedError(str(error)) from error
        if not block:
            return
        *events, left = (left + block).split(b"\n\n")
        for event in events:
            head, found, data = event.partition(b"\ndata: ")
            if found:
                yield head.removeprefix(b"event: ").decode(), orjson.loads(data)


def _read(response: http.client.HTTPResponse) -> bytes:
    """Return what has come; b"" at the end, after which the connection is closed."""
    block = b""
    try:
        block = response.read1(BLOCK_BYTES)
        return block
    finally:
        if not block:
            response.close()
