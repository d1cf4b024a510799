"""Understand the addresses of skills that people copy: a repository, or a folder or SKILL.md on its web pages.

GitHub and its kind: `/OWNER/REPO/tree/REF/PATH` and `/blob/…`; GitLab: `/-/tree/…`; Gitea: `/src/branch/REF/PATH`;
Bitbucket: `/src/REF/PATH`. Our own form is `https://host/path#folder`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from agent.skills.errors import SkillError
from agent.skills.skill import SKILL_FILES
from agent.skills.tree import check_path
from catalogue import N_

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
