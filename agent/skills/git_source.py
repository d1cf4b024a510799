"""Fetch a skill from a git address: HTTPS only, one commit, no hooks, no submodules.

git reads no configuration of this machine; it uses the proxy and the certificates that the service uses.

Understand the addresses of skills that people copy: a repository, or a folder or SKILL.md on its web pages.

GitHub and its kind: `/OWNER/REPO/tree/REF/PATH` and `/blob/…`; GitLab: `/-/tree/…`; Gitea: `/src/branch/REF/PATH`;
Bitbucket: `/src/REF/PATH`. Our own form is `https://host/path#folder`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import ssl
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent.settings.network import choose_proxy
from agent.skills.found import choose_skill
from agent.skills.skill import SKILL_FILES, SkillError
from agent.skills.tree import check_path
from agent.web.addresses import AddressGuard, WebError
from catalogue import N_
from sandbox.processes import start_process

PAGES = ("tree", "blob", "raw", "edit")
GITEA_KINDS = ("branch", "tag", "commit")
README = ("readme", "readme-ov-file")  # of a page that was scrolled
RAW_HOST, RAW_OF = "raw.githubusercontent.com", "github.com"
MAX_REF_PARTS = 8  # a branch may have slashes in its name
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class GitAddress:
    """A repository to clone. `pinned` is a branch, tag or commit and then the folder, as the page's address has them;
    nothing says where one ends. Without it, `folder` is below the default branch. `wanted` names the skill."""

    url: str
    folder: str = ""
    pinned: tuple[str, ...] = ()
    wanted: str = ""

    def refs(self) -> Iterator[str]:
        """Yield the full names that the branch or tag may have."""
        for count in range(1, min(len(self.pinned), MAX_REF_PARTS) + 1):
            name = "/".join(self.pinned[:count])
            yield from (f"refs/heads/{name}", f"refs/tags/{name}")

    def split(self, known: Collection[str]) -> tuple[str, str]:
        """Return the branch, tag or commit, and the folder. `known` are the refs of the repository. Raises
        SkillError."""
        for count in range(min(len(self.pinned), MAX_REF_PARTS), 0, -1):
            name = "/".join(self.pinned[:count])
            if {f"refs/heads/{name}", f"refs/tags/{name}"} & {*known} or (count == 1 and is_commit(name)):
                return name, skill_folder(self.pinned[count:])
        raise SkillError(N_("the repository has no branch or tag {name}"), name=self.pinned[0])


def is_git_address(text: str) -> bool:
    """Return whether this is `https://host/path`, optionally followed by `#folder`."""
    try:
        parts = urlsplit(text)
        named = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and len(parts.path) > 1
    except ValueError:  # `https://[`, or a port that is no number
        return False
    return named and "@" not in parts.netloc and not re.search(r"[\s\x00-\x1f]", text)


def is_commit(name: str) -> bool:
    """Return whether this is the whole hash of a commit."""
    return bool(_COMMIT.fullmatch(name))


def parse_git_address(text: str) -> GitAddress:
    """Return the repository that an address names. Raises SkillError."""
    if not is_git_address(text):
        raise SkillError(N_("{address} is not an address such as https://host/owner/repository"), address=text)
    parts = urlsplit(text)
    names = [unquote(each) for each in parts.path.split("/") if each]
    word = "" if parts.fragment in README else unquote(parts.fragment)
    if parts.hostname == RAW_HOST and len(names) > 3:
        return GitAddress(f"https://{RAW_OF}/{'/'.join(names[:2])}", "", _without_heads(names[2:]), word)
    if "-" in names[2:-1] and names[(at := names.index("-", 2)) + 1] in PAGES:
        return GitAddress(_repository(parts.netloc, names[:at], ".git"), "", tuple(names[at + 2 :]), word)
    if len(names) > 3 and names[2] in PAGES:
        return GitAddress(_repository(parts.netloc, names[:2]), "", _without_heads(names[3:]), word)
    if len(names) > 3 and names[2] == "src":
        pinned = names[4:] if names[3] in GITEA_KINDS else names[3:]
        return GitAddress(_repository(parts.netloc, names[:2]), "", tuple(pinned), word)
    is_gitlab = (parts.hostname or "").startswith("gitlab")  # it redirects to this name, and redirects are not followed
    url = text.partition("#")[0]
    if parts.query.startswith("tab=") or is_gitlab:
        url = _repository(parts.netloc, names, ".git" if is_gitlab else "")
    return GitAddress(url, word)


def skill_folder(path: Sequence[str]) -> str:
    """Return the folder of a path, which may be that of a SKILL.md. Raises SkillError."""
    folder = "/".join(path[:-1] if path and path[-1] in SKILL_FILES else path)
    return str(check_path(folder)) if folder else ""


def _repository(host: str, names: Sequence[str], ending: str = "") -> str:
    path = "/".join(names)
    return f"https://{host}/{path.removesuffix('.git')}{ending}" if ending else f"https://{host}/{path}"


def _without_heads(names: Sequence[str]) -> tuple[str, ...]:
    """`refs/heads/main` is what GitHub's page of a raw file has in place of `main`."""
    return tuple(names[2:] if len(names) > 2 and names[0] == "refs" and names[1] in ("heads", "tags") else names)


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
        if choose_proxy(url):
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
