"""Set limits, drop privileges, and become bubblewrap.

A separate program (`python3 -I -S launcher.py`), because Python cannot safely do this between fork and exec in a
process with threads. It also enters a network namespace with small socket buffers. If the service is root, bubblewrap
runs as an unprivileged user, who may not pass the folders above the data (0700 somewhere). So root first mounts the
folders where that user can reach them.

Standard library only. Stdin begins with a `LaunchPlan` as JSON after its size in ten digits. It is not an argument,
because all users of the machine can read arguments, and the URL of a package index may hold a password.
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

STAGE_FOLDER = "/tmp"  # noqa: S108  a private tmpfs covers it before anything is mounted there
NEWNS, NEWUSER, NEWNET = 0x20000, 0x10000000, 0x40000000  # sched.h
BIND, REC, SLAVE, NOSUID, NODEV, DETACH = 4096, 16384, 1 << 19, 2, 4, 2  # sys/mount.h
SET_FLAGS, UP = 0x8914, 1  # linux/sockios.h, linux/if.h
APPARMOR_FILE = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


class LaunchPlan(TypedDict):
    """`argv` of the process, and `arguments` of bubblewrap. In both, "{name}" stands for a path of `folders`, or for
    the descriptor of a file of `files` (one character per byte); "{arguments}" for that of the arguments. `user` 0
    keeps the user. `groups` are cgroup.procs files, `network` is sysctl values."""

    argv: list[str]
    arguments: list[str]
    folders: dict[str, str]
    files: dict[str, str]
    user: int
    limits: dict[str, int]
    groups: list[str]
    network: dict[str, str]


def read_stdin(size: int) -> bytes:
    """Read exactly `size` bytes of stdin; the rest is for the sandbox."""
    data = b""
    while len(data) < size:
        data += os.read(0, size - len(data)) or sys.exit("the service has gone")
    return data


def call_libc(name: str, *args: object) -> None:
    """Call the C library. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def enter_network_namespace(bounds: dict[str, str]) -> bool:
    """Enter a network namespace with a loopback. False if it is forbidden here; bubblewrap may still make one."""
    user, group = os.geteuid(), os.getegid()
    try:
        if user:
            with open(APPARMOR_FILE, encoding="ascii") as file:
                if file.read().strip() == "1":  # bubblewrap may have a profile, but this program does not
                    return False
    except FileNotFoundError:
        pass
    try:
        call_libc("unshare", NEWNET | (NEWUSER if user else 0))
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


def stage_folders(folders: dict[str, str]) -> dict[str, str]:
    """Mount the folders in a private place that all users may pass. Returns their paths there."""
    call_libc("unshare", NEWNS)
    call_libc("mount", b"none", b"/", None, ctypes.c_ulong(REC | SLAVE), None)
    # Without this, the disks of other conversations would stay mounted until this sandbox ends.
    own = os.path.realpath(os.path.dirname(folders["workspace"]))
    for path in mounts_in(os.path.dirname(own)):
        if path != own:
            with contextlib.suppress(OSError):  # it was unmounted meanwhile
                call_libc("umount2", os.fsencode(path), DETACH)
    # Open them before the tmpfs may cover them, and after unshare, in the namespace of the mounts.
    opened = {name: os.open(path, os.O_PATH | os.O_DIRECTORY) for name, path in folders.items()}
    call_libc("mount", b"tmpfs", STAGE_FOLDER.encode(), b"tmpfs", ctypes.c_ulong(NOSUID | NODEV), b"mode=0755,size=64k")
    for name, fd in opened.items():
        place = f"{STAGE_FOLDER}/{name}"
        os.mkdir(place)
        call_libc("mount", f"/proc/self/fd/{fd}".encode(), place.encode(), None, ctypes.c_ulong(BIND), None)
        os.close(fd)
    return {name: f"{STAGE_FOLDER}/{name}" for name in folders}


def mounts_in(top: str) -> list[str]:
    """List the mount points directly below `top`."""
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        found = [re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[1]) for line in file]
    return [path for path in found if os.path.dirname(path) == top]


def memory_file(name: str, content: bytes) -> str:
    """Return an inheritable descriptor of a file with this content."""
    fd = os.memfd_create(name)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    os.set_inheritable(fd, True)
    return str(fd)


def main() -> None:
    plan: LaunchPlan = json.loads(read_stdin(int(read_stdin(10))))
    names, arguments = plan["folders"], plan["arguments"]
    for group in plan["groups"]:
        with open(group, "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    if not enter_network_namespace(plan["network"]):
        arguments = ["--unshare-net", *arguments]
    if plan["user"]:
        # Root without CAP_SYS_ADMIN (in a container) may not mount: then the folders' own paths have to work.
        with contextlib.suppress(PermissionError):
            names = stage_folders(names)
    names |= {name: memory_file(name, content.encode("latin-1")) for name, content in plan["files"].items()}

    def filled(parts: list[str]) -> list[str]:
        return [names[part[1:-1]] if part[1:-1] in names and part[0] == "{" else part for part in parts]

    names["arguments"] = memory_file("arguments", os.fsencode("\0".join(filled(arguments))))
    for name, value in plan["limits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(number, (value, value))
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")  # if memory runs out, the kernel kills sandboxes before the service
    os.nice(5)
    if plan["user"]:
        os.setgroups([])
        os.setresgid(plan["user"], plan["user"], plan["user"])
        os.setresuid(plan["user"], plan["user"], plan["user"])
        os.chdir("/")
    argv = filled(plan["argv"])
    os.execvp(argv[0], argv)  # noqa: S606  this program becomes bubblewrap


if __name__ == "__main__":
    main()
