"""Fill a small disk that the database shares, and measure the effect on others.

python -m bench.disk_attack [--engine bubblewrap|docker] [--image IMAGE] [--megabytes N]

Needs root, for the disk (ext4 in a file, mounted by a loop device).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bot.database.database import Database, StorageError
from bot.database.disk_reserve import set_aside
from sandbox.base import SandboxError, SandboxProvider, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.quota import QuotaProvider
from sandbox.docker.provider import DockerProvider
from sandbox.docker.spec import DockerSettings
from sandbox.settings import SandboxSettings

SPACE = "for i in $(seq 5000); do fallocate -l 50M x$i || fallocate -l 64K y$i; done; sleep 60"
ATTACKS = {
    "fallocate, without end": SPACE,
    "the same in the background": f"({SPACE}) >/dev/null 2>&1 & sleep 60",
    "files written, four at once": "seq 100 | xargs -P 4 -I N sh -c 'head -c 100M /dev/zero > fN'; sleep 60",
    "empty files, four at once": "for i in 1 2 3 4; do (mkdir d$i; cd d$i; seq 1000000 | xargs touch) & done; wait",
}


@dataclass(slots=True)
class Seen:
    """Operations of another conversation: successes, failures, and the longest wait in seconds."""

    good: int = 0
    bad: int = 0
    longest: float = 0.0

    async def again_and_again(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Repeat it every 20 ms until cancelled."""
        while True:
            begun = time.perf_counter()
            if await work():
                self.good += 1
            else:
                self.bad += 1
            self.longest = max(self.longest, time.perf_counter() - begun)
            await asyncio.sleep(0.02)

    def __str__(self) -> str:
        return f"{self.bad:4} of {self.good + self.bad:4} failed, longest {self.longest * 1000:5.0f} ms"


@dataclass(slots=True)
class Floor:
    """The time during which the disk was full."""

    place: Path
    full: float = 0.0

    async def watch(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.01)
            disk, now = os.statvfs(self.place), time.perf_counter()
            if disk.f_bavail * disk.f_frsize < 1 << 20 or disk.f_favail < 100:
                self.full += now - last
            last = now


async def attack(provider: SandboxProvider, store: Database, place: Path, command: str) -> None:
    """Run an attack and print its effect on another conversation and the service."""
    writes, files, floor = Seen(), Seen(), Floor(place)

    async def write() -> bool:
        try:
            await store.run(lambda execute: execute("INSERT INTO t VALUES (randomblob(2000))", {}))
        except StorageError:
            return False
        return True

    async with (
        provider.acquire("other", place / "threads" / "other") as other,
        provider.acquire("enemy", place / "threads" / "enemy") as enemy,
    ):

        async def use() -> bool:
            return (await other.run(ShellCommand("date > note && cat note"))).exit_code == 0

        watching = [
            asyncio.create_task(writes.again_and_again(write)),
            asyncio.create_task(files.again_and_again(use)),
            asyncio.create_task(floor.watch()),
        ]
        await asyncio.sleep(1)
        begun = time.perf_counter()
        try:
            await enemy.run(ShellCommand(command, timeout_seconds=30))
            ended = "it was not stopped"
        except SandboxError:
            ended = f"stopped, and its files gone, after {time.perf_counter() - begun:.2f} s"
        await asyncio.sleep(2)
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
    print(f"  {ended}; nothing was free for {floor.full:.2f} s")
    print(f"  writes of the database   {writes}")
    print(f"  a neighbour's commands   {files}")
    subprocess.run(["rm", "-rf", place / "threads" / "enemy"], check=True)


async def main(kind: str, image: str, megabytes: int) -> None:
    """Run and print every attack."""
    with tempfile.TemporaryDirectory(prefix="fawn-bench-") as scratch:
        disk, place = Path(scratch) / "disk.img", Path(scratch) / "data"
        place.mkdir()
        with disk.open("wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", disk], check=True)
        subprocess.run(["mount", "-o", "loop", disk, place], check=True)
        inner: SandboxProvider = (
            DockerProvider(DockerSettings(Path("skills"), state=Path(scratch) / "state", image=image))
            if kind == "docker"
            else BubblewrapProvider(SandboxSettings(Path("skills")))
        )
        provider = QuotaProvider(inner, ConversationFolders(place / "threads", 4096))
        watching = asyncio.create_task(provider.watch())
        try:
            async with Database(place / "fawn.db") as store:
                await store.run(lambda execute: execute("CREATE TABLE t(x)", {}))
                await set_aside({place / "fawn.db": store})
                for name, command in ATTACKS.items():
                    print(f"{kind}, {megabytes:,} MB: {name}")
                    await attack(provider, store, place, command)
                    await provider.destroy("enemy")
        finally:
            watching.cancel()
            await provider.reap(0)
            await provider.close()
            subprocess.run(["umount", place], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("bubblewrap", "docker"), default="bubblewrap")
    parser.add_argument("--image", default="fawn-sandbox:test")
    parser.add_argument("--megabytes", type=int, default=6144)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.engine, arguments.image, arguments.megabytes))
