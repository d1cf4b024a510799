"""Measure what skills cost: reading them at the start, and looking for changes at each turn.

Run `python -m bench.skills`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent.skills.library import SkillFolders, SkillLibrary

SKILLS, FILES = 17, 5  # as in the public collection of the format's authors
ROUNDS = 50
MAX_READ_MS, MAX_CHECK_MS = 10.0, 0.2


def write_skills(root: Path) -> None:
    """Write skills of a usual size: 200 lines of instructions and a few scripts."""
    for number in range(SKILLS):
        folder = root / f"skill-{number}" / "scripts"
        folder.mkdir(parents=True)
        head = f"---\nname: skill-{number}\ndescription: {'What it does, and when to use it. ' * 8}\n---\n"
        (folder.parent / "SKILL.md").write_text(head + "A line of instructions for the task.\n" * 200)
        for script in range(FILES - 1):
            (folder / f"part{script}.py").write_text("print('hello')\n" * 100)


def median_ms(work: Callable[[], object]) -> float:
    """Return the median processor time of a call in ms: others on the machine add none."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        times.append((time.process_time() - begin) * 1000)
    return statistics.median(times)


def main() -> None:
    """Print the figures with their goals."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_skills(root / "public")
        folders = SkillFolders(root / "custom", (), root / "public")
        library = SkillLibrary(folders, root / "data")
        begin = time.process_time()
        library.reload()
        first = (time.process_time() - begin) * 1000
        read = median_ms(lambda: SkillLibrary(folders, root / "data").reload())
        check = median_ms(library.reload)
        tokens = len(library.current.brief()) // 4
    print(f"first start, which copies {SKILLS} skills of {FILES} files for the sandboxes: {first:.1f} ms")
    print(f"reading them at a later start: {read:.2f} ms (goal {MAX_READ_MS:g})")
    print(f"looking for changes at a turn: {check:.3f} ms (goal {MAX_CHECK_MS:g})")
    print(f"their list in the brief: about {tokens} tokens")


if __name__ == "__main__":
    main()
