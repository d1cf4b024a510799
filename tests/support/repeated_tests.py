"""Judge the tests that failed beside others and run again alone: `.ci/run` calls this between the two.

A machine of CI is new each time, so a run cannot count over ten. What it remembers is `repeated_tests.txt`: the names
that a run printed, each with its day. A name that stands there needs a repetition for the second time, and the run
fails, whatever its repetition says; so it does for a name that this run has repeated before, which the file in the
first argument remembers, and where more than MOST fail at once: those are no accidents of a busy machine. A name goes
off the list when its test is mended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_suffix(".txt")
FAILED = ROOT / ".pytest_cache/v/cache/lastfailed"
MOST = 7  # of some 7,000 tests: one in a thousand


def read_list(text: str) -> set[str]:
    """Return the names of a list with lines `YYYY-MM-DD NAME`; lines of # are comments."""
    return {line.partition(" ")[2].strip() for line in text.splitlines() if line.strip() and line[0] != "#"}


def judge(failed: Collection[str], known: Collection[str]) -> tuple[str, bool]:
    """Return what to print about tests that are to run again, and whether the run may still pass."""
    again = sorted({*failed} & {*known})
    lines = [f"run again alone: {name}" for name in sorted(failed)]
    lines += [f"needs it for the second time, mend it: {name}" for name in again]
    if len(failed) > MOST:
        lines.append(f"{len(failed)} tests need it, at most {MOST} may: look for a common cause")
    elif failed and not again:
        lines.append(f"add those that pass now to {LIST.relative_to(ROOT)}, with the day")
    return "\n".join(lines), not again and len(failed) <= MOST


def main(earlier: Path) -> int:
    """Judge the last run, after those whose names `earlier` has. Returns 1 if its repetition cannot save it."""
    failed = json.loads(FAILED.read_text("utf-8")) if FAILED.exists() else {}
    repeated = earlier.read_text("utf-8").splitlines() if earlier.exists() else []
    text, passes = judge(failed, {*read_list(LIST.read_text("utf-8")), *repeated})
    print(text, flush=True)
    earlier.write_text("".join(f"{name}\n" for name in [*repeated, *failed]), "utf-8")
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
