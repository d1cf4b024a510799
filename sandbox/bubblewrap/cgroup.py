"""Control groups for sandboxes that no engine puts into one: memory, processors and processes of a whole sandbox.

Only root may make them, and where the machine does not let us there are none: then each process is bounded by itself.
Version 1 has a tree per controller, version 2 one for all (kernel.org, admin-guide/cgroup-v1 and cgroup-v2).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.settings import MAX_SOCKET_MB

CGROUP_ROOT = Path("/sys/fs/cgroup")
PARENT_NAME = "fawn"
OPTIONAL_LIMITS = ("memory.swap", "memory.memsw", "memory.kmem")  # not in every kernel
CPU_PERIOD_MICROSECONDS = 100_000  # microseconds in which a group may use its share of the processors
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """`places` are its folders: one, or one per controller, or none where there is no group."""

    places: tuple[Path, ...] = ()

    @property
    def join_files(self) -> list[str]:
        """A process that writes its number into all of these is in."""
        return [str(place / "cgroup.procs") for place in self.places]

    def oom_kills(self) -> int:
        """How often the kernel ended a process in it for want of memory."""
        for place in self.places:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    for line in (place / name).read_text("ascii").splitlines():
                        if line.startswith("oom_kill "):
                            return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Its processes have been killed; the last of them may still be leaving."""
        for place in self.places:
            for _ in range(50):
                try:
                    place.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)
                else:
                    break


def make_control_group(memory_mb: int, processes: int, cpus: float) -> ControlGroup:
    """A group with these bounds, or an empty one where there can be none."""
    if os.geteuid() != 0:
        return ControlGroup()
    name = f"{os.getpid()}-{next(_numbers)}"
    quota, memory = int(cpus * CPU_PERIOD_MICROSECONDS), memory_mb << 20
    if (CGROUP_ROOT / "cgroup.controllers").exists():
        bounds_of = {
            "": {
                "memory.max": memory,
                "memory.swap.max": 0,
                "pids.max": processes,
                "cpu.max": f"{quota} {CPU_PERIOD_MICROSECONDS}",
            }
        }
    else:
        bounds_of = {
            "memory": {
                "memory.limit_in_bytes": memory,
                "memory.memsw.limit_in_bytes": memory,
                "memory.kmem.tcp.limit_in_bytes": MAX_SOCKET_MB << 20,
            },
            "pids": {"pids.max": processes},
            "cpu": {"cpu.cfs_period_us": CPU_PERIOD_MICROSECONDS, "cpu.cfs_quota_us": quota},
        }
    wanted = {CGROUP_ROOT / controller / PARENT_NAME / name: bounds for controller, bounds in bounds_of.items()}
    made: list[Path] = []
    try:
        for place, bounds in wanted.items():
            _parent_group(place.parent)
            place.mkdir()
            made.append(place)
            for file, bound in bounds.items():
                if not file.startswith(OPTIONAL_LIMITS) or (place / file).exists():
                    (place / file).write_text(f"{bound}\n", "ascii")
    except OSError:
        ControlGroup(tuple(made)).remove()
        return ControlGroup()
    return ControlGroup(tuple(made))


def _parent_group(folder: Path) -> None:
    """Ours among the groups of the machine, without what a service that was killed left there. Raises OSError."""
    if not folder.exists():
        folder.mkdir()
    control = folder / "cgroup.subtree_control"
    if control.exists():
        control.write_text("+memory +pids +cpu\n", "ascii")
    for left in folder.iterdir():
        if left.is_dir() and not Path("/proc", left.name.partition("-")[0]).exists():
            with contextlib.suppress(OSError):  # something is in it
                left.rmdir()
