"""Map paths of a service in a container to the engine's host."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from catalogue import N_
from sandbox.base import SandboxUnavailable
from sandbox.docker.client import DockerEngine, NotInEngine


@dataclass(frozen=True, slots=True)
class HostPaths:
    """The mounts of the service's container as (inside, host); None if the service runs on the host."""

    mounts: Sequence[tuple[str, str]] | None = None

    def host_path(self, path: Path) -> str:
        """Return the host's path of `path`. Raises SandboxUnavailable if the host does not have it."""
        real = path.resolve()
        if self.mounts is None:
            return str(real)
        for inside, outside in sorted(self.mounts, key=lambda mount: len(mount[0]), reverse=True):
            if real.is_relative_to(inside):
                return str(PurePosixPath(outside) / real.relative_to(inside))
        raise SandboxUnavailable(
            N_(
                "Fawn runs in a container, and the engine cannot see its data: give it a volume"
                " (`-v fawn:/var/lib/fawn`)."
            )
        )

    def share_folder(self, folder: Path, shelf: Path) -> Path | None:
        """Return `folder`, or its copy at `shelf` if only our image has it; None if it does not exist."""
        if not folder.is_dir():
            return None
        try:
            self.host_path(folder)
        except SandboxUnavailable:
            return Path(shutil.copytree(folder, shelf, dirs_exist_ok=True))  # in place, for older containers
        return folder


async def find_host_paths(engine: DockerEngine) -> HostPaths:
    """Find the service's own container in the engine."""
    for name in _own_names():
        try:
            return HostPaths(await engine.container_mounts(name))
        except NotInEngine:
            continue
    return HostPaths()


def _own_names() -> list[str]:
    """Possible names of our container: from the files that engines mount, our cgroup, our host name."""
    if not any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")):
        return []
    names: list[str] = []
    for source in ("/proc/self/mountinfo", "/proc/self/cgroup"):
        try:
            names += re.findall(r"\b[0-9a-f]{64}\b", Path(source).read_text(encoding="ascii", errors="replace"))
        except OSError:
            continue
    return [*dict.fromkeys(names), socket.gethostname()]
