"""The Docker provider: one container per thread, with the command server on the stream of one exec.

A container is named after its thread and ends with the service; its folders stay. One that a killed service left is
never used again: what runs in it could stop the new command server, or answer for it. It is removed when its thread
comes back, or after the idle time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandbox.base import (
    FOLDERS,
    OUTPUTS,
    UPLOADS,
    Sandbox,
    SandboxError,
    SandboxFileError,
    SandboxGone,
    SandboxUnavailable,
)
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.removal import remove_tree
from sandbox.docker.capabilities import bound_sockets, probe_engine
from sandbox.docker.client import DockerEngine, NameTaken, NotInEngine
from sandbox.docker.host_paths import HostPaths, find_host_paths
from sandbox.docker.spec import DockerSettings, EngineSite, account_files, container_config
from sandbox.docker.stream import ContainerStream, wrap_socket
from sandbox.network.proxy import Ends
from sandbox.network.service import EgressService
from sandbox.pool import SandboxPool
from sandbox.users import SandboxUsers
from sandbox.wire.client import StreamSandbox
from sandbox.wire.connection import SERVER_COMMAND

log = logging.getLogger(__name__)

MAX_PARALLEL_STARTS = 4  # at once: more only makes the engine slower
START_SECONDS = 60.0  # for the engine to make a container
HELLO_SECONDS = 10.0  # for the command server in it to answer
MAX_TRIES = 20  # for a name that somebody else makes or removes in the same moment
INSTANCE, KEY = "fawn.instance", "fawn.key"
CANNOT_RUN_CODES = (126, 127)
# Kills by the kernel for want of memory, since the sandbox began: cgroup v1 and v2 as seen from inside.
OOM_COUNTERS = ("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events")


class DockerSandbox(StreamSandbox):
    """A container."""

    async def kills(self) -> int:
        for path in OOM_COUNTERS:
            try:
                text = (await self.read(path)).decode("ascii", "replace")
            except SandboxError:
                continue
            fields = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
            if (count := fields.get("oom_kill", "")[:18]).isdigit():
                return int(count)
        return 0


@dataclass(frozen=True, slots=True)
class _EngineFacts:
    """What does not change while the engine is the same."""

    site: EngineSite
    places: HostPaths
    users: SandboxUsers
    instance: str
    skills: Path | None


class DockerProvider:
    """See `SandboxProvider`."""

    name = "docker"
    runs_commands = True

    def __init__(self, settings: DockerSettings, egress: EgressService | None = None) -> None:
        self._settings = settings
        self._egress = egress or EgressService(settings.network, settings.state / "egress")
        self._engine = DockerEngine(settings.host)
        self._pool = SandboxPool(self._start_sandbox, self._stop_sandbox, settings.live)
        self._starts = asyncio.Semaphore(MAX_PARALLEL_STARTS)
        self._surveying = asyncio.Lock()
        self._found: _EngineFacts | None = None
        self._strangers: dict[str, float] = {}

    async def check(self) -> None:
        """Start a container that has to see and change a file of ours. Raises SandboxUnavailable with the fix."""
        key = f"check-{secrets.token_hex(8)}"
        folder = self._settings.state / key
        try:
            await asyncio.to_thread(self._remove_probe_folder, folder)
            async with self.acquire(key, folder) as sandbox:
                await sandbox.write(f"{OUTPUTS}/answer", await sandbox.read(f"{UPLOADS}/question"))
            answer = await asyncio.to_thread(safe_files.read_file, folder / "outputs", "answer", 100)
        except SandboxFileError as error:
            raise SandboxUnavailable(
                f"A container does not see what Fawn writes ({error}): the Docker engine must run on this machine."
            ) from error
        except SandboxGone as error:
            raise SandboxUnavailable(f"A container of {self._settings.image} stops at once: {error}") from error
        except SandboxUnavailable:
            raise
        except SandboxError as error:
            raise SandboxUnavailable(f"No container can be started: {error}") from error
        finally:
            await self.destroy(key)
            await run_file_work(remove_tree, folder)
        if answer != b"seen":
            raise SandboxUnavailable("A container changes what Fawn writes: is its data on a local disk?")

    def _remove_probe_folder(self, folder: Path) -> None:
        safe_files.make_folders(folder)
        safe_files.write_file(folder / "uploads", "question", b"seen")

    def acquire(self, key: str, folder: Path) -> AbstractAsyncContextManager[Sandbox]:
        """See `SandboxProvider.acquire`."""
        return self._pool.acquire(key, folder)

    @asynccontextmanager
    async def dial(self, key: str, folder: Path, port: int) -> AsyncIterator[Ends]:
        """See `sandbox.disk.quota.PortDialer`."""
        async with self._pool.acquire(key, folder) as machine, self._egress.dial(key, machine, port) as ends:
            yield ends

    async def reap(self, idle: float) -> list[str]:
        """See `SandboxProvider.reap`. Containers that another life of this service left are idle from when they are
        first seen."""
        keys = await self._pool.reap(idle)
        try:
            return keys + await self._reap_leftovers(idle)
        except SandboxError as error:
            log.warning("sandbox.reap %s", error)
            return keys

    async def _reap_leftovers(self, idle: float) -> list[str]:
        now = time.monotonic()
        instance = (await self._engine_facts()).instance
        found = await self._engine.list_labelled(f"{INSTANCE}={instance}")
        ours = {self._container_name(instance, key) for key in self._pool.keys}
        self._strangers = {one.id: self._strangers.get(one.id, now) for one in found if one.name not in ours}
        gone = [one for one in found if self._strangers.get(one.id, now) <= now - idle and one.name not in ours]
        keys = [one.labels[KEY] for one in gone]
        await asyncio.gather(*(self.destroy(key) for key in keys if key not in self._pool.keys))
        return keys

    async def destroy(self, key: str) -> None:
        """See `SandboxProvider.destroy`."""
        await self._pool.stop_now(key)

    async def close(self) -> None:
        """See `SandboxProvider.close`."""
        await self._pool.close()
        await self._egress.aclose()
        await self._engine.close()

    # ------------------------------------------------------------ starting

    async def _engine_facts(self) -> _EngineFacts:
        async with self._surveying:
            if self._found is None:
                site = await probe_engine(self._engine, self._settings)
                places = await find_host_paths(self._engine)
                await asyncio.to_thread(self._settings.state.mkdir, 0o711, parents=True, exist_ok=True)
                identity = hashlib.sha256(places.host_path(self._settings.state).encode()).hexdigest()[:16]
                shelf = self._settings.state / "skills"
                skills = await asyncio.to_thread(places.share_folder, self._settings.skills, shelf)
                self._found = _EngineFacts(site, places, SandboxUsers(site.shift or 0), identity, skills)
            return self._found

    @staticmethod
    def _container_name(instance: str, key: str) -> str:
        return "fawn-" + hashlib.sha256(f"{instance}\0{key}".encode()).hexdigest()[:20]

    async def _start_sandbox(self, key: str, folder: Path) -> DockerSandbox:
        """A new container, with a command server in it."""
        try:
            async with self._starts, asyncio.timeout(START_SECONDS):
                known = await self._engine_facts()
                config = await self._container_config(known, key, folder)
                return await self._attach_server(
                    await self._create_container(self._container_name(known.instance, key), config), key
                )
        except BaseException as error:
            await self._stop_sandbox(key, None)
            if isinstance(error, TimeoutError):
                raise SandboxError("The Docker engine takes too long to start a sandbox: try again.") from error
            raise

    async def _container_config(self, known: _EngineFacts, key: str, folder: Path) -> dict[str, Any]:
        try:
            image, volumes = await self._engine.image_info(self._settings.image)
        except NotInEngine:
            raise SandboxUnavailable(
                f"The image {self._settings.image} is not there: `fawn sandbox build` makes it."
            ) from None
        door = await self._egress.open(key)
        site, paths = await asyncio.to_thread(self._prepare_folders, known, key, folder, door)
        sources = await asyncio.to_thread(lambda: {name: known.places.host_path(path) for name, path in paths.items()})
        config = container_config(self._settings, site, image, volumes, sources)
        config["Labels"] = {INSTANCE: known.instance, KEY: key}
        return config

    def _prepare_folders(
        self, known: _EngineFacts, key: str, folder: Path, door: Path
    ) -> tuple[EngineSite, dict[str, Path]]:
        """Make the thread's folders, and the accounts of its container; gives what is to be bound, by name."""
        site, owner, shift = known.site, None, known.site.shift
        if shift is not None:
            user = known.users.assign_user(key, folder)
            site, owner = replace(site, user=user, group=user), user + shift
        safe_files.make_folders(folder, owner)
        paths = {name: folder / name for name in FOLDERS} | {"door": door}
        for name, content in account_files(site.user, site.group).items():
            paths[name] = self._settings.state / f"{name}-{site.user}"
            if not paths[name].exists() or paths[name].read_text() != content:
                paths[name].write_text(content)
                paths[name].chmod(0o644)
        if known.skills:
            paths["skills"] = known.skills
        return site, paths

    async def _create_container(self, name: str, config: Mapping[str, Any]) -> str:
        """A new container, running."""
        for _ in range(MAX_TRIES):
            try:
                container = await self._engine.create(name, config)
            except NameTaken:
                log.info("sandbox.replaced container=%s", name)
                await self._engine.remove(name)
                await asyncio.sleep(0.1)  # it may have been under way
                continue
            try:
                await self._engine.start(container)
                if os.geteuid() == 0:
                    pid = (await self._engine.inspect(container)).pid
                    await asyncio.to_thread(bound_sockets, container, pid)
            except SandboxError:
                await self._engine.remove(container)
                raise
            return container
        raise SandboxError("The sandbox could not be started: its container is being removed. Try again.")

    async def _attach_server(self, container: str, key: str) -> DockerSandbox:
        """Start the command server in it. Raises SandboxUnavailable with the reason when that cannot work."""
        program = ""
        try:
            connection, program = await self._engine.open_exec(container, SERVER_COMMAND)
            stream = ContainerStream(*await wrap_socket(connection), self._engine, container)
            sandbox = DockerSandbox(stream, key, self._settings)
            try:
                async with asyncio.timeout(HELLO_SECONDS):
                    await sandbox.start()
            except BaseException:
                await sandbox.close()
                raise
        except SandboxUnavailable:
            raise
        except SandboxError as error:  # perhaps only because it is not running (any more)
            found = await self._engine.inspect_ended(container)
            if not found.running:
                reason = f"its container stops at once ({found.error or 'no reason given'})."
                raise SandboxUnavailable(f"The sandbox did not start: {reason}") from error
            if program and await self._engine.exit_code(program) in CANNOT_RUN_CODES:
                raise SandboxUnavailable(f"The image {self._settings.image} lacks python3.") from error
            raise
        stream.removes = True
        return sandbox

    async def _stop_sandbox(self, key: str, sandbox: DockerSandbox | None) -> None:
        """Remove its container, and what the service keeps for it."""
        try:
            if sandbox:
                await sandbox.close()
            elif self._found:
                await self._engine.remove(self._container_name(self._found.instance, key))
        except SandboxError as error:
            log.warning("sandbox.left key=%s: %s", key, error)
        await self._egress.close(key)
        if self._found:
            self._found.users.release_user(key)
