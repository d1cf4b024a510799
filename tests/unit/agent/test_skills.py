"""Skills: read leniently, judged like the reference validator, and changed with an operator's consent."""

from __future__ import annotations

import io
import os
import stat
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import skills_ref  # type: ignore[import-untyped]  # it has no type hints for its users

from agent.skills import changes
from agent.skills.archive import unpack_archive
from agent.skills.changes import RollBack
from agent.skills.library import (
    MAX_DESCRIBED,
    MAX_SEARCHED_FOLDERS,
    SkillFolders,
    SkillLibrary,
    SkillSet,
    SkillState,
    TurnSkills,
)
from agent.skills.readiness import Lacks, find_lacks, lacks_without_commands
from agent.skills.skill import SkillError, read_skill
from agent.skills.tree import check_tree
from sandbox.base import SHARED_MODULES, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.settings import SandboxSettings
from tests.support.engines import need_bubblewrap

PLAIN = "---\nname: plot\ndescription: Draw a chart. Use it for numbers.\n---\nDo this.\n"


def write_skill(root: Path, name: str = "plot", text: str = PLAIN, **files: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text)
    for path, content in files.items():
        (folder / path.replace("__", ".")).write_text(content)
    return folder


def skill_text(*lines: str, name: str = "plot", description: str = "Draw a chart.") -> str:
    return "\n".join(["---", f"name: {name}", f"description: {description}", *lines, "---", "Do this.", ""])


FORMS = {  # the text, and whether the specification allows it
    "plain": (PLAIN, True),
    "all fields": (skill_text("license: MIT", "compatibility: Python 3", "metadata:", "  author: us"), True),
    "tools as text": (skill_text("allowed-tools: Bash(git:*) Read"), True),
    "tools as list": (skill_text("allowed-tools:", "  - Bash(git:*)", "  - Read"), True),
    "tools in brackets": (skill_text("allowed-tools: [Read, Grep]"), False),
    "unquoted colon": (skill_text(description="Use when: you have numbers"), False),
    "unknown field": (skill_text("user-invocable: true"), False),
    "capitals": (skill_text(name="Plot"), False),
    "another name": (skill_text(name="chart"), False),
    "two hyphens": (skill_text(name="plot--it"), False),
    "long description": (skill_text(description="x" * 1025), False),
    "compatibility as mapping": (skill_text("compatibility:", "  nodejs: 18"), False),
    "long compatibility": (skill_text("compatibility: " + "x" * 501), False),
    "a number as name": (skill_text(name="42"), False),
    "a key twice": (skill_text("license: MIT", "license: BSD"), False),
    "no name": ("---\ndescription: Draw.\n---\n", False),
    "folded text": (skill_text(description=">\n  Draw a chart\n  of numbers."), True),
    "windows lines": (PLAIN.replace("\n", "\r\n"), True),
    "true as text": (skill_text(description="yes"), True),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_odd_skill_loads_with_the_verdict_of_the_reference_validator(tmp_path: Path, form: str) -> None:
    text, valid = FORMS[form]
    folder = write_skill(tmp_path, text=text)
    (folder / "SKILL.md").write_bytes(text.encode())
    skill = read_skill(folder)
    assert skill.description
    assert (not skill.warnings) is valid, [*map(str, skill.warnings)]
    assert (not skills_ref.validate(folder)) is valid


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no front matter", "does not begin with"),
        ("---\nname: plot\n---\n", "no description"),
        ("---\nname: [\n---\n", "not YAML"),
        ("---\n- a list\n---\n", "not YAML"),
    ],
)
def test_a_hopeless_skill_says_why(tmp_path: Path, text: str, reason: str) -> None:
    folder = write_skill(tmp_path, text=text)
    with pytest.raises(SkillError, match=reason):
        read_skill(folder)
    assert skills_ref.validate(folder)


def test_allowed_tools_are_read_from_a_text_and_a_list(tmp_path: Path) -> None:
    wanted = ("Bash(git add:*, git commit:*)", "Read")
    text = skill_text("allowed-tools: Bash(git add:*, git commit:*), Read")
    assert read_skill(write_skill(tmp_path, text=text)).allowed_tools == wanted
    text = skill_text("allowed-tools:", *(f"  - {each}" for each in wanted))
    assert read_skill(write_skill(tmp_path, text=text)).allowed_tools == wanted


# ------------------------------------------------------------ archives


def archive(files: Mapping[str, bytes | str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return packed.getvalue()


def raw_archive(*entries: tuple[zipfile.ZipInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        for info, content in entries:
            out.writestr(info, content)
    return packed.getvalue()


def link_entry() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("plot/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def lying_size() -> bytes:
    """An entry of 60 MB that claims to have 10 bytes, in both headers."""
    data = bytearray(archive({"SKILL.md": PLAIN, "zeros.txt": b"\0" * (60 << 20)}))
    size = (60 << 20).to_bytes(4, "little")
    assert data.count(size) == 2
    return bytes(data.replace(size, (10).to_bytes(4, "little")))


def encrypted() -> bytes:
    data = bytearray(archive({"SKILL.md": PLAIN}))
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


SKILL_ENTRY = (zipfile.ZipInfo("plot/SKILL.md"), PLAIN.encode())
HOSTILE: dict[str, Callable[[], bytes]] = {  # made where they are used: two take a quarter of a second
    "..": lambda: archive({"SKILL.md": PLAIN, "../x": "x"}),
    "absolute": lambda: archive({"SKILL.md": PLAIN, "/etc/x": "x"}),
    "backslash": lambda: archive({"SKILL.md": PLAIN, "a\\b": "x"}),
    "colon": lambda: archive({"SKILL.md": PLAIN, "c:x": "x"}),
    "link": lambda: raw_archive(SKILL_ENTRY, (link_entry(), b"/etc/passwd")),
    "encrypted": encrypted,
    "case twice": lambda: archive({"SKILL.md": PLAIN, "a.txt": "1", "A.TXT": "2"}),
    "unpacked too large": lambda: archive({"SKILL.md": PLAIN, "zeros.txt": b"\0" * (51 << 20)}),
    "lying size": lying_size,
    "elf": lambda: archive({"SKILL.md": PLAIN, "tool": b"\x7fELF\2\1\1"}),
    "pe": lambda: archive({"SKILL.md": PLAIN, "tool.txt": b"MZ\x90\0"}),
    "mach-o": lambda: archive({"SKILL.md": PLAIN, "tool": bytes.fromhex("cffaedfe07000001")}),
    "two skills": lambda: archive({"a/SKILL.md": PLAIN, "b/SKILL.md": PLAIN}),
    "a skill inside": lambda: archive({"SKILL.md": PLAIN, "more/SKILL.md": PLAIN}),
    "none": lambda: archive({"README.md": "x"}),
    "many files": lambda: archive({"SKILL.md": PLAIN, **{f"f{n}": "" for n in range(2001)}}),
    "no archive": lambda: b"PK not really",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(SkillError):
        unpack_archive(HOSTILE[name](), place)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(place)] == []


@pytest.mark.parametrize("prefix", ["", "plot/"])
def test_an_archive_has_one_folder_or_is_flat(tmp_path: Path, prefix: str) -> None:
    data = archive({f"{prefix}SKILL.md": PLAIN, f"{prefix}scripts/a.py": "print(1)", "__MACOSX/x": "x"})
    folder = unpack_archive(data, tmp_path)
    assert read_skill(folder).name == "plot"
    assert (folder / "scripts/a.py").read_text() == "print(1)"


def test_a_link_in_a_folder_is_refused(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(SkillError, match="link"):
        check_tree(folder)


# ------------------------------------------------------------ the library


@pytest.fixture
def library(tmp_path: Path) -> SkillLibrary:
    folders = SkillFolders(tmp_path / "custom", (tmp_path / "extra",), tmp_path / "public")
    return SkillLibrary(folders, tmp_path / "data" / "skills")


def states(library: SkillLibrary) -> dict[str, SkillState]:
    library.reload()
    return {name: each.state for name, each in library.current.skills.items()}


async def test_the_custom_folder_wins_and_changes_are_seen_at_once(library: SkillLibrary) -> None:
    write_skill(library.folders.public, text=PLAIN.replace("Do this", "Public"))
    assert (await library.refresh()).skills["plot"].skill.body == "Public."
    write_skill(library.folders.extra[0] / "deep" / "er", text=PLAIN.replace("Do this", "Extra"))
    assert (await library.refresh()).skills["plot"].skill.body == "Extra."
    folder = write_skill(library.folders.custom, tool__py="one")
    assert (await library.refresh()).skills["plot"].skill.body == "Do this."
    (folder / "tool.py").write_text("two")
    await library.refresh()
    assert (library.view / "plot" / "tool.py").read_text() == "two"
    (folder / "SKILL.md").unlink()
    assert (await library.refresh()).skills["plot"].skill.body == "Extra."


async def test_turns_look_at_most_once_a_second_at_the_files(library: SkillLibrary) -> None:
    write_skill(library.folders.custom)
    began = time.time()
    assert (await library.refresh(began)).skills["plot"].skill.body == "Do this."
    write_skill(library.folders.custom, text=PLAIN.replace("Do this.", "Do that."))
    for later in (0.0, 0.9):  # the look was later than it began, or shortly before
        assert (await library.refresh(began + later)).skills["plot"].skill.body == "Do this."
    assert (await library.refresh(time.time() + 1)).skills["plot"].skill.body == "Do that."


async def test_an_extra_folder_is_searched_below_dot_folders_and_the_own_one_is_not(library: SkillLibrary) -> None:
    extra = library.data.parent / "collection"
    write_skill(extra / "skills/.curated", "curated", PLAIN.replace("plot", "curated"))
    write_skill(extra / ".venv/lib", "package", PLAIN.replace("plot", "package"))
    write_skill(library.folders.custom / ".left.new", "left", PLAIN.replace("plot", "left"))
    library.folders = replace(library.folders, extra=(extra,))
    found = await library.refresh()
    assert ["curated" in found.skills, "package" in found.skills, "left" in found.skills] == [True, False, False]
    many = library.data.parent / "many"
    for number in range(MAX_SEARCHED_FOLDERS):
        (many / str(number)).mkdir(parents=True)
    library.folders = replace(library.folders, extra=(many,))
    faults = (await library.refresh()).faults
    assert str(faults["extra/many"]) == "only the first 2000 folders in it were searched for skills"


async def test_the_view_holds_enabled_skills_without_links(library: SkillLibrary) -> None:
    folder = write_skill(library.folders.custom, tool__py="x")
    (folder / "secret").symlink_to("/etc/passwd")
    write_skill(library.folders.custom, "other", PLAIN.replace("plot", "other"))
    write_skill(library.folders.custom, "broken", "nothing")
    current = await library.refresh()
    assert [*current.faults] == ["custom/broken"]
    found = {path.relative_to(library.view).as_posix() for path in library.view.rglob("*")}
    shared = {f"{SHARED_MODULES}/skill_program.py", f"{SHARED_MODULES}/sandbox/inside/office.py"}
    assert shared < found
    assert {oct((library.view / name).stat().st_mode)[-3:] for name in shared} == {"644"}
    assert sorted(name for name in found if not name.startswith(SHARED_MODULES)) == [
        "INDEX.md", "other", "other/SKILL.md", "plot", "plot/SKILL.md", "plot/tool.py",
    ]  # fmt: skip
    changes.set_enabled(library, "other", enabled=False)
    assert not (library.view / "other").exists()
    assert states(library) == {"other": SkillState.DISABLED, "plot": SkillState.ENABLED}
    with pytest.raises(SkillError, match="installed but disabled"):
        library.current.require("other")
    changes.set_enabled(library, "other", enabled=True)
    assert (library.view / "other" / "SKILL.md").is_file()
    assert oct((library.view / "plot").stat().st_mode)[-3:] == "755"


async def test_the_brief_is_sorted_stable_and_short(library: SkillLibrary) -> None:
    for name in ("b", "a"):
        write_skill(library.folders.custom, name, skill_text(name=name))
    brief = (await library.refresh()).brief()
    assert brief.index("- a: Draw a chart.") < brief.index("- b: ")
    (library.folders.custom / "a" / "new.txt").write_text("x")
    assert (await library.refresh()).brief() == brief
    assert "- b:" not in library.current.brief(["a"])
    for number in range(MAX_DESCRIBED):
        write_skill(library.folders.custom, f"s{number}", skill_text(name=f"s{number}"))
    brief = (await library.refresh()).brief()
    assert "Draw" not in brief
    assert "s17" in brief
    assert "INDEX.md" in brief
    assert "- s17: Draw a chart." in (library.view / "INDEX.md").read_text()
    assert SkillSet().brief() == ""


def install(library: SkillLibrary, text: str = PLAIN, **files: str) -> changes.SkillChange:
    change = changes.stage_skill(library, write_skill(library.data.parent / "incoming", text=text, **files), "a test")
    changes.accept_change(library, change.hash)
    return change


def test_a_changed_file_disables_an_installed_skill_until_accepted(library: SkillLibrary) -> None:
    assert install(library, run__py="print(1)").is_new
    assert states(library) == {"plot": SkillState.ENABLED}
    script = library.folders.custom / "plot" / "run.py"
    status = script.stat()
    script.write_text("print(2)")
    os.utime(script, ns=(status.st_atime_ns, status.st_mtime_ns))  # as if nobody had written to it
    assert states(library) == {"plot": SkillState.CHANGED}
    assert not (library.view / "plot").exists()
    change = changes.stage_waiting(library, "plot")
    assert "-print(1)" in change.diff
    assert "+print(2)" in change.diff
    script.write_text("print(3)")
    with pytest.raises(SkillError, match="changed since then"):
        changes.accept_change(library, change.hash)
    script.write_text("print(2)")
    assert changes.accept_change(library, change.hash) == "plot"
    assert states(library) == {"plot": SkillState.ENABLED}
    assert (library.view / "plot" / "run.py").read_text() == "print(2)"


def test_versions_are_kept_and_rolled_back(library: SkillLibrary) -> None:
    first = install(library)
    second = install(library, PLAIN.replace("Do this", "Do that"))
    assert not second.is_new
    assert "+Do that." in second.diff
    assert changes.plan_roll_back(library.records(), "plot") == (second.hash, first.hash)
    wanted = RollBack(second.hash, first.hash, is_repeated=True)
    for _ in range(2):  # the same request again changes nothing
        assert changes.roll_back(library, "plot", wanted)
        assert library.current.skills["plot"].skill.body == "Do this."
    with pytest.raises(SkillError, match="has changed since then"):
        changes.roll_back(library, "plot", replace(wanted, is_repeated=False))
    assert not changes.roll_back(library, "plot", RollBack(first.hash, "", is_repeated=False))
    assert library.current.skills == {}
    assert not changes.roll_back(library, "plot", RollBack(first.hash, "", is_repeated=True))


def test_a_proposal_changes_nothing_until_accepted(library: SkillLibrary) -> None:
    write_skill(library.folders.public, run__py="print(1)")
    change = changes.stage_files(library, "plot", {"run.py": "print(2)", "notes.md": "n"}, "the agent")
    assert "-print(1)" in change.diff
    assert "b/notes.md" in change.diff
    library.reload()
    assert (library.current.skills["plot"].folder / "run.py").read_text() == "print(1)"
    changes.decline_change(library, change.hash)
    with pytest.raises(SkillError, match="decided before"):
        changes.accept_change(library, change.hash)
    change = changes.stage_files(library, "plot", {"run.py": "print(2)"}, "the agent")
    assert changes.accept_change(library, change.hash[:32]) == "plot"
    assert (library.view / "plot" / "run.py").read_text() == "print(2)"
    assert (library.folders.public / "plot" / "run.py").read_text() == "print(1)"
    assert changes.roll_back(library, "plot")  # to the shipped one
    assert (library.view / "plot" / "run.py").read_text() == "print(1)"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("plot", {"../x": "x", "SKILL.md": PLAIN}),
        ("plot", {"run.py": "x"}),
        ("chart", {"SKILL.md": PLAIN}),
        ("../plot", {"SKILL.md": PLAIN}),
        ("plot", {"SKILL.md": "no fields"}),
    ],
)
def test_a_bad_proposal_is_refused(library: SkillLibrary, name: str, files: dict[str, str]) -> None:
    with pytest.raises(SkillError):
        changes.stage_files(library, name, files, "the agent")
    assert library.records().staged == {}


def test_a_sub_agent_has_no_skill_that_its_lead_lacks() -> None:
    lead = TurnSkills(SkillSet(), allow=("chart", "documents"))
    assert lead.narrowed(()) is lead
    assert lead.narrowed(("chart", "web-scraper")).allow == ("chart",)
    assert TurnSkills(SkillSet()).narrowed(("chart",)).allow == ("chart",)
    with pytest.raises(SkillError):
        lead.narrowed(("web-scraper",)).require("chart")


def test_sandboxes_see_only_the_skills_that_are_allowed(library: SkillLibrary) -> None:
    for name in ("plot", "chart"):
        write_skill(library.folders.custom, name, skill_text(name=name))
    library.reload()
    assert {path.name for path in library.view.iterdir()} >= {"plot", "chart"}
    library.folders = replace(library.folders, allow=("chart",))
    library.reload()
    assert {path.name for path in library.view.iterdir()} == {"chart", "INDEX.md", SHARED_MODULES}
    assert "plot" not in (library.view / "INDEX.md").read_text()
    assert set(library.current.skills) >= {"plot", "chart"}, "operators still see it"


DECLARED = skill_text(
    "metadata:", "  needs: no-such-package program:no-such-program", "  uses: network", name="declared"
)


async def test_what_skills_lack_is_what_their_sandbox_has_not(library: SkillLibrary, tmp_path: Path) -> None:
    need_bubblewrap()
    root, packages = library.folders.custom, tmp_path / "packages"
    write_skill(root, "declared", DECLARED)
    write_skill(root, "at-hand", skill_text("metadata:", "  needs: here program:python3", name="at-hand"))
    ready = "import json\nimport tool\nfrom here import x\ntry:\n    import nowhere\nexcept ImportError:\n    pass\n"
    write_skill(root, "imports", skill_text(name="imports"), run__py=ready, tool__py="")
    write_skill(root, "gone", skill_text(name="gone"), run__py="import nowhere.part\nfrom os import path\n")
    write_skill(root, "listed", skill_text(name="listed"), requirements__txt="here>=1\n# no\nother-package==2\n")
    write_skill(root, "broken", skill_text(name="broken"), run__py="def (:\n" + "(" * 5000)
    (packages / "here-1.0.dist-info").mkdir(parents=True)
    (packages / "here-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: here\nVersion: 1.0\n")
    (packages / "here.py").write_text("x = 1\n")
    skills = [*(await library.refresh()).skills.values()]
    provider = BubblewrapProvider(SandboxSettings(library.view, packages))
    async with provider.acquire("t", tmp_path / "thread") as sandbox:
        found = await find_lacks(sandbox, skills, has_network=False)
        connected = await find_lacks(sandbox, skills, has_network=True)
        said = await sandbox.run(
            ShellCommand("python3 -c 'import here, sys; print(sys.path[-1])'; touch /mnt/skill-packages/x")
        )
    await provider.close()
    declared = ("no-such-package", "program:no-such-program")
    others = {"gone": Lacks(("nowhere",)), "listed": Lacks(("other-package",))}
    assert found == {"declared": Lacks(declared, ("network",)), **others}
    assert connected == {"declared": Lacks(declared), **others}
    assert said.output.startswith("/mnt/skill-packages\n"), "behind all other packages"
    assert "Read-only file system" in said.output


async def test_without_commands_only_skills_of_words_are_ready(library: SkillLibrary) -> None:
    write_skill(library.folders.custom, "words", skill_text(name="words"))
    write_skill(library.folders.custom, "scripted", skill_text(name="scripted"), run__py="print(1)")
    skills = [*(await library.refresh()).skills.values()]
    assert lacks_without_commands(skills) == {"scripted": Lacks(("commands",))}
