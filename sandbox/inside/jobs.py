"""Child processes of the command server: a command's bash, or a file operation.

The answer of a file operation begins with "+" and has the result, or with "-" and has the reason for its failure.
Standard library only, Python 3.9+.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import resource
import stat
import time
from collections.abc import Callable
from typing import Any

from sandbox.inside import relay, search

ROOT, WORKSPACE = "/mnt/user-data", "/mnt/user-data/workspace"
# The command comes by descriptor: arguments and environment end at 128 KiB. The trap reports the shell's last folder.
SHELL_SCRIPT = 'IFS= read -rd "" -u 9 __command; exec 9<&-; trap "pwd -P >&8" EXIT; eval "$__command"'
PR_SET_CHILD_SUBREAPER = 36  # prctl option

prctl = ctypes.CDLL(None).prctl
prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def exec_shell(frame: dict[str, Any], stdin: int, out: int, cwd_pipe: int, processes: int) -> None:
    """Become the bash that runs the command."""
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    script = os.memfd_create("command")
    os.write(script, frame["command"].encode("utf-8", "replace"))
    os.lseek(script, 0, os.SEEK_SET)
    os.dup2(stdin, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    # Move them out of the way first: one of them may be 8 or 9.
    cwd_pipe, script = os.dup2(cwd_pipe, 100, inheritable=False), os.dup2(script, 101, inheritable=False)
    os.dup2(cwd_pipe, 8)
    os.dup2(script, 9)
    try:
        os.chdir(frame["cwd"])
    except OSError as error:
        os.chdir(WORKSPACE)
        os.write(1, f"[{frame['cwd']}: {error.strerror}; running in {WORKSPACE}]\n".encode())
    everything = {**os.environ, **frame["env"]}  # noqa: TID251  the sandbox's own environment, not the service's
    os.execve("/bin/bash", ["bash", "-c", SHELL_SCRIPT], everything)  # noqa: S606  a command may run any program


def run_file_operation(frame: dict[str, Any], data: memoryview, out: int) -> None:
    """Run a file operation and write its answer."""
    try:
        answer = b"+" + (write_path(frame, data) if frame["op"] == "write" else OPERATIONS[frame["op"]](frame))
    except OSError as error:
        answer = f"-{frame['path']}: {error.strerror}".encode("utf-8", "replace")
    except re.error as error:
        answer = f"-not a regular expression: {error}".encode("utf-8", "replace")
    view = memoryview(answer)
    while view:
        view = view[os.write(out, view) :]


def read_path(frame: dict[str, Any]) -> bytes:
    fd = os.open(frame["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    what = search.entry_kind(os.fstat(fd))
    if what not in ("file", "hard link"):
        raise OSError(errno.EINVAL, f"is a {what}, not a file")
    with open(fd, "rb") as file:
        file.seek(frame["offset"])
        return file.read(frame["limit"])


def write_path(frame: dict[str, Any], data: memoryview) -> bytes:
    path = os.path.realpath(frame["path"])
    if not path.startswith(ROOT + "/"):
        raise OSError(errno.EACCES, f"only files below {ROOT} can be written")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        before: os.stat_result | None = os.stat(path)
    except FileNotFoundError:
        before = None
    if before and not stat.S_ISREG(before.st_mode):
        raise OSError(errno.EINVAL, f"is a {search.entry_kind(before)}, not a file")
    if frame["append"]:
        with open(path, "ab") as file:
            file.write(data)
        return b""
    # Write a draft and rename it: a stop may kill this process at any point.
    draft = os.path.join(os.path.dirname(path), f".{os.getpid()}.{time.monotonic_ns()}.draft")
    try:
        with open(draft, "xb") as file:
            file.write(data)
            if before:
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    return b""


def stat_path(frame: dict[str, Any]) -> bytes:
    path = os.path.realpath(frame["path"])
    found = os.lstat(path)
    return json.dumps([search.readable_name(path), found.st_size, search.entry_kind(found)]).encode()


def resolve_path(frame: dict[str, Any]) -> bytes:
    return search.readable_name(os.path.realpath(frame["path"])).encode()


def search_folder(frame: dict[str, Any]) -> bytes:
    """Run ls, glob or grep on an open folder."""
    top = os.open(frame["path"], os.O_RDONLY | os.O_DIRECTORY)
    if frame["op"] == "ls":
        return json.dumps(search.list_entries(top, frame["depth"], frame["limit"])).encode()
    if frame["op"] == "glob":
        return json.dumps(search.find_files(top, frame["pattern"], frame["limit"])).encode()
    return json.dumps(search.find_lines(top, frame["regex"], frame["pattern"], frame["limit"])).encode()


def dial_host(frame: dict[str, Any]) -> bytes:
    relay.dial_port(frame["port"], frame["socket"], frame["ticket"])
    return b""


OPERATIONS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "read": read_path,
    "stat": stat_path,
    "realpath": resolve_path,
    "ls": search_folder,
    "glob": search_folder,
    "grep": search_folder,
    "dial": dial_host,
}
