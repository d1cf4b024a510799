"""Run the linters that are installed, and parse every Python and JSON file; findings as file:line. Changes nothing."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from source_files import is_generated, language_of, list_files, read_text

SECONDS = 120
MAX_FILES_AT_ONCE = 500
MAX_OUTPUT_BYTES = 4 << 20
FINDING = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? ?(?P<text>.*)")


class Linter(NamedTuple):
    """A linter: its command before the files, and the languages that it reads."""

    command: tuple[str, ...]
    languages: tuple[str, ...]


LINTERS = {
    "ruff": Linter(("ruff", "check", "--no-cache", "--output-format=concise", "--quiet"), ("Python",)),
    "pyflakes": Linter(("pyflakes",), ("Python",)),
    "shellcheck": Linter(("shellcheck", "--format=gcc"), ("Shell",)),
    "eslint": Linter(("eslint", "--format=unix"), ("JavaScript", "TypeScript", "Vue")),
    "gofmt": Linter(("gofmt", "-e", "-l"), ("Go",)),
    "php": Linter(("php", "-l"), ("PHP",)),
    "yamllint": Linter(("yamllint", "--format=parsable"), ("YAML",)),
    "hadolint": Linter(("hadolint", "--format=gnu"), ("Docker",)),
}


def syntax_findings(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Parse Python and JSON, which needs no linter."""
    found = []
    for name in names:
        text = read_text(folder / name) if language_of(name) in ("Python", "JSON") else None
        if not text:
            continue
        try:
            if language_of(name) == "JSON":
                json.loads(text)
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            found.append(
                {"tool": "syntax", "file": name, "line": line, "text": str(getattr(error, "msg", error))[:300]}
            )
    return found


def run_linter(tool: str, folder: Path, names: list[str]) -> tuple[list[dict[str, Any]], str]:
    """Return what a linter finds, and why it did not work."""
    linter = LINTERS[tool]
    found: list[dict[str, Any]] = []
    files = [name for name in names if language_of(name) in linter.languages]
    for start in range(0, len(files), MAX_FILES_AT_ONCE):
        some = [f"./{name}" for name in files[start : start + MAX_FILES_AT_ONCE]]
        try:
            done = subprocess.run(
                [*linter.command, *some], cwd=folder, capture_output=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return found, f"{tool} took longer than {SECONDS} s."
        rows = done.stdout[:MAX_OUTPUT_BYTES].decode("utf-8", "replace").splitlines()
        places = [match for row in rows if (match := FINDING.fullmatch(row))]
        found += [
            {
                "tool": tool,
                "file": clean(match["file"], folder),
                "line": int(match["line"]),
                "text": match["text"][:300],
            }
            for match in places
        ]
        if done.returncode not in (0, 1) and not places:
            return found, f"{tool}: {done.stderr.decode('utf-8', 'replace').strip()[:300]}"
    return found, ""


def clean(name: str, folder: Path) -> str:
    path = Path(name)
    if path.is_absolute() and folder.resolve() in path.parents:
        path = path.relative_to(folder.resolve())
    return path.as_posix()


def changed_lines(pieces: Path) -> dict[str, list[list[int]]]:
    index = json.loads((pieces / "pieces.json").read_text("utf-8"))
    found: dict[str, list[list[int]]] = {}
    for piece in index["pieces"]:
        for each in piece["files"]:
            found.setdefault(each["file"], []).extend(each["lines"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pieces", type=Path, metavar="FOLDER", help="of split_diff.py: only what it changed")
    parser.add_argument("--top", type=int, default=100, help="findings that are listed")
    options = parser.parse_args()
    try:
        changed = changed_lines(options.pieces) if options.pieces else None
        names = [name for name in list_files(options.folder) if not is_generated(name)]
    except (OSError, ValueError, KeyError) as error:
        print(json.dumps({"error": f"{error}: run split_diff.py first."}))
        sys.exit(1)
    names = [name for name in names if changed is None or name in changed]
    found, notes = syntax_findings(options.folder, names), []
    languages = {language_of(name) for name in names}
    wanted = [tool for tool, linter in LINTERS.items() if languages & set(linter.languages)]
    used = [tool for tool in wanted if shutil.which(LINTERS[tool].command[0])]
    for tool in used:
        said, problem = run_linter(tool, options.folder, names)
        found += said
        notes += [problem] if problem else []
    if changed is not None:
        found = [
            each
            for each in found
            if any(low <= each["line"] <= high for low, high in changed[each["file"]]) or each["tool"] == "syntax"
        ]
    found.sort(key=lambda each: (each["tool"] != "syntax", each["file"], each["line"]))
    result = {"tools": ["syntax", *used], "not_installed": [tool for tool in wanted if tool not in used]}
    listed = [f"{each['file']}:{each['line']}: {each['tool']}: {each['text']}" for each in found[: options.top]]
    print(json.dumps({**result, "count": len(found), "findings": listed, "notes": notes}, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
