"""Fetch a skill from a git address: HTTPS only, one commit, no hooks, no submodules.

git reads no configuration of this machine; it uses the proxy and the certificates that the service uses.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from agent.skills.errors import SkillError
from agent.skills.found import choose_skill
from agent.skills.git_address import GitAddress, is_commit, parse_git_address, skill_folder
from agent.web.addresses import AddressGuard, WebError
from catalogue import N_
from sandbox.processes import start_process

CLONE_SECONDS, WATCH_SECONDS = 60.0, 0.5
NOT_FOUND_CODE = 127  # of the shell
MAX_ERROR_CHARS = 300
MAX_REFS_BYTES = 1 << 20
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


@dataclass(frozen=True, slots=True)
class CloneBounds:
    """What a clone may reach and fill: public addresses and those of named hosts, bytes of one file, bytes of all."""

    guard: AddressGuard = field(default_factory=AddressGuard)
    file_bytes: int = 100 << 20
    bytes: int = 300 << 20


async def clone_skill(address: str, place: Path, bounds: CloneBounds = CloneBounds(), wanted: str = "") -> Path:
    """Clone into the empty folder `place`. Returns the folder of the skill, of the `wanted` one where there are
    several. Raises SeveralSkills and SkillError."""
    git = parse_git_address(address)
    target = place / "repository"
    pinned = await _pin_address(git.url, bounds.guard)
    options = [word for option in (*_OPTIONS, *pinned) for word in ("-c", option)]
    ref, folder = "", skill_folder(git.folder.split("/")) if git.folder else ""
    if git.pinned:
        ref, folder = git.split(await _known_refs(git, options, place, bounds))
    if is_commit(ref):
        await _fetch_commit(git.url, ref, target, options, bounds)
    else:
        branch = (f"--branch={ref}",) if ref else ()
        flags = ("--quiet", "--depth=1", "--single-branch", "--no-tags", "--no-recurse-submodules", "--template=")
        await _run_git([*options, "clone", *flags, *branch, "--", git.url, str(target)], place, bounds)
    return await asyncio.to_thread(_find_skill, target, folder, wanted or git.wanted)


async def _known_refs(git: GitAddress, options: list[str], place: Path, bounds: CloneBounds) -> set[str]:
    """Return which of the refs that an address may mean the repository has."""
    listed = place / "refs"
    await _run_git([*options, "ls-remote", "--refs", "--", git.url, *git.refs()], place, bounds, listed)
    with listed.open("rb") as file:
        lines = file.read(MAX_REFS_BYTES).decode("utf-8", "replace").splitlines()
    return {line.partition("\t")[2] for line in lines}


async def _fetch_commit(url: str, commit: str, target: Path, options: list[str], bounds: CloneBounds) -> None:
    inside = [*options, "-C", str(target)]
    home = target.parent
    await _run_git([*options, "init", "--quiet", "--template=", str(target)], home, bounds)
    flags = ("--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
    await _run_git([*inside, "fetch", *flags, "--", url, commit], home, bounds)
    await _run_git([*inside, "checkout", "--quiet", "--detach", commit], home, bounds)


def _find_skill(target: Path, folder: str, wanted: str) -> Path:
    place = target / folder if folder else target
    if folder and not wanted and not os.path.lexists(place):  # it may be the name of a skill
        place, wanted = target, folder
    if place.resolve() != place.absolute() or not place.is_dir():
        raise SkillError(N_("the repository does not have the folder {folder}"), folder=folder)
    shutil.rmtree(target / ".git")
    return choose_skill(place, wanted)


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


async def _run_git(arguments: list[str], home: Path, bounds: CloneBounds, output: Path | None = None) -> None:
    """Run git, and write what it prints into the file `output`. Raises SkillError."""
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
        *(
            "/bin/sh",
            "-c",
            f'ulimit -f {bounds.file_bytes // 512}; exec >"$0"; exec git "$@"',
            str(output or os.devnull),
        ),
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
