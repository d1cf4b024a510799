"""Become bubblewrap, with limits set and privileges given up. A program of its own: `python3 -I -S launcher.py`.

Setting limits and dropping root between fork and exec of a process with threads is not safe in Python, so a small
process does it, and gives the sandbox a network namespace whose sockets hold little. When the service is root,
bubblewrap runs as an unprivileged user, who usually may not pass through the folders above the data (0700 somewhere);
therefore root first mounts what is to be bound at a place where he may.
Standard library only. Stdin begins with the size of a `LaunchPlan` in ten digits and the plan itself, as JSON: every
user of the machine can read arguments, and the URL of a package index may hold a password.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import resource
import socket
import struct
import sys
from typing import TypedDict

STAGE = "/tmp"  # noqa: S108  covered by a private tmpfs in a mount namespace of our own before anything is put there
NEWNS, NEWUSER, NEWNET = 0x20000, 0x10000000, 0x40000000  # sched.h
BIND, REC, SLAVE, NOSUID, NODEV, DETACH = 4096, 16384, 1 << 19, 2, 4, 2  # sys/mount.h
SET_FLAGS, UP = 0x8914, 1  # linux/sockios.h, linux/if.h
APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


class LaunchPlan(TypedDict):
    """What to become: `argv` (all that is seen of it), with `arguments` of bubblewrap. In both "{name}" stands for a
    folder of `folders` or for the descriptor of a file of `files` (whose value is its content, a character per byte);
    "{arguments}" for that of the arguments. `user` 0 keeps the user. `groups` are the files of control groups whose
    member becomes who writes its number there; `network` bounds what sockets hold, in the words of sysctl."""

    argv: list[str]
    arguments: list[str]
    folders: dict[str, str]
    files: dict[str, str]
    user: int
    limits: dict[str, int]
    groups: list[str]
    network: dict[str, str]


def need(size: int) -> bytes:
    """So many bytes of stdin, and not one more: the rest is for the sandbox."""
    data = b""
    while len(data) < size:
        data += os.read(0, size - len(data)) or sys.exit("the service has gone")
    return data


def call(name: str, *args: object) -> None:
    """Of the C library. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def own_network(bounds: dict[str, str]) -> bool:
    """Go into a network namespace that has these bounds and only a loopback; False where the machine forbids that, and
    bubblewrap may still make one."""
    user, group = os.geteuid(), os.getegid()
    try:
        if user:
            with open(APPARMOR, encoding="ascii") as file:
                if file.read().strip() == "1":  # bubblewrap may have a profile, this program has none
                    return False
    except FileNotFoundError:
        pass
    try:
        call("unshare", NEWNET | (NEWUSER if user else 0))
    except PermissionError:
        return False
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh22x", b"lo", UP))
    for name, text in bounds.items():
        with contextlib.suppress(OSError), open("/proc/sys/" + name.replace(".", "/"), "w", encoding="ascii") as file:
            file.write(text)  # read-only in a container
    return True


def stage(folders: dict[str, str]) -> dict[str, str]:
    """Mount the folders below a private place that everybody may pass; gives their paths there."""
    call("unshare", NEWNS)
    call("mount", b"none", b"/", None, ctypes.c_ulong(REC | SLAVE), None)
    # Disks of other conversations (`sandbox.disk.loop_images`) must not stay mounted for as long as this sandbox runs.
    own = os.path.realpath(os.path.dirname(folders["workspace"]))
    for path in mounts(os.path.dirname(own)):
        if path != own:
            with contextlib.suppress(OSError):  # it was unmounted meanwhile
                call("umount2", os.fsencode(path), DETACH)
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


def hand_over(name: str, content: bytes) -> str:
    """A descriptor with this content, for the program that we become."""
    fd = os.memfd_create(name)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    os.set_inheritable(fd, True)
    return str(fd)


def main() -> None:
    plan: LaunchPlan = json.loads(need(int(need(10))))
    names, arguments = plan["folders"], plan["arguments"]
    for group in plan["groups"]:
        with open(group, "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    if not own_network(plan["network"]):
        arguments = ["--unshare-net", *arguments]
    if plan["user"]:
        # Root without CAP_SYS_ADMIN (in a container) may not mount: the folders' own paths must do.
        with contextlib.suppress(PermissionError):
            names = stage(names)
    names |= {name: hand_over(name, content.encode("latin-1")) for name, content in plan["files"].items()}

    def filled(parts: list[str]) -> list[str]:
        return [names[part[1:-1]] if part[1:-1] in names and part[0] == "{" else part for part in parts]

    names["arguments"] = hand_over("arguments", os.fsencode("\0".join(filled(arguments))))
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
    argv = filled(plan["argv"])
    os.execvp(argv[0], argv)  # noqa: S606  becoming bubblewrap is what this file is for


if __name__ == "__main__":
    main()
