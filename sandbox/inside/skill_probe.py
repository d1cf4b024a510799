"""Say what skills lack in this sandbox: read what they ask for as JSON, print what is missing. Standard library only.

    python3 skill_probe.py '{"slides": {"words": ["python-pptx", "program:git"], "reads": false}}'

`reads`: the skill says nothing itself, so its scripts and its requirements.txt are read: {"slides": ["python-pptx"]}.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import sys
from importlib import metadata

SKILLS = "/mnt/skills"
PROGRAM = "program:"
MAX_FILES, MAX_BYTES = 100, 256_000  # of the scripts of one skill; of one of them
KNOWN = frozenset(getattr(sys, "stdlib_module_names", ())) | frozenset(sys.builtin_module_names)


def is_missing(word: str) -> bool:
    """Return whether there is no such program or package."""
    if word.startswith(PROGRAM):
        return shutil.which(word[len(PROGRAM) :]) is None
    try:
        metadata.version(word)
    except metadata.PackageNotFoundError:
        return True
    return False


def read_skill(folder: str) -> list[str]:
    """Return what is missing of what the scripts of a skill import at once and its requirements.txt names."""
    files = []
    own = set()
    for place, folders, names in os.walk(folder):
        own |= {name.partition(".")[0] for name in (*folders, *names)}
        files += [os.path.join(place, name) for name in names if name.endswith(".py")]
    modules = set()
    for path in sorted(files)[:MAX_FILES]:
        modules |= imported(path)
    missing = {name for name in modules - own - KNOWN if KNOWN and not has_module(name)}
    try:
        with open(os.path.join(folder, "requirements.txt"), encoding="utf-8", errors="replace") as file:
            wanted = [re.match(r"[A-Za-z0-9][\w.-]*", line) for line in file.read(MAX_BYTES).splitlines()]
    except OSError:
        wanted = []
    return sorted(missing | {name[0] for name in wanted if name and is_missing(name[0])})


def has_module(name: str) -> bool:
    """Return whether there is a module of this name."""
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # it is loaded, and does not say from where
        return True


def imported(path: str) -> set[str]:
    """Return the modules without which a script cannot begin."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(MAX_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    found += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in found} - {""}


def main() -> None:
    """Print what each skill lacks."""
    asked = json.loads(sys.argv[1])
    lacks = {
        name: [word for word in each["words"] if is_missing(word)]
        + (read_skill(os.path.join(SKILLS, name)) if each["reads"] else [])
        for name, each in asked.items()
    }
    sys.stdout.write(json.dumps(lacks))


if __name__ == "__main__":
    main()
