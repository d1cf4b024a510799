"""Fit texts and tables into slides: measure, choose a size, split over slides, or refuse. Lengths are points."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import NamedTuple

from deck_source import Slide, Text, Visual, plain, wrong

WIDTH, HEIGHT = 960.0, 540.0
SIZES = (26, 24, 22, 20, 18)
SPLIT_SIZE = 20  # of text that goes over several slides
TABLE_SIZES = (18, 16, 14, 12)
TITLE_SIZE, COVER_SIZE = 30, 42
LINE, GAP = 1.2, 0.4  # of the size: a line, and the space below a paragraph
SAFETY = 1.12  # other fonts than Arial are wider
INDENT = 26.0  # of each level
CELL_X, CELL_Y = 16.0, 10.0  # the margins of a table's cell, both sides together
MAX_VISUALS = 4
MAX_POINTS, MAX_SERIES = 60, 6

# Thousandths of the size, for the letters from space to ~ in Arial.
WIDTHS = (
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *[556] * 10, *(278, 278, 584, 584, 584, 556),
    *(1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778),
    *(667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556),
    *(333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556),
    *(556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
)  # fmt: skip


class Box(NamedTuple):
    left: float
    top: float
    width: float
    height: float


BODY = Box(54, 118, 852, 368)
GUTTER = 32.0


class Page(NamedTuple):
    """A slide as it is drawn: what fits, where, and in which size."""

    slide: Slide
    title: str
    texts: tuple[Text, ...] = ()
    size: int = 0
    text_box: Box = BODY
    visuals: tuple[tuple[Visual, Box], ...] = ()
    table_size: int = 0
    notes: str = ""


def text_width(text: str, size: float, *, bold: bool = False, mono: bool = False) -> float:
    total = 0
    for sign in unicodedata.normalize("NFD", text):
        if unicodedata.combining(sign):
            continue
        wide = unicodedata.east_asian_width(sign) in "WF"
        total += 1000 if wide else 602 if mono else WIDTHS[ord(sign) - 32] if " " <= sign <= "~" else 620
    return total * size / 1000 * (1.0 if mono else SAFETY) * (1.07 if bold else 1)


def line_count(text: str, width: float, size: float, *, bold: bool = False, mono: bool = False) -> int:
    """Return how many lines a text needs; words break only if they must, Chinese and Japanese anywhere."""
    lines, used = 1, 0.0
    for word in re.findall(r"[^\s\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]+\s*|\S\s*", text):
        length = text_width(word.rstrip(), size, bold=bold, mono=mono)
        if used and used + length > width:
            lines, used = lines + 1, 0.0
        if length > width:
            more = math.ceil(length / width) - 1
            lines, length = lines + more, length - more * width
        used += length + text_width(word[len(word.rstrip()) :], size, mono=mono)
    return lines


def item_size(item: Text, size: int) -> int:
    """Return the size of one paragraph on a slide of this size."""
    if item.kind == "code":
        return max(12, size - 6)
    return max(14, size - 2 * (item.level - 1)) if item.kind in ("bullet", "number") else size


def item_indent(item: Text) -> float:
    return INDENT * item.level if item.kind in ("bullet", "number") else INDENT if item.kind == "quote" else 0


def item_height(item: Text, width: float, size: int) -> float:
    own = item_size(item, size)
    mono = item.kind == "code"
    lines = line_count(plain(item.text), width - item_indent(item), own, bold=item.kind == "heading", mono=mono)
    return lines * own * LINE + (0 if mono else own * GAP)


def height(items: tuple[Text, ...], width: float, size: int) -> float:
    return sum(item_height(item, width, size) for item in items)


def fitting_size(items: tuple[Text, ...], box: Box) -> int:
    """Return the largest size in which all of it fits, or 0."""
    return next((size for size in SIZES if height(items, box.width, size) <= box.height), 0)


def groups_of(items: tuple[Text, ...], box: Box) -> list[tuple[Text, ...]]:
    """Return what should stay together: an item with its nested ones, a heading with what follows."""
    groups: list[tuple[Text, ...]] = []
    for item in items:
        nested = item.kind in ("bullet", "number") and item.level > 1
        if groups and (nested or groups[-1][-1].kind == "heading"):
            groups[-1] = (*groups[-1], item)
        else:
            groups.append((item,))
    parts: list[tuple[Text, ...]] = []
    for group in groups:
        fits = height(group, box.width, SPLIT_SIZE) <= box.height
        parts += [group] if fits else [(item,) for item in group]
    return parts


def split_texts(slide: Slide, items: tuple[Text, ...], first: Box) -> list[tuple[Text, ...]]:
    """Return the texts of each slide; the first has its own box. Raises Problem for a paragraph that fits nowhere."""
    pages: list[tuple[Text, ...]] = []
    box, page = first, tuple[Text, ...]()
    for group in groups_of(items, BODY):
        if page and height((*page, *group), box.width, SPLIT_SIZE) > box.height:
            pages.append(page)
            box, page = BODY, ()
        if not page and height(group, box.width, SPLIT_SIZE) > box.height:
            lines = line_count(plain(group[0].text), box.width, SPLIT_SIZE)
            raise wrong(
                slide.number, slide.title,
                f"a paragraph of {len(group[0].text)} characters needs {lines} lines, which do not fit; shorten it,"
                " make bullets of it, or move it into the notes.",
            )  # fmt: skip
        page = (*page, *group)
    return [*pages, page]


def picture_boxes(count: int, box: Box) -> list[Box]:
    """Divide a box for so many pictures and charts."""
    columns = 1 if count == 1 or (box.width < box.height * 1.4 and count == 2) else 2
    rows = math.ceil(count / columns)
    wide, high = (box.width - GUTTER * (columns - 1)) / columns, (box.height - 20.0 * (rows - 1)) / rows
    return [
        Box(box.left + index % columns * (wide + GUTTER), box.top + index // columns * (high + 20), wide, high)
        for index in range(count)
    ]


def column_widths(table: Visual, width: float, size: int) -> list[float] | None:
    """Return widths by the texts of the columns, None if a word does not fit."""
    columns = list(zip(table.head, *table.rows))
    wanted, least = [], []
    for cells in columns:
        texts = [plain(cell) for cell in cells]
        words = [word for text in texts for word in re.findall(r"[^\s\u2e80-\uffef]+|\S", text)] or [""]
        wanted.append(max(text_width(text, size, bold=True) for text in texts) + CELL_X)
        least.append(max(text_width(word, size, bold=True) for word in words) + CELL_X)
    if sum(least) > width:
        return None
    if sum(wanted) <= width:
        return [each * width / sum(wanted) for each in wanted]
    spare, missing = width - sum(least), sum(wanted) - sum(least)
    return [low + spare * (high - low) / missing for low, high in zip(least, wanted)]


def row_height(row: tuple[str, ...], widths: list[float], size: int) -> float:
    lines = max(line_count(plain(c), w - CELL_X, size, bold=True) for c, w in zip(row, widths))
    return lines * size * LINE + CELL_Y


def split_table(slide: Slide, table: Visual, box: Box) -> list[tuple[Visual, int]]:
    """Return the parts of a table that fit, each with the head, and their size. Raises Problem."""
    for size in TABLE_SIZES:
        widths = column_widths(table, box.width, size)
        if widths and sum(row_height(row, widths, size) for row in (table.head, *table.rows)) <= box.height:
            return [(table, size)]
    size = TABLE_SIZES[-2]
    widths = column_widths(table, box.width, size)
    if not widths:
        size = TABLE_SIZES[-1]
        widths = column_widths(table, box.width, size)
    if not widths:
        raise wrong(slide.number, slide.title, f"the table's {len(table.head)} columns are too wide; leave some out.")
    head = row_height(table.head, widths, size)
    parts: list[list[tuple[str, ...]]] = [[]]
    used = head
    for row in table.rows:
        high = row_height(row, widths, size)
        if head + high > box.height:
            raise wrong(slide.number, slide.title, "a row of the table is higher than a slide; shorten its texts.")
        if used + high > box.height:
            parts.append([])
            used = head
        parts[-1].append(row)
        used += high
    return [(table._replace(rows=tuple(rows)), size) for rows in parts]


def check_slide(slide: Slide) -> None:
    """Refuse what no slide can show. Raises Problem."""
    covers = slide.kind != "content"
    width, size = (760, COVER_SIZE) if covers else (BODY.width, TITLE_SIZE)
    if line_count(slide.title, width, size, bold=True) > (3 if covers else 2):
        raise wrong(slide.number, slide.title, "the title is too long; shorten it.")
    if covers and slide.texts and height(slide.texts, 760, 22) > 120:
        raise wrong(slide.number, slide.title, "the text below this title is too long; move it to a `##` slide.")
    if len(slide.visuals) > MAX_VISUALS or (len(slide.visuals) > 2 and slide.texts):
        raise wrong(slide.number, slide.title, "a slide has text and at most two pictures, or at most four without.")
    if len(slide.visuals) > 1 and any(each.kind == "table" for each in slide.visuals):
        raise wrong(slide.number, slide.title, "a table with another table or picture; give each a slide.")
    for item in slide.texts:
        if item.kind == "code" and text_width(item.text, item_size(item, SIZES[-1]), mono=True) > BODY.width:
            raise wrong(slide.number, slide.title, f"the line of code `{item.text[:40]}…` is too long; wrap it.")
    for chart in slide.visuals:
        if chart.kind == "chart" and (len(chart.rows) > MAX_POINTS or len(chart.head) - 1 > MAX_SERIES):
            limit = f"at most {MAX_POINTS} rows and {MAX_SERIES} columns of numbers"
            raise wrong(slide.number, slide.title, f"a chart has {limit}; group the data, or use the skill `chart`.")


def arrange(slide: Slide) -> tuple[Box, list[tuple[Visual, Box]], list[tuple[Visual, int]]]:
    """Return the box of the text, the pictures with theirs, and the parts of a table that follow."""
    if not slide.visuals:
        return BODY, [], []
    first = slide.visuals[0]
    if first.kind == "table":
        need = height(slide.texts, BODY.width, SPLIT_SIZE)
        if slide.texts and need <= BODY.height * 0.4:
            below = BODY._replace(top=BODY.top + need + 16, height=BODY.height - need - 16)
            parts = split_table(slide, first, below)
            if len(parts) == 1:
                return BODY._replace(height=need), [(first, below)], parts
        return BODY, [], split_table(slide, first, BODY)
    area = BODY
    if slide.texts:
        left = (BODY.width - GUTTER) * 0.44
        area = Box(BODY.left + left + GUTTER, BODY.top, BODY.width - left - GUTTER, BODY.height)
    boxes = picture_boxes(len(slide.visuals), area)
    text_box = BODY._replace(width=area.left - BODY.left - GUTTER) if slide.texts else BODY
    return text_box, list(zip(slide.visuals, boxes)), []


def pages_of(slide: Slide) -> list[Page]:
    """Return the slides that a slide of the Markdown becomes. Raises Problem."""
    check_slide(slide)
    if slide.kind != "content":
        return [Page(slide, slide.title, slide.texts, 22, notes=slide.notes)]
    text_box, placed, parts = arrange(slide)
    pages: list[Page] = []
    if slide.texts:
        size = fitting_size(slide.texts, text_box)
        texts = [slide.texts] if size else split_texts(slide, slide.texts, text_box)
        if placed and placed[0][0].kind == "table":
            size = SPLIT_SIZE
        for index, items in enumerate(texts):
            box = text_box if index == 0 else BODY
            pages.append(Page(slide, "", items, size or SPLIT_SIZE, box, tuple(placed) if index == 0 else ()))
    elif placed:
        pages.append(Page(slide, "", visuals=tuple(placed)))
    if parts and placed:
        pages[0] = pages[0]._replace(table_size=parts[0][1])
    else:
        pages += [Page(slide, "", visuals=((part, BODY),), table_size=size) for part, size in parts]
    pages = pages or [Page(slide, "")]
    numbered = [f" ({index} of {len(pages)})" if len(pages) > 1 else "" for index in range(1, len(pages) + 1)]
    return [
        page._replace(title=f"{slide.title}{mark}" if slide.title else "", notes="" if index else slide.notes)
        for index, (page, mark) in enumerate(zip(pages, numbered))
    ]
