"""The system calls that a sandbox may not make, as filters for both engines.

Programs in a sandbox do not need these calls, and they were the way to flaws in the kernel. A refused call fails with
ENOSYS (not implemented), which programs handle, unless a rule says otherwise. The numbers are those of
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux. The filter follows
linux/filter.h and linux/seccomp.h; the profile is Docker's JSON (docs.docker.com/engine/security/seccomp).
"""

from __future__ import annotations

import errno
import os
import struct
from itertools import chain
from typing import Any

import orjson

# name: (number on x86_64, number on aarch64); None if the processor never had the call
FORBIDDEN_CALLS: dict[str, tuple[int | None, int | None]] = {
    # kernel keys, which belong to no namespace
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # kernel modules, kexec, reboot
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, None),
    "get_kernel_syms": (177, None), "query_module": (178, None), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142),
    # BPF, tracing, user-space page faults
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "statmount": (457, 457), "listmount": (458, 458),  # where the host keeps its folders
    "clone3": (435, 435),  # a filter cannot see its flags; the C libraries fall back to clone
    # file handles, swap, quotas, accounting, the host's terminals
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "swapon": (167, 224), "swapoff": (168, 225),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89), "vhangup": (153, 58),
    # other kinds of I/O; io_setup uses up a number that the whole machine shares
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_setup": (206, 0),
    # memory and descriptors of other processes, memory placement
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "mbind": (237, 235), "get_mempolicy": (239, 236),
    "set_mempolicy": (238, 237), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "set_mempolicy_home_node": (450, 450), "memfd_secret": (447, 447),
    # the machine's log, clock and names, obsolete calls
    "syslog": (103, 116), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "settimeofday": (164, 170),
    "sethostname": (170, 161), "setdomainname": (171, 162), "personality": (135, 92), "modify_ldt": (154, None),
    "iopl": (172, None), "ioperm": (173, None), "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None),
    "_sysctl": (156, None), "nfsservctl": (180, 42), "vserver": (236, None),
}  # fmt: skip
# Docker's profile names calls, and its library does not know these before libseccomp 2.6: there they pass.
NEWER_CALLS = frozenset({"statmount", "listmount"})
# Filtered by their arguments.
EXAMINED_CALLS = {"clone": (56, 220), "socket": (41, 198), "socketpair": (53, 199), "setsockopt": (54, 208)}
# All that a parser of untrusted data keeps (`agent.parsing`): its pipes, its memory, its clock and its end.
PARSER_CALLS = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "munmap": (11, 215),
    "mremap": (25, 216), "brk": (12, 214), "madvise": (28, 233), "futex": (202, 98), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132), "clock_gettime": (228, 113),
    "gettimeofday": (96, 169), "getrandom": (318, 278), "sched_yield": (24, 124), "gettid": (186, 178),
    "getpid": (39, 172), "exit": (60, 93), "exit_group": (231, 94), "restart_syscall": (219, 128),
}  # fmt: skip
PARSER_MEMORY_CALLS = {"mmap": (9, 222), "mprotect": (10, 226)}  # without executable memory
PROT_EXEC = 4
NEWEST_CALL_NUMBER = 466  # calls of later kernels, and the x32 numbers, are refused, too

NAMESPACES = {  # flags of clone
    "CLONE_NEWNS": 0x20000, "CLONE_NEWCGROUP": 0x2000000, "CLONE_NEWUTS": 0x4000000, "CLONE_NEWIPC": 0x8000000,
    "CLONE_NEWUSER": 0x10000000, "CLONE_NEWPID": 0x20000000, "CLONE_NEWNET": 0x40000000,
}  # fmt: skip
ALLOWED_SOCKET_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}  # all that sockets may be of
SOL_SOCKET, BUFFERS = 1, {"SO_SNDBUF": 7, "SO_RCVBUF": 8}  # kept small: the call succeeds without effect

ARCHITECTURES = {"x86_64": (0, 0xC000003E, "SCMP_ARCH_X86_64"), "aarch64": (1, 0xC00000B7, "SCMP_ARCH_AARCH64")}
ALLOW, ERROR = 0x7FFF0000, 0x00050000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
Step = tuple[int, int, int, int]  # operation, jump if true, jump if false, value
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16  # offsets in seccomp_data


def seccomp_program(machine: str = "") -> bytes:
    """Build the filter as a BPF program for bubblewrap; empty on an unknown processor."""
    machine = machine or os.uname().machine
    if machine not in ARCHITECTURES:
        return b""
    column, architecture, _ = ARCHITECTURES[machine]

    def give(action: int) -> Step:
        return (RETURN, 0, 0, action)

    def when(test: int, value: int, action: int) -> list[Step]:
        return [(test, 0, 1, value), give(action)]

    def argument(index: int) -> Step:
        return (LOAD, 0, 0, ARGUMENTS_AT + 8 * index)  # the lower half, since all examined arguments have 32 bits

    families = [argument(0), *chain(*(when(EQUAL, family, ALLOW) for family in ALLOWED_SOCKET_FAMILIES.values()))]
    examined: dict[str, list[Step]] = {
        "clone": [argument(0), *when(ANY_BIT, sum(NAMESPACES.values()), ERROR | errno.EPERM)],
        "socket": [*families, give(ERROR | errno.EAFNOSUPPORT)],
        "socketpair": [*families, give(ERROR | errno.EAFNOSUPPORT)],
        "setsockopt": [
            argument(1), (EQUAL, 1, 0, SOL_SOCKET), give(ALLOW),
            argument(2), *chain(*(when(EQUAL, option, ERROR) for option in BUFFERS.values())),
        ],
    }  # fmt: skip
    steps = [(LOAD, 0, 0, ARCHITECTURE_AT), (EQUAL, 1, 0, architecture), give(ERROR | errno.ENOSYS)]
    steps += [(LOAD, 0, 0, NUMBER_AT), *when(AT_LEAST, NEWEST_CALL_NUMBER + 1, ERROR | errno.ENOSYS)]
    for numbers in FORBIDDEN_CALLS.values():
        if (number := numbers[column]) is not None:
            steps += when(EQUAL, number, ERROR | errno.ENOSYS)
    for name, judged in examined.items():
        steps += [(EQUAL, 0, len(judged) + 1, EXAMINED_CALLS[name][column]), *judged, give(ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in [*steps, give(ALLOW)])


def parser_program(machine: str = "") -> bytes:
    """Build the filter of a parser; empty on an unknown processor. Everything else is refused with EPERM."""
    machine = machine or os.uname().machine
    if machine not in ARCHITECTURES:
        return b""
    column, architecture, _ = ARCHITECTURES[machine]
    refuse, allow = (RETURN, 0, 0, ERROR | errno.EPERM), (RETURN, 0, 0, ALLOW)
    steps: list[Step] = [(LOAD, 0, 0, ARCHITECTURE_AT), (EQUAL, 1, 0, architecture), refuse, (LOAD, 0, 0, NUMBER_AT)]
    for numbers in PARSER_CALLS.values():
        steps += [(EQUAL, 0, 1, numbers[column]), allow]
    for numbers in PARSER_MEMORY_CALLS.values():
        judged = [(LOAD, 0, 0, ARGUMENTS_AT + 8 * 2), (ANY_BIT, 0, 1, PROT_EXEC), refuse, allow]
        steps += [(EQUAL, 0, len(judged), numbers[column]), *judged]
    return b"".join(struct.pack("=HBBI", *step) for step in [*steps, refuse])


def seccomp_profile(machine: str = "") -> str:
    """Build the same filter as a Docker profile; empty on an unknown processor."""
    machine = machine or os.uname().machine
    if machine not in ARCHITECTURES:
        return ""

    def rule(number: int, *names: str, **conditions: Any) -> dict[str, Any]:
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": number, **conditions}

    def when(index: int, value: int, test: str = "EQ", masked: int = 0) -> dict[str, Any]:
        return {"index": index, "value": value, "valueTwo": masked, "op": f"SCMP_CMP_{test}"}

    last = max(ALLOWED_SOCKET_FAMILIES.values())
    others = [when(0, family) for family in range(last) if family not in ALLOWED_SOCKET_FAMILIES.values()]
    rules = [rule(errno.ENOSYS, *FORBIDDEN_CALLS)]
    rules += [rule(errno.EPERM, "clone", args=[when(0, flag, "MASKED_EQ", flag)]) for flag in NAMESPACES.values()]
    for condition in (*others, when(0, last, "GT")):
        rules.append(rule(errno.EAFNOSUPPORT, "socket", "socketpair", args=[condition]))
    for option in BUFFERS.values():  # masked: the kernel reads 32 bits, the profile's comparison 64
        low = [when(1, 0xFFFFFFFF, "MASKED_EQ", SOL_SOCKET), when(2, 0xFFFFFFFF, "MASKED_EQ", option)]
        rules.append(rule(0, "setsockopt", args=low))
    made = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": [ARCHITECTURES[machine][2]], "syscalls": rules}
    return orjson.dumps(made).decode()
