"""Fork services from a process that has loaded the program once.

Loading takes 1.5 s of CPU, and the tests start the service more than a hundred times. A forked service runs the real
program from `main` on, in its own process and event loop. A test with `forked = False` starts a new interpreter.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHANNELS = [f"channels.{name}.channel" for name in ("telegram", "slack", "discord", "feishu")]
MCP_CLIENT = ["mcp.client", "mcp.client.stdio", "mcp_types"]
LOADED = ["bot.app", "bot.storage.migrate", "agent.factory", "agent.tools", "uvloop", *MCP_CLIENT, *CHANNELS]


class Forked:
    """A forked service, with the part of `asyncio.subprocess.Process` that the tests use."""

    def __init__(self, pid: int, ending: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._writer = writer
        self._ended = asyncio.create_task(self._watch(ending))

    async def _watch(self, ending: asyncio.StreamReader) -> int:
        self.returncode = int(await ending.readline())
        self._writer.close()
        return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended, but its status has not arrived yet
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def fork(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> Forked:
    """Run `fawn arguments` in `folder`, with its output appended to `log`."""
    reader, writer = await asyncio.open_unix_connection(await asyncio.to_thread(_nursery))
    request = {"arguments": arguments, "folder": str(folder), "environment": dict(environment), "log": str(log)}
    writer.write(json.dumps(request).encode() + b"\n")
    return Forked(int(await reader.readline()), reader, writer)


@cache
def _nursery() -> str:
    """Return the address of this process's fork server, which ends with it."""
    scratch = tempfile.TemporaryDirectory(prefix="fawn-test-")
    address = f"{scratch.name}/nursery"
    command = [sys.executable, "-m", "tests.support.forked_services", address]
    process = subprocess.Popen(  # ctrl-C is for the tests: the starter of a service ends it
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin
    assert process.stdout
    atexit.register(scratch.cleanup)
    atexit.register(process.wait)
    atexit.register(process.stdin.close)
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()
    return address


# ------------------------------------------------------------ the nursery's own process


def main(address: str) -> None:
    """Fork services on request until stdin closes."""
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the attendants are not awaited
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        os.write(1, b"ready\n")
        while listener.fileno() in select.select([listener.fileno(), 0], [], [])[0]:
            caller, _ = listener.accept()
            assert threading.active_count() == 1, "a thread would be lost in a fork"
            if os.fork() == 0:
                listener.close()
                attend(caller)
            caller.close()


def attend(caller: socket.socket) -> None:
    """Fork the service, report its pid, wait for its end, report its exit status. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request = json.loads(caller.makefile().readline())
    pid = os.fork()
    if pid == 0:
        caller.close()
        os._exit(serve(**request))
    caller.sendall(b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    caller.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def serve(arguments: list[str], folder: str, environment: dict[str, str], log: str) -> int:
    """Run the program in this process."""
    from bot.__main__ import main as fawn

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    try:
        return fawn(arguments)
    except BaseException:  # noqa: BLE001 — as the interpreter does at the end of a program
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1])
