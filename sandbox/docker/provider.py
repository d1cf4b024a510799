"""The Docker provider: one container per thread, with the command server on the stream of one exec.

A container is named after its thread and labelled with what it was made of, so that it is found again after a restart
of the service, with the servers that run in it, and made anew when image or settings changed. Its folders stay.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.base import FOLDERS, OUTPUTS, UPLOADS, FileFault, Gone, Sandbox, SandboxError, SandboxUnavailable
from sandbox.disk import safe_files
from sandbox.disk.file_threads import file_work
from sandbox.disk.removal import remove_tree
from sandbox.docker.capabilities import survey
from sandbox.docker.client import Engine, ExecStream, Missing, Taken, wrap
from sandbox.docker.host_paths import Places, find_places
from sandbox.docker.spec import DockerSettings, Site, accounts, configuration, fingerprint
from sandbox.network.proxy import Ends
from sandbox.network.service import Egress
from sandbox.pool import Keeper
from sandbox.wire.client import StreamSandbox
from sandbox.wire.connection import DEAD, INTACT, PROGRAM

log = logging.getLogger(__name__)

STARTS = 4  # at once: more only makes the engine slower
START_SECONDS = 60.0
WHY_SECONDS = 5.0
TRIES = 20  # for a name that somebody else makes or removes in the same moment
INSTANCE, KEY, SPEC = "fawn.instance", "fawn.key", "fawn.spec"
CANNOT_RUN = (126, 127)
# Kills by the kernel for want of memory, since the sandbox began: cgroup v1 and v2 as seen from inside.
COUNTERS = ("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events")


class Tether(ExecStream):
    """The stream of a container; closing it removes the container, unless it is to be found again."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: Engine, container: str
    ) -> None:
        super().__init__(reader, writer)
        self._engine, self._container = engine, container
        self._closed = False
        self.keep = False  # leave the container alone

    async def read(self) -> bytes:
        """As `Stream.read`; raises Gone with the reason when the container ended."""
        data = await super().read()
        if not data and not self._closed:
            raise Gone(await self._why())
        return data

    async def _why(self) -> str:
        try:
            async with asyncio.timeout(WHY_SECONDS):
                found = await self._engine.after(self._container)
        except Missing:
            return f"The sandbox was removed from outside. {INTACT}"
        except (SandboxError, TimeoutError):
            return f"The Docker engine stopped, and the sandbox with it. {INTACT}"
        if found.memory_ran_out:
            return f"The sandbox ran out of memory and was stopped. {INTACT}"
        if not found.running:
            return f"The sandbox's container was stopped from outside. {INTACT}"
        log.info("sandbox.ended said=%r", self.complaint[-300:])
        return DEAD

    async def close(self) -> None:
        """Hang up, and remove the container."""
        self._closed = True
        await super().close()
        if not self.keep:
            try:
                await self._engine.remove(self._container)
            except SandboxError as error:
                log.warning("sandbox.left container=%s: %s", self._container[:12], error)  # `reap` finds it
                self.keep = True


class Computer(StreamSandbox):
    """A container."""

    def __init__(self, tether: Tether, name: str, settings: DockerSettings) -> None:
        super().__init__(tether, name, settings)
        self.tether = tether

    async def begin(self, *, known: bool) -> None:
        """Start the server; `known`: the container has a past."""
        await self.start()
        if known:
            self._kills = await self.kills()

    async def kills(self) -> int:
        for path in COUNTERS:
            try:
                text = (await self.read(path)).decode("ascii", "replace")
            except SandboxError:
                continue
            fields = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
            if (count := fields.get("oom_kill", "")[:18]).isdigit():
                return int(count)
        return 0


@dataclass(frozen=True, slots=True)
class _Known:
    """What does not change while the engine is the same."""

    site: Site
    places: Places
    instance: str
    skills: Path | None


class Docker:
    """See `SandboxProvider`."""

    name = "docker"
    runs_commands = True

    def __init__(self, settings: DockerSettings, egress: Egress | None = None) -> None:
        self._settings = settings
        self._egress = egress or Egress(settings.network, settings.state / "egress")
        self._engine = Engine(settings.host)
        self._keeper = Keeper(self._start, self._stop, settings.live)
        self._starts = asyncio.Semaphore(STARTS)
        self._surveying = asyncio.Lock()
        self._found: _Known | None = None
        self._strangers: dict[str, float] = {}
        self._closing = False

    async def check(self) -> None:
        """Start a container that has to see and change a file of ours. Raises SandboxUnavailable with the fix."""
        key = f"check-{secrets.token_hex(8)}"
        folder = self._settings.state / key
        try:
            await asyncio.to_thread(self._leave, folder)
            async with self.acquire(key, folder) as sandbox:
                await sandbox.write(f"{OUTPUTS}/answer", await sandbox.read(f"{UPLOADS}/question"))
            answer = await asyncio.to_thread(safe_files.read_file, folder / "outputs", "answer", 100)
        except FileFault as error:
            raise SandboxUnavailable(
                f"A container does not see what Fawn writes ({error}): the Docker engine must run on this machine."
            ) from error
        except Gone as error:
            raise SandboxUnavailable(f"A container of {self._settings.image} stops at once: {error}") from error
        except SandboxUnavailable:
            raise
        except SandboxError as error:
            raise SandboxUnavailable(f"No container can be started: {error}") from error
        finally:
            await self.destroy(key)
            await file_work(remove_tree, folder)
        if answer != b"seen":
            raise SandboxUnavailable("A container changes what Fawn writes: is its data on a local disk?")

    def _leave(self, folder: Path) -> None:
        safe_files.make_folders(folder)
        safe_files.write_file(folder / "uploads", "question", b"seen")

    def acquire(self, key: str, folder: Path) -> AbstractAsyncContextManager[Sandbox]:
        """See `SandboxProvider.acquire`."""
        return self._keeper.acquire(key, folder)

    @asynccontextmanager
    async def dial(self, key: str, folder: Path, port: int) -> AsyncIterator[Ends]:
        """See `sandbox.disk.quota.Dials`."""
        async with self._keeper.acquire(key, folder) as machine, self._egress.dial(key, machine, port) as ends:
            yield ends

    async def reap(self, idle: float) -> list[str]:
        """See `SandboxProvider.reap`. Containers that another life of this service left are idle from when they are
        first seen."""
        keys = await self._keeper.reap(idle)
        try:
            return keys + await self._reap_strangers(idle)
        except SandboxError as error:
            log.warning("sandbox.reap %s", error)
            return keys

    async def _reap_strangers(self, idle: float) -> list[str]:
        now = time.monotonic()
        instance = (await self._known()).instance
        found = await self._engine.labelled(f"{INSTANCE}={instance}")
        ours = {self._container(instance, key) for key in self._keeper.keys}
        self._strangers = {one.id: self._strangers.get(one.id, now) for one in found if one.name not in ours}
        gone = [one for one in found if self._strangers.get(one.id, now) <= now - idle and one.name not in ours]
        keys = [one.labels[KEY] for one in gone]
        await asyncio.gather(*(self.destroy(key) for key in keys if key not in self._keeper.keys))
        return keys

    async def destroy(self, key: str) -> None:
        """See `SandboxProvider.destroy`."""
        await self._keeper.drop(key)

    async def close(self) -> None:
        """Let go of everything; the containers stay, to be found again by the next life of this service, with the
        servers that run in them."""
        self._closing = True
        await self._keeper.close()
        await self._egress.aclose()
        await self._engine.close()

    # ------------------------------------------------------------ starting

    async def _known(self) -> _Known:
        async with self._surveying:
            if self._found is None:
                site = await survey(self._engine, self._settings)
                places = await find_places(self._engine)
                await asyncio.to_thread(self._settings.state.mkdir, 0o711, parents=True, exist_ok=True)
                identity = hashlib.sha256(places.of(self._settings.state).encode()).hexdigest()[:16]
                shelf = self._settings.state / "skills"
                skills = await asyncio.to_thread(places.share, self._settings.skills, shelf)
                self._found = _Known(site, places, identity, skills)
            return self._found

    @staticmethod
    def _container(instance: str, key: str) -> str:
        return "fawn-" + hashlib.sha256(f"{instance}\0{key}".encode()).hexdigest()[:20]

    async def _start(self, key: str, folder: Path) -> Computer:
        """Its container, found or made, with a command server in it."""
        try:
            async with self._starts, asyncio.timeout(START_SECONDS):
                return await self._begin(key, folder)
        except TimeoutError:
            raise SandboxError("The Docker engine takes too long to start a sandbox: try again.") from None

    async def _begin(self, key: str, folder: Path) -> Computer:
        known = await self._known()
        config = await self._plan(known, key, folder)
        config["Labels"] = {INSTANCE: known.instance, KEY: key, SPEC: fingerprint(config)}
        name = self._container(known.instance, key)
        container, fresh = await self._obtain(name, config)
        try:
            return await self._attach(container, key, fresh=fresh)
        except (Gone, Missing) as error:
            if fresh:
                raise SandboxUnavailable(f"The sandbox did not start: {error}") from error
            log.info("sandbox.replaced", extra={"sandbox": key})
        await self._engine.remove(container)
        container, _ = await self._obtain(name, config)
        return await self._attach(container, key, fresh=True)

    async def _plan(self, known: _Known, key: str, folder: Path) -> dict[str, Any]:
        try:
            image, volumes = await self._engine.image(self._settings.image)
        except Missing:
            raise SandboxUnavailable(
                f"The image {self._settings.image} is not there: `fawn sandbox build` makes it."
            ) from None
        paths = await asyncio.to_thread(self._prepare, known, folder)
        paths["door"] = await self._egress.open(key)
        sources = await asyncio.to_thread(lambda: {name: known.places.of(path) for name, path in paths.items()})
        return configuration(self._settings, known.site, image, volumes, sources)

    def _prepare(self, known: _Known, folder: Path) -> dict[str, Path]:
        """Make the thread's folders, and what every container is shown; gives what is to be bound, by name."""
        safe_files.make_folders(folder, known.site.owner)
        paths = {name: folder / name for name in FOLDERS}
        for name, content in accounts(known.site.user, known.site.group).items():
            paths[name] = self._settings.state / name
            if not paths[name].exists() or paths[name].read_text() != content:
                paths[name].write_text(content)
                paths[name].chmod(0o644)
        if known.skills:
            paths["skills"] = known.skills
        return paths

    async def _obtain(self, name: str, config: Mapping[str, Any]) -> tuple[str, bool]:
        """A running container; whether it is new. Two who come at once get the same."""
        for _ in range(TRIES):
            fresh = True
            try:
                container = await self._engine.create(name, config)
            except Taken:
                try:
                    found = await self._engine.look(name)
                except Missing:
                    await asyncio.sleep(0.2)  # it is being removed
                    continue
                container, fresh = found.id, False
                if found.labels.get(SPEC) != config["Labels"][SPEC]:
                    log.info("sandbox.changed container=%s", name)
                    await self._engine.remove(container)
                    continue
            try:
                await self._engine.start(container)
            except (Missing, Taken):
                continue
            except SandboxError:
                await self._engine.remove(container)
                raise
            return container, fresh
        raise SandboxError("The sandbox could not be started: its container is being removed. Try again.")

    async def _attach(self, container: str, key: str, *, fresh: bool) -> Computer:
        """Start the command server in it. Raises Gone when the container is of no use."""
        program = ""
        try:
            connection, program = await self._engine.open(container, PROGRAM)
            tether = Tether(*await wrap(connection), self._engine, container)
            tether.keep = True
            computer = Computer(tether, key, self._settings)
            try:
                await computer.begin(known=not fresh)
            except BaseException:
                await computer.close()
                raise
        except SandboxUnavailable:
            raise
        except SandboxError as error:  # perhaps only because it is not running (any more)
            found = await self._engine.after(container)
            if not found.running:
                raise Gone(f"its container stops at once ({found.error or 'no reason given'}).") from error
            if program and await self._engine.exit_code(program) in CANNOT_RUN:
                raise SandboxUnavailable(f"The image {self._settings.image} lacks python3.") from error
            raise
        tether.keep = False
        return computer

    async def _stop(self, key: str, sandbox: Computer | None) -> None:
        """Remove its container, unless the next life of this service is to find it."""
        try:
            if sandbox:
                sandbox.tether.keep = sandbox.tether.keep or self._closing
                await sandbox.close()
                if sandbox.tether.keep:
                    return
            elif self._closing or not self._found:
                return
            else:
                await self._engine.remove(self._container(self._found.instance, key))
            await self._egress.close(key)
        except SandboxError as error:
            log.warning("sandbox.left key=%s: %s", key, error)
