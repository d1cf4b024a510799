"""Control groups for bubblewrap: memory, processors and processes.

Only root can make them. Without one, the limits apply to each process. Version 1 has a tree per controller, version 2
one for all (kernel.org, admin-guide/cgroup-v1 and cgroup-v2).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.settings import MAX_SOCKET_MB, parse_oom_kills

CGROUP_ROOT = Path("/sys/fs/cgroup")
PARENT_NAME = "fawn"
OPTIONAL_LIMITS = ("memory.swap", "memory.memsw", "memory.kmem")  # not in every kernel
CPU_PERIOD_MICROSECONDS = 100_000  # the period of the processor quota
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The folders of a group: one, one per controller, or none if there is no group."""

    folders: tuple[Path, ...] = ()

    @property
    def join_files(self) -> list[str]:
        """A process joins by writing its pid into each of these files."""
        return [str(place / "cgroup.procs") for place in self.folders]

    def oom_kills(self) -> int:
        """Count the processes that the kernel killed for lack of memory."""
        for place in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    if (count := parse_oom_kills((place / name).read_text("ascii"))) is not None:
                        return count
        return 0

    def remove(self) -> None:
        """Remove the group after its processes were killed; they may still be exiting."""
        for place in self.folders:
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
    """Make a group with these limits, or an empty one if the machine does not allow it."""
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
            _make_parent_group(place.parent)
            place.mkdir()
            made.append(place)
            for file, bound in bounds.items():
                if not file.startswith(OPTIONAL_LIMITS) or (place / file).exists():
                    (place / file).write_text(f"{bound}\n", "ascii")
    except OSError:
        ControlGroup(tuple(made)).remove()
        return ControlGroup()
    return ControlGroup(tuple(made))


def _make_parent_group(folder: Path) -> None:
    """Make the parent of our groups, and remove groups of killed processes from it. Raises OSError."""
    if not folder.exists():
        folder.mkdir()
    control = folder / "cgroup.subtree_control"
    if control.exists():
        control.write_text("+memory +pids +cpu\n", "ascii")
    for left in folder.iterdir():
        if left.is_dir() and not Path("/proc", left.name.partition("-")[0]).exists():
            with contextlib.suppress(OSError):  # it has processes
                left.rmdir()
