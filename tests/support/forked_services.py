"""Fork services from a process that has loaded the program once.

Loading takes 1.5 s of CPU, and the tests start the service more than a hundred times. A forked service runs the real
program from `main` on, in its own process and event loop. A test with `forked = False` starts a new interpreter.

A program that needs its own terminal or pipes gets them from its caller: `fork_on`, and `program`, a command for shells
and `subprocess`. It does not outlive its caller.
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
CHANNELS = [f"channels.{name}.channel" for name in ("telegram", "slack", "discord", "feishu", "dingtalk")]
LIBRARIES = ["apscheduler.schedulers.asyncio", "docker", "httpcore2", "openai.resources", "tzlocal", "uvloop"]
MCP_CLIENT = ["mcp.client", "mcp.client.stdio", "mcp_types"]
AGENT = ["agent.factory", "agent.tools", *MCP_CLIENT]
TERMINAL = [
    "channels.console.channel",
    "channels.console.tui",
    "bot.cli.ask",
    "bot.cli.chat",
    "bot.cli.run",
    "bot.cli.setup",
]
LOADED = ["bot.__main__", "bot.app", "bot.storage.migrate", *AGENT, *LIBRARIES, *CHANNELS, *TERMINAL]
LAUNCHER = Path(__file__).with_name("forked_program.py")


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


async def fork(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    errors: Path | None = None,
    given: Path = Path(os.devnull),
) -> Forked:
    """Run `fawn arguments` in `folder` with `given` as stdin. Append its output to `log`, or its stderr to `errors`."""
    streams = {"given": str(given), "log": str(log), "errors": str(errors or log)}
    return await _request([], arguments=arguments, folder=str(folder), environment=dict(environment), streams=streams)


async def fork_on(
    descriptors: Sequence[int], arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Forked:
    """Run `fawn arguments` with these descriptors as stdin, stdout and stderr."""
    return await _request(descriptors, arguments=arguments, folder=str(folder), environment=dict(environment))


async def _request(descriptors: Sequence[int], **request: object) -> Forked:
    caller = socket.socket(socket.AF_UNIX)
    caller.connect(await asyncio.to_thread(_nursery))
    if descriptors:
        socket.send_fds(caller, [b"\n"], descriptors)
    caller.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=caller)
    writer.write(json.dumps(request).encode() + b"\n")
    return Forked(int(await reader.readline()), reader, writer)


def program() -> list[str]:
    """Return a command that is `fawn`, with the stdin, stdout and stderr of the process that runs it."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), _nursery()]


async def run_forked(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: bytes = b""
) -> tuple[int, str, str]:
    """Run `fawn arguments` to its end; return its exit code, stdout and stderr."""
    with tempfile.TemporaryDirectory() as scratch:
        given, out, errors = (Path(scratch, name) for name in ("given", "out", "errors"))
        given.write_bytes(stdin)
        process = await fork(arguments, folder, environment, out, errors, given)
        try:
            async with asyncio.timeout(60):
                code = await process.wait()
        finally:
            process.kill()
        return code, out.read_text(), errors.read_text()


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
    load_program()
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


def load_program() -> None:
    """Import what a service uses, and make the parsers of its configuration."""
    for name in LOADED:
        importlib.import_module(name)
    importlib.import_module("bot.config.loader").load_config(ROOT / "config.yaml", {}, accounts=False)


def attend(caller: socket.socket) -> None:
    """Fork the service, report its pid, wait for its end, report its exit status. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    said, descriptors, _, _ = socket.recv_fds(caller, 65536, 3)
    while not said.strip() or not said.endswith(b"\n"):
        if not (more := caller.recv(65536)):
            os._exit(1)  # the caller has gone
        said += more
    request = json.loads(said)
    pid = os.fork()
    if pid == 0:
        caller.close()
        os._exit(serve(descriptors, **request))
    for number in descriptors:
        os.close(number)
    caller.sendall(b"%d\n" % pid)
    if descriptors:
        end_with_caller(pid, caller)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):  # the caller has gone
        caller.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def end_with_caller(pid: int, caller: socket.socket) -> None:
    """Wait until a program has ended; kill it when its caller is gone."""
    ending = os.pidfd_open(pid)
    if ending not in select.select([ending, caller.fileno()], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(ending)


def serve(
    descriptors: list[int],
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    streams: Mapping[str, str] | None = None,
) -> int:
    """Run the program in this process."""
    from bot.__main__ import main as fawn

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if streams:
        os.dup2(os.open(streams["given"], os.O_RDONLY), 0)
        for number, path in ((1, streams["log"]), (2, streams["errors"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), number)
    else:
        adopt_streams(descriptors)
    try:
        return fawn(arguments)
    except SystemExit as end:  # of the parser of the command line
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001 — as the interpreter does at the end of a program
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def adopt_streams(descriptors: list[int]) -> None:
    """Make descriptors stdin, stdout and stderr of this process, as a new interpreter does at its start."""
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    lines = 1 if os.isatty(1) else -1
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = os.fdopen(1, "w", lines, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


if __name__ == "__main__":
    main(sys.argv[1])
