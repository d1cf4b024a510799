"""What a command costs in a long-lived sandbox, against a sandbox per command and no sandbox at all, in the same run.

python -m bench.sandbox [--rounds N] [--many N]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from sandbox.bubblewrap import Bubblewrap, BubblewrapSettings

ONE_SHOT = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"]
ONE_SHOT += ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev"]
ONE_SHOT += ["--tmpfs", "/tmp", "/bin/bash", "-c", "true"]


async def process(*argv: str) -> None:
    """Start a process and wait for it."""
    started = await asyncio.create_subprocess_exec(*argv)
    assert await started.wait() == 0


async def measure(work: Callable[[], Awaitable[object]], rounds: int) -> tuple[float, float]:
    """Median and 95th percentile of `work`, in milliseconds."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await work()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times), statistics.quantiles(times, n=20)[18]


async def main(rounds: int, many: int) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="fawn-bench-") as scratch:
        provider = Bubblewrap(BubblewrapSettings(Path("skills")))
        await provider.check()
        starts = []
        for i in range(10):
            begun = time.perf_counter()
            async with provider.acquire(f"first{i}", Path(scratch, f"first{i}")) as sandbox:
                await sandbox.run("true")
            starts.append((time.perf_counter() - begun) * 1000)
            await provider.destroy(f"first{i}")

        async with provider.acquire("one", Path(scratch, "one")) as sandbox:
            path = "/mnt/user-data/workspace/a.txt"
            await sandbox.write(path, b"x" * 1000)
            plain, plain95 = await measure(lambda: process("/bin/bash", "-c", "true"), rounds)
            rows = [("plain subprocess: bash -c true", plain, plain95)]
            rows.append(("a bubblewrap per command", *await measure(lambda: process(*ONE_SHOT), rounds)))
            rows.append(("long-lived sandbox: true", *await measure(lambda: sandbox.run("true"), rounds)))
            rows.append(("long-lived sandbox: /bin/true", *await measure(lambda: sandbox.run("/bin/true"), rounds)))
            rows.append(("long-lived sandbox: read 1 KB", *await measure(lambda: sandbox.read(path), rounds)))
            rows.append(("long-lived sandbox: write 1 KB", *await measure(lambda: sandbox.write(path, b"y"), rounds)))
        print(f"{'':34}{'median':>10}{'p95':>10}{'× plain':>10}")
        print(f"{'start and first command':34}{statistics.median(starts):8.1f}ms{max(starts):8.1f}ms")
        for name, median, high in rows:
            print(f"{name:34}{median:8.1f}ms{high:8.1f}ms{median / plain:10.1f}")

        async with AsyncExitStack() as stack:
            begun = time.perf_counter()
            held = [provider.acquire(f"m{i}", Path(scratch, f"m{i}")) for i in range(many)]
            sandboxes = await asyncio.gather(*(stack.enter_async_context(one) for one in held))
            took = time.perf_counter() - begun
            print(f"{many} sandboxes started in {took:.1f} s ({many / took:.0f}/s)")
            for _ in range(2):  # the first round is cold
                begun = time.perf_counter()
                await asyncio.gather(*(one.run("true", timeout=60) for one in sandboxes for _ in range(3)))
                took = time.perf_counter() - begun
            print(f"{many} at once: {3 * many / took:.0f} commands/s")
        begun = time.perf_counter()
        await provider.close()
        print(f"{many} closed in {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--many", type=int, default=100)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.rounds, arguments.many))
