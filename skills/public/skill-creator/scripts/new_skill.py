"""Make the folder of a new skill: SKILL.md, a script that works, run.py for run_skill, and test cases."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from skill_rules import MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
SCRIPT = re.compile(r"[a-z_][a-z0-9_]{0,60}")
SKILL = """---
name: {name}
description: {description}
compatibility: Python 3.9 or later.
---

# {title}

{commands}1. **First**, what to look at, and what to ask if it is not there.
2. **Then**, what to do, in the order of work.
3. **Check** before you deliver: what must be true of the result.

What the script cannot know: write it here. Exit code 1: `error` says what is wrong; 3: `missing` names a package.
"""
COMMANDS = """```sh
python3 /mnt/skills/{name}/scripts/{script}.py /mnt/user-data/uploads/FILE
```

{entry}"""
ENTRY = 'The tool `run_skill` does the same: `{{"file": "FILE"}}`; paths are relative to the workspace.\n\n'
PROGRAM = '''"""{first}"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

MAX_BYTES = 50 << 20


def work(path: Path) -> dict[str, object]:
    """Return the result. Raises ValueError with a sentence that says what is wrong."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{{path.name}} is larger than {{MAX_BYTES >> 20}} MB")
    text = path.read_text("utf-8-sig")
    return {{"lines": len(text.splitlines())}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    try:
        result = work(options.file)
    except (OSError, ValueError) as error:
        print(json.dumps({{"error": str(error)}}))
        sys.exit(1)
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
'''
RUN = '''"""Run {script}.py for run_skill: JSON from stdin, JSON to stdout, failures to stderr."""

import json
import os
import subprocess
import sys
from pathlib import Path

given = json.load(sys.stdin)
workspace = "/mnt/user-data/workspace"
command = [sys.executable, str(Path(__file__).parent / "scripts/{script}.py"), "--", str(given.get("file", ""))]
done = subprocess.run(
    command, capture_output=True, text=True, check=False, cwd=workspace if os.path.isdir(workspace) else None
)
(sys.stderr if done.returncode else sys.stdout).write(done.stdout)
sys.stderr.write(done.stderr)
sys.exit(done.returncode)
'''


def make_files(options: argparse.Namespace) -> dict[str, str]:
    """Return the texts of the files by their paths."""
    description = " ".join(options.description.split())
    if ": " in description or " #" in description or description[:1] in tuple("\"'|>[{&*!%@`-?:,#"):
        quoted = description.replace("'", "''")
        shown = f"'{quoted}'"
    else:
        shown = description
    title = options.name.replace("-", " ").capitalize()
    files: dict[str, str] = {}
    commands = ""
    if options.script:
        entry = ENTRY.format() if options.entry else ""
        commands = COMMANDS.format(name=options.name, script=options.script, entry=entry)
        first = description.split(". ")[0].rstrip(".").replace("\\", "/").replace('"', "'")
        files[f"scripts/{options.script}.py"] = PROGRAM.format(first=f"{first}.")
        run = f"scripts/{options.script}.py"
        cases = [
            {"name": "a file", "run": f"{run} in.txt", "files": {"in.txt": "one\ntwo\n"}, "json": {"lines": 2}},
            {"name": "no file", "run": f"{run} none.txt", "exit_code": 1, "contains": ["error"]},
        ]
        files["tests/cases.json"] = json.dumps(cases, indent=1) + "\n"
    if options.entry:
        files["run.py"] = RUN.format(script=options.script)
    return {"SKILL.md": SKILL.format(name=options.name, description=shown, title=title, commands=commands), **files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="lower-case words with hyphens")
    parser.add_argument("--description", required=True, help="what it does; Use it when …")
    parser.add_argument("--script", default="", metavar="NAME", help="also scripts/NAME.py with test cases")
    parser.add_argument("--entry", action="store_true", help="also run.py, with --script")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER", help="where its folder is made")
    options = parser.parse_args()
    if not NAME.fullmatch(options.name) or len(options.name) > MAX_NAME_CHARS:
        parser.error("the name is lower-case words with hyphens, such as invoice-check")
    if not options.description.strip() or len(options.description) > MAX_DESCRIPTION_CHARS:
        parser.error(f"the description has 1 to {MAX_DESCRIPTION_CHARS} characters")
    if (options.script and not SCRIPT.fullmatch(options.script)) or (options.entry and not options.script):
        parser.error("--script is a name such as check_invoices; --entry needs it")
    folder = options.out / options.name
    if folder.exists():
        print(json.dumps({"error": f"{folder} exists already; choose another name or change it there."}))
        sys.exit(1)
    files = make_files(options)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(json.dumps({"folder": str(folder), "written": list(files)}))


if __name__ == "__main__":
    main()
