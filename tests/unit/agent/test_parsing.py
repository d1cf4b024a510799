"""Parsers of strangers' files: what their processes may do, what they may answer, and who waits for them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.parsing import child
from agent.parsing.child import ENVIRONMENT, MAX_PROCESSES, WORKER, ParserFailed, ParserProcess
from sandbox.system_calls import parser_program
from tests.fakes.server import until
from tests.support.web_server import ARTICLE

HOSTILE = """
import ctypes, importlib.util, json, mmap, os, socket, sys
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")

parent = os.getppid()
ATTEMPTS = {
    "read a file": lambda: open("/etc/passwd").read(),
    "write a file": lambda: open("/tmp/fawn-parser-was-here", "w"),
    "delete a file": lambda: os.unlink("/tmp/fawn-parser-was-here"),
    "list a folder": lambda: os.listdir("/"),
    "environment of the service": lambda: open(f"/proc/{parent}/environ").read(),
    "own environment by file": lambda: open("/proc/self/environ").read(),
    "memory of the service": lambda: open(f"/proc/{parent}/mem"),
    "ptrace": lambda: call(101 if os.uname().machine == "x86_64" else 117, 0x4206, parent, 0, 0),
    "process_vm_readv": lambda: call(310 if os.uname().machine == "x86_64" else 270, parent, 0, 0, 0, 0, 0),
    "pidfd_open": lambda: call(434, parent, 0),
    "io_uring": lambda: call(425, 8, 0),
    "openat2": lambda: call(437, -100, b"/etc/passwd", 0, 0),
    "x32 open": lambda: call(0x40000000 | 2, b"/etc/passwd", 0),
    "tcp": lambda: socket.socket(),
    "unix": lambda: socket.socket(socket.AF_UNIX),
    "netlink": lambda: socket.socket(socket.AF_NETLINK),
    "socketpair": lambda: socket.socketpair(),
    "signal": lambda: os.kill(parent, 0),
    "fork": lambda: os.fork() or os._exit(0),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "memfd": lambda: os.memfd_create("x"),
    "pipe": lambda: os.pipe(),
    "code": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
    "chmod": lambda: os.chmod("/tmp", 0o777),
    "prctl": lambda: libc.prctl(4, 1, 0, 0, 0) and call(0x7fffffff),
}
worker.set_limits(10)
confined = worker.give_up_calls(bytes.fromhex(sys.argv[2]))
done = []
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
    except OSError:
        continue
    done.append(name)
print(json.dumps({"confined": confined, "done": done, "environment": sorted(os.environ)}))
"""


def need_confinement() -> None:
    if not child.is_confined():
        pytest.skip("this machine has no seccomp for the parsers")


def test_hostile_code_in_a_parser_reaches_no_file_no_network_and_no_process() -> None:
    need_confinement()
    command = [sys.executable, "-I", "-B", "-c", HOSTILE, str(WORKER), parser_program().hex()]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["confined"]
    assert found["done"] == []
    assert set(found["environment"]) <= {"LANG", "LC_CTYPE"}
    assert not Path("/tmp/fawn-parser-was-here").exists()


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _colon, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("task", ["html", "text", "pdf", "picture"])
async def test_a_parser_gives_up_its_calls_before_it_reads_the_data(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_confinement()
    monkeypatch.setenv("FAWN_TEST_KEY", "sk-secret")
    options = {"codec": ""} if task in ("html", "text") else {}
    process = await asyncio.create_subprocess_exec(
        *child._argv(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=ENVIRONMENT
    )
    assert process.stdin
    try:
        process.stdin.write(child._head(task, **options))  # and no data, for which it waits
        async with asyncio.timeout(60):
            while status_of(process.pid)["Seccomp"] != "2":
                assert process.returncode is None
                await asyncio.sleep(0.01)
        assert status_of(process.pid)["NoNewPrivs"] == "1"
        assert "sk-secret" not in Path(f"/proc/{process.pid}/environ").read_text()
        assert len(os.listdir(f"/proc/{process.pid}/fd")) == 3
    finally:
        process.kill()
        await process.wait()


def test_the_filter_of_parsers_is_made_for_both_processors_and_no_other() -> None:
    assert len(parser_program("x86_64")) == len(parser_program("aarch64"))
    assert len(parser_program("x86_64")) % 8 == 0
    assert parser_program("riscv64") == b""


async def test_without_a_filter_a_page_is_parsed_all_the_same() -> None:
    head = json.loads(child._head("text", codec="")) | {"calls": ""}
    done = subprocess.run(
        child._argv(), input=json.dumps(head).encode() + b"\nwords", capture_output=True, env=ENVIRONMENT, check=True
    )
    assert json.loads(done.stdout)["text"] == "words"


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        (b"", "damaged"),
        (b"nonsense\n", "damaged"),
        (b"[]\n", "damaged"),
        (b"{}\n", "damaged"),
        (b'{"title": 1, "date": "", "text": ""}\n', "damaged"),
        (b'{"title": "\\ud800", "date": "", "text": ""}\n', "damaged"),
        (b'{"error": ["x"]}\n', "damaged"),
        (b'{"error": "the page is empty"}\n', "the page is empty"),
        (b"[" * 100_000 + b"\n", "damaged"),
    ],
)
def test_an_odd_answer_of_a_parser_is_a_parser_that_failed(out: bytes, reason: str) -> None:
    with pytest.raises(ParserFailed, match=reason):
        child._read_answer("html", out)


async def test_a_parser_that_writes_without_end_is_ended() -> None:
    flood = "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 65536)"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", flood),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        with pytest.raises(ParserFailed, match="too large"):
            await child._exchange(process, b"data")
    finally:
        await child._end(process)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("codec", ["unicode_escape", "raw_unicode_escape", "utf-7", "utf-8"])
async def test_lone_surrogates_in_a_page_do_not_break_the_answer(codec: str) -> None:
    data = {"utf-7": b"+2AA-", "utf-8": b"\xed\xa0\x80"}.get(codec, b"\\ud800")
    about, _data = await ParserProcess().run("text", data + b" rest", codec=codec)
    assert about["text"].endswith(" rest")
    about["text"].encode()


# ---------------------------------------------------------------- places


@pytest.fixture
def slow_page() -> bytes:
    return b"<p>x " * (1 << 20)  # 5 MB of paragraphs without an end


async def test_one_conversation_holds_one_place_and_the_others_go_on(slow_page: bytes) -> None:
    parser, url = ParserProcess(), "https://site.test/"
    hostile = [
        asyncio.create_task(parser.run("html", slow_page, owner="mallory", codec="", url=url), name=f"hostile {n}")
        for n in range(6)
    ]
    try:
        await asyncio.sleep(0)  # they take their place first
        about, _data = await parser.run("html", ARTICLE.encode(), owner="otto", codec="", url=url)
        assert "412 otters" in about["text"]
        assert not all(task.done() for task in hostile)
    finally:
        for task in hostile:
            task.cancel()
        await asyncio.wait(hostile)
    about, _data = await parser.run("html", ARTICLE.encode(), owner="mallory", codec="", url=url)
    assert about["title"], "cancelled tasks gave their places back"


async def test_data_is_read_when_the_place_is_there() -> None:
    parser, reading, most = ParserProcess(), 0, 0

    async def read() -> bytes:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        reading -= 1
        return b"words"

    answers = await asyncio.gather(*(parser.run("text", read, owner=n, codec="") for n in range(6)))
    assert [about["text"] for about, _data in answers] == ["words"] * 6
    assert most <= MAX_PROCESSES


def worker_processes() -> list[int]:
    own = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    pids = [int(pid) for each in own for pid in each.read_text().split()]
    return [pid for pid in pids if WORKER.name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.slow
async def test_a_machine_that_is_busy_for_longer_than_the_task_may_work_parses_it_all_the_same() -> None:
    """What counts is the time of the processor: the process rests for longer than that."""
    parsing = asyncio.create_task(ParserProcess().run("html", ARTICLE.encode(), codec="", url="https://site.test/"))
    await until(worker_processes, what="the process")
    [pid] = worker_processes()
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(child.TASK_SECONDS["html"] + 1)
    os.kill(pid, signal.SIGCONT)
    about, _data = await parsing
    assert "412 otters" in about["text"]
