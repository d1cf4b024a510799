"""Shared base of all fakes: a loopback HTTP server with faults, latency and a control API.

A fake runs in the test's own loop (`async with FakeTelegram() as telegram`), in a thread with its own loop
(`with FakeTelegram().in_thread() as telegram`) or as its own process (`python -m tests.fakes.telegram --port N`,
see `tests.fakes.process`). Whoever is in another process calls any public method as `POST /_control/NAME` with a JSON
object of arguments (bytes, named `data`, as base64 text).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import inspect
import random
import signal
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Literal, Self

import orjson
from aiohttp import BodyPartReader, web

from contracts.recording import until as until
from tests.support.ports import LOOPBACK, hold_port

Json = dict[str, Any]  # a JSON object of a wire format: its shape is the platform's


@dataclass(slots=True)
class Fault:
    """A rule: the next `times` matching calls (-1: all of them), after `skip` others, suffer this.

    `flood` is a 429 with `seconds` as retry-after, `error` an HTTP status `code`, `drop` closes the connection,
    `slow` waits `seconds` first, `hang` never answers. With `after` a drop, hang, error or slow comes when the call
    has already had its effect. `contains` limits the rule to calls whose text has it, `chance` to some of them.
    """

    kind: Literal["flood", "error", "drop", "slow", "hang"]
    method: str = "*"
    chat: int | None = None
    times: int = 1
    skip: int = 0
    after: bool = False
    code: int = 500
    seconds: float = 1.0
    contains: str = ""
    chance: float = 1.0
    description: str = ""  # the words of `error`
    body: str = ""  # a raw body for `error` (a proxy's HTML page, say)

    def matches(self, method: str, chat: int | None, text: str) -> bool:
        return (
            self.times != 0
            and self.method.lower() in ("*", method.lower())
            and self.chat in (None, chat)
            and self.contains in text
        )


class LocalServer:
    """The lifecycle of a fake: start, stop, faults, control. Subclasses add their routes in `routes()`."""

    body_limit = 64 << 20  # bytes of one request

    def __init__(self, *, latency: float = 0.0, seed: int = 0) -> None:
        self.latency = latency  # seconds before every answer
        self.faults: list[Fault] = []
        self.stall = float("inf")  # bytes after which a file stalls
        self.port = 0
        self._held: weakref.finalize[..., Self] | None = None  # ends the hold of the port
        self._random = random.Random(seed)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: web.AppRunner | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def routes(self, app: web.Application) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------ lifecycle

    async def start(self, port: int = 0) -> Self:
        """Listen on loopback; port 0 takes a free one, `base_url` says which. A later start takes the same."""
        app = web.Application(client_max_size=self.body_limit)
        app.router.add_post("/_control/{name}", self._control)
        self.routes(app)
        self._loop = asyncio.get_running_loop()
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        if self._held is None:
            held = hold_port(port)
            self.port, self._held = held.getsockname()[1], weakref.finalize(self, held.close)
        await web.TCPSite(self._runner, LOOPBACK, self.port, backlog=1024, reuse_address=True).start()
        return self

    async def stop(self) -> None:
        """Close every connection, also of hanging calls. State and port remain, so `start` may follow."""
        for task in self._tasks:
            task.cancel()
        self.abort()
        if self._runner:
            await self._runner.cleanup()
        self._runner = self._loop = None

    async def __aenter__(self) -> Self:
        return await self.start()

    def release_port(self) -> None:
        """Give up the port, on which nothing listens any more."""
        if self._held:
            self._held()
        self._held = None

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self.release_port()

    @contextmanager
    def in_thread(self, port: int = 0) -> Iterator[Self]:
        """Run in a thread with a loop of its own, so that a busy test does not slow it down."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name=type(self).__name__, daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.start(port), loop).result(60)
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self.stop(), loop).result(60)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(60)
            loop.close()
            self.release_port()

    def call_in_loop(self, function: Callable[[], object]) -> None:
        """Run `function` in the server's loop, from whatever thread; nothing happens while it is stopped."""
        if self._loop:
            self._loop.call_soon_threadsafe(function)

    def start_task(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task in the server's loop, which ends with the server."""

        def start() -> None:
            task = asyncio.get_running_loop().create_task(work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.call_in_loop(start)

    # ------------------------------------------------------------ faults

    def fault(self, kind: Literal["flood", "error", "drop", "slow", "hang"], method: str = "*", **rule: Any) -> Fault:
        """Add a rule; the first matching rule applies to a call."""
        made = Fault(kind, method, **rule)
        self.faults.append(made)
        return made

    def clear_faults(self) -> None:
        self.faults.clear()

    def set_latency(self, seconds: float) -> None:
        self.latency = seconds

    def take_fault(self, method: str, chat: int | None = None, text: str = "") -> Fault | None:
        """Return the rule for this call and reduce its count."""
        for fault in self.faults:
            if not fault.matches(method, chat, text):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            if fault.chance < 1 and self._random.random() >= fault.chance:
                continue
            if fault.times > 0:
                fault.times -= 1
            return fault
        return None

    async def give(self, request: web.Request, data: bytes, mime: str, **headers: str) -> web.StreamResponse:
        """Serve a file in chunks, as fast as the client reads; stop after `stall` bytes."""
        answer = web.StreamResponse(headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer.content_type, answer.content_length = mime, len(data)
        await answer.prepare(request)
        for at in range(0, len(data), 1 << 16):
            while at >= self.stall:
                await asyncio.sleep(0.01)
            await answer.write(data[at : at + (1 << 16)])
        await answer.write_eof()
        return answer

    async def suffer(self, fault: Fault, request: web.Request) -> web.StreamResponse | None:
        """Apply the rule to the connection; None means: continue. Subclasses implement `flood` and `error`."""
        match fault.kind:
            case "slow":
                await asyncio.sleep(fault.seconds)
                return None
            case "drop":
                return cut(request)
            case "hang":
                await asyncio.Event().wait()
        raise AssertionError(f"{fault.kind} has a body of the platform's own")

    def abort(self) -> None:
        """Break every event connection; without effect for polling."""

    def deafen(self) -> None:
        """Keep event connections open, but send nothing over them."""

    # ------------------------------------------------------------ control

    async def _control(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        method = None if name.startswith(("_", "m_")) else getattr(self, name, None)
        if not callable(method):
            return web.json_response({"error": f"no control {name!r}"}, status=404)
        arguments = orjson.loads(await request.read() or b"{}")
        if "data" in arguments and name != "click":
            arguments["data"] = base64.b64decode(arguments["data"])
        try:
            result = method(**arguments)
            if inspect.isawaitable(result):
                result = await result
        except (TypeError, ValueError, KeyError, TimeoutError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        return web.Response(body=dumps(result), content_type="application/json")


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form; those with a file name, or of another type than text, are files."""

    texts: dict[str, str]
    files: dict[str, tuple[str, bytes]]  # their names ("": none) and content
    types: dict[str, str]  # of the files


async def read_form(request: web.Request) -> Form:
    """Read a form. Raises web.HTTPRequestEntityTooLarge.

    `request.post()` leaves the files of a multipart form open where the sender is cut off.
    """
    form = Form({}, {}, {})
    if request.content_type != "multipart/form-data":
        form.texts.update({name: str(value) for name, value in (await request.post()).items()})
        return form
    parts = await request.multipart()
    while part := await parts.next():
        assert isinstance(part, BodyPartReader)
        assert part.name
        kind = part.headers.get("Content-Type", "")
        if part.filename or (kind and not kind.startswith("text/")):
            form.files[part.name] = part.filename or "", bytes(await part.read(decode=True))
            form.types[part.name] = kind
        else:
            form.texts[part.name] = await part.text()
    return form


def cut(request: web.Request) -> web.StreamResponse:
    """Close the client's connection without an answer."""
    if request.transport:
        request.transport.abort()
    return web.Response()  # never arrives


def dumps(value: object) -> bytes:
    """JSON for the control API: dataclasses as objects, bytes as base64 text, keys as text."""

    def other(unknown: object) -> object:
        if isinstance(unknown, bytes):
            return base64.b64encode(unknown).decode()
        if is_dataclass(unknown) and not isinstance(unknown, type):
            return asdict(unknown)
        raise TypeError(f"no JSON for {type(unknown).__name__}")

    return orjson.dumps(value, default=other, option=orjson.OPT_NON_STR_KEYS)


def main(server: LocalServer) -> None:
    """Serve as a process of its own: says `listening URL` on its first line, ends with SIGINT or SIGTERM."""
    import uvloop

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    port = parser.parse_args().port

    async def serve() -> None:
        await server.start(port)
        print(f"listening {server.base_url}", flush=True)
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()
        await server.stop()

    uvloop.run(serve())
