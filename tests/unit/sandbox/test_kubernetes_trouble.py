"""Trouble with pods: what a cluster refuses or loses, what a pod does to it, and what a person reads then."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from sandbox.base import (
    OUTPUTS,
    WORKSPACE,
    SandboxError,
    SandboxFileError,
    SandboxGone,
    SandboxUnavailable,
    ShellCommand,
)
from sandbox.disk import safe_files
from sandbox.inside.search import WalkBounds
from sandbox.kubernetes.provider import KubernetesProvider
from tests.fakes.kube import FakeKube
from tests.support.cluster import kubernetes_provider

Cluster = tuple[KubernetesProvider, FakeKube]
STDOUT, STDERR, STATUS = b"\1", b"\2", b"\3"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with kubernetes_provider(tmp_path, processes=40) as made:
        yield made


async def start(provider: KubernetesProvider, folder: Path, key: str = "b") -> None:
    async with provider.acquire(key, folder / key) as sandbox:
        assert (await sandbox.run(ShellCommand("echo here"))).output == "here\n"


# ---------------------------------------------------------------- what a cluster refuses


async def test_an_image_that_cannot_be_pulled_is_said_and_leaves_no_pod(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    kube.images.clear()
    with pytest.raises(SandboxUnavailable, match=r"cannot pull the image fawn-sandbox:test .*Back-off pulling image"):
        await start(provider, tmp_path)
    assert kube.pods == {}
    kube.images.add("fawn-sandbox:test")
    await start(provider, tmp_path)


async def test_a_quota_that_is_used_up_is_said_and_other_conversations_continue(
    cluster: Cluster, tmp_path: Path
) -> None:
    provider, kube = cluster
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        kube.max_pods = 1
        with pytest.raises(SandboxError, match=r"quota has no room for another sandbox: .*exceeded quota: sandboxes"):
            await start(provider, tmp_path)
        assert (await sandbox.run(ShellCommand("echo on"))).output == "on\n"
    await provider.destroy("a")
    await start(provider, tmp_path)


async def test_a_cluster_without_room_is_said_and_leaves_no_pod(tmp_path: Path) -> None:
    async with kubernetes_provider(tmp_path, options={"start_seconds": 2.0}) as (provider, kube):
        kube.has_room = False
        with pytest.raises(
            SandboxError, match=r"No node of the cluster has room for the sandbox: .*Insufficient memory"
        ):
            await start(provider, tmp_path)
        assert kube.pods == {}


async def test_an_api_server_that_is_away_is_said_and_all_goes_on_when_it_is_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    provider, kube = cluster
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        await sandbox.write(f"{WORKSPACE}/kept", b"kept")
        begun = asyncio.Event()

        async def seen(_: str) -> None:
            begun.set()

        running = asyncio.create_task(sandbox.run(ShellCommand("echo begun; sleep 60", on_output=seen)))
        await begun.wait()
        await kube.stop()
        with pytest.raises(SandboxGone, match=r"connection to the Kubernetes API was lost.*files are intact"):
            await running
    with pytest.raises(SandboxError, match="The Kubernetes API did not answer: try again"):
        await start(provider, tmp_path)
    left = [pod["metadata"]["uid"] for pod in kube.pods.values()]
    assert len(left) == 1, "nobody could delete it"
    await kube.resume()
    async with asyncio.timeout(25):  # the watch has waited longer each time, and a start wakes it
        async with provider.acquire("a", tmp_path / "a") as sandbox:
            assert await sandbox.read(f"{WORKSPACE}/kept") == b"kept"
    assert [pod["metadata"]["uid"] for pod in kube.pods.values()] != left, "the old pod was replaced"
    await kube.evict(next(iter(kube.pods)))
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        assert (await sandbox.run(ShellCommand("echo here"))).output == "here\n"


# ---------------------------------------------------------------- what a pod does

THREADS = "import threading, time\nfor _ in range(3000): threading.Thread(target=time.sleep, args=(30,)).start()"


@pytest.mark.parametrize(
    "bomb",
    [
        ":(){ :|:& };: ; sleep 30",
        "setsid bash -c ':(){ :|:& };:' & sleep 30",
        # It stops what it can first: the command server, the tunnel, PID 1.
        "kill -STOP $(pgrep -f python3); (:(){ :|:& };:) & sleep 30",
        f"python3 -c '{THREADS}'",
    ],
    ids=["fork", "daemon", "stops the server", "threads"],
)
async def test_a_fork_bomb_ends_its_pod_and_nothing_else(cluster: Cluster, tmp_path: Path, bomb: str) -> None:
    provider, kube = cluster
    async with provider.acquire("other", tmp_path / "other") as other:
        async with provider.acquire("enemy", tmp_path / "enemy") as enemy:
            async with asyncio.timeout(60):
                with pytest.raises(SandboxGone, match=r"more processes and threads than `sandbox.processes` allows"):
                    await enemy.run(ShellCommand(bomb, timeout_seconds=60))
        assert (await other.run(ShellCommand("echo lives"))).output == "lives\n"
        assert not other.gone
    await start(provider, tmp_path, "enemy")
    assert len(kube.pods) == 2


async def test_as_many_processes_as_allowed_may_run(cluster: Cluster, tmp_path: Path) -> None:
    provider, _kube = cluster
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        many = ShellCommand("for i in $(seq 38); do sleep 1.5 & done; wait; echo done")
        assert (await sandbox.run(many)).output == "done\n"
        orphans = ShellCommand("for i in $(seq 200); do (true &) ; done; sleep 0.6; ls -d /proc/[0-9]* | wc -l")
        assert int((await sandbox.run(orphans)).output) < 15, "PID 1 reaps orphans"


async def test_pid_1_cannot_be_signalled_or_traced(cluster: Cluster, tmp_path: Path) -> None:
    provider, _kube = cluster
    trace = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.ptrace.argtypes = [ctypes.c_long] * 4\n"
        "print(libc.ptrace(16, 1, 0, 0), ctypes.get_errno())"
    )
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        said = await sandbox.run(
            ShellCommand(f'for s in KILL STOP TERM INT CHLD; do kill -$s 1; done; python3 -c "{trace}"')
        )
        assert said.output == "-1 1\n", "EPERM"
        assert (await sandbox.run(ShellCommand("echo on"))).output == "on\n"


# ---------------------------------------------------------------- a pod, or what is in front of it, that lies


async def _giant(socket: web.WebSocketResponse) -> None:
    await socket.send_bytes(STDOUT + bytes(5 << 20))


async def _endless(socket: web.WebSocketResponse) -> None:
    while True:
        await socket.send_bytes(STDOUT + bytes(32 << 10))
        await asyncio.sleep(0)  # it runs beside the service here, which is another process elsewhere


async def _endless_complaints(socket: web.WebSocketResponse) -> None:
    while True:
        await socket.send_bytes(STDERR + b"x" * (32 << 10))
        await asyncio.sleep(0)


async def _unknown_channels(socket: web.WebSocketResponse) -> None:
    for channel in itertools.cycle(range(4, 255)):
        await socket.send_bytes(bytes((channel,)))
        await asyncio.sleep(0)


async def _empty(socket: web.WebSocketResponse) -> None:
    while True:
        await socket.send_bytes(b"")
        await asyncio.sleep(0)


async def _text(socket: web.WebSocketResponse) -> None:
    await socket.send_str("\1hello")


async def _false_status(socket: web.WebSocketResponse) -> None:
    await socket.send_bytes(STATUS + b'{"status": "Success", "message": "' + b"x" * 100_000 + b'"}')


Attack = Callable[[web.WebSocketResponse], Awaitable[None]]
ATTACKS: list[Attack] = [_giant, _endless, _endless_complaints, _unknown_channels, _empty, _text, _false_status]


@pytest.mark.parametrize("attack", [_giant, _endless, _empty])
async def test_an_exec_that_lies_from_the_beginning_starts_no_sandbox(
    cluster: Cluster, tmp_path: Path, attack: Attack
) -> None:
    provider, kube = cluster
    async with provider.acquire("other", tmp_path / "other") as other:
        kube.hostile_exec = attack
        async with asyncio.timeout(60):
            with pytest.raises(SandboxUnavailable, match="The command server does not start in the image"):
                await start(provider, tmp_path)
        assert (await other.run(ShellCommand("echo lives"))).output == "lives\n"
        assert len(kube.pods) == 1, "the pod of the liar is deleted"


@pytest.mark.parametrize(
    ("attack", "which"),
    [*((attack, 1) for attack in ATTACKS), *((attack, 0) for attack in (_endless, _endless_complaints, _text))],
    ids=lambda value: ("tunnel", "server")[value] if isinstance(value, int) else value.__name__,
)
async def test_an_exec_that_lies_later_loses_its_sandbox(
    cluster: Cluster, tmp_path: Path, attack: Attack, which: int
) -> None:
    provider, kube = cluster
    async with provider.acquire("a", tmp_path / "a") as sandbox, provider.acquire("other", tmp_path / "other") as other:
        lying = asyncio.create_task(_lie(attack, kube.streams[which]))
        try:
            if attack is _false_status:  # it only says how a program ended, once it has
                await lying
                assert (await sandbox.run(ShellCommand("echo lives"))).output == "lives\n"
            else:
                async with asyncio.timeout(60):
                    with pytest.raises(SandboxGone):
                        await sandbox.run(ShellCommand("sleep 60"))
                assert sandbox.gone
        finally:
            lying.cancel()
            await asyncio.wait([lying])
        assert (await other.run(ShellCommand("echo lives"))).output == "lives\n"


async def _lie(attack: Attack, socket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):  # it was cut off
        await attack(socket)


@pytest.mark.slow
async def test_an_exec_that_says_nothing_is_given_up(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster

    async def say_nothing(socket: web.WebSocketResponse) -> None:
        async for _ in socket:
            pass

    kube.hostile_exec = say_nothing
    async with asyncio.timeout(60):
        with pytest.raises(SandboxUnavailable, match="The command server does not start"):
            await start(provider, tmp_path)
    assert kube.pods == {}


async def test_links_lead_nowhere_on_the_way_out(cluster: Cluster, tmp_path: Path) -> None:
    provider, _kube = cluster
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret").write_text("secret")
    make = (
        f"cd {OUTPUTS}; ln -s /etc/passwd absolute; ln -s ../../other/secret relative; ln -s {WORKSPACE} folder;"
        " ln -s loop loop; mkfifo pipe; echo fine > fine; mv ../outputs ../moved 2>/dev/null || echo kept"
    )
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        assert (await sandbox.run(ShellCommand(make))).output == "kept\n", "a mount cannot be moved"
        outputs = tmp_path / "a" / "outputs"
        for name in ("absolute", "relative", "folder/x", "loop", "pipe"):
            with pytest.raises(SandboxFileError):
                safe_files.read_file(outputs, name)
        assert safe_files.read_file(outputs, "fine") == b"fine\n"
        found = safe_files.list_files(outputs, WalkBounds(), lambda *_: None)
        assert {name for name, stamp in found.items() if stamp.problem is None} == {"fine"}
