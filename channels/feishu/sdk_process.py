"""The SDK's long connection in a process of its own, started by `connection`; imports no other module of Fawn.

Why: docs/decisions/0015-feishu-sdk.md. The first line of stdin is the settings with the secret. The process writes
lines of JSON: `{"state": …}` every second and `{"number": n, "event": "…"}` for each event. It reads the answer to each
event, `{"number": n, "ok": true, "data": …}`, and only then acknowledges it. It ends when the connection is lost.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import gc
import importlib.util
import itertools
import json
import logging
import os
import ssl
import sys
import time
import types
from typing import Any

HEARTBEAT_SECONDS = 1.0  # between two reports of the state
ANSWER_TIMEOUT_SECONDS = 2.5  # for the answer to an event: the platform waits 3
PONG_MARGIN_SECONDS = 5.0  # a pong may be so late
CONNECT_TIMEOUT_SECONDS = 15.0


class ParentPipe(asyncio.Protocol):
    """Lines of JSON to and from the parent. When the parent ends, this process ends."""

    def __init__(self, output: int) -> None:
        self._output = output
        self._rest = b""
        self._numbers = itertools.count()
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}

    def send_line(self, **line: object) -> None:
        data = json.dumps(line).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._output, data) :]
        except OSError:
            os._exit(0)  # the parent has ended

    async def store_event(self, event: bytes) -> object:
        """Let the parent store an event; return the platform's answer.

        Raises TimeoutError, and RuntimeError when it was not stored.
        """
        number = next(self._numbers)
        pending = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            self.send_line(number=number, event=event.decode("utf-8", "replace"))
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                answer = await pending
        finally:
            del self._pending[number]  # a late answer is ignored
        if not answer["ok"]:
            raise RuntimeError("not stored")
        return answer["data"]

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            answer: dict[str, Any] = json.loads(line)
            pending = self._pending.get(answer["number"])
            if pending and not pending.done():
                pending.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        os._exit(0)


def load_sdk_module(whole: bool = False) -> Any:
    """Import the SDK's module of the long connection, without the 11,000 generated modules of the package.

    That takes a tenth of a second instead of seconds, and 33 MB instead of 166. Should a later version of the SDK need
    them, the `whole` package is imported.
    """
    root = importlib.util.find_spec("lark_oapi")
    if root is not None and not whole:
        for name, inside in (("lark_oapi", ""), ("lark_oapi.event", "event")):
            package = types.ModuleType(name)
            package.__path__ = [os.path.join(place, inside) for place in root.submodule_search_locations or ()]
            sys.modules[name] = package
        handlers: Any = types.ModuleType("lark_oapi.event.dispatcher_handler")
        handlers.EventDispatcherHandler = object  # only used in an annotation: our handler takes raw events
        sys.modules[handlers.__name__] = handlers
        try:
            return importlib.import_module("lark_oapi.ws.client")
        except (ImportError, AttributeError):
            for name in [name for name in sys.modules if name.partition(".")[0] == "lark_oapi"]:
                del sys.modules[name]
    return importlib.import_module("lark_oapi.ws.client")


def prepare_sdk(settings: dict[str, Any]) -> Any:
    """Import the SDK's module with timeouts, proxy and certificates, for which the SDK has no settings."""
    environment = os.environ
    for name in [name for name in environment if name.lower().endswith("_proxy")]:
        del environment[name]
    if settings["proxy"]:
        environment["HTTP_PROXY"] = environment["HTTPS_PROXY"] = settings["proxy"]
    if settings["ca_file"]:
        environment["REQUESTS_CA_BUNDLE"] = settings["ca_file"]
    requests: Any = importlib.import_module("requests")
    requests.post = functools.partial(requests.post, timeout=CONNECT_TIMEOUT_SECONDS)  # oapi-sdk-python issue 169
    ws = load_sdk_module()
    connect_arguments = ws._ws_connect_kwargs  # noqa: SLF001 — the SDK sets up its socket only here

    def with_options(headers: object = None) -> dict[str, Any]:
        options = {"proxy": settings["proxy"] or None, "max_size": None, "close_timeout": 1, "compression": None}
        options |= {"open_timeout": CONNECT_TIMEOUT_SECONDS, "ping_interval": 15, "ping_timeout": 10}
        if settings["domain"].startswith("https"):
            options["ssl"] = ssl.create_default_context(cafile=settings["ca_file"] or None)
        return {**connect_arguments(headers), **options}

    ws._ws_connect_kwargs = with_options  # noqa: SLF001 — likewise
    return ws


def make_client_class(ws: Any, pipe: ParentPipe) -> Any:
    """Return the SDK's client, changed to note when a frame came and to store events side by side."""

    class Client(ws.Client):  # type: ignore[misc]  # the SDK is imported by name
        last_frame_at = 0.0

        async def _handle_control_frame(self, frame: Any) -> None:
            self.last_frame_at = time.monotonic()
            await super()._handle_control_frame(frame)

        async def _handle_data_frame(self, frame: Any) -> None:
            """Do as the SDK does, but asynchronously: its handler would make events wait for each other.

            Events of every type are stored: the platform redelivers an event until it is acknowledged.
            """
            self.last_frame_at = started = time.monotonic()
            headers = {header.key: header.value for header in frame.headers}
            payload, count = frame.payload, int(headers["sum"])
            if count > 1:
                payload = self._combine(headers["message_id"], count, int(headers["seq"]), payload)
            if payload is None or headers["type"] != "event":
                return
            answer = ws.Response(code=200)
            try:
                data = await pipe.store_event(payload)
            except (RuntimeError, TimeoutError):
                answer.code = 500  # the platform redelivers it
            else:
                frame.headers.add(key="biz_rt", value=f"{(time.monotonic() - started) * 1000:.0f}")
                answer.data = None if data is None else base64.b64encode(json.dumps(data).encode())
            frame.payload = ws.JSON.marshal(answer).encode()
            await self._write_message(frame.SerializeToString())

    return Client


async def serve_connection(settings: dict[str, Any], pipe: ParentPipe) -> None:
    """Make one connection. Raises when it fails or is lost."""
    ws = prepare_sdk(settings)
    gc.freeze()  # with the next line, a sixth of the CPU time of a flood
    gc.set_threshold(10_000, 20, 20)
    ws.loop = asyncio.get_running_loop()  # the SDK keeps it in a module variable
    await ws.loop.connect_read_pipe(lambda: pipe, sys.stdin)
    pipe.send_line(state="loaded")
    logging.disable(logging.CRITICAL)  # the SDK logs tickets and messages
    client = make_client_class(ws, pipe)(
        app_id=settings["app_id"],
        app_secret=settings["app_secret"],
        domain=settings["domain"],
        auto_reconnect=False,  # the SDK may give up without an error
    )
    await client._connect()  # noqa: SLF001 — `start()` does this, but never returns
    client.last_frame_at = time.monotonic()
    pings = asyncio.create_task(client._ping_loop(), name="pings")  # noqa: SLF001 — likewise
    while client._conn is not None and not pings.done():  # noqa: SLF001 — the SDK shows a loss nowhere else
        pipe.send_line(state="up")
        await asyncio.sleep(HEARTBEAT_SECONDS)
        silence = time.monotonic() - client.last_frame_at
        if silence > 2 * client._ping_interval + PONG_MARGIN_SECONDS:  # noqa: SLF001 — the server sets it
            raise TimeoutError("the connection is open, but silent")
    raise ConnectionError("the connection was lost")


def describe_error(error: Exception) -> str:
    """Return the reason without the text of a library, which may contain a URL with a ticket or password."""
    is_safe = type(error) in (ConnectionError, TimeoutError) or hasattr(error, "code")
    return str(error)[:300] if is_safe and str(error) else type(error).__name__


def main() -> None:
    output = os.dup(1)
    os.dup2(2, 1)  # the SDK prints its log
    pipe = ParentPipe(output)
    settings = json.loads(sys.stdin.buffer.readline())
    try:
        asyncio.Runner().run(serve_connection(settings, pipe))
    except Exception as error:  # noqa: BLE001 — the SDK raises anything; the parent logs it
        pipe.send_line(state="down", code=getattr(error, "code", 0), reason=describe_error(error))
    os._exit(1)  # without waiting for the tasks of the SDK, which may hang


if __name__ == "__main__":
    main()
