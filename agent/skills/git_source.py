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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from agent.skills.archive import find_root
from agent.skills.errors import SkillError
from agent.skills.tree import check_path
from agent.web.addresses import AddressGuard, WebError
from catalogue import N_
from sandbox.processes import start_process

CLONE_SECONDS, WATCH_SECONDS = 60.0, 0.5
NOT_FOUND_CODE = 127  # of the shell
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
    try:
        parts = urlsplit(text)
        named = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and len(parts.path) > 1
    except ValueError:  # `https://[`, or a port that is no number
        return False
    return named and "@" not in parts.netloc and not re.search(r"[\s\x00-\x1f]", text)


@dataclass(frozen=True, slots=True)
class CloneBounds:
    """What a clone may reach and fill: public addresses and those of named hosts, bytes of one file, bytes of all."""

    guard: AddressGuard = field(default_factory=AddressGuard)
    file_bytes: int = 100 << 20
    bytes: int = 300 << 20


async def clone_skill(address: str, place: Path, bounds: CloneBounds = CloneBounds()) -> Path:
    """Clone into the empty folder `place`. Returns the skill's folder. Raises SkillError."""
    if not is_git_address(address):
        raise SkillError(N_("{address} is not an address such as https://host/owner/repository"), address=address)
    url, _hash, folder = address.partition("#")
    target = place / "repository"
    options = [word for option in (*_OPTIONS, *await _pin_address(url, bounds.guard)) for word in ("-c", option)]
    clone = ("clone", "--quiet", "--depth=1", "--single-branch", "--no-tags", "--no-recurse-submodules", "--template=")
    await _run_git([*options, *clone, "--", url, str(target)], place, bounds)
    return await asyncio.to_thread(_find_skill, target, folder)


def _find_skill(target: Path, folder: str) -> Path:
    place = target / check_path(folder) if folder else target
    if place.resolve() != place.absolute() or not place.is_dir():
        raise SkillError(N_("the repository does not have the folder {folder}"), folder=folder)
    shutil.rmtree(target / ".git")
    return find_root(place)


async def _pin_address(url: str, guard: AddressGuard) -> list[str]:
    """Return the options that make git use the checked addresses. Raises SkillError for one that is not public.

    A proxy looks the name up itself.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    try:
        replace(guard, ports=frozenset({port})).check_url(url)
        if "https" in urllib.request.getproxies():
            return []
        found = await guard.resolve(host, port)
    except WebError as error:
        raise SkillError(
            N_(
                "{address} cannot be cloned: {reason}. If it is a server of yours, list its host in"
                " `skills.private_hosts` of config.yaml"
            ),
            address=url,
            reason=str(error).rstrip("."),
        ) from error
    except OSError:
        return []  # git says that it does not find the host
    return [f"http.curloptResolve={host}:{port}:{','.join(each['host'] for each in found)}"]


async def _run_git(arguments: list[str], home: Path, bounds: CloneBounds) -> None:
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
    git = await start_process(
        *("/bin/sh", "-c", f'ulimit -f {bounds.file_bytes // 512}; exec git "$@"', "git"),
        *arguments,
        env=environment,
        cwd=home,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    said_later = asyncio.create_task(git.communicate(), name="git")
    try:
        async with asyncio.timeout(CLONE_SECONDS):
            while not said_later.done():
                await asyncio.wait({said_later}, timeout=WATCH_SECONDS)
                if await asyncio.to_thread(_folder_bytes, home) > bounds.bytes:
                    raise SkillError(N_("the repository is larger than {limit} MB"), limit=bounds.bytes >> 20)
        _out, said = said_later.result()
    except TimeoutError:
        raise SkillError(N_("cloning took longer than {seconds} seconds"), seconds=int(CLONE_SECONDS)) from None
    finally:
        if git.returncode is None:
            _end_session(git.pid)
            await git.wait()
        said_later.cancel()
    if git.returncode == NOT_FOUND_CODE:
        raise SkillError(N_("git is not installed on the machine that I run on"))
    if git.returncode:
        reason = " ".join(said.decode("utf-8", "replace").split())[-MAX_ERROR_CHARS:]
        raise SkillError(N_("git cannot clone it: {reason}"), reason=reason.replace(str(home), "…"))


def _folder_bytes(folder: Path) -> int:
    """Return the size of all files; one that disappears meanwhile does not count."""
    size = 0
    for place, _folders, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_size
    return size


def _end_session(pid: int) -> None:
    """Kill git with its transport processes."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
