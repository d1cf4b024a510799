"""Parse the Markdown of a deck: slides with texts, pictures, charts, tables and speaker notes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from skill_program import Problem, check_size

MAX_SLIDES = 200
MAX_DATA_BYTES = 1 << 20
CHART_KINDS = ("column", "stacked", "bar", "line", "area", "pie")
_INLINE = re.compile(
    r"\*\*(?P<bold>[^*\n]{1,500})\*\*|(?<![*\w])\*(?P<italic>[^*\s][^*\n]{0,500})\*(?!\w)|`(?P<code>[^`\n]{1,500})`"
    r"|\[(?P<link>[^\]\n]{1,500})\]\((?P<url>[^)\s]{1,2000})\)"
)
_PICTURE = re.compile(r'!\[([^\]]*)\]\(\s*(<[^>]+>|[^)\s]+)(?:\s+"([^"]*)")?\s*\)\s*')
_ITEM = re.compile(r"( *)([-*+]|(\d{1,4})[.)])\s+(\S.*)")
_NOTES = re.compile(r"(?:speaker )?notes?:\s*(.*)", re.IGNORECASE)


class Run(NamedTuple):
    """A piece of text in one style: "", "bold", "italic", "code" or "link"."""

    text: str
    style: str = ""
    url: str = ""


class Text(NamedTuple):
    """A paragraph: "bullet", "number", "paragraph", "quote", "code" or "heading"."""

    kind: str
    text: str
    level: int = 1
    number: int = 0  # what a numbered item shows


class Visual(NamedTuple):
    """A picture (path), a chart (head and rows of numbers) or a table (head and rows of texts)."""

    kind: str  # "picture", "chart" or "table"
    title: str = ""  # of a chart; of a picture what it shows, for people who cannot see it
    path: Path = Path()
    caption: str = ""
    chart: str = ""  # one of CHART_KINDS
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    right: tuple[bool, ...] = ()  # columns of a table that end at the right


class Slide(NamedTuple):
    """A slide as the Markdown has it. `kind`: "title", "section" or "content"."""

    number: int
    kind: str
    title: str = ""
    texts: tuple[Text, ...] = ()
    visuals: tuple[Visual, ...] = ()
    notes: str = ""


def wrong(slide: int, title: str, what: str) -> Problem:
    """Return the error of a slide, with its number."""
    return Problem(f"Slide {slide}{f' (“{title[:60]}”)' if title else ''}: {what}")


def parse_runs(text: str) -> list[Run]:
    runs, end = [], 0
    for match in _INLINE.finditer(text):
        if match.start() > end:
            runs.append(Run(text[end : match.start()]))
        style = next(name for name in ("bold", "italic", "code", "link") if match[name])
        runs.append(Run(match[style], style, match["url"] or ""))
        end = match.end()
    return [*runs, Run(text[end:])] if end < len(text) else runs


def plain(text: str) -> str:
    """Return the text without Markdown's marks."""
    return "".join(run.text for run in parse_runs(text))


def split_slides(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield level and text of the heading, and the lines, of each slide. A rule starts a slide without a heading."""
    level, title, lines, fenced = 0, "", list[str](), False
    for line in text.replace("\r\n", "\n").split("\n"):
        fenced ^= line.startswith("```")
        head = None if fenced else re.fullmatch(r"(#{1,2})\s+(\S.*?)\s*#*", line)
        if head or (not fenced and re.fullmatch(r"\s*(-{3,}|\*{3,})\s*", line)):
            if level or any(each.strip() for each in lines):
                yield level, title, lines
            level, title, lines = (len(head[1]), head[2], []) if head else (0, "", [])
        else:
            lines.append(line)
    if level or any(each.strip() for each in lines):
        yield level, title, lines


def parse_deck(text: str, folder: Path) -> list[Slide]:
    """Return the slides. Raises Problem, with the number of the slide."""
    slides: list[Slide] = []
    for number, (level, title, lines) in enumerate(split_slides(text.lstrip("\ufeff")), 1):
        if number > MAX_SLIDES:
            raise Problem(f"A deck has at most {MAX_SLIDES} slides.")
        texts, visuals, notes = SlideParser(number, plain(title), folder).parse(lines)
        kind = "content"
        if level == 1 and not visuals and all(each.kind == "paragraph" for each in texts):
            kind = "title" if number == 1 else "section"
        slides.append(Slide(number, kind, plain(title), tuple(texts), tuple(visuals), notes))
    if not slides:
        raise Problem("The Markdown has no slide: `# Title` is the title slide, `## Title` starts each other slide.")
    return slides


class SlideParser:
    """Parses the lines below one slide's heading."""

    def __init__(self, number: int, title: str, folder: Path) -> None:
        self.number, self.title, self.folder = number, title, folder
        self.texts: list[Text] = []
        self.visuals: list[Visual] = []
        self.open = False  # whether the next line continues the last text

    def parse(self, lines: list[str]) -> tuple[list[Text], list[Visual], str]:
        index = 0
        while index < len(lines):
            line = lines[index].rstrip()
            index += 1
            if match := _NOTES.fullmatch(line):
                notes = "\n".join([match[1], *lines[index:]]).strip()
                return self.texts, self.visuals, notes
            if line.startswith("```"):
                end = next((i for i in range(index, len(lines)) if lines[i].startswith("```")), len(lines))
                self._fence(line[3:].strip(), lines[index:end])
                index, self.open = end + 1, False
            elif "|" in line and index < len(lines) and re.fullmatch(r"[\s|:-]*-[\s|:-]*", lines[index]):
                end = next((i for i in range(index + 1, len(lines)) if "|" not in lines[i]), len(lines))
                self.visuals.append(read_table(line, lines[index], lines[index + 1 : end]))
                index, self.open = end, False
            else:
                self._line(line)
        return self.texts, self.visuals, ""

    def _line(self, line: str) -> None:
        stripped = line.strip()
        if not stripped:
            self.open = False
        elif match := _PICTURE.fullmatch(stripped):
            path = self._picture(match[2].strip("<>"))
            self.visuals.append(Visual("picture", match[1], path, match[3] or ""))
        elif match := _ITEM.fullmatch(line):
            level = min(len(match[1]) // 2 + 1, 3)
            number = self._next_number(level, int(match[3])) if match[3] else 0
            self._add(Text("number" if match[3] else "bullet", match[4], level, number))
        elif match := re.fullmatch(r"#{3,6}\s+(\S.*?)\s*#*", stripped):
            self._add(Text("heading", match[1]))
            self.open = False
        elif stripped.startswith(">"):
            self._add(Text("quote", stripped.lstrip("> ")))
        elif self.open:
            last = self.texts.pop()
            self.texts.append(last._replace(text=f"{last.text} {stripped}"))
        else:
            self._add(Text("paragraph", stripped))

    def _next_number(self, level: int, written: int) -> int:
        """Count on in a list, whatever its items are numbered, as Markdown does."""
        for text in reversed(self.texts):
            if text.level == level or text.kind not in ("bullet", "number"):
                return text.number + 1 if text.kind == "number" else written
        return written

    def _add(self, text: Text) -> None:
        self.texts.append(text)
        self.open = True

    def _picture(self, name: str) -> Path:
        if re.match(r"[a-z]{2,10}:", name):
            raise wrong(self.number, self.title, f"{name[:200]} is not loaded; download it, and name the file.")
        path = self.folder / name
        if not path.is_file():
            raise wrong(self.number, self.title, f"There is no picture {path}.")
        return path

    def _fence(self, info: str, lines: list[str]) -> None:
        words = info.split(None, 2)
        if not words or words[0] != "chart":
            self.texts += [Text("code", line) for line in lines]
            return
        if len(words) < 2 or words[1] not in CHART_KINDS:
            raise wrong(self.number, self.title, f"A chart is `chart KIND TITLE`; KIND is {', '.join(CHART_KINDS)}.")
        text = "\n".join(lines).strip()
        try:
            if match := re.fullmatch(r"file:\s*(\S.*)", text):
                text = check_size(self.folder / match[1].strip(), MAX_DATA_BYTES).read_text("utf-8-sig")
            head, rows = read_numbers(text)
        except Problem as error:
            raise wrong(self.number, self.title, str(error)) from None
        self.visuals.append(Visual("chart", words[2] if len(words) > 2 else "", chart=words[1], head=head, rows=rows))


def read_numbers(text: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return the head and the rows of a chart's CSV: a label, then numbers or nothing. Raises Problem."""
    found = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if any(map(str.strip, row))]
    if len(found) < 2 or len(found[0]) < 2:
        raise Problem("A chart needs CSV: a head such as `quarter,Tea,Coffee`, then rows such as `Q1,12,8`.")
    for row in found[1:]:
        if len(row) != len(found[0]):
            raise Problem(f"The row `{','.join(row)[:80]}` has {len(row)} cells, the head has {len(found[0])}.")
        for cell in row[1:]:
            if cell and not re.fullmatch(r"[-+]?\d{1,15}(?:\.\d{1,15})?", cell):
                raise Problem(f"{cell[:40]!r} is not a number such as -1234.5.")
    return tuple(found[0]), tuple(tuple(row) for row in found[1:])


def split_cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def read_table(head: str, marks: str, lines: list[str]) -> Visual:
    """Return a table. A column ends at the right if its mark says so, or if it has only numbers."""
    names = split_cells(head)
    rows = [(split_cells(line) + [""] * len(names))[: len(names)] for line in lines]
    right = []
    for column, mark in enumerate((split_cells(marks) + [""] * len(names))[: len(names)]):
        cells = [row[column] for row in rows if row[column]]
        numbers = bool(cells) and all(re.fullmatch(r"[-+€$£]{0,2}[\d.,’' ]{1,20}\s?[%€$£]?", cell) for cell in cells)
        right.append(mark.endswith(":") or (numbers and not mark.startswith(":")))
    return Visual("table", head=tuple(names), rows=tuple(tuple(row) for row in rows), right=tuple(right))
