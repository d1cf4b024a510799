"""Limits of bubblewrap sandboxes, and the notes that report them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.base import CommandResult, Sandbox, SandboxGone, ShellCommand
from sandbox.bubblewrap import cgroup as limits_cgroup
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.rules import NetworkRules
from sandbox.settings import SandboxSettings
from tests.support.engines import need_bubblewrap, unprivileged


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[BubblewrapProvider]:
    need_bubblewrap()
    made = BubblewrapProvider(
        SandboxSettings(tmp_path, memory_mb=200, processes=64, file_mb=8, tmp_mb=16, cpus=0.5, live=2)
    )
    yield made
    await made.close()


@pytest.fixture
async def sandbox(provider: BubblewrapProvider, tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with provider.acquire("t", tmp_path / "t") as made:
        yield made


@pytest.fixture
def grouped() -> None:
    group = limits_cgroup.make_control_group(64, 16, 1)
    group.remove()
    if not group.folders:
        pytest.skip("this machine lets us make no control groups: run as root where /sys/fs/cgroup can be written")


HOG = "python3 -c 'x = bytearray(120 << 20); import time; time.sleep(3)' & "


@pytest.mark.usefixtures("grouped")
async def test_memory_of_the_whole_sandbox_is_limited(sandbox: Sandbox) -> None:
    result = await sandbox.run(ShellCommand(f"{HOG}{HOG}{HOG} wait", timeout_seconds=20))
    assert "[killed: out of memory (limit 200 MB for the whole sandbox)]" in result.output
    assert (await sandbox.run(ShellCommand("echo works"))).output == "works\n"
    assert not sandbox.gone


@pytest.mark.usefixtures("grouped")
async def test_processor_time_is_limited(sandbox: Sandbox) -> None:
    spin = (
        "python3 -c 'import time; t = time.process_time; e = time.time() + 2\nwhile time.time() < e: pass\nprint(t())'"
    )
    results = await asyncio.gather(
        sandbox.run(ShellCommand(spin, timeout_seconds=30)), sandbox.run(ShellCommand(spin, timeout_seconds=30))
    )
    assert sum(float(result.output) for result in results) < 1.6  # half a processor for four seconds


@pytest.mark.usefixtures("grouped")
async def test_control_groups_are_removed_with_their_sandboxes(provider: BubblewrapProvider, tmp_path: Path) -> None:
    def ours() -> list[Path]:
        return sorted(
            each for way in ("fawn", "*/fawn") for each in limits_cgroup.CGROUP_ROOT.glob(f"{way}/{os.getpid()}-*")
        )

    before = ours()
    async with provider.acquire("t", tmp_path / "t") as sandbox:
        await sandbox.run(ShellCommand("sleep 100 &"))
        assert len(ours()) > len(before)
    await provider.destroy("t")
    assert ours() == before


@pytest.mark.usefixtures("grouped")
def test_socket_memory_is_limited_on_cgroup_v1() -> None:
    group = limits_cgroup.make_control_group(64, 16, 1)
    try:
        bounds = [file.read_text() for place in group.folders for file in place.glob("memory.kmem.tcp.limit_in_bytes")]
    finally:
        group.remove()
    assert bounds in ([], [f"{32 << 20}\n"])  # version 2 charges for them


def test_an_ordinary_user_has_no_control_groups() -> None:
    with unprivileged():
        assert limits_cgroup.make_control_group(64, 16, 1).folders == ()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("head -c 20M /dev/zero > big", "stopped: a file may have at most 8 MB"),
        ("head -c 7M /dev/zero > /tmp/a; head -c 7M /dev/zero > /tmp/b; head -c 7M /dev/zero > /tmp/c",
         "full: /tmp holds 16 MB"),
        ("for i in $(seq 100); do sleep 9 & done", "refused: the sandbox may have at most 64 processes at once"),
        ("python3 -c 'x = bytearray(300 << 20)'", "refused: no more memory (limit 200 MB)"),
    ],
)  # fmt: skip
async def test_limits_are_reported(sandbox: Sandbox, command: str, words: str) -> None:
    result = await sandbox.run(ShellCommand(f"{command}; test $? = 0", timeout_seconds=8))
    assert f"[{words}" in result.output, result.output


@pytest.mark.parametrize(
    ("mode", "output", "words"),
    [
        ("off", "curl: (56) CONNECT tunnel failed, response 403", "sandbox.network.mode is off"),
        ("off", "getaddrinfo ENOTFOUND example.com", "sandbox.network.mode is off"),
        ("off", "ERROR: Could not find a version that satisfies x (from versions: none)", "mode is off"),
        ("allowlist", "fatal: unable to access 'x': Could not resolve host: example.com", "now a.example, *.b.example"),
        ("on", "CONNECT tunnel failed, response 403", "ports 80 and 443"),
        ("on", "curl: (6) Could not resolve host: example.com", ""),
        ("off", "403 The sandbox has no network (sandbox.network.mode is off); ENOTFOUND", ""),
        ("off", "all fine", ""),
    ],
)
def test_the_network_note_is_added_once(mode: str, output: str, words: str) -> None:
    rules = NetworkRules(mode, ("a.example", "*.b.example"))  # type: ignore[arg-type]  # a literal, from the table above
    said = (
        SandboxSettings(Path(), network=rules)
        .with_limit_notes(CommandResult(1, output, 0, "/"))
        .output.removeprefix(output)
    )
    assert (words in said and said.startswith("[The sandbox ")) if words else said == ""


async def test_the_least_recently_used_idle_sandbox_is_evicted(provider: BubblewrapProvider, tmp_path: Path) -> None:
    async with provider.acquire("a", tmp_path / "a") as a:
        pass
    async with provider.acquire("b", tmp_path / "b") as b:
        await a.run(ShellCommand("true"))
        async with provider.acquire("c", tmp_path / "c") as c:
            assert a.gone
            assert not b.gone
            with pytest.raises(SandboxGone):
                await a.run(ShellCommand("true"))
            assert (await c.run(ShellCommand("echo c"))).output == "c\n"


async def test_a_command_cannot_evade_its_timeout(sandbox: Sandbox) -> None:
    result = await sandbox.run(
        ShellCommand("trap '' TERM INT HUP; (setsid sleep 300 &); while :; do sleep 1; done", timeout_seconds=1)
    )
    assert result.timed_out
    assert (await sandbox.run(ShellCommand("pgrep -c sleep"))).output == "0\n"
