"""Probe the engine: file owner, available limits."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from catalogue import N_
from sandbox.base import SandboxUnavailable
from sandbox.docker.client import DockerEngine
from sandbox.docker.spec import DockerSettings, EngineSite
from sandbox.settings import MAX_SOCKET_MB
from sandbox.users import FIRST_USER_ID


async def probe_engine(engine: DockerEngine, settings: DockerSettings) -> EngineSite:
    """Ask the engine what it supports. Raises SandboxUnavailable with the fix."""
    info = await engine.engine_info()
    if settings.runtime and settings.runtime not in info.get("Runtimes", {}):
        text = N_(
            "The Docker engine does not have the runtime {runtime}: add it as docs/sandbox.md shows, or leave"
            " `sandbox.runtime` empty."
        )
        raise SandboxUnavailable(text, runtime=settings.runtime)
    if info.get("OSType", "linux") != "linux":
        raise SandboxUnavailable(N_("The Docker engine runs Windows containers: switch it to Linux."))
    return describe_site(info, Path(urlsplit(settings.host).path), os.geteuid(), os.getegid())


def describe_site(info: dict[str, Any], sock: Path, uid: int, gid: int) -> EngineSite:
    """Derive users and limits from the engine's `info`, for a service with `uid`. Raises SandboxUnavailable."""
    options = {option.split(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or []}
    user, group, shift = (FIRST_USER_ID, FIRST_USER_ID, 0) if uid == 0 else (uid, gid, None)
    if "rootless" in options:
        # Its users belong to the person who started it, and root inside is that person outside.
        if uid != sock.stat().st_uid:
            raise SandboxUnavailable(
                N_("The Docker engine is rootless and belongs to another user: run Fawn as that user.")
            )
        user, group, shift = 0, 0, None
    elif "userns" in options:
        # The name of its root folder ends with the first uid and gid of the range (docs: "userns-remap").
        found = re.search(r"/(\d+)\.(\d+)$", info.get("DockerRootDir", ""))
        if uid != 0 or not found:
            raise SandboxUnavailable(
                N_(
                    "The Docker engine remaps users (userns-remap), so Fawn could not read the files of a sandbox: run"
                    " Fawn as root, or use an engine without userns-remap."
                )
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


def limit_socket_memory(container: str, pid: int) -> None:
    """Limit the socket memory of a container on cgroup v1, where it is not charged. The engine accepts this limit
    (KernelMemoryTCP), but its runtimes ignore it. Needs root."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return  # it has ended
    for _, controllers, path in (line.split(":", 2) for line in groups):
        bound = Path(f"/sys/fs/cgroup/{controllers}{path}/memory.kmem.tcp.limit_in_bytes")
        # The engine may have another pid namespace: then this is another process.
        if controllers == "memory" and container in path and bound.exists() and os.access(bound, os.W_OK):
            bound.write_text(f"{MAX_SOCKET_MB << 20}\n", "ascii")
