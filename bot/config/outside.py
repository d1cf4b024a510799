"""Read a secret from where it is kept: a file (`$file:PATH`), or what a program prints (`$exec:COMMAND`).

A variable `NAME_FILE` names the file of the secret `NAME`, as images for Docker do it.
Files are those of Docker and Kubernetes secrets, programs those of Vault, 1Password and the like. The program runs
without a shell, when the configuration is read: at a start and at each reload.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from catalogue import _

FILE, COMMAND = "$file:", "$exec:"
MAX_BYTES = 65_536
COMMAND_SECONDS = 30.0
_NAMES_FILE = re.compile(r"(\w+(?:_KEY|_TOKEN|_SECRET|_PASSWORD))_FILE")


class NotFetched(Exception):
    """A value could not be read; what is wrong, and the fix."""

    def __init__(self, wrong: str, fix: str) -> None:
        super().__init__(wrong)
        self.wrong, self.fix = wrong, fix


def is_outside(text: str) -> bool:
    """Return whether a text says where the value is kept."""
    return text.startswith((FILE, COMMAND))


def fetch(text: str, folder: Path, environ: Mapping[str, str]) -> str:
    """Return the value that a text names, without the line break at its end. Raises NotFetched. Blocks."""
    if text.startswith(FILE):
        data = _read_file(folder / os.path.expanduser(text.removeprefix(FILE)))
    else:
        data = _run(text.removeprefix(COMMAND), folder, environ)
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


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        fix = _("check the path, which starts at the folder of the config file, and that this user can read it")
        raise NotFetched(_("cannot be read: {why}", why=error.strerror or type(error).__name__), fix) from None


def _run(command: str, folder: Path, environ: Mapping[str, str]) -> bytes:
    """Return what a program prints. Its error output is not repeated: it may contain the secret."""
    fix = _("try it in a terminal as the user of the service")
    try:
        words = shlex.split(command)
        if not words:
            raise NotFetched(_("names no program"), _("write it as {example}", example=f"{COMMAND}vault read …"))
        done = subprocess.run(
            words,
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except ValueError as error:
        raise NotFetched(_("is no command line: {why}", why=error), fix) from None
    except subprocess.TimeoutExpired:
        raise NotFetched(_("did not end within {n:g} seconds", n=COMMAND_SECONDS), fix) from None
    except OSError as error:
        is_nowhere = "/" not in words[0] and shutil.which(words[0], path=environ.get("PATH")) is None
        why = os.strerror(errno.ENOENT) if is_nowhere else error.strerror  # also where a folder of PATH is closed
        wrong = _("cannot be started: {why}", why=why or type(error).__name__)
        raise NotFetched(wrong, _("check the name of the program and its path")) from None
    if done.returncode:
        raise NotFetched(_("ended with exit code {code}", code=done.returncode), fix)
    return done.stdout
