"""The host's side of a sandbox: many calls over one byte stream to the command server inside.

A provider is a lifecycle plus an open byte stream: it starts `PROGRAM` in its machine and hands that process's stdin
and stdout to `StreamSandbox` as a `Stream`. What arrives there is under the tenant's control, so sizes, counts and
types are checked; a peer that breaks the rules loses its sandbox, nothing else.
"""

from __future__ import annotations

import asyncio
import codecs
import itertools
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from sandbox.base import WORKSPACE, Entry, FileFault, Gone, Match, Result, SandboxError
from sandbox.limits import Settings

log = logging.getLogger(__name__)

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

PARTS = ("search", "forward", "environment", "jobs", "server")  # of the server, each after what it imports
HEAD = struct.Struct(">II")  # bytes of JSON, bytes of data
FRAME = 1 << 20  # largest frame we accept, bytes
ANSWER = 8 << 20  # largest result of a file operation, bytes
WRITE = 32 << 20  # largest file written at once, bytes
SLACK = 10.0  # seconds beyond its own limit until a silent server counts as dead
DIALLED = 86_400.0  # seconds a connection from outside may live
FILES = 30.0  # seconds a file operation may take
INTACT = "The files are intact; the next call gets a new one."
DEAD = f"The sandbox stopped in the middle of its work. {INTACT}"


class Stream(Protocol):
    """Bytes to and from the command server. Errors are OSError."""

    async def read(self) -> bytes:
        """The next bytes; b"" at the end. May raise Gone instead of that, with the reason in words for people."""

    async def write(self, data: bytes) -> None:
        """Send all of `data`. It may be cancelled, but never with a part of `data` sent."""

    async def close(self) -> None:
        """Close it, and with it the sandbox. May be called twice."""


def _source(processes: int) -> bytes:
    """The server as one program text: its modules, made by hand, and the call of its `main`."""
    here = Path(__file__).parent
    modules = [("sandbox", "")] + [(f"sandbox.{n}", (here / f"{n}.py").read_text()) for n in PARTS]
    return (
        f"import sys, types\nfor name, source in {modules!r}:\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    exec(compile(source, name, 'exec'), module.__dict__)\n"
        "    parent, _, child = name.rpartition('.')\n"
        "    if parent: setattr(sys.modules[parent], child, module)\n"
        f"module.main({processes})"
    ).encode()


# The source comes first on the stream, after its size in ten digits: as an argument it would fill every process list.
BOOT = (
    "import os\ndef need(n):\n    s = b''\n    while len(s) < n: s += os.read(0, n - len(s)) or exit(1)\n    return s\n"
)
PROGRAM = ("python3", "-I", "-S", "-u", "-c", BOOT + "exec(need(int(need(10))))")
"""The command line to start in the machine: Python 3.9 or later and bash must be there, nothing of ours."""


@dataclass(frozen=True, slots=True)
class End:
    """How a call ended. `exit` is None when its time was up; `cwd` "" when the shell did not say."""

    exit: int | None
    dropped: int
    cwd: str


class _Call:
    """A request under way. `room` is how many bytes it may still bring."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.queue: asyncio.Queue[bytes | End | SandboxError] = asyncio.Queue()
        self.over = asyncio.Event()


class Wire:
    """Frames over a stream, sorted by the call they belong to."""

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream, self._name = stream, name
        self._calls: dict[int, _Call] = {}
        self._ids = itertools.count(1)
        self._gone, self._words = "", DEAD
        self._ready = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._pump(), "read")

    @property
    def gone(self) -> bool:
        return bool(self._gone)

    async def start(self, source: bytes) -> None:
        """Send the server's source and wait for its first word. Raises Gone."""
        await self._write(b"%010d" % len(source) + source)
        await self._ready.wait()
        if self._gone:
            raise Gone(self._words)

    async def call(
        self,
        request: dict[str, Json],
        seconds: float,
        room: int,
        on_data: Callable[[bytes], Awaitable[None]] | None = None,
        body: bytes = b"",
    ) -> tuple[bytes, End]:
        """Send a request and `body`; gives all its data (at most `room` bytes) and its end. Raises SandboxError when
        the server could not begin, Gone when the sandbox ends. Cancellation kills the job inside."""
        if self._gone:
            raise Gone(self._words)
        number, call, data = next(self._ids), _Call(room), bytearray()
        try:
            frame = orjson.dumps({**request, "id": number, "timeout": seconds, "max": room})
        except orjson.JSONEncodeError as error:  # a lone surrogate, a number of more than 64 bits
            raise SandboxError(f"The sandbox cannot be asked that: {error}.") from error
        self._calls[number] = call
        try:
            async with asyncio.timeout(seconds + SLACK) as patience:
                await self._send(frame, body)
                while not isinstance(item := await call.queue.get(), End):
                    if isinstance(item, SandboxError):
                        raise item
                    data += item
                    if on_data:
                        await on_data(item)
            return bytes(data), item
        except TimeoutError:
            if not patience.expired():
                raise
            self._fail("it did not answer in time")
            raise Gone(DEAD) from None
        finally:
            if number in self._calls:  # cancelled, or on_data failed: the job inside is still alive
                self._spawn(self._kill(number, call), "kill")

    async def close(self) -> None:
        """End the sandbox and wait until the stream is closed."""
        self._fail("closed")
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _kill(self, number: int, call: _Call) -> None:
        """Stop means stop: a job that does not end takes its sandbox with it."""
        try:
            async with asyncio.timeout(SLACK / 2):
                await self._send(orjson.dumps({"kill": number}))
                await call.over.wait()
        except (TimeoutError, Gone):
            self._fail("it did not stop in time")

    async def _send(self, frame: bytes, body: bytes = b"") -> None:
        await self._write(b"".join((HEAD.pack(len(frame), len(body)), frame, body)))

    async def _write(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except OSError as error:
            self._fail(f"cannot write: {error}")
            raise Gone(DEAD) from error

    async def _pump(self) -> None:
        incoming = bytearray()
        try:
            while data := await self._stream.read():
                incoming += data
                while len(incoming) >= HEAD.size:
                    head, size = HEAD.unpack_from(incoming)
                    if head + size > FRAME:
                        raise ValueError(f"a frame of {head + size} bytes")
                    body = HEAD.size + head
                    if len(incoming) < body + size:
                        break
                    self._take(orjson.loads(incoming[HEAD.size : body]), bytes(incoming[body : body + size]))
                    del incoming[: body + size]
            self._fail("the stream ended")
        except Gone as error:
            self._words = str(error)
            self._fail("the stream ended")
        except (OSError, ValueError) as error:
            self._fail(f"{type(error).__name__}: {error}")

    def _take(self, frame: Json, data: bytes) -> None:
        match frame:
            case {"id": int(number), **rest} if data and not rest and number in self._calls:
                call = self._calls[number]
                call.room -= len(data)
                if call.room < 0:
                    raise ValueError("more output than was asked for")
                call.queue.put_nowait(data)
            case _ if data:
                raise ValueError("data that nobody expects")
            case {"hello": 1} if not self._ready.is_set():
                self._ready.set()
            case {
                "id": int(number),
                "exit": (int() | None) as code,
                "dropped": int(dropped),
                "cwd": str(cwd),
            } if number in self._calls and dropped >= 0:
                self._end(number, End(code, dropped, cwd))
            case {"id": int(number), "error": str(text)} if number in self._calls:
                if len(self._calls) > 1:
                    self._end(number, SandboxError(_plain(text)))
                else:  # what fills the machine was left behind by calls that are over: nobody inside can end it
                    self._words = f"{_plain(text)} It was stopped with all that ran in it. {INTACT}"
                    self._fail("no process can be started in it")
            case _:
                raise ValueError("a frame that nobody expects")

    def _end(self, number: int, how: End | SandboxError) -> None:
        call = self._calls.pop(number)
        call.over.set()
        call.queue.put_nowait(how)

    def _fail(self, reason: str) -> None:
        """The sandbox is gone: tell everybody who waits, close the stream."""
        if self._gone:
            return
        self._gone = reason
        if reason not in ("closed", "the stream ended"):
            log.warning("sandbox broke: %s", reason, extra={"sandbox": self._name})
        self._ready.set()
        for number in list(self._calls):
            self._end(number, Gone(self._words))
        self._spawn(self._stream.close(), "close")

    def _spawn(self, work: Awaitable[None], what: str) -> None:
        async def run() -> None:
            try:
                await work
            except OSError as error:  # of a stream that is broken anyway
                log.debug("sandbox stream: %s", error, extra={"sandbox": self._name})

        task = asyncio.create_task(run(), name=f"sandbox-{what}:{self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class StreamSandbox:
    """A `Sandbox` at the other end of a stream on which `PROGRAM` was started; says in words which of the `settings` a
    command met."""

    runs_commands = True

    def __init__(self, stream: Stream, name: str, settings: Settings) -> None:
        self._wire = Wire(stream, name)
        self._settings, self._kills = settings, 0
        self._cwd = WORKSPACE

    @property
    def gone(self) -> bool:
        return self._wire.gone

    async def start(self, processes: int = 0) -> None:
        """Start the server inside; `processes` bounds what commands may have alive, 0 for no limit. Raises Gone."""
        await self._wire.start(await asyncio.to_thread(_source, processes))

    async def close(self) -> None:
        """End the sandbox with everything that runs in it."""
        await self._wire.close()

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        max_output: int = 64_000,
        on_output: Callable[[str], Awaitable[None]] | None = None,
    ) -> Result:
        """See `Sandbox.run`."""
        if "\0" in command or any("\0" in part for pair in (env or {}).items() for part in pair):
            raise SandboxError("A command cannot contain the character NUL.")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        async def forward(data: bytes) -> None:
            if on_output and (text := decoder.decode(data)):
                await on_output(text)

        begun = time.monotonic()
        here = cwd or self._cwd
        request: dict[str, Json] = {"op": "run", "command": command, "cwd": here, "env": dict(env or {})}
        limit = min(timeout, self._settings.command_seconds)
        data, end = await self._wire.call(request, limit, max_output, forward if on_output else None)
        if end.cwd.startswith("/") and end.cwd.isprintable() and len(end.cwd) < 4096:
            here = self._cwd = end.cwd
        if end.dropped:
            half = max_output - max_output // 2  # the server sends so much of the beginning, the rest of the end
            data = data[:half] + f"\n[… {end.dropped:,} bytes left out …]\n".encode() + data[half:]
        output = data.decode("utf-8", "replace")
        result = Result(end.exit, output, end.dropped, here, end.exit is None, time.monotonic() - begun)
        before = self._kills
        if end.exit == 137 or "Killed" in output:
            self._kills = max(before, await self.kills())
        return self._settings.told(result, out_of_memory=self._kills > before)

    async def kills(self) -> int:
        """Processes that were killed for want of memory so far, where that can be known."""
        return 0

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """See `Sandbox.read`. `limit` is at most 4 MiB."""
        return (await self._file("read", path, offset=offset, limit=min(limit, 4 << 20)))[:limit]

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """See `Sandbox.write`. At most 32 MiB at once."""
        if len(data) > WRITE:
            raise FileFault(f"{path}: more than {WRITE >> 20} MiB cannot be written at once")
        await self._file("write", path, data, append=append)

    async def stat(self, path: str) -> Entry:
        """See `Sandbox.stat`."""
        match _json(await self._file("stat", path)):
            case [str(real), int(size), str(kind)]:
                return Entry(_plain(real), size, _plain(kind))
        raise Gone(DEAD)

    async def ls(self, path: str, *, depth: int = 1, limit: int = 1000) -> list[Entry]:
        """See `Sandbox.ls`."""
        rows = _rows(await self._file("ls", path, depth=depth, limit=limit), limit)
        return [Entry(_below(path, rel), size, _plain(kind)) for rel, size, kind in rows]

    async def glob(self, pattern: str, path: str, *, limit: int = 200) -> list[str]:
        """See `Sandbox.glob`."""
        found = _json(await self._file("glob", path, pattern=pattern, limit=limit))
        if not isinstance(found, list):
            raise Gone(DEAD)
        return [_below(path, _plain(rel)) for rel in found[:limit] if isinstance(rel, str)]

    async def grep(self, regex: str, path: str, *, glob: str = "**", limit: int = 100) -> list[Match]:
        """See `Sandbox.grep`."""
        rows = _rows(await self._file("grep", path, regex=regex, pattern=glob, limit=limit), limit)
        return [Match(_below(path, rel), line, text) for rel, line, text in rows]

    async def dial(self, port: int, socket: str, ticket: str) -> None:
        """See `sandbox.egress.Dialer`."""
        request: dict[str, Json] = {"op": "dial", "path": f"port {port}", "port": port, "socket": socket}
        answer, _ = await self._wire.call({**request, "ticket": ticket}, DIALLED, 1000)
        if answer[:1] != b"+":
            raise SandboxError(_plain(answer[1:].decode("utf-8", "replace")))

    async def _file(self, op: str, path: str, body: bytes = b"", **rest: Json) -> bytes:
        """A file operation; its answer begins with "+" or "-"."""
        if not path.startswith("/") or "\0" in path:
            raise FileFault(f"{_plain(path)}: a path must be absolute")
        answer, end = await self._wire.call({"op": op, "path": path, **rest}, FILES, ANSWER, body=body)
        if end.dropped:
            raise FileFault(f"{path}: the answer is too big")
        if answer[:1] == b"+" and end.exit == 0:
            return answer[1:]
        if answer[:1] == b"-":
            raise FileFault(_plain(answer[1:].decode("utf-8", "replace")))
        raise FileFault(f"{path}: took too long" if end.exit is None else f"{path}: the sandbox could not do it")


def _json(data: bytes) -> Json:
    try:
        found: Json = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Gone(DEAD) from error
    return found


def _rows(data: bytes, limit: int) -> list[tuple[str, int, str]]:
    rows = _json(data)
    good: list[tuple[str, int, str]] = []
    for row in rows if isinstance(rows, list) else []:
        match row:
            case [str(rel), int(number), str(text)]:
                good.append((_plain(rel), number, _plain(text)))
    return good[:limit]


def _below(path: str, rel: str) -> str:
    return f"{path.rstrip('/')}/{rel}"


def _plain(text: str) -> str:
    """Words from inside, made harmless: one line, bounded, nothing that could steer a terminal."""
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in text[:4096])
