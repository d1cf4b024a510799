"""Survey a repository: languages, sizes, hotspots by git history, tests, TODOs and how it is built. Changes nothing."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from skill_program import run_main
from source_files import (
    TEXT_LANGUAGES,
    Problem,
    is_generated,
    is_test,
    language_of,
    list_files,
    read_text,
    run_git,
)

MAX_TODOS = 200
TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b[:( ]?(.{0,120})")
RECORD, FIELD = "\x1e", "\x1f"
BUILD_FILES = {
    "pyproject.toml": "Python", "setup.py": "Python", "requirements.txt": "Python", "package.json": "Node",
    "go.mod": "Go", "Cargo.toml": "Rust", "pom.xml": "Maven", "build.gradle": "Gradle", "build.gradle.kts": "Gradle",
    "CMakeLists.txt": "CMake", "Makefile": "make", "Dockerfile": "Docker", "Gemfile": "Ruby", "composer.json": "PHP",
    ".gitlab-ci.yml": "GitLab CI", "Jenkinsfile": "Jenkins", ".pre-commit-config.yaml": "pre-commit",
}  # fmt: skip


def survey_files(folder: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the lines of each text file, and what the files show."""
    lines: dict[str, int] = {}
    languages: dict[str, list[int]] = {}
    todos: list[dict[str, Any]] = []
    tags = Counter[str]()
    other = 0
    for name in list_files(folder):
        text = read_text(folder / name) if language_of(name) or "." not in name.rsplit("/", 1)[-1] else None
        if text is None:
            other += 1
            continue
        rows = text.splitlines()
        lines[name] = len(rows)
        counts = languages.setdefault(language_of(name) or "other text", [0, 0])
        counts[0] += 1
        counts[1] += len(rows)
        if is_generated(name) or language_of(name) in TEXT_LANGUAGES:
            continue
        for number, row in enumerate(rows, 1):
            if found := TODO.search(row[:2000]):
                tags[found[1]] += 1
                todos.append({"place": f"{name}:{number}", "text": (found[1] + found[2]).strip()})
    order = sorted(languages.items(), key=lambda item: -item[1][1])
    code = {name: count for name, count in lines.items() if language_of(name) and not is_generated(name)}
    code = {name: count for name, count in code.items() if language_of(name) not in TEXT_LANGUAGES}
    tests = {name: count for name, count in code.items() if is_test(name)}
    return lines, {
        "files": len(lines) + other,
        "languages": [{"language": name, "files": files, "lines": count} for name, (files, count) in order],
        "tests": {"files": len(tests), "lines": sum(tests.values()), "of_code_lines": sum(code.values())},
        "largest": [f"{name}: {code[name]} lines" for name in sorted(code, key=lambda name: -code[name])[:10]],
        "build": {name: BUILD_FILES[base] for name in lines if (base := name.rsplit("/", 1)[-1]) in BUILD_FILES},
        "todos": {"counts": dict(tags), "places": todos[:MAX_TODOS]},
    }


def survey_history(folder: Path, lines: dict[str, int], commits: int) -> dict[str, Any]:
    """Return the hotspots: files that changed often and are long; empty without a history."""
    log = run_git(
        folder, "log", f"--max-count={commits}", "--no-merges", "--numstat", "--no-renames", "--no-ext-diff",
        "--no-textconv", f"--format={RECORD}%h{FIELD}%an{FIELD}%as", "--relative", "--", ".",
    )  # fmt: skip
    changed, authors, last = Counter[str](), dict[str, set[str]](), dict[str, str]()
    dates: list[str] = []
    for record in log.split(RECORD)[1:]:
        head, *rows = record.strip().splitlines()
        _hash, author, date = head.split(FIELD)
        dates.append(date)
        for row in rows:
            _added, _tab, rest = row.partition("\t")
            name = rest.partition("\t")[2]
            if name in lines and language_of(name) not in ("", *TEXT_LANGUAGES) and not is_generated(name):
                changed[name] += 1
                authors.setdefault(name, set()).add(author)
                last.setdefault(name, date)
    order = sorted(changed, key=lambda name: (-changed[name] * lines[name], name))
    spots = [
        {
            "file": name,
            "commits": changed[name],
            "lines": lines[name],
            "authors": len(authors[name]),
            "last": last[name],
        }
        for name in order[:15]
    ]
    people = len({author for each in authors.values() for author in each})
    return (
        {"commits": len(dates), "from": min(dates), "to": max(dates), "authors": people, "hotspots": spots}
        if dates
        else {}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commits", type=int, default=2000, help="that are counted for hotspots")
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(json.dumps({"error": f"{options.folder} is not a folder."}))
        sys.exit(1)
    try:
        lines, found = survey_files(options.folder)
        history = survey_history(options.folder, lines, options.commits)
    except (Problem, OSError) as problem:
        print(json.dumps({"error": str(problem)}))
        sys.exit(1)
    found["history"] = history or "There is no git history: no hotspots."
    print(json.dumps(found, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    run_main(main, ("folder",))
