"""The configuration of a sandbox's container: every limit and lock, in the engine's own words.

Checked from inside by tests/unit/sandbox/test_docker_walls.py, flag by flag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import system_calls
from sandbox.base import FOLDERS, ROOT, SKILLS, WORKSPACE
from sandbox.inside.environment import HOME
from sandbox.network.rules import SOCKET_FOLDER as DOOR
from sandbox.settings import MAX_DESCRIPTORS, SOCKET_BUFFERS, SandboxSettings

# PID 1 collects orphans; signals from inside do not reach it, and a `sleep` that was killed is started again.
IDLE_COMMAND = ("bash", "-c", "while :; do sleep 86400 & wait; done")


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerSettings(SandboxSettings):
    """`state` is a folder of ours that names this service among others on the same engine."""

    state: Path
    image: str = "fawn-sandbox"
    host: str = "unix:///var/run/docker.sock"
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class EngineSite:
    """What the engine and this machine allow. `user` and `group` are what commands run as; with a `shift`, each sandbox
    has a user of its own instead, who gets the folders, and is called so much more on the host. `memory`, `cpus` and
    `processes` say whether the engine can limit them."""

    user: int
    group: int
    shift: int | None = None
    memory: bool = True
    cpus: bool = True
    processes: bool = True


def container_config(
    settings: DockerSettings, site: EngineSite, image: str, volumes: Sequence[str], sources: Mapping[str, str]
) -> dict[str, Any]:
    """The body of the engine's "create a container". `sources` are folders and files of the host: workspace, uploads,
    outputs, door, passwd, group, and perhaps skills. `volumes` are places where the image wants one: they get a bit of
    memory instead, because nobody would measure what is written there."""
    owner = f"uid={site.user},gid={site.group}"
    part = settings.tmp_mb << 18  # a quarter, in bytes
    mounts = _bind_mounts(sources)
    wanted = set(volumes) - {mount["Target"] for mount in mounts}
    host: dict[str, Any] = {
        "NetworkMode": "none",
        "IpcMode": "private",
        "ReadonlyRootfs": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true", *_security_profile()],
        "OomScoreAdj": 500,  # when the machine's memory runs out, sandboxes go before the service
        "CpuShares": 256,
        "Ulimits": _ulimit_options({"fsize": settings.file_mb << 20, "nofile": MAX_DESCRIPTORS, "core": 0}),
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


def _security_profile() -> list[str]:
    """Our filter of system calls, or the engine's own where the numbers are not known; never "unconfined"."""
    return [f"seccomp={profile}"] if (profile := system_calls.seccomp_profile()) else []


def _ulimit_options(bounds: Mapping[str, int]) -> Sequence[Mapping[str, str | int]]:
    return [{"Name": name, "Soft": bound, "Hard": bound} for name, bound in bounds.items()]


def _bind_mounts(sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Of type "bind", which fails where the source is missing; a "Bind" would make it, owned by root. How mounts spread
    is left to the engine: not at all, and into a volume of its own only from the host."""
    places = {name: (f"{ROOT}/{name}", False) for name in FOLDERS}
    places |= {"skills": (SKILLS, True), "door": (DOOR, True)}
    places |= {name: (f"/etc/{name}", True) for name in ("passwd", "group")}
    return [
        {"Type": "bind", "Source": source, "Target": places[name][0], "ReadOnly": places[name][1]}
        for name, source in sorted(sources.items())
    ]


def account_files(user: int, group: int) -> dict[str, str]:
    """The files passwd and group: whoever the commands run as has a name and a home."""
    return {
        "passwd": f"agent:x:{user}:{group}:agent:{HOME}:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": f"agent:x:{group}:\nnogroup:x:65534:\n",
    }
