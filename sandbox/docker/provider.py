"""The Docker provider: one container per conversation.

The command server runs on the stream of one exec. The service removes its containers when it stops; their folders
stay. It never reuses a container of a killed service, because processes in it could stop or imitate the new command
server. Such a container is removed when its conversation continues, or after the idle time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from catalogue import N_, LazyText
from sandbox.base import (
    FOLDERS,
    NO_REASON,
    SandboxError,
    SandboxFileError,
    SandboxGone,
    SandboxUnavailable,
)
from sandbox.disk import safe_files
from sandbox.docker.capabilities import limit_socket_memory, probe_engine
from sandbox.docker.client import DockerEngine, NameTaken, NotInEngine
from sandbox.docker.host_paths import HostPaths, find_host_paths
from sandbox.docker.spec import INSTANCE, KEY, DockerSettings, EngineSite, container_config
from sandbox.docker.stream import ContainerStream, wrap_socket
from sandbox.network.service import EgressService
from sandbox.pool.pool import EnginePool
from sandbox.settings import parse_oom_kills
from sandbox.users import SandboxUsers, account_files
from sandbox.wire.client import StreamSandbox
from sandbox.wire.connection import SERVER_COMMAND

log = logging.getLogger(__name__)

MAX_PARALLEL_STARTS = 4  # more only slow the engine down
START_SECONDS = 60.0  # for the engine to create a container
HELLO_SECONDS = 10.0  # for the command server to answer
MAX_TRIES = 20  # for a name that another process uses or removes meanwhile
CANNOT_RUN_CODES = (126, 127)
# Kills for lack of memory since the sandbox began, in cgroup v1 and v2 as seen from inside.
OOM_COUNTERS = ("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events")


class DockerSandbox(StreamSandbox):
    """A sandbox in a container."""

    async def oom_kills(self) -> int:
        for path in OOM_COUNTERS:
            try:
                text = (await self.read(path)).decode("ascii", "replace")
            except SandboxError:
                continue
            if (count := parse_oom_kills(text)) is not None:
                return count
        return 0


@dataclass(frozen=True, slots=True)
class _EngineFacts:
    """Facts that stay the same while the engine does."""

    site: EngineSite
    host_paths: HostPaths
    users: SandboxUsers
    instance: str
    skills: Path | None


class DockerProvider(EnginePool[DockerSandbox]):
    """Runs sandboxes as containers. See `SandboxProvider`."""

    name = "docker"
    runs_commands = True

    def __init__(self, settings: DockerSettings, egress: EgressService | None = None) -> None:
        egress = egress or EgressService(settings.network, settings.state / "egress", report=settings.report_egress)
        super().__init__(self._start_sandbox, self._stop_sandbox, settings.live, egress)
        self._settings = settings
        self._engine = DockerEngine(settings.host)
        self._starts = asyncio.Semaphore(MAX_PARALLEL_STARTS)
        self._facts_lock = asyncio.Lock()
        self._facts: _EngineFacts | None = None
        self._leftovers: dict[str, float] = {}

    async def check(self) -> None:
        """Start a container that reads and writes a file of the service. Raises SandboxUnavailable with the fix."""
        try:
            is_same = await self._exchange_file(self._settings.state)
        except SandboxFileError as error:
            text = N_("A container does not see Fawn's files ({error}): the Docker engine must run on this machine.")
            raise SandboxUnavailable(text, error=error) from error
        except SandboxGone as error:
            text = N_("A container of {image} stops at once: {error}")
            raise SandboxUnavailable(text, image=self._settings.image, error=error) from error
        except SandboxUnavailable:
            raise
        except SandboxError as error:
            raise SandboxUnavailable(N_("No container can be started: {error}"), error=error) from error
        if not is_same:
            text = N_("A container reads other content than Fawn wrote: is the data of Fawn on a local disk?")
            raise SandboxUnavailable(text)

    async def _reap_leftovers(self, idle: float) -> list[str]:
        now = time.monotonic()
        instance = (await self._engine_facts()).instance
        found = await self._engine.list_labelled(f"{INSTANCE}={instance}")
        ours = {self._container_name(instance, key) for key in self.keys}
        self._leftovers = {one.id: self._leftovers.get(one.id, now) for one in found if one.name not in ours}
        gone = [one for one in found if self._leftovers.get(one.id, now) <= now - idle and one.name not in ours]
        keys = [one.labels[KEY] for one in gone]
        await asyncio.gather(*(self.destroy(key) for key in keys if key not in self.keys))
        return keys

    async def close(self) -> None:
        await super().close()
        await self._engine.close()

    async def _engine_facts(self) -> _EngineFacts:
        async with self._facts_lock:
            if self._facts is None:
                site = await probe_engine(self._engine, self._settings)
                places = await find_host_paths(self._engine)
                await asyncio.to_thread(self._settings.state.mkdir, 0o711, parents=True, exist_ok=True)
                named = "\0".join(filter(None, (places.host_path(self._settings.state), self._settings.service)))
                identity = hashlib.sha256(named.encode()).hexdigest()[:16]
                shelf = self._settings.state / "skills"
                skills = await asyncio.to_thread(places.share_folder, self._settings.skills, shelf)
                self._facts = _EngineFacts(site, places, SandboxUsers(site.shift or 0), identity, skills)
            return self._facts

    @staticmethod
    def _container_name(instance: str, key: str) -> str:
        return "fawn-" + hashlib.sha256(f"{instance}\0{key}".encode()).hexdigest()[:20]

    async def _start_sandbox(self, key: str, folder: Path) -> DockerSandbox:
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
                raise SandboxError(N_("The Docker engine takes too long to start a sandbox: try again.")) from error
            raise

    async def _container_config(self, known: _EngineFacts, key: str, folder: Path) -> dict[str, Any]:
        try:
            image, volumes = await self._engine.image_info(self._settings.image)
        except NotInEngine:
            text = N_("The image {image} does not exist: `fawn sandbox build` builds it.")
            raise SandboxUnavailable(text, image=self._settings.image) from None
        egress = await self._egress.open_proxy(key)
        site, paths = await asyncio.to_thread(self._prepare_folders, known, key, folder, egress)
        host_path = known.host_paths.host_path
        sources = await asyncio.to_thread(lambda: {name: host_path(path) for name, path in paths.items()})
        config = container_config(self._settings, site, image, volumes, sources)
        config["Labels"] = {INSTANCE: known.instance, KEY: key}
        return config

    def _prepare_folders(
        self, known: _EngineFacts, key: str, folder: Path, egress: Path
    ) -> tuple[EngineSite, dict[str, Path]]:
        """Make the conversation's folders and account files. Returns the paths to mount, by name."""
        site, owner, shift = known.site, None, known.site.shift
        if shift is not None:
            user = known.users.assign_user(key, folder)
            site, owner = replace(site, user=user, group=user), user + shift
        safe_files.make_folders(folder, owner)
        paths = {name: folder / name for name in FOLDERS} | {"egress": egress}
        for name, content in account_files(site.user, site.group).items():
            paths[name] = self._settings.state / f"{name}-{site.user}"
            if not paths[name].exists() or paths[name].read_text() != content:
                paths[name].write_text(content)
                paths[name].chmod(0o644)
        if known.skills:
            paths["skills"] = known.skills
        return site, paths

    async def _create_container(self, name: str, config: Mapping[str, Any]) -> str:
        """Create and start a container."""
        for _ in range(MAX_TRIES):
            try:
                container = await self._engine.create(name, config)
            except NameTaken:
                log.info("sandbox.replaced container=%s", name)
                await self._engine.remove(name)
                await asyncio.sleep(0.1)  # its removal may be under way
                continue
            try:
                await self._engine.start(container)
                if os.geteuid() == 0:
                    pid = (await self._engine.inspect(container)).pid
                    await asyncio.to_thread(limit_socket_memory, container, pid)
            except SandboxError:
                await self._engine.remove(container)
                raise
            return container
        raise SandboxError(N_("The sandbox could not be started: its container is being removed. Try again."))

    async def _attach_server(self, container: str, key: str) -> DockerSandbox:
        """Start the command server. Raises SandboxUnavailable if it cannot run in this image."""
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
        except SandboxError as error:  # perhaps because it is not running any more
            found = await self._engine.inspect_ended(container)
            if not found.running:
                text = N_("The sandbox did not start: its container stops at once ({reason}).")
                raise SandboxUnavailable(text, reason=found.error or LazyText(NO_REASON)) from error
            if program and await self._engine.exit_code(program) in CANNOT_RUN_CODES:
                raise SandboxUnavailable(N_("The image {image} lacks python3."), image=self._settings.image) from error
            raise
        stream.removes = True
        return sandbox

    async def _stop_sandbox(self, key: str, sandbox: DockerSandbox | None) -> None:
        """Remove the container, its proxy and its user."""
        try:
            if sandbox:
                await sandbox.close()
            elif self._facts:
                await self._engine.remove(self._container_name(self._facts.instance, key))
        except SandboxError as error:
            log.warning("sandbox.left key=%s reason=%s", key, error)
        await self._egress.close_proxy(key)
        if self._facts:
            self._facts.users.release_user(key)
