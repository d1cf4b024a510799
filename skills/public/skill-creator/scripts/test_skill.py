"""Run the cases in tests/cases.json of a skill, each in an empty folder, and compare exit code, output and files."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MAX_CASES = 200
MAX_OUTPUT_CHARS = 100_000
SHOWN_CHARS = 600
INTERPRETERS = {".py": sys.executable, ".sh": "bash", ".js": "node"}


def is_part(wanted: Any, got: Any) -> bool:
    """Return whether everything that is wanted is there; objects may have more fields."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(key in got and is_part(value, got[key]) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(is_part, wanted, got))
    return bool(wanted == got)


def run_case(skill: Path, case: dict[str, Any], timeout: float) -> list[str]:
    """Return what differs. Raises KeyError, TypeError and ValueError for a case that is not complete."""
    words = shlex.split(case["run"])
    program = skill / words[0]
    if ".." in Path(words[0]).parts or not program.is_file():
        return [f"{words[0]} does not exist in the skill."]
    interpreter = INTERPRETERS.get(program.suffix)
    command = [*([interpreter] if interpreter else []), str(program), *words[1:]]
    with tempfile.TemporaryDirectory() as place:
        for name, text in case.get("files", {}).items():
            path = Path(place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "SKILL_STATE": place}
        stdin = case.get("stdin", "")
        try:
            done = subprocess.run(
                command,
                input=stdin if isinstance(stdin, str) else json.dumps(stdin),
                cwd=place,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [f"It took longer than {timeout:g} s."]
        return compare(case, done.returncode, done.stdout[:MAX_OUTPUT_CHARS], done.stderr, Path(place))


def compare(case: dict[str, Any], code: int, output: str, errors: str, place: Path) -> list[str]:
    """Return the differences between what a case expects and what happened."""
    found = []
    if code != case.get("exit_code", 0):
        found.append(f"Exit code {code} instead of {case.get('exit_code', 0)}: {(output + errors)[-SHOWN_CHARS:]}")
    if "json" in case:
        try:
            if not is_part(case["json"], json.loads(output)):
                found.append(f"The output does not have {json.dumps(case['json'])}: {output[:SHOWN_CHARS]}")
        except ValueError:
            found.append(f"The output is not JSON: {output[:SHOWN_CHARS]}")
    for text in case.get("contains", []):
        if text not in output + errors:
            found.append(f"{text!r} is not in the output: {(output + errors)[:SHOWN_CHARS]}")
    for name, text in case.get("files_after", {}).items():
        path = place / name
        if not path.is_file() or text not in path.read_text("utf-8", "replace"):
            found.append(f"{name} {'does not contain ' + repr(text) if path.is_file() else 'was not written'}.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--timeout", type=float, default=30, metavar="SECONDS", help="of one case")
    options = parser.parse_args()
    skill = options.folder.resolve()
    try:
        cases = json.loads((skill / "tests/cases.json").read_text("utf-8"))[:MAX_CASES]
        results = [(case.get("name", case["run"]), run_case(skill, case, options.timeout)) for case in cases]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(json.dumps({"error": f"tests/cases.json: {type(error).__name__}: {error}"}))
        sys.exit(2)
    scripts = {
        path.relative_to(skill).as_posix()
        for path in skill.glob("scripts/*.py")
        if "__main__" in path.read_text("utf-8")
    }
    untested = sorted(scripts - {shlex.split(case["run"])[0] for case in cases})
    failures = [{"case": name, "differences": said} for name, said in results if said]
    report = {"passed": len(results) - len(failures), "failed": failures, "without_a_case": untested}
    print(json.dumps(report, ensure_ascii=False, indent=1))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
