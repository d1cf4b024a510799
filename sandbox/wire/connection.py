"""The host side of a sandbox: concurrent calls over one byte stream.

A provider starts `SERVER_COMMAND` in its sandbox and passes that process's stdin and stdout to `StreamSandbox` as a
`ByteStream`. Programs in the sandbox may control what arrives, so sizes, counts and types are checked. A server that
breaks the protocol loses its sandbox, nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from catalogue import N_, LazyText, join_lazily
from sandbox.base import SandboxError, SandboxGone

log = logging.getLogger(__name__)

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

SERVER_MODULES = (
    "text_encoding",
    "packed",
    "search",
    "relay",
    "environment",
    "jobs",
    "redraws",
    "server",
)  # each after its imports
INSIDE = Path(__file__).parents[1] / "inside"
FRAME_HEADER = struct.Struct(">II")  # bytes of JSON, bytes of data
MAX_FRAME_BYTES = 1 << 20
STDIN_FRAME_BYTES = 1 << 16
SERVER_SILENCE_SECONDS = 10.0  # beyond the call's own timeout, until the server counts as dead
CLOSE_SECONDS = 10.0
FILES_INTACT = N_("The files are intact; the next call gets a new one.")
SERVER_DIED = join_lazily(LazyText(N_("The sandbox stopped in the middle of its work.")), LazyText(FILES_INTACT))


def prefix_size(data: bytes) -> bytes:
    """Prefix `data` with its size in ten digits, for a program that reads it whole."""
    return b"%010d" % len(data) + data


async def write_all(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write `data` and wait until the buffer has room. Raises OSError."""
    if writer.is_closing():
        raise BrokenPipeError("the stream is closed")
    writer.write(data)
    await writer.drain()


class ByteStream(Protocol):
    """Bytes to and from the command server. Errors are OSError."""

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end. May raise SandboxGone with the reason, and ValueError if what arrives
        breaks the stream's own protocol."""

    async def write(self, data: bytes) -> None:
        """Send `data`. A cancellation never leaves a part of `data` sent."""

    async def close(self) -> None:
        """Close the stream and the sandbox. May be called twice."""


def server_source(processes: int) -> bytes:
    """Return the server as one program: its modules and the call of its `main`."""
    return call_source(SERVER_MODULES, f"main({processes})")


def call_source(modules: Sequence[str], call: str) -> bytes:
    """Return modules of `sandbox/inside` as one program that makes this call to the last one."""
    return f"{_module_loader(modules)}module.{call}".encode()


def program_source(modules: Sequence[str], main: str) -> str:
    """Return a module of `sandbox/inside` as a program of its own, with the modules that it imports."""
    source = (INSIDE / f"{main}.py").read_text("utf-8")
    return f"{_module_loader(modules)}exec(compile({source!r}, {main!r}, 'exec'), {{'__name__': '__main__'}})"


def _module_loader(names: Sequence[str]) -> str:
    """Return a program that loads modules of `sandbox/inside`, the last one as `module`."""
    modules = [("sandbox", ""), ("sandbox.inside", "")]
    modules += [(f"sandbox.inside.{name}", (INSIDE / f"{name}.py").read_text("utf-8")) for name in names]
    return (
        f"import sys, types\nfor name, source in {modules!r}:\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    exec(compile(source, name, 'exec'), module.__dict__)\n"
        "    parent, _, child = name.rpartition('.')\n"
        "    if parent: setattr(sys.modules[parent], child, module)\n"
    )


# The source is sent on the stream after its size in ten digits: as an argument it would be in every process list.
BOOT_SOURCE = (
    "import os\ndef need(n):\n    s = b''\n"
    "    while len(s) < n: s += os.read(0, n - len(s)) or os._exit(1)\n    return s\n"
)
SERVER_COMMAND = ("python3", "-I", "-S", "-u", "-c", BOOT_SOURCE + "exec(need(int(need(10))))")
"""The command line to start in the machine: Python 3.9 or later and bash must be there, nothing of ours."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of a call. `exit` is None after a timeout; `cwd` is "" if the shell did not report it."""

    exit: int | None
    dropped: int
    cwd: str


class _Call:
    """A running request. `room` is the number of bytes it may still receive."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.queue: asyncio.Queue[bytes | CallEnd | SandboxError] = asyncio.Queue()
        self.over = asyncio.Event()


class RpcConnection:
    """Frames over a stream, dispatched to the call they belong to."""

    def __init__(self, stream: ByteStream, name: str) -> None:
        self._stream, self._name = stream, name
        self._calls: dict[int, _Call] = {}
        self._ids = itertools.count(1)
        self._gone, self._error_text = "", SERVER_DIED
        self._ready = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._run_in_background(self._read_stream(), "read")

    @property
    def gone(self) -> bool:
        return bool(self._gone)

    async def start(self, source: bytes) -> None:
        """Send the server's source and wait for its hello. Raises SandboxGone."""
        await self._write(prefix_size(source))
        await self._ready.wait()
        if self._gone:
            raise SandboxGone(self._error_text)

    async def call(
        self,
        request: dict[str, Json],
        seconds: float,
        room: int,
        on_data: Callable[[bytes], Awaitable[None]] | None = None,
        body: bytes = b"",
        stdin: AsyncIterator[bytes] | None = None,
    ) -> tuple[bytes, CallEnd]:
        """Send a request and `body`, then what `stdin` yields. Returns its output (at most `room` bytes) and its end.

        Raises SandboxError if the server cannot start the job, SandboxGone if the sandbox ends. A cancellation kills
        the job.
        """
        if self._gone:
            raise SandboxGone(self._error_text)
        number, call, data = next(self._ids), _Call(room), bytearray()
        feeder: asyncio.Task[None] | None = None
        try:
            frame = orjson.dumps({**request, "id": number, "timeout": seconds, "max": room})
        except orjson.JSONEncodeError as error:  # a lone surrogate, a number of more than 64 bits
            raise SandboxError(f"The sandbox cannot accept this request: {error}.") from error
        self._calls[number] = call
        try:
            async with asyncio.timeout(seconds + SERVER_SILENCE_SECONDS) as patience:
                await self._send_frame(frame, body)
                feeder = self._run_in_background(self._feed_job(number, stdin), "stdin") if stdin else None
                while not isinstance(item := await call.queue.get(), CallEnd):
                    if isinstance(item, SandboxError):
                        raise item
                    data += item
                    if on_data:
                        await on_data(item)
            return bytes(data), item
        except TimeoutError:
            if not patience.expired():
                raise
            self._fail_all("it did not answer in time")
            raise SandboxGone(SERVER_DIED) from None
        finally:
            if feeder:
                feeder.cancel()
            if number in self._calls:  # cancelled, or on_data failed: the job is still running
                self._run_in_background(self._kill_job(number, call), "kill")

    async def close(self) -> None:
        """Stop the sandbox and wait until the stream is closed, with a timeout."""
        self._fail_all("closed")
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            log.warning("sandbox.stop_timed_out", extra={"sandbox": self._name})
            for task in self._tasks:
                task.cancel()

    async def _feed_job(self, number: int, stdin: AsyncIterator[bytes]) -> None:
        """Send a job its input, and an empty frame at the end."""
        with contextlib.suppress(SandboxGone):  # its call fails, too
            async for data in stdin:
                for start in range(0, len(data), STDIN_FRAME_BYTES):
                    await self._send_frame(orjson.dumps({"stdin": number}), data[start : start + STDIN_FRAME_BYTES])
            await self._send_frame(orjson.dumps({"stdin": number}))

    async def _kill_job(self, number: int, call: _Call) -> None:
        """Kill a job. If it does not end, stop its sandbox."""
        try:
            async with asyncio.timeout(SERVER_SILENCE_SECONDS):
                await self._send_frame(orjson.dumps({"kill": number}))
                await call.over.wait()
        except (TimeoutError, SandboxGone):
            self._fail_all("it did not stop in time")

    async def _send_frame(self, frame: bytes, body: bytes = b"") -> None:
        await self._write(b"".join((FRAME_HEADER.pack(len(frame), len(body)), frame, body)))

    async def _write(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except OSError as error:
            self._fail_all(f"cannot write: {error}")
            raise SandboxGone(SERVER_DIED) from error

    async def _read_stream(self) -> None:
        try:
            await self._handle_frames()
            self._fail_all("the stream ended")
        except SandboxGone as error:
            self._error_text = error.text
            self._fail_all("the stream ended")
        except (OSError, ValueError) as error:
            self._fail_all(f"{type(error).__name__}: {error}")
        # Read to the end: a process with unread output never counts as ended.
        with contextlib.suppress(OSError, SandboxGone, ValueError):
            while await self._stream.read():
                pass

    async def _handle_frames(self) -> None:
        incoming = bytearray()
        while data := await self._stream.read():
            incoming += data
            while len(incoming) >= FRAME_HEADER.size:
                head, size = FRAME_HEADER.unpack_from(incoming)
                if head + size > MAX_FRAME_BYTES:
                    raise ValueError(f"a frame of {head + size} bytes")
                body = FRAME_HEADER.size + head
                if len(incoming) < body + size:
                    break
                self._handle_frame(
                    orjson.loads(incoming[FRAME_HEADER.size : body]), bytes(incoming[body : body + size])
                )
                del incoming[: body + size]

    def _handle_frame(self, frame: Json, data: bytes) -> None:
        match frame:
            case {"id": int(number), **rest} if data and not rest and number in self._calls:
                call = self._calls[number]
                call.room -= len(data)
                if call.room < 0:
                    raise ValueError("more output than was asked for")
                call.queue.put_nowait(data)
            case _ if data:
                raise ValueError("unexpected data")
            case {"hello": 1} if not self._ready.is_set():
                self._ready.set()
            case {
                "id": int(number),
                "exit": (int() | None) as code,
                "dropped": int(dropped),
                "cwd": str(cwd),
            } if number in self._calls and dropped >= 0:
                self._end_call(number, CallEnd(code, dropped, cwd))
            case {"id": int(number), "error": str(text)} if number in self._calls:
                if len(self._calls) > 1:
                    self._end_call(number, SandboxError(sanitize_text(text)))
                else:  # processes left by earlier calls fill the sandbox, and no job can end them
                    stopped = LazyText(N_("The sandbox was stopped with all its processes."))
                    self._error_text = join_lazily(sanitize_text(text), stopped, LazyText(FILES_INTACT))
                    self._fail_all("no process can be started in it")
            case _:
                raise ValueError("an unexpected frame")

    def _end_call(self, number: int, how: CallEnd | SandboxError) -> None:
        call = self._calls.pop(number)
        call.over.set()
        call.queue.put_nowait(how)

    def _fail_all(self, reason: str) -> None:
        """Mark the sandbox as gone, fail all calls and close the stream."""
        if self._gone:
            return
        self._gone = reason
        if reason not in ("closed", "the stream ended"):
            log.warning("sandbox.failed reason=%s", reason, extra={"sandbox": self._name})
        self._ready.set()
        for number in list(self._calls):
            self._end_call(number, SandboxGone(self._error_text))
        self._run_in_background(self._stream.close(), "close")

    def _run_in_background(self, work: Awaitable[None], what: str) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await work
            except OSError as error:  # the stream is broken anyway
                log.debug("sandbox.stream_error reason=%s", error, extra={"sandbox": self._name})

        task = asyncio.create_task(run(), name=f"sandbox-{what}:{self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def parse_json(data: bytes) -> Json:
    try:
        found: Json = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise SandboxGone(SERVER_DIED) from error
    return found


def sanitize_text(text: str) -> str:
    """Make text from the sandbox safe: one line, bounded, without control characters."""
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in text[:4096])
