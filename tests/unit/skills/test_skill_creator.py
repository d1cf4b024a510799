"""The skill skill-creator: its rules are Fawn's, its skeleton works and passes, its package installs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.skills import skill, tree
from agent.skills.archive import unpack_archive
from agent.skills.skill import SkillError, read_skill
from sandbox.base import WORKSPACE
from tests.unit.skills.conftest import ROOT, SkillRunner

pytestmark = pytest.mark.slow

SCRIPTS = ROOT / "skills/public/skill-creator/scripts"
LINE = (
    'new_skill.py count-lines --description "Counts lines: of texts. Use it when a person asks." --script count --entry'
)
GOOD = "---\nname: a-skill\ndescription: Counts. Use it when asked.\n---\nCount.\n"
# What a SKILL.md says, and whether Fawn uses it.
FRONTS = {
    "good": (GOOD, True),
    "no fields": ("Count.\n", False),
    "open fields": ("---\nname: a-skill\ndescription: x\nCount.\n", False),
    "no description": ("---\nname: a-skill\n---\nCount.\n", False),
    "a list": ("---\nname: a-skill\ndescription: [a, b]\n---\nCount.\n", False),
    "a colon": ("---\nname: a-skill\ndescription: Counts: use it when asked\n---\nCount.\n", True),
    "no mapping": ("---\n- a\n---\nCount.\n", False),
    "an alias": ("---\nname: &a a-skill\ndescription: *a\n---\nCount.\n", False),
    "deep": (f"---\nname: a-skill\ndescription: x\nmetadata:\n  a: {'[' * 9}{']' * 9}\n---\nCount.\n", False),
    "many": (f"---\nname: a-skill\ndescription: x\nmetadata:\n  a: [{'1, ' * 1001}1]\n---\nCount.\n", False),
    "large": (f"---\nname: a-skill\ndescription: {'x' * 17_000}\n---\nCount.\n", False),
    "long": (f"---\nname: a-skill\ndescription: {'use it when ' * 100}\n---\nCount.\n", True),
    "another name": ("---\nname: Other_Name\ndescription: Counts. Use it when asked.\n---\nCount.\n", True),
    "unknown field": ("---\nname: a-skill\ndescription: Use it when asked.\nversion: 1\n---\nCount.\n", True),
    "wrong tools": (
        "---\nname: a-skill\ndescription: Use it when asked.\nallowed-tools:\n  a: b\n---\nCount.\n",
        False,
    ),
    "broken": ("---\nname: a-skill\ndescription: 'open\n---\nCount.\n", False),
}


def check(folder: Path) -> Any:
    """Run the check with a YAML parser, as in the image."""
    command = [sys.executable, str(SCRIPTS / "check_skill.py"), str(folder)]
    shared = {"PYTHONPATH": str(ROOT / "skills/lib")}
    done = subprocess.run(command, env=shared, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    return found


@pytest.mark.parametrize("case", FRONTS)
def test_the_check_has_the_verdict_of_fawn(tmp_path: Path, case: str) -> None:
    text, usable = FRONTS[case]
    folder = tmp_path / "a-skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text(text)
    found = check(folder)
    try:
        read = read_skill(folder)
    except SkillError:
        assert not usable
        assert found["problems"]
    else:
        assert usable
        assert found["problems"] == []
        assert bool(found["warnings"]) == bool(read.warnings)


def test_the_limits_are_those_of_fawn() -> None:
    text = (SCRIPTS / "skill_rules.py").read_text("utf-8")
    rules: dict[str, Any] = {"__name__": "skill_rules"}
    exec(compile(text, "skill_rules.py", "exec", dont_inherit=True), rules)  # noqa: S102  our own file
    for module in (skill, tree):
        for name, value in vars(module).items():
            if name in rules and name.isupper():
                assert rules[name] == value, name
    names = {"MAX_FRONT_BYTES", "MAX_FRONT_DEPTH", "MAX_DESCRIPTION_CHARS", "MAX_TREE_FILES", "LEFT_OUT", "FIELDS"}
    assert names <= rules.keys()
    assert names <= {*vars(skill), *vars(tree)}


async def test_a_new_skill_passes_its_check_its_tests_and_an_installation(runner: SkillRunner, tmp_path: Path) -> None:
    made = await runner.json("skill-creator", LINE)
    assert made["written"] == ["SKILL.md", "scripts/count.py", "tests/cases.json", "run.py"]
    found = await runner.without_packages("skill-creator", "check_skill.py count-lines", exit_code=0)
    assert (found["ok"], found["warnings"], found["facts"]["entry"]) == (True, [], "run.py")
    tested = await runner.json("skill-creator", "test_skill.py count-lines")
    assert tested == {"passed": 2, "failed": [], "without_a_case": []}
    await runner.json("skill-creator", "pack_skill.py count-lines --out count-lines.skill")
    place = unpack_archive(await runner.read("count-lines.skill"), tmp_path)
    read = read_skill(place)
    assert (read.name, read.entry, read.warnings) == ("count-lines", "run.py", ())
    assert read.description == "Counts lines: of texts. Use it when a person asks."
    proposed = await runner.json("skill-creator", "pack_skill.py count-lines --json")
    assert proposed["name"] == "count-lines"
    assert {each["path"] for each in proposed["files"]} == set(made["written"])
    assert all(each["content"] == (place / each["path"]).read_text("utf-8") for each in proposed["files"])
    answer = await runner.json("skill-creator", LINE, exit_code=1)
    assert "exists already" in answer["error"]


async def test_a_case_that_fails_says_what_differs(runner: SkillRunner) -> None:
    await runner.json("skill-creator", LINE)
    cases = [
        {"name": "count", "run": "scripts/count.py in.txt", "files": {"in.txt": "a\n"}, "json": {"lines": 2}},
        {"name": "code", "run": "scripts/count.py none.txt"},
        {"name": "file", "run": "scripts/count.py in.txt", "files": {"in.txt": ""}, "files_after": {"out.txt": "x"}},
        {"name": "gone", "run": "scripts/other.py"},
        {"name": "outside", "run": "../../../usr/bin/env"},
    ]
    await runner.sandbox.write(f"{WORKSPACE}/count-lines/tests/cases.json", json.dumps(cases).encode())
    await runner.bash("cp count-lines/scripts/count.py count-lines/scripts/slow.py")
    report = await runner.json("skill-creator", "test_skill.py count-lines", exit_code=1)
    said = {each["case"]: each["differences"][0] for each in report["failed"]}
    assert said["count"].startswith('The output does not have {"lines": 2}: {\n "lines": 1\n}')
    assert said["code"].startswith("Exit code 1 instead of 0")
    assert said["file"] == "out.txt was not written."
    assert said["gone"] == "scripts/other.py does not exist in the skill."
    assert said["outside"] == "../../../usr/bin/env does not exist in the skill."
    assert report["without_a_case"] == ["scripts/slow.py"]


async def test_what_no_installation_takes_is_named_before_it_is_packed(runner: SkillRunner) -> None:
    await runner.json("skill-creator", LINE)
    await runner.bash(
        "cd count-lines && ln -s /etc/passwd secret && mkdir inner && cp SKILL.md inner/ && cp /usr/bin/env tool &&"
        " echo 'def x(:' > scripts/broken.py && echo 'Run scripts/none.py.' >> SKILL.md"
    )
    found = await runner.json("skill-creator", "check_skill.py count-lines", exit_code=1)
    assert sorted(found["problems"]) == [
        "It has a second skill inside, inner/SKILL.md.",
        "secret is a link or a special file.",
        "tool is a compiled program.",
    ]
    assert [warning.split(" (")[0] for warning in found["warnings"]] == [
        "SKILL.md names scripts/none.py, which does not exist.", "scripts/broken.py is not Python: invalid syntax",
    ]  # fmt: skip
    answer = await runner.json("skill-creator", "pack_skill.py count-lines --out x.skill", exit_code=1)
    assert answer["error"] == "It does not pass check_skill.py."
    assert "x.skill" not in (await runner.bash("ls")).output


async def test_fields_beyond_plain_texts_need_a_parser_that_is_named(runner: SkillRunner) -> None:
    await runner.bash("mkdir a-skill")
    await runner.sandbox.write(f"{WORKSPACE}/a-skill/SKILL.md", FRONTS["a list"][0].encode())
    answer = await runner.without_packages("skill-creator", "check_skill.py a-skill", exit_code=3)
    assert answer["missing"] == ["pyyaml"]
