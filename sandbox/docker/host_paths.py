"""Map our paths to the engine's host, for a service that runs in a container."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandbox.base import SandboxUnavailable
from sandbox.docker.client import DockerEngine, NotInEngine


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Mounts of our own container, (inside, on the host); None when the service runs on the engine's own machine."""

    mounts: Sequence[tuple[str, str]] | None = None

    def host_path(self, path: Path) -> str:
        """The host's path of ours. Raises SandboxUnavailable when the host has none."""
        real = path.resolve()
        if self.mounts is None:
            return str(real)
        for inside, outside in sorted(self.mounts, key=lambda mount: len(mount[0]), reverse=True):
            if real.is_relative_to(inside):
                return str(PurePosixPath(outside) / real.relative_to(inside))
        raise SandboxUnavailable(
            "Fawn runs in a container and the engine cannot see its data: give it a volume (`-v fawn:/var/lib/fawn`)."
        )

    def share_folder(self, folder: Path, shelf: Path) -> Path | None:
        """`folder`, or a copy of it at `shelf` where it lies in our own image, unseen by the engine; None without."""
        if not folder.is_dir():
            return None
        try:
            self.host_path(folder)
        except SandboxUnavailable:
            return Path(shutil.copytree(folder, shelf, dirs_exist_ok=True))  # in place: older containers see it too
        return folder


async def find_host_paths(engine: DockerEngine) -> HostPaths:
    """Ask the engine about our own container, if it runs one that is us."""
    for name in _own_names():
        try:
            return HostPaths(await engine.mounts(name))
        except NotInEngine:
            continue
    return HostPaths()


def _own_names() -> list[str]:
    """Names our container may have: of the files that Docker and Podman mount into it, of its cgroup, its host name."""
    if not any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")):
        return []
    names: list[str] = []
    for source in ("/proc/self/mountinfo", "/proc/self/cgroup"):
        try:
            names += re.findall(r"\b[0-9a-f]{64}\b", Path(source).read_text(encoding="ascii", errors="replace"))
        except OSError:
            continue
    return [*dict.fromkeys(names), socket.gethostname()]
