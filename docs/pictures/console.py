"""Record the real console with the demo as an animated SVG: python -m docs.pictures.console (needs bubblewrap).

The frames are what a terminal shows (pyte); waiting is shortened. GitHub shows the file as a picture that moves by CSS.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from pathlib import Path

import pyte
from pyte.screens import Char

from tests.support.console_screens import demo_environment, open_demo
from tests.support.service_process import PROGRAM
from tests.support.terminal import Terminal

TARGET = Path(__file__).parent / "console.svg"
COLUMNS, ROWS = 86, 26
CELL_WIDTH, CELL_HEIGHT, MARGIN, BAR = 8.4, 18, 14, 28
FRAME_SECONDS = 0.12  # what changes within it is one frame
LONGEST_WAIT, LAST_SECONDS = 1.6, 4.0
KEY_SECONDS = 0.09
PLAYED = (("plot", "visits.png ("), ("approve", "Type a number"), ("1", "approved.txt ("), ("/steps", "approved.txt —"))
COLOURS = {
    "default": "#d8d6d0",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c99bdf",
    "cyan": "#56b6c2",
    "brightblack": "#7f848e",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What the screen shows for some seconds, a row each as SVG."""

    rows: tuple[str, ...]
    seconds: float


class Recorder:
    """A terminal that keeps a picture of each moment."""

    def __init__(self, window: Terminal) -> None:
        self.window = window
        self.shots: list[tuple[float, tuple[str, ...]]] = []

    def watch(self, seconds: float) -> None:
        """Read what comes for some seconds, and take a picture after each piece."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.window.master], [], [], min(left, 0.03))[0]:
                self.window.stream.feed(os.read(self.window.master, 65_536))
                self.shots.append((time.monotonic(), tuple(_draw_rows(self.window.screen))))

    def type(self, words: str) -> None:
        for key in words:
            self.window.type(key)
            self.watch(KEY_SECONDS)
        self.watch(0.5)
        self.window.type("\r")

    def until(self, words: str) -> None:
        while words not in " ".join(self.window.text().split()):
            self.watch(0.1)
        self.watch(1.5)

    def frames(self) -> Iterator[Frame]:
        """Yield what differs, a frame for each moment."""
        moments: list[tuple[float, tuple[str, ...]]] = []
        for at, rows in self.shots:
            if moments and at - moments[-1][0] < FRAME_SECONDS:
                moments[-1] = (moments[-1][0], rows)
            elif not moments or moments[-1][1] != rows:
                moments.append((at, rows))
        for (at, rows), (end, _next) in pairwise(moments):
            yield Frame(rows, min(end - at, LONGEST_WAIT))
        yield Frame(moments[-1][1], LAST_SECONDS)


def _draw_rows(screen: pyte.HistoryScreen) -> Iterator[str]:
    for number in range(ROWS):
        yield _draw_row([screen.buffer[number][column] for column in range(COLUMNS)])


def _draw_row(cells: Sequence[Char]) -> str:
    """Return one row as runs of equal style, each as wide as its cells."""
    runs, column = [], 0
    for (colour, bold), group in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
        text = "".join(cell.data for cell in group)
        shown = text.strip(" ")
        if shown:
            begin = column + len(text) - len(text.lstrip(" "))
            x, length = MARGIN + begin * CELL_WIDTH, len(shown) * CELL_WIDTH
            style = f"fill:{COLOURS.get(colour, COLOURS['default'])};" if colour != "default" else ""
            style += "font-weight:bold" if bold else ""
            styled = f' style="{style}"' if style else ""
            runs.append(f'<text x="{x:.1f}" textLength="{length:.1f}"{styled}>{escape(shown)}</text>')
        column += len(text)
    return "".join(runs)


def as_svg(frames: Sequence[Frame]) -> str:
    """Return a film: the frames lie side by side, and CSS shows one after the other."""
    width, height = round(COLUMNS * CELL_WIDTH + 2 * MARGIN), BAR + ROWS * CELL_HEIGHT + MARGIN
    names = {row: f"r{n}" for n, row in enumerate(dict.fromkeys(row for frame in frames for row in frame.rows if row))}
    total, at, keys = sum(frame.seconds for frame in frames), 0.0, []
    for number, frame in enumerate(frames):
        keys.append(f"{100 * at / total:.3f}%{{transform:translateX({-number * width}px)}}")
        at += frame.seconds
    pictures = [
        f'<g transform="translate({number * width},0)">'
        + "".join(
            f'<use href="#{names[row]}" y="{BAR + (line + 1) * CELL_HEIGHT - 4}"/>'
            for line, row in enumerate(frame.rows)
            if row
        )
        + "</g>"
        for number, frame in enumerate(frames)
    ]
    font = "14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
    text_style = f"text{{font:{font};white-space:pre;fill:{COLOURS['default']}}}"
    film = f".film{{animation:film {total:.2f}s step-end infinite}}@keyframes film{{{''.join(keys)}}}"
    size = f'width="{width}" height="{height}"'
    dots = enumerate(("#e06c75", "#e5c07b", "#98c379"))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}">',
        "<title>A chat with Fawn's built-in demo in a terminal</title>",
        f"<style>{text_style}{film}</style>",
        "<defs>" + "".join(f'<g id="{name}">{row}</g>' for row, name in names.items()) + "</defs>",
        f'<rect {size} rx="8" fill="#20232a"/>',
        *(f'<circle cx="{20 + 18 * n}" cy="16" r="5.5" fill="{colour}"/>' for n, colour in dots),
        f'<svg {size}><g class="film">',
        *pictures,
        "</g></svg></svg>\n",
    ]
    return "\n".join(lines)


def _await_ready(folder: Path) -> None:
    """Wait until the agent is loaded, which the prompt does not wait for."""
    while subprocess.run([*PROGRAM, "status"], cwd=folder, env=demo_environment(), capture_output=True).returncode:
        time.sleep(0.2)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fawn-film-") as name:
        window = open_demo(Path(name), ROWS, COLUMNS)
        try:
            window.prompt()
            _await_ready(Path(name))
            recorder = Recorder(window)
            recorder.watch(0.5)
            for typed, answer in PLAYED:
                recorder.type(typed)
                recorder.until(answer)
            svg = as_svg([*recorder.frames()])
        finally:
            window.close()
    TARGET.write_text(svg)


if __name__ == "__main__":
    main()
