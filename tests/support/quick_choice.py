"""Choose what `make quick` leaves out beside the tests that are marked as slow: those that take long for what they are.

    make quick-choice

It runs all of them (7 minutes on two cores) and writes `quick_leaves_out.txt`, options of pytest, one on a line.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("quick_leaves_out.txt")
OPTION = "--deselect="
FOLDERS = ("tests/unit/agent", "tests/unit/bot", "tests/unit/channels")
MAX_MEAN_SECONDS, MAX_SECONDS = 0.3, 5.0  # of a test's examples, each and all together
_TIMED = re.compile(r"([\d.]+)s (?:call|setup|teardown) +(\S+?::\w+)(.*)")


def choose(lines: Iterable[str]) -> list[str]:
    """Return the tests (`file::function`) that take too long, from what `pytest --durations=0` prints."""
    seconds: defaultdict[str, float] = defaultdict(float)
    examples: defaultdict[str, set[str]] = defaultdict(set)
    for found in filter(None, map(_TIMED.match, lines)):
        seconds[found[2]] += float(found[1])
        examples[found[2]].add(found[3])
    return sorted(
        name for name, all in seconds.items() if all > MAX_SECONDS or all / len(examples[name]) > MAX_MEAN_SECONDS
    )


def main() -> None:
    """Run the tests and write the list. A failed test ends it."""
    words = ["-q", "-n", "4", "--dist", "worksteal", "--durations=0", "--durations-min=0.02"]
    program = [sys.executable, "-m", "pytest", *words, "-m", "not slow", *FOLDERS]
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    LIST.write_text("".join(f"{OPTION}{name}\n" for name in choose(done.stdout.splitlines())))


if __name__ == "__main__":
    main()
