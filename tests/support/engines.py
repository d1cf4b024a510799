"""Engines that a test requires and a machine may lack: bubblewrap, Docker, loop images."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.base import SandboxError, SandboxUnavailable
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.docker.client import DockerEngine, NotInEngine
from sandbox.docker.provider import DockerProvider
from sandbox.docker.spec import DockerSettings
from sandbox.network.service import EgressService
from sandbox.settings import SandboxSettings

IMAGE = "fawn-sandbox:test"
HOST = "unix:///var/run/docker.sock"
SCRIPTS = Path(__file__).parents[2] / "packaging"
SKILL_PACKAGES = Path(__file__).parents[2] / ".venv/skill-packages"


def _problem(probe: Callable[[], Awaitable[None]]) -> str:
    """Return why something does not work here, with the fix; "" if it works."""
    problems: list[str] = []

    async def run() -> None:
        try:
            await probe()
        except SandboxUnavailable as error:
            problems.append(str(error))

    # A loop of its own: the test that asks may already be inside one.
    thread = threading.Thread(target=lambda: asyncio.run(run()), name="probe")
    thread.start()
    thread.join()
    return "".join(problems)


@functools.cache
def bubblewrap_problem() -> str:
    """Return why bubblewrap does not work here, with the fix; "" if it works."""

    async def probe() -> None:
        provider = BubblewrapProvider(SandboxSettings(Path("skills")))
        try:
            await provider.check()
        finally:
            await provider.close()

    return _problem(probe)


@functools.cache
def docker_problem() -> str:
    """Return why Docker does not work here, with the fix; "" if it works and the test image exists."""

    async def probe() -> None:
        engine = DockerEngine(HOST)
        try:
            await engine.image_info(IMAGE)
        except NotInEngine:
            made = await asyncio.to_thread(subprocess.run, [SCRIPTS / "test-image"], capture_output=True, text=True)
            if made.returncode:
                raise SandboxUnavailable(f"packaging/test-image failed: {made.stderr}") from None
        except SandboxUnavailable as error:
            raise SandboxUnavailable(f"{error} (on Debian: packaging/engine)") from error
        finally:
            await engine.close()

    return _problem(probe)


def need(problem: str) -> None:
    """Skip the test, or fail it if FAWN_REQUIRE_ENGINES=1 forbids skipping."""
    if problem:
        if os.environ.get("FAWN_REQUIRE_ENGINES") == "1":
            pytest.fail(problem)
        pytest.skip(problem)


def need_program(name: str, package: str) -> None:
    """For tests that run a program of Debian."""
    need("" if shutil.which(name) else f"{name} is not there: apt-get install {package}")


def need_module(name: str, how: str) -> Any:
    """Return an optional module for tests that use it."""
    need("" if importlib.util.find_spec(name) else f"{name} is not there: {how}")
    return importlib.import_module(name)


def need_bubblewrap() -> None:
    """For tests that run commands in bubblewrap."""
    need(bubblewrap_problem())


def need_transfer_programs() -> None:
    """For tests that run curl and wget."""
    missing = [name for name in ("curl", "wget") if shutil.which(name) is None]
    need(f"{' and '.join(missing)} missing: install it" if missing else "")


def need_docker() -> None:
    """For tests that run commands in a container."""
    need(docker_problem())


@functools.cache
def mounts_problem() -> str:
    """Return why this process cannot mount file systems; "" if it can."""
    with tempfile.TemporaryDirectory(prefix="fawn-") as folder:
        try:
            with _mounted_image(Path(folder), 16):
                return ""
        except (OSError, subprocess.CalledProcessError) as error:
            return f"File systems cannot be mounted here ({error}): run as root, with mount and e2fsprogs"


def need_mounts() -> None:
    """For tests with a file system of their own."""
    need(mounts_problem())


def need_chromium() -> None:
    """For tests that look at a page in a browser."""
    need("" if shutil.which("chromium") else "Chromium is not there (on Debian: apt install chromium)")


def need_ffmpeg() -> None:
    """For tests of recordings: the system's ffmpeg, or that of imageio-ffmpeg among the packages of the skills."""
    there = shutil.which("ffmpeg", path="/usr/local/bin:/usr/bin") or (SKILL_PACKAGES / "imageio_ffmpeg").is_dir()
    need("" if there else "ffmpeg is not there (on Debian: apt install ffmpeg)")


def need_skill_packages() -> None:
    """For tests of skills whose scripts import packages inside the sandbox."""
    need("" if SKILL_PACKAGES.is_dir() else "The packages of the shipped skills are not installed: make dev")


def measured(size_mb: int = 1000) -> ConversationFolders:
    """Plain folders, as by default."""
    return ConversationFolders(Path(), size_mb)


@contextmanager
def unmounted(folder: Path) -> Iterator[None]:
    """Unmount everything below `folder` on exit."""
    try:
        yield
    finally:
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            place = line.split(" ")[1].replace("\\040", " ")
            if Path(place).is_relative_to(folder):
                subprocess.run(["umount", "--lazy", place], check=True)


def docker_settings(folder: Path, **more: Any) -> DockerSettings:
    """Return settings with data below `folder`, which distinguishes their containers from all others."""
    return DockerSettings(folder / "skills", state=folder / "state", **{"image": IMAGE, "host": HOST, **more})


@asynccontextmanager
async def docker_provider(
    settings: DockerSettings, egress: EgressService | None = None
) -> AsyncIterator[DockerProvider]:
    """Yield a provider; on exit remove its containers, and only those."""
    need_docker()
    made = DockerProvider(settings, egress)
    try:
        yield made
    finally:
        await made.reap(0)
        await made.close()


class SpareEngine:
    """An engine that can be stopped and started, in its own network. Needs root, and a folder with a short path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.host = f"unix://{folder}/sock"

    async def start(self) -> None:
        place = self._folder
        with (place / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                "unshare", "--net", "dockerd", "--host", self.host, "--data-root", place / "data", "--exec-root",
                place / "exec", "--pidfile", place / "pid", stdout=log, stderr=log,
            )  # fmt: skip
        engine = DockerEngine(self.host)
        async with asyncio.timeout(60):
            while True:
                try:
                    await engine.engine_info()
                except SandboxError:
                    assert self._process.returncode is None, (place / "log").read_text()[-2000:]
                    await asyncio.sleep(0.1)
                else:
                    break
        await engine.close()

    async def take(self, image: str) -> None:
        """Copy an image from the usual engine."""
        copy = f"docker --host {HOST} save {image} | docker --host {self.host} load"
        process = await asyncio.create_subprocess_shell(copy, stdout=asyncio.subprocess.DEVNULL)
        assert await process.wait() == 0

    async def stop(self) -> None:
        """Stop it as an operator does: containers end too."""
        self._process.terminate()
        await self._process.wait()


class EngineSocket:
    """A socket in front of the engine that can disappear and return, like an engine that is restarted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    @property
    def host(self) -> str:
        return f"unix://{self._path}"

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def stop(self) -> None:
        """Refuse new connections and close all open ones."""
        assert self._server
        self._server.close()
        for client in list(self._clients):
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients)
        self._path.unlink(missing_ok=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.create_task(self._carry(reader, writer), name="front")
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)
        client.add_done_callback(lambda _: writer.close())  # also of one that was cancelled before it started

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine_writer = await asyncio.open_unix_connection(HOST.removeprefix("unix://"))

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()

        ways = [asyncio.create_task(pump(reader, engine_writer)), asyncio.create_task(pump(engine_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            engine_writer.close()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as an unprivileged user, also if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """`folder`/data as a file system of its own; skips where none can be mounted."""
    need_mounts()
    with _mounted_image(folder, megabytes) as place:
        yield place


@contextmanager
def _mounted_image(folder: Path, megabytes: int) -> Iterator[Path]:
    image, place = folder / "disk.img", folder / "data"
    place.mkdir()
    subprocess.run(["truncate", "-s", f"{megabytes}M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    with unmounted(folder):
        subprocess.run(["mount", "-o", "loop", image, place], check=True)
        yield place
