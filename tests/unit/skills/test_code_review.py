"""The skill code-review on a real git repository: survey, pieces of a diff, linters, and the check of a report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.base import SKILLS, WORKSPACE
from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

CART = """def total(items):
    # TODO: refunds
    whole = 0
    for item in items:
        whole += item.price
    return whole
"""
SETUP = """set -e
mkdir -p repo/shop repo/tests
cd repo
git init -q -b main .
git config user.email ada@example.com
git config user.name Ada
cp ../cart.py shop/cart.py
printf 'def test_total():\\n    assert True\\n' > tests/test_cart.py
printf '{"lockfileVersion": 3}\\n' > package-lock.json
git add . && git commit -qm one
for n in 1 2 3; do echo "# $n" >> shop/cart.py; git commit -qam "more $n"; done
echo 'x = 1' > shop/quiet.py && git add . && git commit -qm quiet
git config core.fsmonitor "touch $PWD/../hostile; false"
git config diff.external "touch $PWD/../hostile"
printf '#!/bin/sh\\ntouch %s/../hostile\\n' "$PWD" > .git/hooks/post-index-change
chmod +x .git/hooks/post-index-change
"""
CHANGE = """set -e
cd repo
sed -i 's/whole = 0/whole = 0.0/' shop/cart.py
printf 'import os\\n\\ndef broken(:\\n' > shop/new.py
printf 'def test_more():\\n    assert 1\\n' >> tests/test_cart.py
printf '{"lockfileVersion": 4}\\n' > package-lock.json
git add shop/new.py
"""
REPORT = """# Review
## Summary
It sums carts; it cannot be merged.
## Findings
### 1. [critical] new.py does not parse
`shop/new.py:3`
```
def broken(:
```
Python refuses the module. Reproduced with `python3 -m py_compile`.
### 2. [low] Sums of floats
`shop/cart.py:3-5`
```
whole = 0.0
whole += item.price
```
Prices become inexact.
## Reviewed
PIECES
## Not reviewed
package-lock.json (generated)
"""


@pytest.fixture
async def repository(runner: SkillRunner) -> SkillRunner:
    await runner.write(cart_py=CART, setup_sh=SETUP, change_sh=CHANGE)
    done = await runner.bash("bash setup.sh")
    assert done.exit_code == 0, done.output
    return runner


async def split(runner: SkillRunner, more: str = "") -> Any:
    done = await runner.bash("bash change.sh")
    assert done.exit_code == 0, done.output
    return await runner.json("code-review", f"split_diff.py --root repo --out pieces {more}")


async def test_a_survey_names_languages_hotspots_tests_and_todos(repository: SkillRunner) -> None:
    found = await repository.json("code-review", "survey_repository.py repo")
    assert found["languages"][0] == {"language": "Python", "files": 3, "lines": 12}
    assert found["tests"] == {"files": 1, "lines": 2, "of_code_lines": 12}
    assert found["todos"] == {
        "counts": {"TODO": 1}, "places": [{"place": "shop/cart.py:2", "text": "TODO refunds"}],
    }  # fmt: skip
    history = found["history"]
    assert (history["commits"], history["hotspots"][0]["file"], history["hotspots"][0]["commits"]) == (
        5,
        "shop/cart.py",
        4,
    )
    assert "package-lock.json" not in json.dumps(history)
    assert "hostile" not in (await repository.bash("ls")).output  # nothing that the repository configures ran
    await repository.bash("mkdir plain; cp cart.py plain/")
    found = await repository.json("code-review", "survey_repository.py plain")
    assert found["history"] == "There is no git history: no hotspots."


async def test_a_diff_becomes_pieces_with_source_first_and_without_generated_files(repository: SkillRunner) -> None:
    index = await split(repository)
    files = [[each["file"] for each in piece["files"]] for piece in index["pieces"]]
    assert files == [["shop/cart.py", "shop/new.py"], ["tests/test_cart.py"]]
    assert index["pieces"][0]["files"][1]["lines"] == [[1, 3]]
    assert index["left_out"] == ["package-lock.json"]
    assert b"+    whole = 0.0\n" in await repository.read("pieces/01.diff")
    smaller = await repository.json("code-review", "split_diff.py --root repo --out pieces --size 2")
    assert [piece["changed_lines"] for piece in smaller["pieces"]] == [2, 3, 2]
    done = await repository.bash("cd repo && git stash -q && cat ../pieces/*.diff | git apply --check -")
    assert done.exit_code == 0, done.output
    assert "hostile" not in (await repository.bash("ls pieces")).output


async def test_a_removed_line_that_looks_like_a_head_is_none(runner: SkillRunner) -> None:
    text = "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n--- old remark\n+++ new remark\n select 1\n"
    await runner.write(some_diff=text)
    index = await runner.json("code-review", "split_diff.py --diff some.diff --out pieces")
    [piece] = index["pieces"]
    assert (piece["changed_lines"], piece["files"]) == (2, [{"file": "q.sql", "lines": [[1, 2]]}])
    await runner.write(empty_diff="")
    answer = await runner.json("code-review", "split_diff.py --diff empty.diff --out pieces", exit_code=1)
    assert answer["error"].startswith("The diff is empty")


async def test_linters_find_what_does_not_parse_only_where_something_changed(repository: SkillRunner) -> None:
    await split(repository)
    await repository.bash("echo 'def old(:' > repo/shop/other.py")
    found = await repository.json("code-review", "run_linters.py repo --pieces pieces")
    assert found["findings"][0].startswith("shop/new.py:3: syntax: ")
    assert found["tools"][0] == "syntax"
    assert not [line for line in found["findings"] if "other.py" in line]
    found = await repository.json("code-review", "run_linters.py repo")
    assert "shop/other.py:1: syntax" in json.dumps(found["findings"])


async def test_an_installed_linter_is_used_with_places_in_the_repository(repository: SkillRunner) -> None:
    ruff = Path(sys.executable).with_name("ruff").read_bytes()  # the one that checks Fawn itself
    await repository.sandbox.write(f"{WORKSPACE}/bin/ruff", ruff)
    await repository.write(unused_py="import os\n")
    script = f"{SKILLS}/code-review/scripts/run_linters.py"
    line = f"chmod +x bin/ruff; mv unused.py repo/shop; PATH=$PWD/bin:$PATH python3 {script} repo"
    found = json.loads((await repository.bash(line)).output)
    assert found["tools"][:2] == ["syntax", "ruff"]
    assert found["notes"] == []
    assert "shop/unused.py:1: ruff: F401 [*] `os` imported but unused" in found["findings"]


async def test_a_report_is_checked_against_the_tree(repository: SkillRunner) -> None:
    index = await split(repository)
    pieces = ", ".join(piece["piece"] for piece in index["pieces"])
    right = REPORT.replace("PIECES", pieces)
    await repository.write(review_md=right)
    line = "check_review.py review.md --root repo --pieces pieces"
    found = await repository.json("code-review", line)
    assert found["ok"], found
    assert found["findings"] == {"critical": 1, "high": 0, "medium": 0, "low": 1}
    wrong = (
        right.replace("shop/new.py:3", "shop/new.py:30")
        .replace("whole = 0.0", "whole += item.cost")
        .replace("[low]", "[nice]")
        .replace(pieces, "01")
    )
    await repository.write(review_md=wrong.replace("## Summary\nIt sums carts; it cannot be merged.", "## Summary"))
    found = await repository.json("code-review", line, exit_code=1)
    assert found["problems"] == [
        "The summary is empty.",
        "Finding 1: shop/new.py has 3 lines, not 30-30.",
        "Finding 2: [nice] is none of critical, high, medium, low.",
        "Finding 2: `whole += item.cost` is not in shop/cart.py:3-5; it is nowhere in this file.",
        "Piece 02 is not listed under `## Reviewed`.",
    ]
    moved = right.replace("shop/cart.py:3-5", "shop/cart.py:1-2").replace("shop/new.py:3", "../cart.py:1")
    await repository.write(review_md=moved)
    found = await repository.json("code-review", line, exit_code=1)
    assert found["problems"] == [
        "Finding 1: there is no file ../cart.py.",
        "Finding 2: `whole = 0.0` is not in shop/cart.py:1-2; it is in line 3.",
    ]


async def test_an_empty_report_begins_with_the_pieces_and_never_replaces_one(repository: SkillRunner) -> None:
    await split(repository)
    await repository.json("code-review", "check_review.py --skeleton review.md --pieces pieces")
    text = (await repository.read("review.md")).decode()
    assert "## Reviewed\n\n01, 02\n" in text
    assert "- package-lock.json (generated or binary)" in text
    said = await repository.script("code-review", "check_review.py --skeleton review.md", exit_code=2)
    assert "review.md exists already" in said
