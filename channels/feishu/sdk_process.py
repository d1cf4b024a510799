"""The SDK's long connection, in a process of its own: run by `link`, imports nothing of ours.

Why: docs/decisions/0015-feishu-sdk.md. The settings come as the first line of stdin, the secret among them. Up go lines
of JSON, `{"state": …}` every second and `{"number": n, "event": "…"}` for each event; down comes the answer to each:
`{"number": n, "ok": true, "data": …}`. The SDK is told to acknowledge only then.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import importlib.util
import itertools
import json
import logging
import os
import random
import ssl
import sys
import time
import types
from typing import Any

HEARTBEAT_SECONDS = 1.0  # seconds between two words on how it goes
ANSWER_TIMEOUT_SECONDS = 2.5  # seconds for the answer to an event: the platform itself waits 3
PONG_TIMEOUT_SECONDS = 5.0  # seconds that a pong may be late
CONNECT_TIMEOUT_SECONDS = 15.0  # seconds
MAX_BACKOFF_SECONDS = 30.0  # seconds between two tries to connect


class ParentPipe(asyncio.Protocol):
    """Lines of JSON, up and down. The parent's end ends this process."""

    def __init__(self, up: int) -> None:
        self._up = up
        self._rest = b""
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}

    def send_line(self, **words: object) -> None:
        data = json.dumps(words).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._up, data) :]
        except OSError:
            os._exit(0)  # nobody listens any more

    async def ask_parent(self, event: bytes) -> object:
        """Have an event stored; gives what the platform is answered. Raises TimeoutError, and RuntimeError when it was
        not stored."""
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self.send_line(number=number, event=event.decode("utf-8", "replace"))
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                answer = await asked
        finally:
            del self._asked[number]  # an answer that comes too late finds nobody
        if not answer["ok"]:
            raise RuntimeError("not stored")
        return answer["data"]

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            answer: dict[str, Any] = json.loads(line)
            asked = self._asked.get(answer["number"])
            if asked and not asked.done():
                asked.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        os._exit(0)


def load_sdk_module(whole: bool = False) -> Any:
    """The SDK's module of the long connection. It needs none of the 11,000 generated modules that the package imports
    with it, so they are left out: a tenth of a second instead of seconds, 33 MB instead of 166. Should a later version
    of the SDK not stand for that, it is imported as a `whole`."""
    root = importlib.util.find_spec("lark_oapi")
    if root is not None and not whole:
        for name, inside in (("lark_oapi", ""), ("lark_oapi.event", "event")):
            package = types.ModuleType(name)
            package.__path__ = [os.path.join(place, inside) for place in root.submodule_search_locations or ()]
            sys.modules[name] = package
        handlers: Any = types.ModuleType("lark_oapi.event.dispatcher_handler")
        handlers.EventDispatcherHandler = object  # a name in an annotation: our handler takes raw events
        sys.modules[handlers.__name__] = handlers
        try:
            return importlib.import_module("lark_oapi.ws.client")
        except (ImportError, AttributeError):
            for name in [name for name in sys.modules if name.partition(".")[0] == "lark_oapi"]:
                del sys.modules[name]
    return importlib.import_module("lark_oapi.ws.client")


def prepare_sdk(settings: dict[str, Any]) -> Any:
    """Import the SDK and teach it timeouts, the proxy and the certificates; it has no settings for them. Gives its
    module of the long connection."""
    environment = os.environ
    for name in [name for name in environment if name.lower().endswith("_proxy")]:
        del environment[name]
    if settings["proxy"]:
        environment["HTTP_PROXY"] = environment["HTTPS_PROXY"] = settings["proxy"]
    if settings["ca_file"]:
        environment["REQUESTS_CA_BUNDLE"] = settings["ca_file"]
    requests: Any = importlib.import_module("requests")
    requests.post = functools.partial(
        requests.post, timeout=CONNECT_TIMEOUT_SECONDS
    )  # deaf for days: oapi-sdk-python issue 169
    ws = load_sdk_module()
    plain = ws._ws_connect_kwargs  # noqa: SLF001 — the one place where the SDK sets up its socket

    def options(headers: object = None) -> dict[str, Any]:
        made: dict[str, Any] = plain(headers)
        made.update(
            proxy=settings["proxy"] or None, max_size=None, open_timeout=CONNECT_TIMEOUT_SECONDS, close_timeout=1
        )
        made.update(ping_interval=15, ping_timeout=10)
        if settings["domain"].startswith("https"):
            made["ssl"] = ssl.create_default_context(cafile=settings["ca_file"] or None)
        return made

    ws._ws_connect_kwargs = options  # noqa: SLF001 — likewise
    return ws


def make_client_class(ws: Any, pipe: ParentPipe) -> Any:
    """The SDK's client, which also notes when the platform was heard last, and has events stored side by side."""

    class Client(ws.Client):  # type: ignore[misc]  # the SDK is imported by name
        heard = 0.0

        async def _handle_control_frame(self, frame: Any) -> None:
            self.heard = time.monotonic()
            await super()._handle_control_frame(frame)

        async def _handle_data_frame(self, frame: Any) -> None:
            """As the SDK does it, but its handler is synchronous: one event would wait for the other. Events of every
            type are asked about: what nobody acknowledges is delivered again and again."""
            self.heard = began = time.monotonic()
            headers = {header.key: header.value for header in frame.headers}
            payload, count = frame.payload, int(headers["sum"])
            if count > 1:
                payload = self._combine(headers["message_id"], count, int(headers["seq"]), payload)
            if payload is None or headers["type"] != "event":
                return
            answer = ws.Response(code=200)
            try:
                data = await pipe.ask_parent(payload)
            except (RuntimeError, TimeoutError):
                answer.code = 500  # it comes again
            else:
                frame.headers.add(key="biz_rt", value=f"{(time.monotonic() - began) * 1000:.0f}")
                answer.data = None if data is None else base64.b64encode(json.dumps(data).encode())
            frame.payload = ws.JSON.marshal(answer).encode()
            await self._write_message(frame.SerializeToString())

    return Client


async def run_connection(client: Any, pipe: ParentPipe) -> None:
    """One connection, until it is lost. Its tasks are cancelled by the caller."""
    await client._connect()  # noqa: SLF001 — `start()` does this and then never returns, whatever happens
    client.heard = time.monotonic()
    pings = asyncio.create_task(client._ping_loop(), name="pings")  # noqa: SLF001 — likewise
    try:
        while client._conn is not None:  # noqa: SLF001 — its loss shows nowhere else
            pipe.send_line(state="up")
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if time.monotonic() - client.heard > 2 * client._ping_interval + PONG_TIMEOUT_SECONDS:  # noqa: SLF001 — the server sets it
                raise TimeoutError("the connection is open, but nothing is heard")
    finally:
        pings.cancel()
    raise ConnectionError("the connection was lost")


def describe_error(error: Exception) -> str:
    """Why, without what a URL in the words of a library could give away (a ticket, a proxy's password)."""
    ours = type(error) in (ConnectionError, TimeoutError) or hasattr(error, "code")
    return str(error)[:300] if ours and str(error) else type(error).__name__


async def serve_connections(ws: Any, settings: dict[str, Any], pipe: ParentPipe) -> None:
    """Connect again and again."""
    loop = ws.loop = asyncio.get_running_loop()  # the SDK took another one when it was imported
    await loop.connect_read_pipe(lambda: pipe, sys.stdin)
    kind, failures = make_client_class(ws, pipe), 0
    while True:
        client = kind(
            app_id=settings["app_id"],
            app_secret=settings["app_secret"],
            domain=settings["domain"],
            auto_reconnect=False,  # its own way can end for good without a word
        )
        logging.disable(logging.CRITICAL)  # it logs tickets and messages
        began = time.monotonic()
        try:
            await run_connection(client, pipe)
        except Exception as error:  # noqa: BLE001 — the boundary of one connection: the SDK raises what it likes
            pipe.send_line(state="down", code=getattr(error, "code", 0), reason=describe_error(error))
        with contextlib.suppress(Exception):  # a dead socket may not even close
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await client._disconnect()  # noqa: SLF001 — there is no public way to hang up
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        failures = 0 if time.monotonic() - began > MAX_BACKOFF_SECONDS else failures + 1
        end = time.monotonic() + min(MAX_BACKOFF_SECONDS, 0.1 * 2.0**failures) * random.uniform(0.7, 1.3)  # noqa: S311 — no secret
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, HEARTBEAT_SECONDS))
            pipe.send_line(state="waiting")


def main() -> None:
    up = os.dup(1)
    os.dup2(2, 1)  # the SDK prints its log
    pipe = ParentPipe(up)
    settings = json.loads(sys.stdin.buffer.readline())
    try:
        ws = prepare_sdk(settings)
        pipe.send_line(state="loaded")
        asyncio.run(serve_connections(ws, settings, pipe))
    except Exception as error:  # noqa: BLE001 — the end of this process: its parent is told why
        pipe.send_line(state="died", reason=describe_error(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
