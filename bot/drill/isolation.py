"""Take away from this process, and from all that it starts, the network but loopback, and give it a small disk.

With the namespaces of Linux: as root, or where users may have namespaces of their own. What this machine does not allow
is said, and the drill goes on without it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 1 << 18
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
PR_SET_PDEATHSIG, SIGKILL = 1, 9


def end_with_parent() -> None:
    """Have the kernel end this process with the one that started it, however that one ends."""
    _call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)


def isolate(disk: Path, megabytes: int) -> list[str]:
    """Leave the network, and mount a small file system at `disk`. Return what was not allowed: names of LEFT_OUT.

    Call it while the process has one thread.
    """
    try:
        _leave(CLONE_NEWNS | CLONE_NEWNET)
        _switch_loopback_on()
        _mount(disk, megabytes)
    except OSError:
        return ["disk", "network"]
    return []


def _leave(kinds: int) -> None:
    uid, gid = os.getuid(), os.getgid()
    try:
        _call("unshare", kinds)
    except OSError:
        _call("unshare", CLONE_NEWUSER | kinds)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _switch_loopback_on() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        name = b"lo"
        flags = struct.unpack("16xH", fcntl.ioctl(device, SIOCGIFFLAGS, struct.pack("16sH", name, 0) + bytes(22))[:18])
        fcntl.ioctl(device, SIOCSIFFLAGS, struct.pack("16sH", name, flags[0] | IFF_UP) + bytes(22))


def _mount(disk: Path, megabytes: int) -> None:
    _call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)  # nothing of it is seen outside
    options = f"size={megabytes}m,mode=0700,uid={os.getuid()},gid={os.getgid()}".encode()
    _call("mount", b"fawn-drill", os.fsencode(disk), b"tmpfs", MS_NOSUID | MS_NODEV, options)


def _call(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
