"""Measure commands in a long-lived sandbox against a new sandbox (or `docker exec`) per command.

python -m bench.sandbox [--engine bubblewrap|docker] [--image IMAGE] [--rounds N] [--many N]

Docker needs its image: `fawn sandbox build`, or packaging/test-image. Disks in images need root.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sandbox.base import WORKSPACE, Sandbox, SandboxProvider, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.quota import QuotaProvider
from sandbox.disk.safe_files import read_file, write_file
from sandbox.docker.client import DockerEngine
from sandbox.docker.provider import DockerProvider
from sandbox.docker.spec import DockerSettings
from sandbox.settings import SandboxSettings

ONE_SHOT = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"]
ONE_SHOT += ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev"]
ONE_SHOT += ["--tmpfs", "/tmp", "/bin/bash", "-c", "true"]
HOST = "unix:///var/run/docker.sock"
MEGABYTE = os.urandom(1 << 20)

Work = Callable[[], Awaitable[object]]


async def process(*argv: str) -> None:
    """Start a process and wait for it."""
    started = await asyncio.create_subprocess_exec(*argv)
    assert await started.wait() == 0


async def execute(engine: DockerEngine, container: str) -> None:
    """Run a `docker exec` with the SDK: create, start, read to the end, get the exit code."""

    def work(client: Any) -> None:  # docker.APIClient
        made = client.exec_create(container, ["bash", "-c", "true"])["Id"]
        client.exec_start(made)
        assert client.exec_inspect(made)["ExitCode"] == 0

    await engine.run_sdk(work)


async def container_with(engine: DockerEngine, folder: Path) -> str:
    """Return the container that mounts a part of this folder."""
    for one in await engine.list_labelled("fawn.instance"):
        if any(source.startswith(str(folder)) for _, source in await engine.container_mounts(one.id)):
            return one.id
    raise LookupError(folder)


async def measure(work: Work, rounds: int) -> tuple[float, float]:
    """Return median and 95th percentile of `work` in milliseconds, without the first run."""
    await work()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await work()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times), statistics.quantiles(times, n=20)[18]


def available() -> int:
    """Return the available memory of this machine in bytes."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


async def starts(provider: SandboxProvider, scratch: Path, rounds: int = 10) -> list[float]:
    """Return the milliseconds from nothing to the end of the first command."""
    times = []
    for i in range(rounds):
        begun = time.perf_counter()
        async with provider.acquire(f"first{i}", scratch / f"first{i}") as sandbox:
            await sandbox.run(ShellCommand("true"))
        times.append((time.perf_counter() - begun) * 1000)
        await provider.destroy(f"first{i}")
    return times


async def single(provider: SandboxProvider, scratch: Path, rounds: int, engine: DockerEngine | None) -> None:
    """Measure one sandbox, one operation at a time."""
    first = await starts(provider, scratch)
    async with provider.acquire("one", scratch / "one") as sandbox:
        folder = scratch / "one" / "workspace"
        other: tuple[str, Work, int] = ("a bubblewrap per command", lambda: process(*ONE_SHOT), rounds)
        if engine:
            found = await container_with(engine, folder)
            other = ("docker exec, through the SDK", lambda: execute(engine, found), min(rounds, 100))
        rows: list[tuple[str, Work, int]] = [
            ("plain subprocess: bash -c true", lambda: process("/bin/bash", "-c", "true"), rounds),
            other,
            ("long-lived sandbox: true", lambda: sandbox.run(ShellCommand("true")), rounds),
            ("long-lived sandbox: /bin/true", lambda: sandbox.run(ShellCommand("/bin/true")), rounds),
            *files(sandbox, folder, rounds),
        ]
        figures = [(name, *await measure(work, n)) for name, work, n in rows]
    print(f"{'':38}{'median':>10}{'p95':>10}{'the 2nd, against it':>22}")
    print(f"{'start and first command':38}{statistics.median(first):8.1f}ms{max(first):8.1f}ms")
    for name, median, high in figures:
        print(f"{name:38}{median:8.1f}ms{high:8.1f}ms{figures[1][1] / median:20.1f} x")


def files(sandbox: Sandbox, folder: Path, rounds: int) -> list[tuple[str, Work, int]]:
    """Measure small and large files, through the stream and from the host."""
    small, big = f"{WORKSPACE}/small", f"{WORKSPACE}/big"
    return [
        ("long-lived sandbox: write 1 KB", lambda: sandbox.write(small, MEGABYTE[:1024]), rounds),
        ("long-lived sandbox: read 1 KB", lambda: sandbox.read(small), rounds),
        ("long-lived sandbox: write 1 MB", lambda: sandbox.write(big, MEGABYTE), 50),
        ("long-lived sandbox: read 1 MB", lambda: sandbox.read(big), 50),
        ("bind mount: write 1 MB", lambda: asyncio.to_thread(write_file, folder, "host", MEGABYTE), 50),
        ("bind mount: read 1 MB", lambda: asyncio.to_thread(read_file, folder, "host", 1 << 20), 50),
    ]


async def crowd(provider: SandboxProvider, scratch: Path, many: int) -> None:
    """Measure many sandboxes: starting, running commands at once, idle."""
    async with AsyncExitStack() as stack:
        before, begun = available(), time.perf_counter()
        held = [provider.acquire(f"m{i}", scratch / f"m{i}") for i in range(many)]
        sandboxes = await asyncio.gather(*(stack.enter_async_context(one) for one in held))
        took = time.perf_counter() - begun
        print(f"{many} sandboxes started in {took:.1f} s ({many / took:.0f}/s)")
        print(f"{(before - available()) / many / 2**20:.1f} MiB of this machine's memory each, idle")
        for _ in range(2):  # the first round is cold
            begun = time.perf_counter()
            await asyncio.gather(
                *(one.run(ShellCommand("true", timeout_seconds=60)) for one in sandboxes for _ in range(3))
            )
            took = time.perf_counter() - begun
        print(f"{many} at once: {3 * many / took:.0f} commands/s")
    begun = time.perf_counter()
    await provider.reap(0)
    print(f"{many} removed in {time.perf_counter() - begun:.1f} s")


async def main(kind: str, image: str, rounds: int, many: int) -> None:
    """Run and print the table."""
    with tempfile.TemporaryDirectory(prefix="fawn-bench-") as place:
        scratch = Path(place)
        engine = DockerEngine(HOST) if kind == "docker" else None
        inner: SandboxProvider = (
            DockerProvider(DockerSettings(Path("skills"), state=scratch / "state", image=image, live=many + 10))
            if engine
            else BubblewrapProvider(SandboxSettings(Path("skills"), live=many + 10))
        )
        provider = QuotaProvider(inner, ConversationFolders(scratch, 64))
        try:
            await provider.check()
            await single(provider, scratch, rounds, engine)
            await crowd(provider, scratch, many)
        finally:
            await provider.reap(0)
            await provider.close()
            if engine:
                await engine.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("bubblewrap", "docker"), default="bubblewrap")
    parser.add_argument("--image", default="fawn-sandbox:test")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--many", type=int, default=100)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.engine, arguments.image, arguments.rounds, arguments.many))
