"""Read a secret from where it is kept: a file (`$file:PATH`), or what a program prints (`$exec:COMMAND`).

A variable `NAME_FILE` names the file of the secret `NAME`, as images for Docker do it.
Files are those of Docker and Kubernetes secrets, programs those of Vault, 1Password and the like. The program runs
without a shell and a terminal, when the configuration is read: at a start and at each reload.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from catalogue import _

FILE, COMMAND = "$file:", "$exec:"
MAX_BYTES = 65_536
SECONDS = 30.0  # in which a file or a program gives its value
LOOK_MILLISECONDS = 50  # between two looks whether a program has ended
_NAMES_FILE = re.compile(r"(\w+(?:_KEY|_TOKEN|_SECRET|_PASSWORD))_FILE")


class NotFetched(Exception):
    """A value could not be read; what is wrong, and the fix."""

    def __init__(self, wrong: str, fix: str) -> None:
        super().__init__(wrong)
        self.wrong, self.fix = wrong, fix


def is_outside(text: str) -> bool:
    """Return whether a text says where the value is kept."""
    return text.startswith((FILE, COMMAND))


def fetch(text: str, folder: Path, environ: Mapping[str, str], seconds: float = SECONDS) -> str:
    """Return the value that a text names, without the line break at its end. Raises NotFetched. Blocks."""
    if text.startswith(FILE):
        data = _read_file(folder / os.path.expanduser(text.removeprefix(FILE)), seconds)
    else:
        data = _run(text.removeprefix(COMMAND), folder, environ, seconds)
    if len(data) > MAX_BYTES:
        raise NotFetched(_("is longer than {n} KB", n=MAX_BYTES >> 10), _("name what holds one secret alone"))
    try:
        value = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise NotFetched(_("is not UTF-8 text"), _("name what holds one secret alone")) from None
    if not value.strip():
        raise NotFetched(_("is empty"), _("put the secret there"))
    return value


def files_of_secrets(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return each secret that has no value but a variable with its file: its name → that variable and the file."""
    found = ((_NAMES_FILE.fullmatch(name), name) for name in environ if environ[name])
    return {match[1]: (name, environ[name]) for match, name in found if match and not environ.get(match[1])}


def _read_file(path: Path, seconds: float) -> bytes:
    """Return what a file has, also a named pipe, for whose writer it waits."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _read(file, time.monotonic() + seconds)
        finally:
            os.close(file)
    except TimeoutError:
        fix = _("check the path, and what writes into this pipe")
        raise NotFetched(_("gave nothing within {n:g} seconds", n=seconds), fix) from None
    except OSError as error:
        fix = _("check the path, which starts at the folder of the config file, and that this user can read it")
        raise NotFetched(_("cannot be read: {why}", why=error.strerror or type(error).__name__), fix) from None


def _read(file: int, deadline: float, is_over: Callable[[], bool] = lambda: False) -> bytes:
    """Read until the end, the bound, or `is_over` with nothing left. Raises TimeoutError and OSError."""
    data, poller = b"", select.poll()
    poller.register(file, select.POLLIN)
    while len(data) <= MAX_BYTES:
        over = is_over()  # before the look: what was written before the end is there
        if poller.poll(0 if over else LOOK_MILLISECONDS):
            piece = os.read(file, MAX_BYTES + 1 - len(data))
            if not piece:
                break
            data += piece
        elif over:
            break
        if time.monotonic() > deadline:
            raise TimeoutError
    return data


def _run(command: str, folder: Path, environ: Mapping[str, str], seconds: float) -> bytes:
    """Return what a program prints. Its error output is not repeated: it may contain the secret."""
    fix = _("try it in a terminal as the user of the service")
    try:
        words = shlex.split(command)
        if not words:
            raise NotFetched(_("names no program"), _("write it as {example}", example=f"{COMMAND}vault read …"))
        data, code = _run_bounded(words, folder, environ, time.monotonic() + seconds)
    except ValueError as error:
        raise NotFetched(_("is no command line: {why}", why=error), fix) from None
    except TimeoutError:  # before OSError, of which it is one
        raise NotFetched(_("did not end within {n:g} seconds", n=seconds), fix) from None
    except OSError as error:
        is_nowhere = "/" not in words[0] and shutil.which(words[0], path=environ.get("PATH")) is None
        why = os.strerror(errno.ENOENT) if is_nowhere else error.strerror  # also where a folder of PATH is closed
        wrong = _("cannot be started: {why}", why=why or type(error).__name__)
        raise NotFetched(wrong, _("check the name of the program and its path")) from None
    if code and len(data) <= MAX_BYTES:
        raise NotFetched(_("ended with exit code {code}", code=code), fix)
    return data


def _run_bounded(words: list[str], folder: Path, environ: Mapping[str, str], deadline: float) -> tuple[bytes, int]:
    """Return the first bytes that a program prints, and its exit code. What does not end is killed, with its children.

    A child that goes on and keeps the pipe, such as an agent with the keys, is not waited for.
    """
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # to kill its children, too
    )
    with process:
        try:
            if process.stdout is None:
                raise RuntimeError("the program has no pipe")
            data = _read(process.stdout.fileno(), deadline, lambda: process.poll() is not None)
            while len(data) <= MAX_BYTES and process.poll() is None:
                if time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(LOOK_MILLISECONDS / 1000)  # it closed its output and works on
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    return data, process.returncode
