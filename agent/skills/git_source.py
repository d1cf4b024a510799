"""Fetch a skill from a git address: HTTPS only, one commit, no hooks, no submodules.

git reads no configuration of this machine; it uses the proxy and the certificates that the service uses.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import ssl
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from agent.skills.archive import find_root
from agent.skills.errors import SkillError
from agent.skills.tree import check_path
from catalogue import N_

CLONE_SECONDS = 60.0
MAX_ERROR_CHARS = 300
SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
_OPTIONS = (
    "protocol.allow=never",
    "protocol.https.allow=always",
    "core.hooksPath=/dev/null",
    "core.symlinks=true",  # a link stays one, so that it is refused
    "core.fsmonitor=false",
    "credential.helper=",
    "submodule.recurse=false",
    "http.followRedirects=false",
)


def is_git_address(text: str) -> bool:
    """Return whether this is `https://host/path`, optionally followed by `#folder`."""
    parts = urlsplit(text)
    named = parts.scheme == "https" and bool(parts.hostname) and len(parts.path) > 1
    return named and "@" not in parts.netloc and not re.search(r"[\s\x00-\x1f]", text)


async def clone_skill(address: str, place: Path) -> Path:
    """Clone into the empty folder `place`. Returns the skill's folder. Raises SkillError."""
    if not is_git_address(address):
        raise SkillError(N_("{address} is not an address such as https://host/owner/repository"), address=address)
    url, _hash, folder = address.partition("#")
    target = place / "repository"
    options = [word for option in _OPTIONS for word in ("-c", option)]
    clone = ("clone", "--quiet", "--depth=1", "--single-branch", "--no-tags", "--no-recurse-submodules", "--template=")
    await _run_git([*options, *clone, "--", url, str(target)], place)
    return await asyncio.to_thread(_find_skill, target, folder)


def _find_skill(target: Path, folder: str) -> Path:
    place = target / check_path(folder) if folder else target
    if place.resolve() != place.absolute() or not place.is_dir():
        raise SkillError(N_("the repository does not have the folder {folder}"), folder=folder)
    shutil.rmtree(target / ".git")
    return find_root(place)


async def _run_git(arguments: list[str], home: Path) -> None:
    environment = {
        "PATH": SEARCH_PATH,
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
        **{f"{kind}_proxy": proxy for kind, proxy in urllib.request.getproxies().items() if kind in ("https", "no")},
    }
    if authorities := ssl.get_default_verify_paths().cafile:
        environment["GIT_SSL_CAINFO"] = authorities
    try:
        git = await asyncio.create_subprocess_exec(
            "git",
            *arguments,
            env=environment,
            cwd=home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise SkillError(N_("git is not installed on the machine that I run on")) from None
    try:
        async with asyncio.timeout(CLONE_SECONDS):
            _out, said = await git.communicate()
    except TimeoutError:
        raise SkillError(N_("cloning took longer than {seconds} seconds"), seconds=int(CLONE_SECONDS)) from None
    finally:
        if git.returncode is None:
            _end_session(git.pid)
            await git.wait()
    if git.returncode:
        reason = " ".join(said.decode("utf-8", "replace").split())[-MAX_ERROR_CHARS:]
        raise SkillError(N_("git cannot clone it: {reason}"), reason=reason.replace(str(home), "…"))


def _end_session(pid: int) -> None:
    """Kill git with its transport processes."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
