"""Probe the engine: file owner, available limits, missing bounds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sandbox.base import SandboxUnavailable
from sandbox.docker.client import DockerEngine
from sandbox.docker.spec import DockerSettings, EngineSite
from sandbox.settings import MAX_SOCKET_MB
from sandbox.users import FIRST


async def probe_engine(engine: DockerEngine, settings: DockerSettings) -> EngineSite:
    """Look at the engine. Raises SandboxUnavailable with the fix."""
    info = await engine.info()
    if settings.runtime and settings.runtime not in info.get("Runtimes", {}):
        raise SandboxUnavailable(
            f"The Docker engine has no runtime {settings.runtime}: docs/sandbox.md shows how to add it, or leave "
            "`sandbox.runtime` empty."
        )
    if info.get("OSType", "linux") != "linux":
        raise SandboxUnavailable("The Docker engine runs Windows containers: switch it to Linux.")
    return describe_site(info, Path(urlsplit(settings.host).path), os.geteuid(), os.getegid())


def describe_site(info: dict[str, Any], sock: Path, uid: int, gid: int) -> EngineSite:
    """For an engine that says `info` of itself and a service that runs as `uid`. Raises SandboxUnavailable."""
    options = {option.split(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or []}
    user, group, shift = (FIRST, FIRST, 0) if uid == 0 else (uid, gid, None)
    if "rootless" in options:
        # Its users are those of the person who started it, and root inside is that person outside.
        if uid != sock.stat().st_uid:
            raise SandboxUnavailable("The Docker engine is rootless and belongs to another user: run Fawn as that one.")
        user, group, shift = 0, 0, None
    elif "userns" in options:
        # Its root folder is called after the first uid and gid of the range (docs: "userns-remap").
        found = re.search(r"/(\d+)\.(\d+)$", info.get("DockerRootDir", ""))
        if uid != 0 or not found:
            raise SandboxUnavailable(
                "The Docker engine remaps users (userns-remap), so files of a sandbox could not be read here: run Fawn "
                "as root, or use an engine without it."
            )
        shift = int(found[1])
    return EngineSite(
        user,
        group,
        shift,
        memory=bool(info.get("MemoryLimit")),
        cpus=bool(info.get("CpuCfsQuota")),
        processes=bool(info.get("PidsLimit")),
    )


def bound_sockets(container: str, pid: int) -> None:
    """Bound what stands in the sockets of a container whose first process is `pid`, where control groups of version 1
    charge nobody for it. Engines take such a bound (KernelMemoryTCP), and their runtimes ignore it. Only root can."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return  # it has ended
    for _, controllers, path in (line.split(":", 2) for line in groups):
        bound = Path(f"/sys/fs/cgroup/{controllers}{path}/memory.kmem.tcp.limit_in_bytes")
        # The engine may count processes in another way than we do: then that is another process.
        if controllers == "memory" and container in path and bound.exists() and os.access(bound, os.W_OK):
            bound.write_text(f"{MAX_SOCKET_MB << 20}\n", "ascii")
