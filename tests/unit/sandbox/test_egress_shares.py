"""Limits on descriptors and threads that a sandbox uses through its proxy."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandbox.base import ShellCommand
from sandbox.network import proxy as egress_proxy
from sandbox.network.service import EgressService
from sandbox.rules import SOCKET_NAME, NetworkRules
from tests.fakes.server import until
from tests.support.outside_world import HOST, Names, Outside, hosts
from tests.unit.sandbox.test_egress import ask
from tests.unit.sandbox.test_egress_inside import Make, make

__all__ = ["make"]  # the fixture

HOLD = """
import socket, time
held = []
for _ in range(300):
    door = socket.socket(socket.AF_UNIX)
    door.settimeout(5)
    try:
        door.connect("/run/fawn/egress.sock")
    except OSError:
        break
    held.append(door)
print("held", len(held), flush=True)
time.sleep(600)
"""


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A short path, because the path of a unix socket ends at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fawn-") as folder:
        yield Path(folder)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """The default limit of most systems."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
async def test_full_proxies_leave_descriptors_to_others(make: Make, tmp_path: Path) -> None:
    provider = await make(NetworkRules())
    async with AsyncExitStack() as stack:

        async def hold(key: str) -> None:
            sandbox = await stack.enter_async_context(provider.acquire(key, tmp_path / key))
            await sandbox.write("/mnt/user-data/workspace/hold.py", HOLD.encode())
            said = await sandbox.run(
                ShellCommand(
                    "touch held; python3 hold.py > held & until grep held held; do sleep 0.1; done", timeout_seconds=60
                )
            )
            assert said.output.startswith("held")

        await asyncio.gather(*(hold(f"greedy{n}") for n in range(12)))
        for _ in range(200):
            Path("/dev/null").open().close()
        async with provider.acquire("other", tmp_path / "other") as sandbox:
            await sandbox.write("/mnt/user-data/workspace/a", b"works\n")
            assert (await sandbox.run(ShellCommand("cat a"))).output == "works\n"


async def test_without_a_network_fewer_connections_are_allowed(socket_folder: Path) -> None:
    egress = EgressService(NetworkRules("off"), socket_folder / "e", Names())
    folder = await egress.open_proxy("t")
    held = [
        await asyncio.open_unix_connection(folder / SOCKET_NAME) for _ in range(egress_proxy.MAX_REFUSING_CONNECTIONS)
    ]
    status, _, _ = await ask(folder, f"CONNECT {HOST}:443 HTTP/1.1")
    assert status == "HTTP/1.1 503 more than 16 connections at once"
    held += [
        await asyncio.open_unix_connection(folder / SOCKET_NAME) for _ in range(egress_proxy.MAX_REFUSING_CONNECTIONS)
    ]
    reader, writer = await asyncio.open_unix_connection(folder / SOCKET_NAME)
    assert await reader.read() == b""
    for _, one in (*held, (reader, writer)):
        one.close()
    await egress.aclose()


class Silent(Names):
    """A resolver that answers for `slow…` only when told."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = threading.Event()
        self.waiting: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        if host.startswith("slow"):
            self.waiting.append(host)
            self.answer.wait()
        return super().__call__(host, port)


@pytest.fixture
def silent() -> Iterator[Silent]:
    names = Silent()
    yield names
    names.answer.set()


async def test_slow_lookups_do_not_delay_other_sandboxes(silent: Silent) -> None:
    with tempfile.TemporaryDirectory(prefix="fawn-") as folder:
        async with Outside(Path(folder)) as outside:
            egress = EgressService(NetworkRules("on", hosts(outside.http)), Path(folder) / "e", silent)
            greedy = [await egress.open_proxy(f"greedy{n}") for n in range(10)]
            other = await egress.open_proxy("other")
            targets = [(place, n) for place in greedy for n in range(5)]
            asking = [asyncio.create_task(ask(place, f"CONNECT slow{n}.test:443 HTTP/1.1")) for place, n in targets]
            await until(lambda: len(silent.waiting) == len(greedy) * egress_proxy.MAX_LOOKUPS)
            assert (await ask(other, f"GET http://{HOST}:{outside.http}/hello HTTP/1.1"))[2] == b"hello\n"
            assert len(silent.waiting) == len(greedy) * egress_proxy.MAX_LOOKUPS
            silent.answer.set()
            await egress.aclose()
            await asyncio.wait(asking)


async def test_a_lookup_is_counted_until_its_thread_ends(silent: Silent, socket_folder: Path) -> None:
    """The thread runs on after its client has gone or timed out."""
    egress = EgressService(NetworkRules("on"), socket_folder / "e", silent)
    await egress.open_proxy("t")
    await egress.open_proxy("u")
    proxy, other = egress._proxies["t"], egress._proxies["u"]
    given_up = [asyncio.create_task(proxy._look_up(f"slow{n}", 443)) for n in range(egress_proxy.MAX_LOOKUPS)]
    await until(lambda: len(silent.waiting) == egress_proxy.MAX_LOOKUPS)
    for task in given_up:
        task.cancel()
    await asyncio.wait(given_up)
    next_one = asyncio.create_task(proxy._look_up(HOST, 443))
    with pytest.raises(OSError, match="not known"):
        await other._look_up("unknown.test", 443)
    assert silent.asked == ["unknown.test"]
    silent.answer.set()
    assert await next_one == ["127.0.0.1"]
    await egress.aclose()
