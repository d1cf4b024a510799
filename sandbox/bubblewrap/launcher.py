"""Become bubblewrap, with limits set and privileges given up. A program of its own: `python3 -I -S launcher.py PLAN`.

Setting limits and dropping root between fork and exec of a process with threads is not safe in Python, so a small
process does it. When the service is root, bubblewrap runs as an unprivileged user, who usually may not pass through the
folders above the data (0700 somewhere); therefore root first mounts what is to be bound at a place where he may.
Standard library only. PLAN is JSON: `Plan`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import sys
from typing import TypedDict

STAGE = "/tmp"  # noqa: S108  covered by a private tmpfs in a mount namespace of our own before anything is put there
NEWNS, BIND, REC, SLAVE, NOSUID, NODEV, DETACH = 0x20000, 4096, 16384, 1 << 19, 2, 4, 2


class Plan(TypedDict):
    """What to become. In `argv`, "{name}" stands for a folder of `folders` or for the descriptor of a file of `files`
    (whose value is its content, a character per byte). `user` 0 keeps the user. `groups` are the files of control
    groups whose member becomes who writes its number there."""

    argv: list[str]
    folders: dict[str, str]
    files: dict[str, str]
    user: int
    limits: dict[str, int]
    groups: list[str]


def stage(folders: dict[str, str]) -> dict[str, str]:
    """Mount the folders below a private place that everybody may pass; gives their paths there."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *args: object) -> None:
        if getattr(libc, name)(*args) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")

    call("unshare", NEWNS)
    call("mount", b"none", b"/", None, ctypes.c_ulong(REC | SLAVE), None)
    # Disks of other conversations (`sandbox.disk.loop_images`) must not stay mounted for as long as this sandbox runs.
    own = os.path.realpath(os.path.dirname(folders["workspace"]))
    for path in mounts(os.path.dirname(own)):
        if path != own:
            libc.umount2(os.fsencode(path), DETACH)  # or it was unmounted meanwhile
    # Opened now: later they may lie under our own mount, earlier they would belong to the other namespace.
    opened = {name: os.open(path, os.O_PATH | os.O_DIRECTORY) for name, path in folders.items()}
    call("mount", b"tmpfs", STAGE.encode(), b"tmpfs", ctypes.c_ulong(NOSUID | NODEV), b"mode=0755,size=64k")
    for name, fd in opened.items():
        place = f"{STAGE}/{name}"
        os.mkdir(place)
        call("mount", f"/proc/self/fd/{fd}".encode(), place.encode(), None, ctypes.c_ulong(BIND), None)
        os.close(fd)
    return {name: f"{STAGE}/{name}" for name in folders}


def mounts(top: str) -> list[str]:
    """Where something is mounted right below this folder."""
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        found = [re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[1]) for line in file]
    return [path for path in found if os.path.dirname(path) == top]


def main() -> None:
    plan: Plan = json.loads(sys.argv[1])
    names = plan["folders"]
    for group in plan["groups"]:
        with open(group, "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    if plan["user"]:
        # Root without CAP_SYS_ADMIN (in a container) may not mount: the folders' own paths must do.
        with contextlib.suppress(PermissionError):
            names = stage(names)
    for name, content in plan["files"].items():
        fd = os.memfd_create(name)
        os.write(fd, content.encode("latin-1"))  # a text of bytes
        os.lseek(fd, 0, os.SEEK_SET)
        os.set_inheritable(fd, True)
        names = {**names, name: str(fd)}
    for name, value in plan["limits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(number, (value, value))
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")  # when memory runs out, sandboxes go before the service
    os.nice(5)
    if plan["user"]:
        os.setgroups([])
        os.setresgid(plan["user"], plan["user"], plan["user"])
        os.setresuid(plan["user"], plan["user"], plan["user"])
        os.chdir("/")
    argv = [names[part[1:-1]] if part[1:-1] in names and part[0] == "{" else part for part in plan["argv"]]
    os.execvp(argv[0], argv)  # noqa: S606  becoming bubblewrap is what this file is for


if __name__ == "__main__":
    main()
