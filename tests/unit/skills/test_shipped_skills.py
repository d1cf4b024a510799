"""What holds for every shipped skill: its fields, its program for `run_skill`, its copies of common files."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.skills.library import SkillFolders, SkillLibrary
from agent.skills.readiness import find_lacks
from agent.skills.skill import read_skill
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.inside.skill_probe import PROGRAM
from sandbox.settings import SandboxSettings
from tests.support.engines import SKILL_PACKAGES, need_bubblewrap, need_skill_packages

ROOT = Path(__file__).parents[3]
FOLDERS = sorted(path.parent for path in (ROOT / "skills/public").glob("*/SKILL.md"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_shipped_skill_is_valid_and_documented(folder: Path) -> None:
    skill = read_skill(folder)
    assert (skill.name, skill.warnings) == (folder.name, ())
    assert not skill.entry or (folder / skill.entry).is_file()
    assert f"| `{folder.name}` |" in (ROOT / "docs/skills-shipped.md").read_text("utf-8")
    for script in folder.glob("scripts/*.py"):
        text = script.read_text("utf-8")
        assert "__main__" not in text or script.name in skill.body, f"SKILL.md does not name {script.name}"


def test_copies_of_a_common_file_are_equal() -> None:
    """A skill is installed by itself, so that each has its own copy."""
    copies: dict[str, set[bytes]] = {}
    for script in (ROOT / "skills/public").glob("*/scripts/*.py"):
        copies.setdefault(script.name, set()).add(script.read_bytes())
    assert {name for name, texts in copies.items() if len(texts) > 1} == set()


@pytest.mark.parametrize("installed", [False, True])
async def test_the_packages_of_make_skills_make_the_shipped_skills_ready(tmp_path: Path, installed: bool) -> None:
    need_bubblewrap()
    if installed:
        need_skill_packages()
    library = SkillLibrary(SkillFolders(tmp_path / "custom"), tmp_path / "data")
    skills = [*(await library.refresh()).skills.values()]
    provider = BubblewrapProvider(SandboxSettings(library.view, SKILL_PACKAGES if installed else None))
    async with provider.acquire("t", tmp_path / "thread") as sandbox:
        lacks = await find_lacks(sandbox, skills, has_network=True)
    await provider.close()
    named = {word for each in lacks.values() for word in (*each.needs, *each.uses)}
    if installed:
        assert {word for word in named if not word.startswith(PROGRAM)} == set()
    else:
        assert set(lacks) <= {each.skill.name for each in skills if each.skill.needs or each.skill.uses}
