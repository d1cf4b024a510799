"""Fork services from a process that has loaded the program once.

Loading takes 1.5 s of CPU, and the tests start the service and its commands more than two thousand times. A forked one
runs the real program from `main` on, in its own process and event loop. A test with `forked = False` starts a new
interpreter; with FAWN_TEST_FORK=0, all tests do.

A program that needs its own terminal or pipes gets them from its caller: `fork_on`, and `program`, a command for shells
and `subprocess`. It does not outlive its caller. `python` is such a command for the tests' own programs.

All workers of a run share one fork server (tests/support/run_folder.py), which has one thread and no event loop. It and
its forks are in the network of the process that started it, so each network has its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.run_folder import owner_descriptor, run_folder, shared, start_for_run

ROOT = Path(__file__).parents[2]
OWN = ("agent", "bot", "catalogue", "channels", "sandbox")
NOT_LOADED = frozenset({"agent.models.anthropic"})  # its library takes 1.7 s of CPU, for few tests
LIBRARIES = [  # what is imported where it is used, in most starts or commands
    "Crypto.Cipher.AES",
    "apscheduler.executors.asyncio",
    "apscheduler.schedulers.asyncio",
    "apscheduler.triggers.interval",
    "cron_descriptor",
    "cronsim",
    "docker",
    "encodings.ascii",
    "httpcore2",
    "langchain_core.tracers.stdout",
    "mcp.client",
    "mcp.client.stdio",
    "mcp.server.mcpserver",
    "mcp_types",
    "openai.resources",
    "openai.resources.chat.completions.completions",
    "tests.support.agent_database",
    "tests.support.agent_tools",
    "tests.support.current_config",
    "tests.support.turn_context",
    "tzlocal",
    "uvloop",
]
FORKS = os.environ.get("FAWN_TEST_FORK") != "0"
PROGRAM = [sys.executable, "-m", "bot"]
PYTHON = "--python"  # of a request: run a module or a file
LAUNCHER = Path(__file__).with_name("forked_program.py")


class Forked:
    """A forked service, with the part of `asyncio.subprocess.Process` that the tests use."""

    def __init__(self, pid: int, ending: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._writer = writer
        self._ended = asyncio.create_task(self._watch(ending))

    async def _watch(self, ending: asyncio.StreamReader) -> int:
        try:
            status, seconds = (await ending.readline()).split()
        finally:  # a test that failed before it ended its service leaves no open connection to a later test
            self._writer.close()
        _charged.append(float(seconds))
        self.returncode = int(status)
        return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended, but its status has not arrived yet
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


_charged: list[float] = []


def charged_seconds() -> float:
    """Return the CPU seconds of the forked services that have ended."""
    return sum(_charged)


Running = Forked | asyncio.subprocess.Process


async def fork(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    errors: Path | None = None,
    given: Path = Path(os.devnull),
) -> Running:
    """Run `fawn arguments` in `folder` with `given` as stdin. Append its output to `log`, or its stderr to `errors`."""
    if not FORKS:
        with given.open("rb") as stdin, log.open("ab") as out, (errors or log).open("ab") as err:
            return await execute(arguments, folder, environment, (stdin.fileno(), out.fileno(), err.fileno()))
    streams = {"given": str(given), "log": str(log), "errors": str(errors or log)}
    return await _request([], arguments=arguments, folder=str(folder), environment=dict(environment), streams=streams)


async def fork_on(
    descriptors: Sequence[int], arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Running:
    """Run `fawn arguments` with these descriptors as stdin, stdout and stderr, in a session of its own."""
    if not FORKS:
        return await execute(arguments, folder, environment, descriptors, session=True)
    return await _request(descriptors, arguments=arguments, folder=str(folder), environment=dict(environment))


async def execute(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    descriptors: Sequence[int],
    *,
    session: bool = False,
) -> asyncio.subprocess.Process:
    """Run `fawn arguments` in a new interpreter."""
    stdin, out, err = descriptors
    command = [sys.executable, *arguments[1:]] if arguments[0] == PYTHON else [*PROGRAM, *arguments]
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment,
        stdin=stdin,
        stdout=out,
        stderr=err,
        start_new_session=session,
    )


async def _request(descriptors: Sequence[int], **request: object) -> Forked:
    caller = socket.socket(socket.AF_UNIX)
    caller.connect(await asyncio.to_thread(_fork_server))
    if descriptors:
        socket.send_fds(caller, [b"\n"], descriptors)
    caller.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=caller)
    writer.write(json.dumps(request).encode() + b"\n")
    return Forked(int(await reader.readline()), reader, writer)


def program() -> list[str]:
    """Return a command that is `fawn`, with the stdin, stdout and stderr of the process that runs it."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), _fork_server()] if FORKS else PROGRAM


def python() -> list[str]:
    """Return a command that runs `-m MODULE` or a file, as an interpreter that has loaded the program."""
    return [*program(), PYTHON] if FORKS else [sys.executable]


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
            if process.returncode is None:
                process.kill()
        return code, out.read_text(), errors.read_text()


def _fork_server() -> str:
    """Return the address of this run's fork server in this network: the red team has one of its own."""
    name = f"forks-{Path('/proc/self/ns/net').stat().st_ino}"
    return shared(name, partial(_start_server, name))


def _start_server(name: str) -> str:
    address, log = str(run_folder() / name), run_folder() / f"{name}.log"
    said = start_for_run("tests.support.forked_services", address, log)
    assert said == "ready\n", log.read_text("utf-8", "replace")
    return address


# ------------------------------------------------------------ the fork server's own process


@dataclass(slots=True)
class Caller:
    """A connection, with what it has asked for."""

    connection: socket.socket
    said: bytes = b""
    descriptors: list[int] = field(default_factory=list)
    pid: int = 0


class ForkServer:
    """Forks programs, one after the other, and tells each caller the pid and the exit status of its own."""

    def __init__(self, listener: socket.socket, owner: int) -> None:
        self._listener = listener
        self._owned = True
        self._poll = selectors.PollSelector()  # epoll would be one more descriptor in each fork
        self._poll.register(listener, selectors.EVENT_READ, self._accept)
        self._poll.register(owner, selectors.EVENT_READ, self._end)

    def run(self) -> None:
        """Serve until the owner of the run has ended."""
        while self._owned:
            key, _ = self._poll.select()[0]  # one at a time: it may close another one
            key.data()

    def _end(self) -> None:
        self._owned = False

    def _accept(self) -> None:
        caller = Caller(self._listener.accept()[0])
        self._poll.register(caller.connection, selectors.EVENT_READ, partial(self._read, caller))

    def _read(self, caller: Caller) -> None:
        try:
            more, descriptors, _, _ = socket.recv_fds(caller.connection, 65536, 3)
        except ConnectionResetError:
            more, descriptors = b"", []
        caller.said += more
        caller.descriptors += descriptors
        if not more:
            self._poll.unregister(caller.connection)
            if caller.pid and caller.descriptors:  # the program does not outlive it
                os.kill(caller.pid, signal.SIGKILL)
            elif not caller.pid:
                caller.connection.close()
        elif caller.said.strip() and caller.said.endswith(b"\n"):
            self._fork(caller)

    def _fork(self, caller: Caller) -> None:
        assert threading.active_count() == 1, "a thread would be lost in a fork"
        request = json.loads(caller.said)
        caller.pid = os.fork()
        if caller.pid == 0:
            for key in [*self._poll.get_map().values()]:
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
                else:
                    os.close(key.fd)
            os._exit(serve(caller.descriptors, **request))
        for number in caller.descriptors:
            os.close(number)
        ending = os.pidfd_open(caller.pid)
        self._poll.register(ending, selectors.EVENT_READ, partial(self._reap, caller, ending))
        _tell(caller, str(caller.pid))

    def _reap(self, caller: Caller, ending: int) -> None:
        self._poll.unregister(ending)
        os.close(ending)
        if caller.connection in self._poll.get_map():
            self._poll.unregister(caller.connection)
        _, status, used = os.wait4(caller.pid, 0)
        _tell(caller, f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime:.3f}")
        caller.connection.close()


def _tell(caller: Caller, line: str) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has gone
        caller.connection.sendall(f"{line}\n".encode())


def main(address: str) -> None:
    """Fork programs on request until this run of the tests ends."""
    owner = owner_descriptor()
    load_program()
    make_schemas()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        os.write(1, b"ready\n")
        ForkServer(listener, owner).run()


def load_program() -> None:
    """Import what a service uses, and make the parsers of its configuration."""
    for name in [*own_modules(), *LIBRARIES]:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] in OWN:
                raise
            # an extra that is not installed: what needs it says so where it is used
    config = importlib.import_module("bot.config.loader").load_config(ROOT / "config.yaml", {}, accounts=False)
    importlib.import_module("bot.config.loader").secret_texts(config)  # the abstract classes know its types then


def own_modules() -> Iterator[str]:
    """Return the names of the program's modules."""
    for top in OWN:
        for module in pkgutil.walk_packages([str(ROOT / top)], f"{top}."):
            if module.name not in NOT_LOADED:
                yield module.name


def make_schemas() -> None:
    """Make the schemas of the tools that are always the same, which a service does in its first turn."""
    from agent.core.tool import AgentTool

    for name in [name for name in sys.modules if name.startswith("agent.")]:
        for value in vars(sys.modules[name]).values():
            if isinstance(value, AgentTool):
                assert value.json_schema


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
        return run_python(*arguments[1:]) if arguments[:1] == [PYTHON] else fawn(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001 — as the interpreter does at the end of a program
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def run_python(*arguments: str) -> int:
    """Run `-m MODULE …` or `FILE …` as the interpreter does."""
    if arguments[0] == "-m":
        sys.argv = [*arguments[1:]]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [*arguments]
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


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
