"""Pack a skill that passes its check: a .skill archive for an operator, or the files as propose_skill takes them."""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path

from skill_rules import MissingPackage, check_skill, list_files

EXIT_MISSING_PACKAGE = 3
MAX_PROPOSED_CHARS = 400_000
FIXED_TIME = (2020, 1, 1, 0, 0, 0)  # the same files are the same archive


def text_files(folder: Path, names: list[str]) -> tuple[list[dict[str, str]], list[str]]:
    """Return the files with their texts, and the names of those that are no text."""
    texts, others = [], []
    for name in names:
        try:
            texts.append({"path": name, "content": (folder / name).read_bytes().decode("utf-8")})
        except UnicodeDecodeError:
            others.append(name)
    return texts, others


def write_archive(folder: Path, names: list[str], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            entry = zipfile.ZipInfo(f"{folder.resolve().name}/{name}", FIXED_TIME)
            mode = 0o755 if (folder / name).stat().st_mode & 0o100 else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, (folder / name).read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, metavar="FILE", help="the archive, .skill or .zip")
    parser.add_argument("--json", action="store_true", help="print name and files for propose_skill")
    options = parser.parse_args()
    if bool(options.out) == options.json:
        parser.error("choose --out FILE or --json")
    try:
        verdict = check_skill(options.folder)
    except (MissingPackage, OSError) as error:
        missing = [str(error)] if isinstance(error, MissingPackage) else []
        print(json.dumps({"error": f"It cannot be checked: {error}", "missing": missing}))
        sys.exit(EXIT_MISSING_PACKAGE if missing else 2)
    if verdict.problems:
        print(
            json.dumps({"error": "It does not pass check_skill.py.", "problems": verdict.problems}, ensure_ascii=False)
        )
        sys.exit(1)
    names = sorted(list_files(options.folder)[0])
    if options.json:
        texts, others = text_files(options.folder, names)
        if others or sum(len(each["content"]) for each in texts) > MAX_PROPOSED_CHARS:
            named = ", ".join(others) or f"more than {MAX_PROPOSED_CHARS} characters"
            print(
                json.dumps(
                    {"error": f"propose_skill takes texts only ({named}): use --out, which an operator installs."}
                )
            )
            sys.exit(1)
        print(json.dumps({"name": verdict.facts["name"], "files": texts}, ensure_ascii=False, indent=1))
        return
    write_archive(options.folder, names, options.out)
    result = {"written": str(options.out), "files": len(names), "warnings": verdict.warnings}
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
