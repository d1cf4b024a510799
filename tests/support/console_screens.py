"""The console with the demo, as text: what a person sees after each scene.

python -m tests.support.console_screens   writes tests/e2e/screens/COLUMNS.txt: review each difference
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.forked_services import program
from tests.support.terminal import EMPTY, Terminal

ROOT = Path(__file__).parents[2]
SCREENS = ROOT / "tests/e2e/screens"
COLUMNS = (60, 80, 120)
ROWS = 60
STOP, RUNNING = "\x03", "Running a shell script"
CONFIG = "config_version: 1\nsandbox: {provider: local}\ntime_zone: UTC\n"


@dataclass(frozen=True, slots=True)
class Scene:
    """What a person types, a line each, and the words after which each line is answered. `until`: words before ^C."""

    name: str
    typed: tuple[tuple[str, str], ...]


SCENES = (
    Scene("hello", (("hello", "Then restart me."),)),
    Scene("help", (("/help", "Ctrl-D"),)),
    Scene("status", (("/status", "Sandbox:"),)),
    Scene("plot", (("plot", "downloads/visits.png"),)),
    Scene("steps", (("/steps", "demo_plot.py"),)),
    Scene("ask", (("ask", "Type a number"), ("1", "You answered"))),
    Scene("approve", (("approve", "Type a number"), ("1", "downloads/approved.txt"))),
    Scene("plan", (("plan", "downloads/packing-list.md"),)),
    Scene("steps of the plan", (("/steps", "Plan · 2 of 2 done"),)),
    Scene("delegate", (("delegate", "The last one reported"),)),
    Scene("remind", (("remind", "lists your"), ("2", "I dropped this proposal."))),
    Scene("skill", (("skill", "uses the first one"),)),
    Scene("fail", (("fail", "That worked."),)),
    Scene("slow, stopped", (("slow", RUNNING), (STOP, "Stopped."))),
    Scene("steps of what was stopped", (("/steps", f"■ {RUNNING}"),)),
)


def open_demo(folder: Path, rows: int, columns: int) -> Terminal:
    """Start a service with the demo on a terminal."""
    (folder / "config.yaml").write_text(CONFIG)
    return Terminal([*program(), "run", "--config", "config.yaml"], folder, demo_environment(), rows, columns)


def demo_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", "USER": "jane", "LOGNAME": "jane"}


def play_scenes(columns: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the picture of the first screen and of each scene."""
    window = open_demo(folder, ROWS, columns)
    window.patience = 120  # each word of the demo takes its time, on a busy machine more
    try:
        window.prompt()
        window.until(
            lambda: "› Try: plot" in "".join(window.rows()).partition("/login#")[2]
        )  # drawn again below the link
        yield "start", picture(window.rows())
        for scene in SCENES:
            for typed, answer in scene.typed:
                _type(window, typed, answer)
            yield scene.name, picture(_since(window.rows(), f"› {scene.typed[0][0]}"))
    finally:
        window.close()


def _type(window: Terminal, typed: str, answer: str) -> None:
    """Type a line, or press a key, and wait until the answer below it has ended."""
    shown, seen = f"› {typed}", window.rows().count(f"› {typed}")
    if typed == STOP:
        window.type(typed)
        window.shows(answer)
    else:
        window.type(f"{typed}\r")
        window.until(lambda: window.rows().count(shown) > seen)
        window.until(lambda: answer in " ".join(" ".join(_since(window.rows(), shown)).split()))
    if answer != RUNNING:
        window.until(lambda: _is_idle(window.rows()))


def _is_idle(rows: list[str]) -> bool:
    """Whether the prompt is empty, with the blank row above it that nothing running leaves there."""
    prompts = [number for number, row in enumerate(rows) if row.startswith("›")]
    return bool(prompts) and rows[prompts[-1]] in EMPTY and not rows[prompts[-1] - 1]


def _since(rows: list[str], typed: str) -> list[str]:
    """Return the rows from the last one on that shows what was typed."""
    return rows[max(number for number, row in enumerate(rows) if row == typed) :]


def picture(rows: list[str]) -> str:
    """Return the rows without those around them that are empty, with the same numbers and times each time."""
    text = "\n".join(rows).strip("\n")
    text = re.sub(r"\b(?:\d+ min )?\d+ s\b", "1 s", text)
    text = re.sub(r"http://127\.0\.0\.1:\d+/login#[\w-]{22}", "http://127.0.0.1:8484/login#…", text)
    text = re.sub(r"up for \d+ \w+,", "up for less than a minute,", text)
    text = re.sub(r"(?s)(These skills are installed: ).*", r"\1…", text)  # every new one would change it
    text = re.sub(r"jobs: \d+ waiting, \d+", "jobs: 6 waiting, 0", text)
    return re.sub(r"(?s)(When: once, ).*?(\n\n 1 )", r"\1…\2", text)  # names of days differ in length


def as_page(pictures: Iterator[tuple[str, str]]) -> str:
    return "\n".join(f"=== {name}\n{text}\n" for name, text in pictures)


def main() -> None:
    for columns in COLUMNS:
        with tempfile.TemporaryDirectory(prefix="fawn-screens-") as folder:
            page = as_page(play_scenes(columns, Path(folder)))
        SCREENS.mkdir(exist_ok=True)
        (SCREENS / f"{columns}.txt").write_text(page)
        sys.stderr.write(f"{columns} columns: {page.count('===')} screens\n")


if __name__ == "__main__":
    main()
