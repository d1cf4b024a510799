"""Check a skill's folder by the rules of Fawn: what makes it unusable, and what the open format forbids."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from skill_program import run_main
from skill_rules import MissingPackage, check_skill

EXIT_MISSING_PACKAGE = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(json.dumps({"error": f"{options.folder} is not a folder."}))
        sys.exit(2)
    try:
        found = check_skill(options.folder)
    except MissingPackage as missing:
        print(json.dumps({
            "error": "These fields are more than plain texts, and there is no YAML parser.",
            "missing": [str(missing)], "fix": f"pip install {missing}, or write plain texts",
        }))  # fmt: skip
        sys.exit(EXIT_MISSING_PACKAGE)
    print(json.dumps({"ok": not found.problems, **found._asdict()}, ensure_ascii=False, indent=1))
    sys.exit(1 if found.problems else 0)


if __name__ == "__main__":
    run_main(main, ("folder",))
