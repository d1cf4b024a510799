"""Programs are started without a copy of the service's memory, and behave as with asyncio, on both loops."""

from __future__ import annotations

import ast
import asyncio
import io
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from sandbox.processes import hand_over, start_process
from tests.fakes.server import until

ROOT = Path(__file__).parents[3]
OnLoop = Callable[[Awaitable[None]], None]
COPY = (
    "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)\nsys.stderr.write('end')\nsys.exit(3)"
)
SEEN = "import os\nprint(os.getcwd(), sorted(os.environ), os.getsid(0) == os.getpid(), os.read({fd}, 9))"


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> OnLoop:
    def run(work: Awaitable[None]) -> None:
        async def main() -> None:
            async with asyncio.timeout(60):
                await work

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


def test_a_program_reads_writes_and_ends(on_loop: OnLoop) -> None:
    async def work() -> None:
        process = await start_process(sys.executable, "-c", COPY, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"one\n")
        assert await process.stdout.readline() == b"ONE\n"
        assert process.returncode is None
        assert await process.communicate(b"two\n" * 100_000) == (b"TWO\n" * 100_000, b"end")
        assert process.returncode == await process.wait() == 3

    on_loop(work())


def test_a_program_gets_its_folder_environment_session_and_descriptors(on_loop: OnLoop, tmp_path: Path) -> None:
    async def work() -> None:
        reading, writing = os.pipe()
        os.write(writing, b"given")
        os.close(writing)
        argv = (sys.executable, "-I", "-c", SEEN.format(fd=reading))
        process = await start_process(
            *argv, stdin=DEVNULL, stdout=PIPE, cwd=tmp_path, env={"A": "b"}, pass_fds=(reading,), start_new_session=True
        )
        os.close(reading)
        out, errors = await process.communicate()
        assert out.decode().split() == [str(tmp_path), "['A',", "'LC_CTYPE']", "True", "b'given'"]
        assert errors is None

    on_loop(work())


def test_a_signal_ends_it_and_nothing_is_left(on_loop: OnLoop) -> None:
    async def work() -> None:
        for number in range(4):
            process = await start_process("sleep", "600", stdin=PIPE, stdout=PIPE)
            process.kill()
            assert await process.wait() == -signal.SIGKILL
            if number == 0:  # the loop has opened what it keeps
                before = len(os.listdir("/proc/self/fd"))
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before, what="closed descriptors")

    on_loop(work())


def test_a_program_that_is_missing_is_an_error(on_loop: OnLoop) -> None:
    async def work() -> None:
        with pytest.raises(FileNotFoundError):
            await start_process("/nothing/here", stdin=PIPE)

    on_loop(work())


def test_nothing_else_starts_programs_on_the_loop() -> None:
    """Channels import nothing of the sandbox; Feishu's starts once per connection."""
    starts = []
    for part in ("bot", "channels", "agent", "sandbox"):
        for path in (ROOT / part).rglob("*.py"):
            names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
            if names & {"create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"}:
                starts.append(str(path.relative_to(ROOT)))
    assert starts == ["channels/feishu/connection.py"]


class Late(io.FileIO):
    """A file during whose close another thread opens a file."""

    other = -1

    def close(self) -> None:
        if self.fileno() >= 0 and self.other < 0:
            self.other = os.open(os.devnull, os.O_RDONLY)
        super().close()


def test_the_end_of_a_pipe_closes_no_file_of_another_thread(on_loop: OnLoop) -> None:
    """uvloop closes a pipe's descriptor twice: between the two, a thread may get its number for another file."""

    async def work() -> None:
        reading, writing = os.pipe()
        pipe = Late(reading, "rb")
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, hand_over(pipe))
        os.close(writing)
        transport.close()
        await until(lambda: pipe.closed)
        assert os.read(pipe.other, 1) == b""
        os.close(pipe.other)

    on_loop(work())


def test_every_pipe_is_handed_over() -> None:
    """`BaseSubprocessTransport` connects those of a program: `_Transport` hands them over."""
    calls = []
    for part in ("bot", "channels", "agent", "sandbox"):
        for path in (ROOT / part).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("read_pipe", "write_pipe")):
                    calls.append((str(path.relative_to(ROOT)), ast.unparse(node.args[1])))
    bare = [where for where, pipe in calls if pipe != "pipe" and not pipe.startswith("hand_over(")]
    own = ["channels/feishu/sdk_process.py", *["sandbox/inside/tunnel.py"] * 2]  # on a loop of asyncio, by themselves
    assert sorted(bare) == own
    assert len(calls) == 5
