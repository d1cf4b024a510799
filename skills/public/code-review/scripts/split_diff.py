"""Cut a diff into pieces that one can review: whole files or hunks, source before tests, generated files left out."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from source_files import Problem, is_generated, is_test, language_of, run_git

MAX_DIFF_BYTES = 20 << 20
HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")


class Part(NamedTuple):
    """Hunks of one file: its head, their text, and the lines that they add or remove."""

    file: str
    head: list[str]
    hunks: list[list[str]]

    @property
    def size(self) -> int:
        return sum(row[:1] in "+-" for hunk in self.hunks for row in hunk[1:])


def read_diff(options: argparse.Namespace) -> str:
    if options.diff:
        if options.diff.stat().st_size > MAX_DIFF_BYTES:
            raise Problem(f"{options.diff.name} is larger than {MAX_DIFF_BYTES >> 20} MB.")
        return str(options.diff.read_text("utf-8", "replace"))
    words = ["--cached"] if options.staged else [options.range] if options.range else ["HEAD"]
    if options.range.startswith("-"):
        raise Problem("--range is two commits, such as main...HEAD.")
    text = run_git(options.root, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative", *words, "--")
    if len(text) > MAX_DIFF_BYTES:
        raise Problem(f"The diff is larger than {MAX_DIFF_BYTES >> 20} MB; choose a smaller --range.")
    return text


def parse_diff(text: str) -> list[Part]:
    """Return the files of a unified diff with their hunks."""
    parts: list[Part] = []
    left = 0  # lines of the hunk that are still to come, so that a removed line `-- x` is no head
    for row in text.splitlines():
        if left > 0 and row[:1] in ("+", "-", " ", ""):
            parts[-1].hunks[-1].append(row)
            left -= 1 if row[:1] == "-" or row[:1] == "+" else 2
        elif row.startswith("diff --git ") or (row.startswith("--- ") and not (parts and not parts[-1].hunks)):
            parts.append(Part("", [row], []))
        elif parts and HUNK.match(row):
            sizes = re.findall(r"[-+]\d+(?:,(\d+))?", row.split("@@")[1])
            left = sum(int(size or 1) for size in sizes)
            parts[-1].hunks.append([row])
        elif parts and parts[-1].hunks and row.startswith("\\"):  # no newline at the end of the file
            parts[-1].hunks[-1].append(row)
        elif parts:
            parts[-1].head.append(row)
    return [part._replace(file=file_name(part.head)) for part in parts]


def file_name(head: list[str]) -> str:
    """Return the new name of a file, or the old one of a deleted file."""
    names = {row[:3]: row[4:].split("\t")[0].strip('"') for row in head if row.startswith(("--- ", "+++ "))}
    chosen = names.get("+++", "") if names.get("+++", "/dev/null") != "/dev/null" else names.get("---", "")
    if not chosen and head[0].startswith("diff --git "):
        chosen = head[0].rpartition(" ")[2]
    return chosen[2:] if chosen.startswith(("a/", "b/")) else chosen


def new_lines(part: Part) -> list[list[int]]:
    """Return the ranges of lines of the new file that the hunks add or touch."""
    ranges = []
    for hunk in part.hunks:
        found = HUNK.match(hunk[0])
        start = int(found[1]) if found else 0
        size = int(found[2] or 1) if found else 0
        ranges.append([start, start + max(size - 1, 0)])
    return ranges


def split_parts(parts: list[Part], limit: int) -> list[list[Part]]:
    """Return pieces of at most `limit` changed lines; only a single hunk may be larger. Neighbours stay together."""
    pieces: list[list[Part]] = []
    room = 0
    for part in sorted(parts, key=lambda each: (is_test(each.file), not language_of(each.file), each.file)):
        for hunk in part.hunks or [[]]:
            single = Part(part.file, part.head, [hunk] if hunk else [])
            if not pieces or single.size > room or is_test(pieces[-1][0].file) != is_test(part.file):
                pieces.append([])
                room = limit
            if pieces[-1] and pieces[-1][-1].file == part.file and hunk:
                pieces[-1][-1].hunks.append(hunk)
            else:
                pieces[-1].append(single)
            room -= single.size
    return pieces


def write_pieces(pieces: list[list[Part]], folder: Path) -> list[dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("[0-9]*.diff"):
        old.unlink()
    found = []
    for number, piece in enumerate(pieces, 1):
        text = "\n".join(row for part in piece for row in [*part.head, *(row for hunk in part.hunks for row in hunk)])
        name = f"{number:02}.diff"
        (folder / name).write_text(text + "\n", encoding="utf-8")
        files = [{"file": part.file, "lines": new_lines(part)} for part in piece]
        found.append({"piece": f"{number:02}", "changed_lines": sum(part.size for part in piece), "files": files})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="NN.diff and pieces.json")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository (default: here)")
    parser.add_argument("--range", default="", help="such as main...HEAD; default: the work tree against HEAD")
    parser.add_argument("--staged", action="store_true")
    parser.add_argument("--diff", type=Path, help="a unified diff in a file")
    parser.add_argument("--size", type=int, default=200, help="changed lines of a piece")
    options = parser.parse_args()
    try:
        parts = parse_diff(read_diff(options))
    except (Problem, OSError) as problem:
        print(json.dumps({"error": str(problem)}))
        sys.exit(1)
    if not parts:
        print(json.dumps({"error": "The diff is empty: name a --range, --staged or a --diff FILE."}))
        sys.exit(1)
    left_out = [part.file for part in parts if is_generated(part.file) or not part.hunks]
    kept = [part for part in parts if part.file not in left_out]
    index = {"pieces": write_pieces(split_parts(kept, options.size), options.out), "left_out": left_out}
    (options.out / "pieces.json").write_text(json.dumps(index, ensure_ascii=False, indent=1), encoding="utf-8")
    print(json.dumps(index, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
