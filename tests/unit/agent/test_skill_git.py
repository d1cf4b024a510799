"""Skills from a real git server (git http-backend) over HTTPS."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from agent.skills.found import SeveralSkills
from agent.skills.git_source import CloneBounds, GitAddress, clone_skill, is_git_address, parse_git_address
from agent.skills.skill import SkillError, read_skill
from agent.web.addresses import AddressGuard, WebError
from tests.support.git_server import serve_git

SKILL = "---\nname: plot\ndescription: Draw a chart.\n---\nDo this.\n"

HERE = CloneBounds(AddressGuard(exempt=frozenset({"127.0.0.1", "::1"})))


def git(folder: Path, *words: str) -> None:
    name = ("-c", "user.name=Jane", "-c", "user.email=jane@example.org")
    subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "served" / "plot"
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "SKILL.md").write_text(SKILL)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "First")
    return folder


@pytest.fixture
async def server(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The address of the server, whose certificate the service trusts."""

    async with serve_git(repository.parents[1], tmp_path) as (address, certificate):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        yield address


def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


async def test_a_skill_is_cloned_without_its_history_and_hooks(tmp_path: Path, repository: Path, server: str) -> None:
    folder = await clone_skill(f"{server}/served/plot/.git", place(tmp_path), HERE)
    assert [path.name for path in folder.iterdir()] == ["SKILL.md"]


async def test_a_folder_of_a_repository_is_chosen(tmp_path: Path, repository: Path, server: str) -> None:
    (repository / "more" / "plot").mkdir(parents=True)
    (repository / "SKILL.md").rename(repository / "more" / "plot" / "SKILL.md")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Move")
    folder = await clone_skill(f"{server}/served/plot/.git#more/plot", place(tmp_path), HERE)
    assert read_skill(folder).name == "plot"


@pytest.mark.parametrize("folder", ["../plot", "nothing", "link"])
async def test_a_link_or_a_path_out_of_the_repository_is_refused(
    tmp_path: Path, repository: Path, server: str, folder: str
) -> None:
    (repository / "link").symlink_to("/etc")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Link")
    with pytest.raises(SkillError):
        await clone_skill(f"{server}/served/plot/.git#{folder}", place(tmp_path), HERE)


async def test_a_link_among_the_files_is_refused(tmp_path: Path, repository: Path, server: str) -> None:
    (repository / "secret").symlink_to("/etc/passwd")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Link")
    with pytest.raises(SkillError, match="secret is a link"):
        await clone_skill(f"{server}/served/plot/.git", place(tmp_path), HERE)


async def test_a_failure_says_why(tmp_path: Path, server: str) -> None:
    with pytest.raises(SkillError, match=r"git cannot clone it: .*not found"):
        await clone_skill(f"{server}/nothing/.git", place(tmp_path), HERE)


@pytest.mark.parametrize(
    "address",
    [
        "http://example.org/a",
        "ssh://example.org/a",
        "git@example.org:a/b",
        "ext::sh -c id",
        "file:///etc",
        "--upload-pack=id",
        "https://jane:secret@example.org/a",
        "https://example.org/a b",
        "https://example.org",
        "https://[",
        "https://example.org:x/a",
    ],
)
async def test_only_plain_https_addresses_are_cloned(tmp_path: Path, address: str) -> None:
    assert not is_git_address(address)
    with pytest.raises(SkillError):
        await clone_skill(address, tmp_path)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "10.0.0.1", "[::1]", "169.254.169.254", "0x7f000001"])
async def test_no_private_address_is_asked(tmp_path: Path, host: str) -> None:
    with pytest.raises(SkillError, match=r"cannot be cloned: .* public"):
        await clone_skill(f"https://{host}/a/b", tmp_path)


async def test_a_private_server_that_is_listed_is_cloned_from(tmp_path: Path, repository: Path, server: str) -> None:
    listed = CloneBounds(AddressGuard(private=("127.0.0.1",)))
    address = f"{server.replace('localhost', '127.0.0.1')}/served/plot/.git"
    with pytest.raises(SkillError, match="private_hosts"):
        await clone_skill(address, place(tmp_path))
    folder = await clone_skill(address, tmp_path / "place", listed)
    assert [path.name for path in folder.iterdir()] == ["SKILL.md"]


class OneAddress(AbstractResolver):
    """Every name has this address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host=self._address, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("host", "address", "is_allowed"),
    [
        ("git.corp.example", "10.1.2.3", True),
        ("GIT.corp.example.", "fd12::1", True),
        ("git.corp.example", "127.0.0.1", False),  # this machine only by its address
        ("git.corp.example", "169.254.169.254", False),
        ("git.corp.example", "0.0.0.0", False),  # noqa: S104  nothing is bound
        ("a.git.corp.example", "10.1.2.3", False),
        ("corp.example", "10.1.2.3", False),
        ("other.example", "10.9.9.9", True),  # its address is listed
        ("other.example", "10.9.9.8", False),
    ],
)
async def test_a_listed_host_may_have_a_private_address_and_no_other_may(
    host: str, address: str, is_allowed: bool
) -> None:
    guard = AddressGuard(resolver=OneAddress(address), private=("git.corp.example", "10.9.9.9"))
    if is_allowed:
        assert [each["host"] for each in await guard.resolve(host, 443)] == [address]
        return
    with pytest.raises(WebError, match="not public"):
        await guard.resolve(host, 443)


@pytest.mark.parametrize("bounds", [replace(HERE, file_bytes=1 << 20), replace(HERE, bytes=1 << 20)])
async def test_a_repository_that_fills_the_disk_is_given_up(
    tmp_path: Path, repository: Path, server: str, bounds: CloneBounds
) -> None:
    (repository / "large").write_bytes(os.urandom(4 << 20))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Large")
    with pytest.raises(SkillError):
        await clone_skill(f"{server}/served/plot/.git", place(tmp_path), bounds)


# ---------------------------------------------------------------- addresses that people copy


@pytest.mark.parametrize(
    ("address", "url", "pinned", "wanted"),
    [
        ("https://github.com/a/b/tree/main/skills/pdf", "https://github.com/a/b", ("main", "skills", "pdf"), ""),
        ("https://github.com/a/b/tree/main/skills#pdf", "https://github.com/a/b", ("main", "skills"), "pdf"),
        ("https://github.com/a/b/blob/v1/x/SKILL.md?plain=1", "https://github.com/a/b", ("v1", "x", "SKILL.md"), ""),
        (
            "https://github.com/a/b/raw/refs/heads/main/x/SKILL.md",
            "https://github.com/a/b",
            ("main", "x", "SKILL.md"),
            "",
        ),
        ("https://raw.githubusercontent.com/a/b/main/SKILL.md", "https://github.com/a/b", ("main", "SKILL.md"), ""),
        (
            "https://gitlab1.example/a/g/b/-/tree/main/x?ref_type=heads",
            "https://gitlab1.example/a/g/b.git",
            ("main", "x"),
            "",
        ),
        ("https://git.corp.example/a/b/-/blob/v2/SKILL.md", "https://git.corp.example/a/b.git", ("v2", "SKILL.md"), ""),
        ("https://codeberg.org/a/b/src/branch/main/x%20y", "https://codeberg.org/a/b", ("main", "x y"), ""),
        ("https://bitbucket.org/a/b/src/main/x/", "https://bitbucket.org/a/b", ("main", "x"), ""),
        ("https://github.com/a/b?tab=readme-ov-file#readme", "https://github.com/a/b", (), ""),
        ("https://gitlab1.example/a/b", "https://gitlab1.example/a/b.git", (), ""),
        ("https://github.com/a/b.git", "https://github.com/a/b.git", (), ""),
    ],
)
def test_an_address_that_was_copied_names_a_repository(
    address: str, url: str, pinned: tuple[str, ...], wanted: str
) -> None:
    assert parse_git_address(address) == GitAddress(url, "", pinned, wanted)


@pytest.fixture
def collection(repository: Path) -> Path:
    """The same repository with three skills, one below a dot folder, and a branch with a slash in its name."""
    (repository / "SKILL.md").unlink()
    for folder in ("skills/pdf", "skills/.curated/table", "template"):
        (repository / folder).mkdir(parents=True)
        name = folder.rpartition("/")[2]
        (repository / folder / "SKILL.md").write_text(SKILL.replace("plot", name))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Three")
    git(repository, "branch", "-M", "main")
    git(repository, "checkout", "-qb", "feature/more")
    (repository / "skills/pdf/SKILL.md").write_text(SKILL.replace("plot", "pdf-more"))
    git(repository, "commit", "-qam", "More")
    git(repository, "tag", "v2")
    git(repository, "checkout", "-q", "main")
    (repository.parent / "plot.git").symlink_to("plot")  # GitLab has both names
    return repository


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("tree/main/skills/pdf", "pdf"),
        ("blob/main/skills/pdf/SKILL.md", "pdf"),
        ("tree/feature/more/skills/pdf", "pdf-more"),
        ("blob/v2/skills/pdf/SKILL.md", "pdf-more"),
        ("tree/main/skills/.curated", "table"),
        ("tree/main#table", "table"),
        ("-/tree/main/skills/pdf?ref_type=heads", "pdf"),
    ],
)
async def test_the_address_of_a_page_installs_its_skill(
    tmp_path: Path, collection: Path, server: str, path: str, name: str
) -> None:
    folder = await clone_skill(f"{server}/served/plot/{path}", place(tmp_path), HERE)
    assert read_skill(folder).name == name


async def test_a_page_of_a_commit_installs_its_skill(tmp_path: Path, collection: Path, server: str) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "main"], cwd=collection, check=True, capture_output=True, text=True
    ).stdout.strip()
    folder = await clone_skill(f"{server}/served/plot/tree/{commit}/template", place(tmp_path), HERE)
    assert read_skill(folder).name == "template"


async def test_a_repository_with_several_skills_lists_them_and_one_is_chosen_by_name(
    tmp_path: Path, collection: Path, server: str
) -> None:
    with pytest.raises(SeveralSkills, match="it has 3 skills: table, pdf, template") as several:
        await clone_skill(f"{server}/served/plot", place(tmp_path), HERE)
    assert [(each.name, each.folder) for each in several.value.found] == [
        ("table", "skills/.curated/table"),
        ("pdf", "skills/pdf"),
        ("template", "template"),
    ]
    for number, (address, wanted) in enumerate([("", "pdf"), ("#pdf", ""), ("/tree/main/skills", "pdf")]):
        (new := tmp_path / f"again{number}").mkdir()
        folder = await clone_skill(f"{server}/served/plot{address}", new, HERE, wanted)
        assert read_skill(folder).name == "pdf"
    (new := tmp_path / "none").mkdir()
    with pytest.raises(SkillError, match=r"it has no skill docx\. It has: table, pdf, template"):
        await clone_skill(f"{server}/served/plot", new, HERE, "docx")


async def test_a_branch_that_is_not_there_is_named(tmp_path: Path, collection: Path, server: str) -> None:
    with pytest.raises(SkillError, match="no branch or tag nothing"):
        await clone_skill(f"{server}/served/plot/tree/nothing/skills/pdf", place(tmp_path), HERE)
