"""Start programs at little cost to the event loop.

uvloop starts them with fork, which copies the tables of all memory of the service: the loop stands still for 10 ms at
400 MB, and on a busy machine until the child has run. `subprocess` uses vfork, which copies nothing: 0.3 ms.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import threading
from asyncio.base_subprocess import BaseSubprocessTransport
from asyncio.subprocess import Process, SubprocessStreamProtocol
from pathlib import Path
from typing import IO, Any

BUFFER_BYTES = 1 << 16  # of a reader, and the longest line, as asyncio has it


async def start_process(
    *argv: str,
    stdin: int | None = None,
    stdout: Any = None,
    stderr: Any = None,
    cwd: str | Path | None = None,
    env: dict[str, str] | None = None,
    pass_fds: tuple[int, ...] = (),
    start_new_session: bool = False,
    limit: int = BUFFER_BYTES,
) -> Process:
    """Start a program, like `asyncio.create_subprocess_exec`. Raises OSError."""
    loop = asyncio.get_running_loop()
    protocol = SubprocessStreamProtocol(limit=limit, loop=loop)
    connected = loop.create_future()
    options = {"cwd": cwd, "env": env, "pass_fds": pass_fds, "start_new_session": start_new_session}
    transport = _Transport(loop, protocol, argv, False, stdin, stdout, stderr, 0, connected, **options)
    transport.watch_end()
    try:
        await connected
    except BaseException:
        transport.close()
        raise
    return Process(transport, protocol, loop)


def hand_over(pipe: IO[bytes]) -> Any:
    """Return what to give to `connect_read_pipe` and `connect_write_pipe` of the running loop in place of a pipe.

    uvloop has libuv close the descriptor, and then closes the file, too (UVSocketHandle._close in its handle.pyx). Its
    number may be that of a file by then which another thread has just opened: that one was closed under its owner, who
    met "Bad file descriptor".
    """
    if not type(asyncio.get_running_loop()).__module__.startswith("uvloop"):
        return pipe
    copy = os.dup(pipe.fileno())  # libuv closes it
    handed = io.FileIO(copy, "rb" if pipe.readable() else "wb", closefd=False)
    pipe.close()
    return handed


class _Transport(BaseSubprocessTransport):
    """The transport of asyncio's own loop, for each loop."""

    _loop: asyncio.AbstractEventLoop
    _proc: subprocess.Popen[bytes]

    def _start(
        self, args: Any, shell: bool, stdin: Any, stdout: Any, stderr: Any, bufsize: int, **options: Any
    ) -> None:
        self._proc = made = subprocess.Popen(
            args, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=bufsize, **options
        )
        made.stdin, made.stdout, made.stderr = (
            pipe and hand_over(pipe) for pipe in (made.stdin, made.stdout, made.stderr)
        )

    def watch_end(self) -> None:
        """Notice the end of the process, and collect its status."""
        self._child = self._proc  # `_proc` is forgotten with the last pipe
        if hasattr(os, "pidfd_open"):
            self._pidfd = os.pidfd_open(self._child.pid)
            self._loop.add_reader(self._pidfd, self._collect)
        else:  # macOS
            threading.Thread(target=self._wait_in_thread, name="process", daemon=True).start()

    def _collect(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process_exited(self._child.wait())

    def _wait_in_thread(self) -> None:
        code = self._child.wait()
        self._loop.call_soon_threadsafe(self._process_exited, code)
