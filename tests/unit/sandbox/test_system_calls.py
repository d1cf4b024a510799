"""System calls in sandboxes of both engines, and kernel resources they share."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from sandbox.base import WORKSPACE, Sandbox, SandboxProvider, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.rules import NetworkRules
from sandbox.settings import SandboxSettings
from sandbox.system_calls import (
    ARCHITECTURES,
    EXAMINED_CALLS,
    FORBIDDEN_CALLS,
    NAMESPACES,
    NEWER_CALLS,
    seccomp_profile,
)
from sandbox.users import FIRST_USER_ID, USER_COUNT, SandboxUsers
from tests.support.engines import docker_provider, docker_settings, need_bubblewrap

MACHINE = os.uname().machine
pytestmark = pytest.mark.skipif(MACHINE not in ARCHITECTURES, reason="no filter for this kind of processor")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users: run the tests as root")


@pytest.fixture(params=["bubblewrap", "docker"])
async def provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    if request.param == "docker":
        async with docker_provider(docker_settings(tmp_path, memory_mb=512, processes=64)) as made:
            yield made
        return
    need_bubblewrap()
    local = BubblewrapProvider(SandboxSettings(tmp_path / "skills", memory_mb=512, processes=64))
    yield local
    await local.close()


@pytest.fixture
async def sandbox(provider: SandboxProvider, folder: Path) -> AsyncIterator[Sandbox]:
    async with provider.acquire("t", folder) as made:
        yield made


async def python(sandbox: Sandbox, program: str, *arguments: str) -> str:
    """Return the output of a Python program inside."""
    await sandbox.write(f"{WORKSPACE}/program.py", program.encode())
    result = await sandbox.run(
        ShellCommand(" ".join(["python3 program.py", *arguments]), cwd=WORKSPACE, timeout_seconds=60)
    )
    return result.output


CALLS = """
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *args):
    return errno.errorcode[ctypes.get_errno()] if libc.syscall(number, *map(ctypes.c_long, args)) < 0 else "done"

def made(family, kind=socket.SOCK_STREAM):
    try:
        socket.socket(family, kind).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

numbers, namespaces, examined = json.loads(sys.argv[1])
said = {name: call(number, 0, 0, 0, 0, 0, 0) for name, number in numbers.items()}
said |= {name: call(examined["clone"], flag | 17, 0, 0, 0, 0) for name, flag in namespaces.items()}
said |= {f"family {n}": made(n, socket.SOCK_DGRAM) for n in range(46) if n not in (1, 2, 10, 16)}
said["a family with high bits"] = call(examined["socket"], (1 << 32) + 40, 1, 0)
said["a pair of TIPC"] = call(examined["socketpair"], 30, 1, 0, 0)
print(json.dumps({name: word for name, word in said.items() if word not in ("ENOSYS", "EPERM", "EAFNOSUPPORT")}))
print([made(family) for family in (socket.AF_UNIX, socket.AF_INET)], made(socket.AF_NETLINK, socket.SOCK_RAW))
"""


async def test_forbidden_calls_are_refused(provider: SandboxProvider, sandbox: Sandbox) -> None:
    column = ARCHITECTURES[MACHINE][0]
    unknown = frozenset[str]() if isinstance(provider, BubblewrapProvider) else NEWER_CALLS
    named = {name: number[column] for name, number in FORBIDDEN_CALLS.items() if name not in unknown}
    numbers = {name: number for name, number in named.items() if number is not None}
    asked = orjson.dumps(
        [numbers, NAMESPACES, {name: number[column] for name, number in EXAMINED_CALLS.items()}]
    ).decode()
    assert await python(sandbox, CALLS, f"'{asked}'") == "{}\n['done', 'done'] done\n"
    assert (await sandbox.run(ShellCommand("grep Seccomp: /proc/self/status"))).output.split() == ["Seccomp:", "2"]


OLD = """
import ctypes, mmap, os
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))  # getpid, as programs of 32 bits ask for it
old = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() == os.getpid()
new = ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 + 39)) == os.getpid()
print("it answered" if old or new else "refused")
"""


@pytest.mark.skipif(MACHINE != "x86_64", reason="other processors have no such ways")
async def test_filters_cannot_be_bypassed(sandbox: Sandbox) -> None:
    assert "it answered" not in await python(sandbox, OLD)  # the engine's filter kills the program


WORK = """
import asyncio, concurrent.futures, multiprocessing, socket, sqlite3, subprocess, sys, tempfile, threading

def square(n):
    return n * n

async def talk():
    async def serve(reader, writer):
        writer.write(await reader.read(9))
        writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    writer.write(b"over TCP")
    print((await reader.read()).decode())

if __name__ == "__main__":
    thread = threading.Thread(target=print, args=("thread",))
    thread.start()
    thread.join()
    for way in ("fork", "spawn"):
        with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(way)) as pool:
            print(list(pool.map(square, range(3))))
    database = sqlite3.connect("data.db")
    database.execute("pragma journal_mode=wal")
    database.execute("create table if not exists t (x)")
    print(subprocess.run(["bash", "-c", "echo child"], capture_output=True, text=True).stdout, end="")
    asyncio.run(talk())
"""


async def test_ordinary_programs_still_work(sandbox: Sandbox) -> None:
    assert (await python(sandbox, WORK)).split("\n") == [
        "thread", "[0, 1, 4]", "[0, 1, 4]", "child", "over TCP", "",
    ]  # fmt: skip
    programs = {
        "git": "git init -q r && cd r && echo x > f && git add f && git commit -qm c "
        "&& git log --format=%an.%ae | grep -x Agent.agent@localhost",
        "node": 'node -e \'new (require("worker_threads").Worker)("1", {eval: true})\'',
        "make": "printf 'all:\n\t@true\n' > Makefile && make -j4",
        "perl": "perl -e 'fork or exit; wait'",
        "curl": "python3 -m http.server -b 127.0.0.1 8123 >/dev/null 2>&1 & curl -s --retry 9 --retry-connrefused "
        "127.0.0.1:8123 >/dev/null",
    }
    for program, command in programs.items():
        result = await sandbox.run(
            ShellCommand(f"! command -v {program} >/dev/null || ({command})", cwd=WORKSPACE, timeout_seconds=60)
        )
        assert result.exit_code == 0, (program, result.output)


def test_call_numbers_match_the_kernel() -> None:
    try:
        resolve = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name_arch
    except OSError:
        pytest.skip("needs libseccomp2, which the engines bring")
    for column, architecture, _ in ARCHITECTURES.values():
        for name, numbers in {**FORBIDDEN_CALLS, **EXAMINED_CALLS}.items():
            number = resolve(ctypes.c_uint32(architecture), name.encode())
            if number >= 0 or name not in NEWER_CALLS:
                assert numbers[column] == (number if number >= 0 else None), name
    assert seccomp_profile("riscv64") == ""


# ---------------------------------------------------------------- limits counted per host or per user

FLOOD = """
import socket

def held():
    line = next(line for line in open("/proc/net/sockstat") if line.startswith("TCP:"))
    return int(line.split()[-1]) >> 8  # pages, of the whole machine

before, most, ends = held(), 0, []
listener = socket.create_server(("127.0.0.1", 0), backlog=300)
for _ in range(240):
    if most > 300:
        break
    sender = socket.socket()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
    sender.connect(listener.getsockname())
    ends += [sender, listener.accept()[0]]
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(1 << 16))
    except BlockingIOError:
        most = max(most, held() - before)
print(most)
"""


async def test_socket_memory_is_limited(sandbox: Sandbox) -> None:
    """It is charged to nobody on cgroup v1, or if the service is not root."""
    assert (await sandbox.run(ShellCommand("cat /proc/sys/net/ipv4/tcp_?mem; ulimit -Hn"))).output.split() == [
        "4096", "4096", "65536", "4096", "4096", "65536", "512",
    ]  # fmt: skip
    assert int(await python(sandbox, FLOOD)) < 64  # MB; a gigabyte without limits


HOARD = """
import ctypes, os, time
libc = ctypes.CDLL(None)
for _ in range(20):
    if not os.fork():
        while libc.inotify_init() >= 0:
            pass
        open("full", "w")
        time.sleep(60)
while not os.path.exists("full"):
    time.sleep(0.01)
"""


@root_only
async def test_inotify_limits_are_not_shared(provider: SandboxProvider, tmp_path: Path) -> None:
    async with provider.acquire("greedy", tmp_path / "a") as greedy, provider.acquire("b", tmp_path / "b") as other:
        assert await python(greedy, HOARD) == ""
        ask = "import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)"
        assert await python(greedy, ask) == "False\n"
        assert await python(other, ask) == "True\n"


@root_only
async def test_folders_move_to_the_conversations_new_user(provider: SandboxProvider, tmp_path: Path) -> None:
    """Older versions gave all folders to one user; two sandboxes cannot both run as that user."""
    for name in ("a", "b"):
        for part in ("workspace", "uploads", "outputs"):
            (tmp_path / name / part / "deep").mkdir(parents=True)
            (tmp_path / name / part / "deep" / "file").write_text("old\n")
        os.link(tmp_path / name / "workspace" / "deep" / "file", tmp_path / name / "workspace" / "second")
        (tmp_path / name / "workspace" / "link").symlink_to("/etc/passwd")
        for path in [tmp_path / name, *(tmp_path / name).rglob("*")]:
            os.chown(path, 1000 if name == "b" else FIRST_USER_ID + 7, 1000, follow_symlinks=False)
    async with provider.acquire("a", tmp_path / "a") as a, provider.acquire("b", tmp_path / "b") as b:
        for sandbox in (a, b):
            change = "echo new | tee -a ../*/deep/file second > /dev/null; rm second; cat ../*/deep/file | sort | uniq"
            assert (await sandbox.run(ShellCommand(change))).output == "new\nold\n"
        owners = {name: (tmp_path / name / "outputs").stat().st_uid for name in ("a", "b")}
    assert owners["a"] % 100_000 == FIRST_USER_ID + 7
    assert owners["b"] not in (owners["a"], 1000)
    await asyncio.gather(provider.destroy("a"), provider.destroy("b"))
    async with provider.acquire("b", tmp_path / "b"):
        assert (tmp_path / "b" / "outputs").stat().st_uid == owners["b"]


def test_users_are_not_shared_while_one_is_free(tmp_path: Path) -> None:
    users = SandboxUsers()
    taken = [users.assign_user(str(number), tmp_path) for number in range(USER_COUNT)]
    assert sorted(taken) == list(range(FIRST_USER_ID, FIRST_USER_ID + USER_COUNT))
    assert users.assign_user("5", tmp_path) == taken[5]
    assert users.assign_user("one too many", tmp_path) in taken
    users.release_user("7")
    assert users.assign_user("one too many", tmp_path) == taken[7]


# ---------------------------------------------------------------- visibility to other users of the host


async def test_passwords_are_not_on_command_lines(tmp_path: Path) -> None:
    need_bubblewrap()
    rules = NetworkRules("allowlist", ("x.test",), pip_index_url="https://user:hunter2@x.test/simple")
    provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills", network=rules))
    seen: list[bytes] = []

    async def use() -> None:
        async with provider.acquire("t", tmp_path / "t") as sandbox:
            assert "hunter2" in (await sandbox.run(ShellCommand("env"))).output

    using = asyncio.create_task(use())
    while not using.done():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                seen.append(Path(f"/proc/{pid}/cmdline").read_bytes())
            except OSError:
                continue
        await asyncio.sleep(0)
    await using
    await provider.close()
    assert any(b"launcher.py" in line for line in seen)
    assert any(b"bwrap\0--args\0" in line for line in seen)
    assert not any(b"hunter2" in line for line in seen)
