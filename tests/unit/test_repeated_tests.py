"""What `.ci/run` says about tests that it repeats: which, and when a repetition does not count."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repeated_tests import LIST, MOST, ROOT, judge, read_list

ONE, OTHER = "tests/unit/test_a.py::test_it", "tests/unit/test_b.py::test_it[x y]"


def test_a_first_repetition_is_named_and_may_pass() -> None:
    text, passes = judge([ONE], [OTHER])
    assert passes
    assert f"run again alone: {ONE}" in text
    assert "add those that pass now to tests/support/repeated_tests.txt" in text


def test_a_second_one_fails_the_run() -> None:
    text, passes = judge([ONE, OTHER], read_list(f"# names\n2026-11-25 {OTHER}\n"))
    assert not passes
    assert f"needs it for the second time, mend it: {OTHER}" in text
    assert f"needs it for the second time, mend it: {ONE}" not in text


def test_many_at_once_fail_the_run() -> None:
    names = [f"tests/test_{n}.py::test_it" for n in range(MOST + 1)]
    assert judge(names[:-1], [])[1]
    text, passes = judge(names, [])
    assert not passes
    assert "look for a common cause" in text


def test_the_list_names_tests_that_exist() -> None:
    for name in read_list(LIST.read_text("utf-8")):
        path, _colons, test = name.partition("::")
        assert f"def {test.partition('[')[0]}(" in (ROOT / path).read_text("utf-8"), f"remove {name}"


def test_the_run_judges_what_pytest_says_has_failed(tmp_path: Path) -> None:
    """With pytest's own file of a real failed run: its name and form are pytest's."""
    (tmp_path / "test_x.py").write_text("def test_a(): assert 0\ndef test_b(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, check=False)
    assert run.returncode == 1
    code = (
        "import pathlib, sys; import tests.support.repeated_tests as r; folder = pathlib.Path(sys.argv[1]);"
        "r.FAILED = folder / r.FAILED.relative_to(r.ROOT); sys.exit(r.main(folder / 'repeated'))"
    )
    for passes, said in ((0, "run again alone"), (1, "needs it for the second time, mend it")):
        command = [sys.executable, "-c", code, str(tmp_path)]
        judged = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert judged.returncode == passes
        assert f"{said}: test_x.py::test_a\n" in judged.stdout


@pytest.mark.parametrize("check", [0, 1])
@pytest.mark.parametrize("suite", [0, 1])
def test_the_tests_run_whatever_the_check_says_and_both_count(tmp_path: Path, check: int, suite: int) -> None:
    """With the recipe of `make test` and targets that only end as a check and a suite may."""
    recipe = re.search(r"^test:.*\n(\t.*\n)+", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert recipe
    ends = f"check:\n\t@exit {check}\nsuite:\n\t@touch ran; exit {suite}\n.venv/.collected dev:\n"
    (tmp_path / "Makefile").write_text(recipe[0] + ends)
    ended = subprocess.run(["make", "test"], cwd=tmp_path, capture_output=True, check=False)
    assert (tmp_path / "ran").exists()
    assert bool(ended.returncode) is bool(check or suite)


def test_a_check_that_fails_is_not_saved_by_a_repetition_of_tests() -> None:
    """Only tests are run again, and a repetition knows nothing of formats, types and imports."""
    script = (ROOT / ".ci/run").read_text("utf-8")
    assert re.search(r"^make -j 2 check \.venv/\.collected \|\| failed=1$", script, re.MULTILINE)
    assert re.search(r"^make suite \|\| again ", script, re.MULTILINE)
    assert not re.search(r"^make test\b", script, re.MULTILINE)
