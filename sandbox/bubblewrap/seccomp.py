"""System calls that nothing in a sandbox needs and that flaws of the kernel were found behind: a seccomp filter.

Programs are told that the kernel has no such call, which they know how to live with. Docker's own profile forbids the
same and more; this one is for bubblewrap, which has none. Numbers: arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h of Linux; the program's form: linux/filter.h, linux/seccomp.h.
"""

from __future__ import annotations

import os
import struct

NO_CALL = 38  # ENOSYS
ALLOW, ERROR = 0x7FFF0000, 0x00050000
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
X32 = 0x40000000  # numbers of the x32 way into a 64-bit kernel, which the list below does not know
# keys, kernel modules, kexec, bpf, perf events, page faults by hand, mounts and namespaces, handles, swap, reboot,
# process accounting, quotas, io_uring
FORBIDDEN = {
    "x86_64": (0xC000003E, (134, 136, 139, 153, 154, 155, 156, 161, 163, 165, 166, 167, 168, 169, 172, 173, 174, 175,
                            176, 177, 178, 179, 180, 212, 246, 248, 249, 250, 272, 298, 303, 304, 308, 312, 313, 320,
                            321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 443)),
    "aarch64": (0xC00000B7, (39, 40, 41, 51, 58, 60, 89, 97, 104, 105, 106, 142, 217, 218, 219, 224, 225, 241, 264, 265,
                             268, 272, 273, 280, 282, 294, 425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 443)),
}  # fmt: skip


def program(machine: str = "") -> bytes:
    """The filter for this kind of processor, as bubblewrap takes it; empty where the numbers are not known."""
    machine = machine or os.uname().machine
    if machine not in FORBIDDEN:
        return b""
    architecture, numbers = FORBIDDEN[machine]
    end = len(numbers) + 1  # instructions from the first comparison to the last line but one
    steps = [
        (LOAD, 0, 0, 4),  # the architecture of the call
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, ERROR | NO_CALL),  # of another one, such as 32-bit programs
        (LOAD, 0, 0, 0),  # its number
        (AT_LEAST, end, 0, X32),
    ]
    steps += [(EQUAL, end - 1 - index, 0, number) for index, number in enumerate(numbers)]
    steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERROR | NO_CALL)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
