"""Run check_skill.py for run_skill: options as JSON from stdin, its JSON to stdout, failures to stderr."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "scripts"))

import check_skill as program

POSITIONAL = ("folder",)
WORKSPACE = "/mnt/user-data/workspace"


def command_line(given: dict[str, object]) -> list[str]:
    """Return the arguments for JSON: `{"files": ["a"], "top": 5, "all": true}` is `--top=5 --all -- a`."""
    options, places = list[str](), list[str]()
    for name, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            flag = f"--{name.replace('_', '-')}"
            if name not in POSITIONAL and each is not None:
                options += [flag] * each if isinstance(each, bool) else [f"{flag}={each}"]
    for name in POSITIONAL:
        value = given.get(name, [])
        values = value if isinstance(value, list) else [value]
        places += [json.dumps(each) if isinstance(each, dict) else str(each) for each in values]
    return [*options, "--", *places]


def main() -> None:
    given = json.load(sys.stdin)
    if not isinstance(given, dict):
        sys.exit("The input is an object; SKILL.md has an example.")
    if os.path.isdir(WORKSPACE):
        os.chdir(WORKSPACE)
    sys.argv = ["run_skill", *command_line(given)]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            program.main()
    except SystemExit as end:
        if end.code:
            sys.stderr.write(said.getvalue())
            raise
    print(said.getvalue())


if __name__ == "__main__":
    main()
