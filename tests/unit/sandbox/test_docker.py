"""The lifecycle of containers: start, replace, evict, reap."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.base import (
    OUTPUTS,
    WORKSPACE,
    Sandbox,
    SandboxError,
    SandboxGone,
    SandboxProvider,
    SandboxUnavailable,
    ShellCommand,
)
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.docker.client import ContainerInfo, DockerEngine, NotInEngine
from sandbox.docker.image_build import build_context
from sandbox.docker.provider import DockerProvider
from sandbox.docker.spec import INSTANCE, DockerSettings
from sandbox.engines.select import LazySandbox, select_provider
from sandbox.pool.pool import SandboxPool
from sandbox.settings import SandboxSettings
from sandbox.wire.client import StreamSandbox
from tests.support.engines import (
    HOST,
    IMAGE,
    SpareEngine,
    docker_provider,
    docker_settings,
    measured,
    need_bubblewrap,
    need_docker,
)
from tests.unit.sandbox.test_wire import pair

FILES = "1000 MB of files each (measured)"


@pytest.fixture
def settings(tmp_path: Path) -> DockerSettings:
    need_docker()
    return docker_settings(tmp_path)


@pytest.fixture
async def provider(settings: DockerSettings) -> AsyncIterator[DockerProvider]:
    async with docker_provider(settings) as made:
        yield made


@pytest.fixture
async def engine() -> AsyncIterator[DockerEngine]:
    made = DockerEngine(HOST)
    yield made
    await made.close()


async def theirs(engine: DockerEngine, folder: Path) -> list[ContainerInfo]:
    """List the containers that have this folder mounted, which excludes those of other tests."""
    found = []
    for one in await engine.list_labelled(INSTANCE):
        with suppress(NotInEngine):
            if any(source.startswith(str(folder)) for _, source in await engine.container_mounts(one.id)):
                found.append(one)
    return found


async def output(sandbox: Sandbox, command: str) -> str:
    return (await sandbox.run(ShellCommand(command, timeout_seconds=20))).output


# ---------------------------------------------------------------- one sandbox per key


async def test_concurrent_callers_share_one_container(
    provider: DockerProvider, engine: DockerEngine, folder: Path, tmp_path: Path
) -> None:
    async def use() -> Sandbox:
        async with provider.acquire("t", folder) as sandbox:
            assert await output(sandbox, "echo here") == "here\n"
            return sandbox

    first, second = await asyncio.gather(use(), use())
    assert first is second
    assert len(await theirs(engine, tmp_path)) == 1


async def test_cancelling_one_caller_keeps_the_container_for_the_other(provider: DockerProvider, folder: Path) -> None:
    async def use() -> str:
        async with provider.acquire("t", folder) as sandbox:
            return await output(sandbox, "echo here")

    first, second = asyncio.create_task(use()), asyncio.create_task(use())
    await asyncio.sleep(0.05)
    first.cancel()
    assert await second == "here\n"
    assert first.cancelled()


async def test_destroying_during_the_start_leaves_nothing(
    provider: DockerProvider, engine: DockerEngine, folder: Path, tmp_path: Path
) -> None:
    await provider.check()
    for moment in (0.01, 0.1, 0.2):
        machine = LazySandbox(provider, "t", folder)
        waiting = asyncio.create_task(machine.get())
        await asyncio.sleep(moment)
        await provider.destroy("t")
        with contextlib.suppress(SandboxGone):
            assert (await waiting).gone, "it had started, on a fast machine"
        await machine.aclose()
    await provider.reap(0)
    assert await theirs(engine, tmp_path) == []


# ---------------------------------------------------------------- leftovers of a previous process

# Stop every process that starts here, as a command server could. The container belongs to this test.
AMBUSH = """
import os, signal, time
known = set(os.listdir("/proc"))
open("ready", "w")
while True:
    for pid in set(os.listdir("/proc")) - known:
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                os.kill(int(pid), signal.SIGSTOP)
            except OSError:
                pass
"""


async def test_processes_of_a_killed_service_cannot_reach_the_next_container(
    settings: DockerSettings, engine: DockerEngine, folder: Path, tmp_path: Path
) -> None:
    """Leftover processes cannot stop or imitate the new command server, because the container is new."""
    async with (
        docker_provider(settings) as killed,
        docker_provider(settings) as after,
        killed.acquire("t", folder) as sandbox,
    ):
        await sandbox.write(f"{WORKSPACE}/ambush.py", AMBUSH.encode())
        await sandbox.run(ShellCommand("python3 ambush.py & until [ -e ready ]; do :; done; echo kept > kept"))
        (old,) = await theirs(engine, tmp_path)
        async with after.acquire("t", folder) as fresh:
            (new,) = await theirs(engine, tmp_path)
            assert new.id != old.id
            assert new.name == old.name
            assert await output(fresh, "cat kept") == "kept\n"
            assert await output(fresh, "grep -lsz ambus[h] /proc/[0-9]*/cmdline; echo end") == "end\n"
        with pytest.raises(SandboxGone):
            await sandbox.run(ShellCommand("true"))


async def test_close_removes_containers_and_keeps_folders(
    settings: DockerSettings, engine: DockerEngine, folder: Path, tmp_path: Path
) -> None:
    before = DockerProvider(settings)
    async with before.acquire("t", folder) as sandbox:
        await sandbox.run(ShellCommand("echo kept > kept; sleep 7103 &"))
        running = asyncio.create_task(sandbox.run(ShellCommand("sleep 7103")))
        await asyncio.sleep(0)
        await before.close()
        with pytest.raises(SandboxGone):
            await running
    assert await theirs(engine, tmp_path) == []
    async with docker_provider(settings) as after, after.acquire("t", folder) as sandbox:
        assert await output(sandbox, "cat kept") == "kept\n"


async def test_leftover_containers_are_reaped_but_not_those_of_others(
    settings: DockerSettings, engine: DockerEngine, tmp_path: Path
) -> None:
    neighbour = docker_settings(tmp_path / "neighbour")
    async with docker_provider(settings) as killed, docker_provider(neighbour) as other:
        async with (
            docker_provider(settings) as after,
            killed.acquire("left", tmp_path / "left"),
            other.acquire("left", tmp_path / "neighbour" / "t") as its,
            after.acquire("t", tmp_path / "t") as used,
        ):
            assert await after.reap(3600) == []
            assert await after.reap(0) == ["left"]
            assert await output(its, "echo untouched") == "untouched\n"
            assert await output(used, "echo used") == "used\n"
        assert len(await theirs(engine, tmp_path)) == 1


async def test_two_services_with_the_same_path_on_one_engine_leave_each_others_containers(
    settings: DockerSettings, tmp_path: Path
) -> None:
    """Their machines have the same folders, and share the engine."""
    one, two = (replace(settings, service=name) for name in ("one", "two"))
    async with (
        docker_provider(one) as first,
        docker_provider(two) as second,
        first.acquire("t", tmp_path / "one") as its,
        second.acquire("t", tmp_path / "two") as other,
    ):
        assert await second.reap(0) == []
        assert await output(its, "echo untouched") == "untouched\n"
        assert await output(other, "echo untouched") == "untouched\n"
        async with docker_provider(one) as after:
            assert await after.reap(0) == ["t"]  # as what a killed process has left
        assert await output(other, "echo untouched") == "untouched\n"


# ---------------------------------------------------------------- the end of a sandbox during a command

End = Callable[[DockerEngine, str], Awaitable[None]]


async def kill(engine: DockerEngine, container: str) -> None:
    await engine.run_sdk(lambda client: client.kill(container))


async def remove(engine: DockerEngine, container: str) -> None:
    await engine.remove(container)


# Case 76 of docs/cases.md
@pytest.mark.parametrize(("end", "words"), [(kill, "stopped"), (remove, "(removed|stopped)")])
async def test_a_container_that_ends_during_a_command_is_replaced(
    provider: DockerProvider, engine: DockerEngine, folder: Path, tmp_path: Path, end: End, words: str
) -> None:
    async with provider.acquire("t", folder) as sandbox:
        await sandbox.write(f"{WORKSPACE}/kept", b"kept")
        running = asyncio.create_task(sandbox.run(ShellCommand("sleep 7104")))
        await asyncio.sleep(0.2)
        (container,) = await theirs(engine, tmp_path)
        await end(engine, container.id)
        with pytest.raises(SandboxGone, match=f"{words} from outside.*files are intact") as caught:
            await running
        assert sandbox.gone
        with pytest.raises(SandboxGone, match=words):
            await sandbox.run(ShellCommand("true"))
        assert container.id not in str(caught.value)
    async with provider.acquire("t", folder) as fresh:
        assert await fresh.read(f"{WORKSPACE}/kept") == b"kept"


# Case 76 of docs/cases.md
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start an engine: run the tests as root")
async def test_the_engine_may_restart(settings: DockerSettings, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="fawn-") as place:
        spare = SpareEngine(Path(place))
        await spare.start()
        await spare.take(IMAGE)
        async with docker_provider(replace(settings, host=spare.host)) as provider:
            async with provider.acquire("t", folder) as sandbox:
                running = asyncio.create_task(sandbox.run(ShellCommand("echo kept > kept; sleep 7105")))
                while not (folder / "workspace" / "kept").exists():
                    await asyncio.sleep(0.02)
                await spare.stop()
                with pytest.raises(SandboxGone, match=r"Docker engine stopped.*files are intact"):
                    await running
            for _ in range(2):
                with pytest.raises(SandboxUnavailable, match="no Docker engine"):
                    async with provider.acquire("t", folder):
                        pass
            assert await provider.reap(0) == []
            await spare.start()
            async with provider.acquire("t", folder) as fresh:
                assert await output(fresh, "cat kept") == "kept\n"
                assert await output(fresh, "grep -lsz 710[5] /proc/[0-9]*/cmdline; echo end") == "end\n"
        await spare.stop()


STOP = "for p in /proc/[0-9]*; do grep -q need $p/cmdline && kill -STOP ${p#/proc/}; done; echo stopped; sleep 600"


async def test_a_server_that_stops_reading_is_replaced(
    provider: DockerProvider, engine: DockerEngine, folder: Path, tmp_path: Path
) -> None:
    """It is stopped from inside during a large write. Closing does not wait for the write."""
    async with provider.acquire("t", folder) as sandbox:
        (old,) = await theirs(engine, tmp_path)
        await sandbox.write(f"{WORKSPACE}/stop", STOP.encode())
        running = asyncio.create_task(sandbox.run(ShellCommand("bash stop; sleep 600")))
        while "T (stopped)" not in await states(engine, old.id):
            await asyncio.sleep(0.05)
        writing = asyncio.create_task(sandbox.write(f"{WORKSPACE}/much", bytes(4 << 20)))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(SandboxGone):
            await writing
    async with asyncio.timeout(60), provider.acquire("t", folder) as fresh:
        assert await output(fresh, "echo fresh") == "fresh\n"
        (new,) = await theirs(engine, tmp_path)
        assert new.id != old.id


async def states(engine: DockerEngine, container: str) -> str:
    """Return the states of a container's processes, as seen from the host."""
    listed = await engine.run_sdk(lambda client: client.top(container, "-eo pid"))
    pids = [row[0] for row in listed["Processes"]]
    return "".join(Path(f"/proc/{pid}/status").read_text() for pid in pids if Path(f"/proc/{pid}").exists())


async def test_a_silent_server_leaves_no_container(
    settings: DockerSettings, engine: DockerEngine, folder: Path, tmp_path: Path
) -> None:
    place = "/usr/bin/python3"
    changes = f"RUN rm {place} && printf '#!/bin/sh\\nexec sleep 600\\n' > {place} && chmod 755 {place}"
    async with built(engine, changes) as tag, docker_provider(replace(settings, image=tag)) as provider:
        with pytest.raises(SandboxError, match="takes too long to start"):
            async with asyncio.timeout(60), provider.acquire("t", folder):
                pass
        assert await theirs(engine, tmp_path) == []


# ---------------------------------------------------------------- the limit of sandboxes


async def test_the_least_recently_used_container_is_evicted(settings: DockerSettings, tmp_path: Path) -> None:
    async with docker_provider(replace(settings, live=2)) as provider:

        async def use(name: str) -> Sandbox:
            async with provider.acquire(name, tmp_path / name) as sandbox:
                await sandbox.run(ShellCommand("true"))
                return sandbox

        a, b = await use("a"), await use("b")
        assert await use("a") is a
        async with provider.acquire("c", tmp_path / "c") as c:
            assert (a.gone, b.gone) == (False, True)
            async with provider.acquire("a", tmp_path / "a"):
                waiting = asyncio.create_task(use("d"))
                await asyncio.sleep(0.3)
                assert not waiting.done()
                assert await output(c, "echo c") == "c\n"
            await waiting
            assert (a.gone, c.gone) == (True, False)


async def test_a_full_pool_is_reported(tmp_path: Path) -> None:
    async with pair() as (sandbox, _), pair() as (second, _):
        sandboxes = iter([sandbox, second])

        async def start(_key: str, _folder: Path) -> StreamSandbox:
            return next(sandboxes)

        async def stop(_key: str, sandbox: StreamSandbox | None) -> None:
            assert sandbox
            await sandbox.close()

        pool = SandboxPool(start, stop, capacity=1, room_seconds=0.05)
        async with pool.acquire("a", tmp_path):
            with pytest.raises(SandboxError, match="All 1 sandboxes are in use"):
                async with pool.acquire("b", tmp_path):
                    pass
        async with pool.acquire("b", tmp_path):
            assert sandbox.gone
            assert pool.keys == {"b"}
        await pool.close()


async def test_a_start_waits_for_the_removal_of_its_predecessor(tmp_path: Path) -> None:
    async with pair() as (sandbox, _):
        removed = asyncio.Event()

        async def start(_key: str, _folder: Path) -> StreamSandbox:
            assert removed.is_set()
            return sandbox

        async def stop(_key: str, _sandbox: StreamSandbox | None) -> None:
            await asyncio.sleep(0.05)
            removed.set()

        async def use() -> StreamSandbox:
            async with pool.acquire("a", tmp_path) as machine:
                return machine

        pool = SandboxPool(start, stop, capacity=2)
        for _ in range(2):  # without a sandbox, and with one
            removed.clear()
            removal = asyncio.create_task(pool.destroy("a"))
            await asyncio.sleep(0)
            assert await use() is sandbox
            await removal
        await pool.close()


async def test_a_hanging_stop_does_not_block_a_new_sandbox(tmp_path: Path) -> None:
    async with pair() as (sandbox, _):

        async def start(_key: str, _folder: Path) -> StreamSandbox:
            return sandbox

        async def stop(_key: str, _sandbox: StreamSandbox | None) -> None:
            await asyncio.Event().wait()

        pool = SandboxPool(start, stop, capacity=2, stop_seconds=0.05)
        async with pool.acquire("a", tmp_path):
            pass
        async with asyncio.timeout(60):
            await pool.destroy("a")
            async with pool.acquire("a", tmp_path) as again:
                assert again is sandbox
            await pool.close()


# ---------------------------------------------------------------- choosing


@asynccontextmanager
async def chosen(kind: str, settings: DockerSettings) -> AsyncIterator[tuple[bool, str, str]]:
    """Return the provider's name, the sentence, and whether commands run."""
    provider, sentence, _why = await select_provider(kind, settings, measured())  # type: ignore[arg-type]  # any text, as in a test's parameter
    try:
        yield provider.runs_commands, provider.name, str(sentence)
    finally:
        await provider.reap(0)
        await provider.close()


async def test_auto_prefers_docker(settings: DockerSettings) -> None:
    async with chosen("auto", settings) as (commands, name, sentence):
        assert commands
        assert name == "docker"
        assert sentence == f"Docker, one isolated container of {IMAGE} per conversation, without network, {FILES}."


async def test_auto_without_the_image_reports_the_fix(settings: DockerSettings) -> None:
    need_bubblewrap()
    lacking = replace(settings, image="fawn-sandbox:not-there")
    provider, sentence, why = await select_provider("auto", lacking, measured())
    await provider.close()
    assert provider.name == "bubblewrap"
    assert str(sentence) == f"bubblewrap, one isolated sandbox per conversation, without network, {FILES}."
    assert str(why).endswith("The image fawn-sandbox:not-there does not exist: `fawn sandbox build` builds it.")
    with pytest.raises(SandboxUnavailable, match="fawn sandbox build"):
        async with chosen("docker", lacking):
            pass


async def test_docker_failures_are_reported(settings: DockerSettings, tmp_path: Path) -> None:
    deaf = tmp_path / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(deaf))
        for changed, words in (
            (
                replace(settings, host=f"unix://{tmp_path}/none.sock"),
                "no Docker engine here: `sudo systemctl start docker`",
            ),
            (replace(settings, host=f"unix://{deaf}"), r"does not answer .*`sudo systemctl start docker`"),
            (replace(settings, host="tcp://127.0.0.1:1"), r"does not answer .*refused"),
            (replace(settings, host="ssh://there"), "unix:// or tcp://"),
            (replace(settings, runtime="none-such"), "the runtime none-such"),
        ):
            with pytest.raises(SandboxUnavailable, match=words) as caught:
                async with chosen("docker", changed):
                    pass
            assert str(tmp_path) not in str(caught.value)


@asynccontextmanager
async def built(engine: DockerEngine, changes: str) -> AsyncIterator[str]:
    """Build an image from the tests' image with these lines, and remove it afterwards."""
    tag = f"fawn-sandbox:changed-{abs(hash(changes))}"
    await engine.build(build_context({"Dockerfile": f"FROM {IMAGE}\n{changes}\n".encode()}), tag, {}, lambda _: None)
    try:
        yield tag
    finally:
        await engine.run_sdk(lambda client: client.remove_image(tag, force=True))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("RUN rm -f /usr/bin/python3*", "lacks python3"),
        ("RUN rm -f /usr/bin/bash", '"bash": executable file not found'),
        ("RUN cp /usr/bin/true /usr/bin/bash", "stops at once"),
    ],
)
async def test_an_unusable_image_is_reported(
    settings: DockerSettings, engine: DockerEngine, changes: str, words: str
) -> None:
    async with built(engine, changes) as tag:
        with pytest.raises(SandboxUnavailable, match=words):
            async with chosen("docker", replace(settings, image=tag)):
                pass


async def test_a_foreign_image_works(settings: DockerSettings, engine: DockerEngine, folder: Path) -> None:
    """Its entry point is ignored, and its volume cannot evade the disk limit."""
    changes = 'ENTRYPOINT ["false"]\nUSER 0\nVOLUME /data\nHEALTHCHECK CMD false\nEXPOSE 80'
    async with (
        built(engine, changes) as tag,
        docker_provider(replace(settings, image=tag, tmp_mb=16)) as provider,
        provider.acquire("t", folder) as sandbox,
    ):
        assert await output(sandbox, "whoami; grep -c '^tmpfs /data tmpfs' /proc/mounts") == "agent\n1\n"
        assert "No space left" in await output(sandbox, "head -c 9M /dev/zero > /data/x")


# ---------------------------------------------------------------- many


async def test_120_sandboxes_at_once(settings: DockerSettings, tmp_path: Path) -> None:
    """90 of bubblewrap and 30 containers, more than the SDK's connection pool. Each runs a command that ends only when
    all of them run."""
    need_bubblewrap()
    local = BubblewrapProvider(SandboxSettings(settings.skills))
    async with docker_provider(settings) as docker, AsyncExitStack() as stack:
        stack.push_async_callback(local.close)
        here = asyncio.Barrier(120)

        async def use(number: int) -> str:
            provider: SandboxProvider = local if number % 4 else docker
            key = f"t{number}"
            sandbox = await stack.enter_async_context(provider.acquire(key, tmp_path / key))
            begun = asyncio.Event()

            async def seen(_: str) -> None:
                begun.set()

            wait = f"mkfifo go; echo {number}; cat go; cat {OUTPUTS}/n"
            running = asyncio.create_task(sandbox.run(ShellCommand(wait, timeout_seconds=120, on_output=seen)))
            await begun.wait()
            await here.wait()
            await sandbox.run(
                ShellCommand(f"echo {number} > {OUTPUTS}/n; echo {-number} > go", cwd=WORKSPACE, timeout_seconds=60)
            )
            return (await running).output

        said = await asyncio.gather(*(use(i) for i in range(120)))
        assert said == [f"{i}\n{-i}\n{i}\n" for i in range(120)]


async def test_acquiring_during_a_reap_starts_a_new_container(provider: DockerProvider, folder: Path) -> None:
    """The old name is taken until the container is removed; a caller never gets a stopping sandbox."""
    for _ in range(3):
        async with provider.acquire("t", folder) as first:
            await first.run(ShellCommand("true"))
        reaping = asyncio.create_task(provider.reap(0))
        await asyncio.sleep(0.01)
        async with provider.acquire("t", folder) as second:
            assert second is not first
            assert await output(second, "sleep 0.3; echo lives") == "lives\n"
        await reaping
