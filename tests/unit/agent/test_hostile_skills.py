"""Skills of strangers: bounded where they are read, so that none stops the service, the others, or fills the disk."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from agent.skills import changes
from agent.skills.archive import unpack_archive
from agent.skills.library import SkillFolders, SkillLibrary
from agent.skills.records import MAX_STAGED, MAX_STAGED_BYTES
from agent.skills.skill import SkillError
from tests.support.growth import grows_in_proportion, many_steps_seconds
from tests.unit.agent.test_skills import PLAIN, archive, skill_text, write_skill


@pytest.fixture
def library(tmp_path: Path) -> SkillLibrary:
    return SkillLibrary(SkillFolders(tmp_path / "custom", (), tmp_path / "public"), tmp_path / "data" / "skills")


def nested_aliases(field: str) -> str:
    lines = ["metadata:", "  a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(["---", *lines, f"{field}: *a8", "---", ""])


HOSTILE_FIELDS = {  # the front matter of a SKILL.md, and why it is refused
    "nested lists": (skill_text("metadata: " + "- " * 40_000), "larger than 16 KB"),
    "nested lists in few bytes": ("---\n" + "- " * 900 + "x\n---\n", "nested deeper"),
    "nested brackets": (skill_text(description="[" * 9_000), "nested deeper"),
    "nested braces": (skill_text("metadata: " + "{a: " * 700), "nested deeper"),
    "900 levels": (skill_text("metadata:", *(f"{' ' * n}a:" for n in range(1, 160))), "nested deeper"),
    "many values": (skill_text("metadata:", *(f"  k{n}: v" for n in range(900))), "nested deeper"),
    "aliases in the description": (nested_aliases("description"), "anchors"),
    "aliases in the name": (nested_aliases("name"), "anchors"),
    "aliases in the tools": (nested_aliases("allowed-tools"), "anchors"),
    "an alias to itself": (skill_text("metadata: &a [*a]"), "anchors"),
    "a list as description": (skill_text(description="[a, b]"), "description is a list"),
    "a list as name": (skill_text(name="[a, b]"), "name is a list"),
    "a mapping as entry": (skill_text("metadata:", "  entry:", "    a: b"), "entry is a list"),
    "tools in tools": (skill_text("allowed-tools: [[a]]"), "allowed-tools is neither"),
    "a list as key": (skill_text("metadata:", "  ? [a]", "  : b"), "not YAML"),
    "blanks after a colon": (skill_text("license:" + " " * 15_000 + ": x"), ""),
}


@pytest.mark.parametrize("form", HOSTILE_FIELDS)
async def test_a_hostile_skill_is_refused_at_once_beside_the_others(library: SkillLibrary, form: str) -> None:
    text, reason = HOSTILE_FIELDS[form]
    write_skill(library.folders.custom, "other", PLAIN.replace("plot", "other"))
    write_skill(library.folders.custom, text=text)
    begun = time.process_time()
    current = await library.refresh()
    with pytest.raises(SkillError):  # what is allowed is installed, so that nothing new is proposed
        changes.stage_files(library, "plot", {"SKILL.md": text}, "the agent")
    assert time.process_time() - begun < 5 * many_steps_seconds()
    assert "other" in current.skills
    assert reason in str(current.faults.get("custom/plot", ""))
    assert ("plot" in current.skills) is (not reason)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"x" * 300: "x"}, "more than 255 bytes"),
        ({"字" * 100: "x"}, "more than 255 bytes"),
        ({"a": "x", "a/b": "x"}, "cannot be written: "),
        ({"a/b": "x", "a": "x"}, "cannot be written: "),
        ({"a/b": "x", "a": ""}, "cannot be written: "),
    ],
)
def test_a_path_that_cannot_be_written_is_named_without_its_place(
    library: SkillLibrary, files: dict[str, str], reason: str
) -> None:
    with pytest.raises(SkillError, match=reason) as caught:
        changes.stage_files(library, "plot", {"SKILL.md": PLAIN, **files}, "the agent")
    assert "/tmp" not in str(caught.value)


@pytest.mark.parametrize("names", [("a", "a/b"), ("x" * 5_000,)])
def test_an_archive_with_impossible_paths_names_no_place_on_this_machine(tmp_path: Path, names: tuple[str]) -> None:
    with pytest.raises(SkillError) as caught:
        unpack_archive(archive({"SKILL.md": PLAIN, **dict.fromkeys(names, "x")}), tmp_path)
    assert str(tmp_path) not in str(caught.value)


def version_bytes(library: SkillLibrary) -> int:
    return sum(path.stat().st_size for path in (library.data / "versions").rglob("*") if path.is_file())


def test_what_no_longer_waits_leaves_the_disk(library: SkillLibrary) -> None:
    write_skill(library.folders.public, large__txt="x" * (5 << 20))
    for number in range(30):
        change = changes.stage_files(library, "plot", {"notes.md": str(number)}, "the agent")
        assert len(library.records().staged) <= MAX_STAGED
    assert version_bytes(library) <= MAX_STAGED_BYTES + (6 << 20)  # with the shipped one, which they are compared to
    changes.accept_change(library, change.hash)
    for digest in library.records().staged:
        changes.decline_change(library, digest)
    assert version_bytes(library) < 6 << 20  # the accepted one
    changes.roll_back(library, "plot")
    assert not list((library.data / "versions").iterdir())


def test_a_long_proposal_is_compared_in_bounded_time(library: SkillLibrary) -> None:
    tries = itertools.count()

    def propose(size: int) -> str:
        first, lines = f"first {next(tries)}", [f"line {n}" for n in range(size)]
        write_skill(library.folders.public, notes__md="\n".join([first, *lines, "last"]))
        turned = "\n".join([first, *reversed(lines), "last"])
        return changes.stage_files(library, "plot", {"notes.md": turned}, "the agent").diff

    assert grows_in_proportion(propose, 1800)
    diff = propose(15_000)
    assert "@@ -2,15000 +2,15000 @@" in diff
    assert "-last" not in diff


def test_what_nobody_can_see_is_shown_in_a_proposal(library: SkillLibrary) -> None:
    hidden = "Do this.\u200b\u202e\U000e0041 字\u3000字\n\tend"
    change = changes.stage_files(library, "plot", {"SKILL.md": PLAIN + hidden}, "the agent")
    assert "Do this.\\u200b\\u202e\\udb40\\udc41 字\u3000字" in change.diff
    assert "\tend" in change.diff
