"""The stream to the real command server, and to a hostile one."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.base import WORKSPACE, SandboxError, SandboxFileError, SandboxGone, ShellCommand
from sandbox.settings import SandboxSettings
from sandbox.wire.client import StreamSandbox
from sandbox.wire.connection import FRAME_HEADER, SERVER_COMMAND

SETTINGS = SandboxSettings(Path())


class SocketStream:
    """A `ByteStream` over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(65536)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        await asyncio.wait([asyncio.ensure_future(self._writer.wait_closed())])


class Peer:
    """A tampered server: reads our frames, sends any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def begin(self) -> None:
        await self._reader.readexactly(int(await self._reader.readexactly(10)))
        await self.say({"hello": 1})

    async def hear(self) -> dict[str, Any]:
        head, size = FRAME_HEADER.unpack(await self._reader.readexactly(FRAME_HEADER.size))
        frame: dict[str, Any] = json.loads(await self._reader.readexactly(head))
        await self._reader.readexactly(size)
        return frame

    async def say(self, frame: object, data: bytes = b"") -> None:
        head = json.dumps(frame).encode()
        await self.raw(FRAME_HEADER.pack(len(head), len(data)) + head + data)

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def gone(self) -> bool:
        """Whether the host closes the stream."""
        async with asyncio.timeout(60):
            try:
                while await self._reader.read(65536):
                    pass
            except ConnectionResetError:
                pass
            return True

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[StreamSandbox, Peer]]:
    ours, theirs = socket.socketpair()
    peer = Peer(*await asyncio.open_connection(sock=theirs))
    sandbox = StreamSandbox(SocketStream(*await asyncio.open_connection(sock=ours)), "test", SETTINGS)
    starting = asyncio.create_task(sandbox.start())
    await peer.begin()
    await starting
    yield sandbox, peer
    await sandbox.close()
    peer.close()


END = {"exit": 0, "dropped": 0, "cwd": "/tmp"}

Attack = Callable[[Peer, int], Awaitable[None]]

ATTACKS: dict[str, Attack] = {
    "a frame of 4 GB": lambda peer, _: peer.raw(b"\xff\xff\xff\xff" + bytes(4)),
    "data of 4 GB": lambda peer, _: peer.raw(bytes(4) + b"\xff\xff\xff\xff"),
    "no JSON": lambda peer, _: peer.raw(FRAME_HEADER.pack(5, 0) + b"hello"),
    "a shell's greeting": lambda peer, _: peer.raw(b"bash: no job control in this shell\n" * 100),
    "deep nesting": lambda peer, _: peer.raw(FRAME_HEADER.pack(200_000, 0) + b"[" * 200_000),
    "no object": lambda peer, _: peer.say([1, 2]),
    "nothing known": lambda peer, n: peer.say({"id": n, "surprise": 1}),
    "a call nobody made": lambda peer, n: peer.say({"id": n + 99}, b"x"),
    "an end nobody waits for": lambda peer, n: peer.say({"id": n + 7, **END}),
    "hello twice": lambda peer, _: peer.say({"hello": 1}),
    "no data": lambda peer, n: peer.say({"id": n}),
    "an end with data": lambda peer, n: peer.say({"id": n, **END}, b"x"),
    "more data than asked for": lambda peer, n: peer.say({"id": n}, b"x" * 1001),
    "an exit code that is text": lambda peer, n: peer.say({"id": n, **END, "exit": "0"}),
    "an exit code without end": lambda peer, n: peer.say({"id": n, **END, "exit": 10**400}),
    "dropped below zero": lambda peer, n: peer.say({"id": n, **END, "dropped": -5}),
    "half an end": lambda peer, n: peer.say({"id": n, "exit": 0}),
    "an id that is a list": lambda peer, n: peer.say({"id": [n], **END}),
    "the end of the stream": lambda peer, _: _close(peer),
    "half a frame and the end": lambda peer, _: _half(peer),
}


async def _close(peer: Peer) -> None:
    peer.close()


async def _half(peer: Peer) -> None:
    await peer.raw(FRAME_HEADER.pack(100, 0) + b"{")
    peer.close()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_a_hostile_server_only_loses_its_sandbox(attack: Attack) -> None:
    async with pair() as (sandbox, peer), pair() as (other, honest):
        call = asyncio.create_task(sandbox.run(ShellCommand("true", max_output_bytes=1000)))
        second = asyncio.create_task(sandbox.read("/mnt/user-data/x"))
        number = (await peer.hear())["id"]
        await peer.hear()
        await attack(peer, number)
        for task in (call, second):
            with pytest.raises(SandboxGone):
                await task
        assert sandbox.gone
        with pytest.raises(SandboxGone):
            await sandbox.run(ShellCommand("true"))
        if attack not in (ATTACKS["the end of the stream"], ATTACKS["half a frame and the end"]):
            assert await peer.gone()
        calm = asyncio.create_task(other.run(ShellCommand("true")))
        await honest.say({"id": (await honest.hear())["id"], **END})
        assert (await calm).exit_code == 0


async def test_server_text_is_sanitized() -> None:
    async with pair() as (sandbox, peer):
        other = asyncio.create_task(sandbox.run(ShellCommand("sleep 9")))
        await peer.hear()
        for answer, wanted in (("a\x1b[31m\nb", "a�[31m�b"), ("x" * 100_000, "x" * 4096)):
            call = asyncio.create_task(sandbox.run(ShellCommand("true")))
            await peer.say({"id": (await peer.hear())["id"], "error": answer})
            with pytest.raises(SandboxError) as caught:
                await call
            assert str(caught.value) == wanted
        other.cancel()


async def test_a_full_sandbox_is_replaced_unless_a_job_runs() -> None:
    async with pair() as (sandbox, peer):
        calls = [asyncio.create_task(sandbox.run(ShellCommand("true"))) for _ in range(2)]
        for _ in calls:
            await peer.say({"id": (await peer.hear())["id"], "error": "No."})
        with pytest.raises(SandboxError, match=r"^No\.$"):
            await calls[0]
        with pytest.raises(
            SandboxGone, match=r"No\. The sandbox was stopped with all its processes\. The files are intact"
        ):
            await calls[1]
        assert sandbox.gone


@pytest.mark.parametrize("lie", ["relative", "/a\nb", "/" + "x" * 5000, ""])
async def test_an_invalid_cwd_is_ignored(lie: str) -> None:
    async with pair() as (sandbox, peer):
        call = asyncio.create_task(sandbox.run(ShellCommand("true")))
        await peer.say({"id": (await peer.hear())["id"], **END, "cwd": lie})
        assert (await call).cwd == WORKSPACE


@pytest.mark.parametrize("answer", [b"", b"?", b"+{", b"+[1]", b"+[[1,2,3],[null]]", b'+["/x"]', b"+5"])
async def test_an_invalid_answer_raises_an_error(answer: bytes) -> None:
    async with pair() as (sandbox, peer):
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: sandbox.stat("/mnt/user-data/x"),
            lambda: sandbox.ls("/mnt/user-data"),
            lambda: sandbox.glob("*", "/mnt/user-data"),
            lambda: sandbox.grep("x", "/mnt/user-data"),
        ]
        for make in calls:
            task = asyncio.ensure_future(make())
            number = (await peer.hear())["id"]
            if answer:
                await peer.say({"id": number}, answer)
            await peer.say({"id": number, **END})
            try:
                found = await task
            except SandboxError:
                continue
            assert found == [] or isinstance(found, list)


async def test_a_long_listing_is_cut() -> None:
    async with pair() as (sandbox, peer):
        task = asyncio.create_task(sandbox.ls("/mnt/user-data", limit=2))
        number = (await peer.hear())["id"]
        await peer.say({"id": number}, b"+" + json.dumps([["a", 1, "file"]] * 50).encode())
        await peer.say({"id": number, **END})
        assert len(await task) == 2


async def test_a_cancellation_kills_the_job_and_accepts_late_output() -> None:
    async with pair() as (sandbox, peer):
        call = asyncio.create_task(sandbox.run(ShellCommand("sleep 100")))
        number = (await peer.hear())["id"]
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await peer.hear() == {"kill": number}
        await peer.say({"id": number}, b"late")
        await peer.say({"id": number, **END, "exit": 137})
        again = asyncio.create_task(sandbox.run(ShellCommand("true")))
        await peer.say({"id": (await peer.hear())["id"], **END})
        assert (await again).exit_code == 0


async def test_invalid_requests_are_refused_before_sending() -> None:
    async with pair() as (sandbox, _):
        with pytest.raises(SandboxError):
            await sandbox.run(ShellCommand("echo \0"))
        with pytest.raises(SandboxError):
            await sandbox.run(ShellCommand("echo \ud800"))
        with pytest.raises(SandboxFileError):
            await sandbox.write("/mnt/user-data/x", b"x" * (33 << 20))
        with pytest.raises(SandboxError):
            await sandbox.read("/mnt/user-data/x", offset=1 << 70)


# ---------------------------------------------------------------- the real server, without any sandbox around it


class ProcessStream:
    """A `ByteStream` over a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin
        assert process.stdout
        self._process, self._in, self._out = process, process.stdin, process.stdout

    async def read(self) -> bytes:
        return await self._out.read(65536)

    async def write(self, data: bytes) -> None:
        self._in.write(data)
        await self._in.drain()

    async def close(self) -> None:
        self._in.close()
        await self._process.wait()


PYTHONS = [path for name in ("3.9", "3.10", "3.12", "3.13", "3.14") if (path := shutil.which(f"python{name}"))]


@pytest.mark.parametrize("python", [sys.executable, *PYTHONS])
async def test_the_server_needs_only_python(python: str) -> None:
    probe = await asyncio.create_subprocess_exec(python, "-c", "", stderr=asyncio.subprocess.DEVNULL)
    if await probe.wait():
        return  # a launcher for a version that is not installed
    process = await asyncio.create_subprocess_exec(
        python, *SERVER_COMMAND[1:], stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    sandbox = StreamSandbox(ProcessStream(process), "bare", SETTINGS)
    await sandbox.start()
    result = await sandbox.run(ShellCommand("echo hi; exit 4", cwd="/tmp"))
    assert (result.exit_code, result.output, result.cwd) == (4, "hi\n", "/tmp")
    assert (
        await sandbox.run(ShellCommand("setsid sleep 7010 & sleep 7010", cwd="/tmp", timeout_seconds=0.3))
    ).timed_out
    assert [entry.path for entry in await sandbox.ls("/proc/self/task", depth=1)]
    with pytest.raises(SandboxFileError, match="No such file"):
        await sandbox.read("/nowhere")
    left = await sandbox.run(ShellCommand("pgrep -f 'sleep 701[0]'", cwd="/tmp"))
    assert left.output == ""
    await sandbox.close()
    assert process.returncode is not None


async def test_a_server_whose_stream_ends_before_its_source_says_nothing() -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *SERVER_COMMAND[1:], stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert (await process.communicate(b"0000"), process.returncode) == ((b"", b""), 1)


async def test_a_broken_stream_is_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with pair() as (_, peer):
            await peer.raw(b"\xff\xff\xff\xff" + bytes(4))
            await peer.gone()
    assert "a frame of 4294967295 bytes" in caplog.text


@pytest.mark.parametrize("timeout", [math.nan, math.inf, -1.0, 0.0])
async def test_an_invalid_timeout_is_refused(timeout: float) -> None:
    async with pair() as (sandbox, peer):
        with pytest.raises(SandboxError, match="seconds above zero"):
            await sandbox.run(ShellCommand("true", timeout_seconds=timeout))
        calm = asyncio.create_task(sandbox.run(ShellCommand("true")))
        await peer.say({"id": (await peer.hear())["id"], **END})
        assert (await calm).exit_code == 0
