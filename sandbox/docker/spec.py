"""The configuration of a sandbox's container: limits, locks and mounts.

tests/unit/sandbox/test_docker_walls.py checks each of them from inside.

The labels of the containers: the service, by the path of its data, and the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import system_calls
from sandbox.base import FOLDERS, ROOT, SKILLS, WORKSPACE
from sandbox.inside.environment import HOME
from sandbox.rules import SOCKET_FOLDER
from sandbox.settings import MAX_DESCRIPTORS, SOCKET_BUFFERS, SandboxSettings

INSTANCE, KEY = "fawn.instance", "fawn.key"


# PID 1 reaps orphans. Signals from inside do not reach it, and it restarts a killed `sleep`.
IDLE_COMMAND = ("bash", "-c", "while :; do sleep 86400 & wait; done")


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerSettings(SandboxSettings):
    """Settings of the Docker provider. `state` is a folder that identifies this service to the engine.

    So does `service`, its name among several that may have the same path on different machines, and one engine.
    """

    state: Path
    service: str = ""
    image: str = "fawn-sandbox"
    host: str = "unix:///var/run/docker.sock"
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class EngineSite:
    """The user of commands and the limits of the engine. With a `shift`, each sandbox has its own user."""

    user: int
    group: int
    shift: int | None = None
    memory: bool = True
    cpus: bool = True
    processes: bool = True


def container_config(
    settings: DockerSettings, site: EngineSite, image: str, volumes: Sequence[str], sources: Mapping[str, str]
) -> dict[str, Any]:
    """Build the body of the engine's "create a container". `sources` are host paths by name. The image's `volumes`
    become small tmpfs, because a volume has no size limit."""
    owner = f"uid={site.user},gid={site.group}"
    part = settings.tmp_mb << 18  # a quarter, in bytes
    mounts = _bind_mounts(sources)
    wanted = set(volumes) - {mount["Target"] for mount in mounts}
    profile = system_calls.seccomp_profile()
    limits = {"fsize": settings.file_mb << 20, "nofile": MAX_DESCRIPTORS, "core": 0}
    host: dict[str, Any] = {
        "NetworkMode": "none",
        "IpcMode": "private",
        "ReadonlyRootfs": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        # Without our profile (an unknown processor) the engine uses its own, never "unconfined".
        "SecurityOpt": ["no-new-privileges:true", *([f"seccomp={profile}"] if profile else [])],
        "OomScoreAdj": 500,  # if memory runs out, the kernel kills sandboxes before the service
        "CpuShares": 256,
        "Ulimits": [{"Name": name, "Soft": bound, "Hard": bound} for name, bound in limits.items()],
        "Tmpfs": {
            **dict.fromkeys(sorted(wanted), f"rw,nosuid,nodev,noexec,size={part},mode=1777"),
            "/tmp": f"rw,nosuid,nodev,exec,size={4 * part},mode=1777",  # noqa: S108  inside the container
            HOME: f"rw,nosuid,nodev,exec,size={part},mode=0700,{owner}",
        },
        "ShmSize": part,
        "Sysctls": SOCKET_BUFFERS,
        "Mounts": mounts,
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
    }
    if site.memory:
        host |= {"Memory": settings.memory_mb << 20, "MemorySwap": settings.memory_mb << 20}
    if site.cpus:
        host["NanoCpus"] = int(settings.cpus * 1e9)
    if site.processes:
        host["PidsLimit"] = settings.processes
    if settings.runtime:
        host["Runtime"] = settings.runtime
    return {
        "Image": image,
        "Entrypoint": [],
        "Cmd": list(IDLE_COMMAND),
        "Healthcheck": {"Test": ["NONE"]},
        "User": f"{site.user}:{site.group}",
        "WorkingDir": WORKSPACE,
        "Hostname": "sandbox",
        "Env": [f"{name}={value}" for name, value in settings.network.environment().items()],
        "StopTimeout": 0,
        "HostConfig": host,
    }


def _bind_mounts(sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Use the type "bind", which fails without a source; a "Bind" would create it, owned by root."""
    places = {name: (f"{ROOT}/{name}", False) for name in FOLDERS}
    places |= {"skills": (SKILLS, True), "egress": (SOCKET_FOLDER, True)}
    places |= {name: (f"/etc/{name}", True) for name in ("passwd", "group")}
    return [
        {"Type": "bind", "Source": source, "Target": places[name][0], "ReadOnly": places[name][1]}
        for name, source in sorted(sources.items())
    ]
