"""Read the workbooks of Excel 2007 and later (xlsx, xlsm) row by row, with the standard library only.

Time grows with the file alone: parts are parsed piece by piece, and no cell is made for what lies between two others.
The structure is that of ECMA-376, part 1, §18; its strict form differs in namespaces, which are not looked at.
Python 3.9+.
"""

from __future__ import annotations

import bisect
import datetime
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element
from xml.parsers import expat

from sandbox.inside.archives import (
    MAX_CELLS,
    MAX_LEVELS,
    DocumentArchive,
    DocumentUnreadable,
    PartUnreadable,
    TimeIsOver,
    count_text,
    left_out,
    local,
    main_part,
    member_pieces,
    open_archive,
    parse_xml,
    read_member,
    refuse_document_type,
    related,
    side_part,
    table_line,
)
from sandbox.inside.office import flatten, lines_of, picture_text, value_of_id

MAIN = "xl/workbook.xml"
LAST_ROW, LAST_COLUMN = 1_048_576, 16_384
MAX_CELL_CHARS = 32_767  # as Excel
MAX_TOKEN_BYTES = 8 << 20  # of one tag or comment, which expat reads again with each piece
MAX_SHARED_CHARS = 100_000_000
MAX_ROW_CHARS = 5_000_000
MAX_SHEET_CHARS = 20_000_000  # of the text of a sheet
MAX_NAME_CHARS = 100
LEFT_OUT = "[the rest of this sheet is left out]\n\n"
DATES = frozenset((14, 15, 16, 17, 22, *range(27, 37), *range(50, 59)))  # §18.8.30, and what it has for East Asia
TIMES = frozenset((18, 19, 20, 21, 45, 47))
DURATIONS = frozenset((46,))
SECONDS_OF_DAY = 86_400

Value = Any  # a text, number or truth value


class Sheet(NamedTuple):
    """A sheet: its name, its part of the archive, "worksheet" or "chartsheet", and whether it is hidden."""

    name: str
    part: str
    kind: str
    hidden: bool


class Row(NamedTuple):
    """A row: its number, and by column, from 1, the values of cells with a value or formula, and the formulas."""

    number: int
    values: dict[int, Value]
    formulas: dict[int, str]


# ---------------------------------------------------------------- parsing piece by piece


class Reader:
    """Handlers of an XML part: `start`, `end`, and `text` as long as `takes_text`."""

    def __init__(self) -> None:
        self.depth, self.size = 0, 0
        self.takes_text = False
        self.texts: list[str] = []

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_LEVELS:
            raise DocumentUnreadable("the elements of one of its parts are nested too deep")
        self.start(tag.rpartition(":")[2] if ":" in tag else tag, attributes)

    def finish(self, tag: str) -> None:
        self.depth -= 1
        self.end(tag.rpartition(":")[2] if ":" in tag else tag)

    def text(self, text: str) -> None:
        if self.takes_text and self.size < MAX_CELL_CHARS:
            self.size += len(text)
            self.texts.append(text)

    def take(self) -> str:
        """Return the text since the last call."""
        whole = "".join(self.texts)
        self.texts.clear()
        self.takes_text, self.size = False, 0
        return whole if len(whole) <= MAX_CELL_CHARS else whole[: MAX_CELL_CHARS - 1] + "…"

    def start(self, name: str, attributes: dict[str, str]) -> None:
        raise NotImplementedError

    def end(self, name: str) -> None:
        raise NotImplementedError


def parse_part(archive: DocumentArchive, name: str, reader: Reader) -> Iterator[None]:
    """Parse a part, and yield after each piece. A part that is missing has nothing. Raises DocumentUnreadable."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse_document_type
    parser.StartElementHandler, parser.EndElementHandler = reader.begin, reader.finish
    parser.CharacterDataHandler = reader.text
    fed = 0
    try:
        for piece in member_pieces(archive, name):
            fed += len(piece)
            parser.Parse(piece, False)
            if fed - parser.CurrentByteIndex > MAX_TOKEN_BYTES:
                raise DocumentUnreadable(f"its part {name} has a tag of more than {MAX_TOKEN_BYTES >> 20} MB")
            yield
        if fed:
            parser.Parse(b"", True)
            yield
    except expat.ExpatError as error:
        raise PartUnreadable(f"its part {name} is damaged ({error})") from error


class SharedTexts(Reader):
    """The texts that cells share, without the hints how to read them aloud (§18.4)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.chars, self.hints = 0, 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.hints += name == "rPh"
        self.takes_text = name == "t" and not self.hints

    def end(self, name: str) -> None:
        self.takes_text = False
        self.hints -= name == "rPh"
        if name == "si":
            text = unescape(self.take())
            self.chars += len(text)
            if self.chars > MAX_SHARED_CHARS or len(self.found) >= MAX_CELLS:
                raise DocumentUnreadable("its texts are too long together; read the cells that you need with a program")
            self.found.append(text)


class Rows(Reader):
    """The rows of a sheet. Those that are read and not yet taken are in `found`."""

    def __init__(self, book: Book) -> None:
        super().__init__()
        self.book = book
        self.found: list[Row] = []
        self.row = Row(0, {}, {})
        self.inside, self.hints, self.column, self.chars = False, 0, 0, 0
        self.kind = self.style = self.value = self.formula = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "sheetData":
            self.inside = True
        elif not self.inside:
            return
        elif name == "c":
            self.column = column_of(attributes.get("r", "")) or self.column + 1
            self.kind, self.style = attributes.get("t", "n"), attributes.get("s", "")
            self.value = self.formula = ""
        elif name in ("v", "t", "f"):
            self.takes_text = not self.hints
        elif name == "row":
            number = parse_whole_number(attributes.get("r", ""), self.row.number + 1)
            if number > LAST_ROW:
                raise DocumentUnreadable(f"it has a row {number:,}, and a sheet at most {LAST_ROW:,}")
            self.row, self.column, self.chars = Row(number, {}, {}), 0, 0
        elif name == "rPh":
            self.hints += 1

    def end(self, name: str) -> None:
        if not self.inside:
            return
        if name == "v":
            self.value = self.take()
        elif name == "t":
            self.value = (self.value + self.take())[:MAX_CELL_CHARS]
        elif name == "f":
            self.formula = unescape(self.take())
        elif name == "c":
            self.end_cell()
        elif name == "row":
            if self.row.values:
                self.found.append(self.row)
        elif name == "rPh":
            self.hints -= 1
        elif name == "sheetData":
            self.inside = False

    def end_cell(self) -> None:
        if not (self.value or self.formula):
            return
        if self.column > LAST_COLUMN:
            raise DocumentUnreadable(f"it has a column {self.column:,}, and a sheet at most {LAST_COLUMN:,}")
        number, values, formulas = self.row
        value = self.book.value(self.kind, self.value, self.style)
        self.chars += len(value) if isinstance(value, str) else 8
        if self.chars > MAX_ROW_CHARS:
            raise DocumentUnreadable(f"row {number:,} of a sheet is longer than {MAX_ROW_CHARS:,} characters")
        if self.column in values:
            return
        values[self.column] = value
        if self.formula:
            formulas[self.column] = self.formula


# ---------------------------------------------------------------- values


def parse_whole_number(text: str, default: int) -> int:
    return int(text) if text.isdecimal() and len(text) <= 9 else default


def column_of(reference: str) -> int:
    """Return the column of a cell: 28 for AB7, 0 for nothing."""
    number = 0
    for letter in reference[:8]:
        if not "A" <= letter <= "Z":
            break
        number = number * 26 + ord(letter) - 64
    return number


def column_letters(number: int) -> str:
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def unescape(text: str) -> str:
    """Return a text without escapes such as _x000D_ (§22.9.2.19): the characters, as far as people see them."""
    if "_x" in text:
        text = re.sub("_x([0-9A-Fa-f]{4})_", lambda found: shown_character(int(found[1], 16)), text)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def shown_character(code: int) -> str:
    return chr(code) if code in (9, 10, 13) or 32 <= code < 0xD800 or 0xE000 <= code < 0xFFFE else ""


def format_kind(code: str) -> str:
    """Return whether a number format shows a "date", a "time", a "duration" or, "", a number (§18.8.31)."""
    first = re.sub(r'"[^"]*"|[\\_*].', "", code[:255]).partition(";")[0].lower()
    if re.search(r"\[(?:h{1,9}|m{1,9}|s{1,9})\]", first):
        return "duration"
    letters = {*re.sub(r"\[[^\[\]]*\]|am/pm|a/p|general", "", first)}
    if letters & {*"0#?"}:
        letters.discard("e")  # of an exponent; elsewhere a year of East Asia
    if letters & {*"yde"} or ("m" in letters and not letters & {*"hs"}):
        return "date"
    return "time" if letters & {*"hs"} else ""


def style_kinds(styles: Element) -> list[str]:
    """Return what each style of cells shows: "date", "time", "duration" or ""."""
    kinds = {
        number: kind
        for numbers, kind in ((DATES, "date"), (TIMES, "time"), (DURATIONS, "duration"))
        for number in numbers
    }
    for node in styles.iter():
        if local(node) == "numFmt":
            kinds[parse_whole_number(node.get("numFmtId", ""), 0)] = format_kind(node.get("formatCode", ""))
    formats = next((node for node in styles if local(node) == "cellXfs"), None)
    return [
        kinds.get(parse_whole_number(node.get("numFmtId", ""), 0), "")
        for node in (formats if formats is not None else ())
    ]


def plain_number(number: float) -> int | float:
    """Return a number with the 15 digits that Excel shows: 0.3 for 0.1 + 0.2."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else float(f"{number:.15g}")


def cell_text(value: Value) -> str:
    return value if isinstance(value, str) else str(value)


# ---------------------------------------------------------------- a workbook


class Book:
    """A workbook in an open archive. Raises DocumentUnreadable wherever it is damaged or too large."""

    def __init__(self, archive: DocumentArchive) -> None:
        self.archive = archive
        main = main_part(archive, MAIN)
        parts = related(archive, main)
        root = parse_xml(read_member(archive, main))
        self.since_1904 = any(
            local(node) == "workbookPr" and node.get("date1904") in ("1", "true", "on") for node in root
        )
        found: dict[str, Sheet] = {}  # a part belongs to one sheet
        for node in (node for node in root.iter() if local(node) == "sheet"):
            kind, part = parts.get(value_of_id(node), ("", ""))
            name = " ".join(node.get("name", "").split())[:MAX_NAME_CHARS]
            hidden = node.get("state", "visible") != "visible"
            if kind in ("worksheet", "chartsheet"):
                found.setdefault(part, Sheet(name, part, kind, hidden))
        self.sheets = [*found.values()]
        if not found:
            raise DocumentUnreadable("it has no sheets: it is no workbook, whatever its name says")
        named = dict(parts.values())
        self.kinds = style_kinds(parse_xml(read_member(archive, named.get("styles", ""))))
        texts = SharedTexts()
        for _ in parse_part(archive, named.get("sharedStrings", ""), texts):
            pass
        self.texts = texts.found

    def rows(self, sheet: Sheet) -> Iterator[Row]:
        """Yield the rows that have values or formulas, in the file's order."""
        reader = Rows(self)
        for _ in parse_part(self.archive, sheet.part, reader) if sheet.kind == "worksheet" else ():
            yield from reader.found
            reader.found.clear()

    def value(self, kind: str, text: str, style: str) -> Value:
        """Return the value of a cell (§18.3.1.4): dates, times and durations as text."""
        if kind == "s":
            place = parse_whole_number(text, -1)
            return self.texts[place] if 0 <= place < len(self.texts) else ""
        if kind == "b":
            return text in ("1", "true")
        if kind == "d":
            return re.sub("T00:00:00(?:[.]0{1,9})?Z?$", "", text[:40])
        if kind != "n" or not text:
            return unescape(text)
        try:
            number = float(text)
        except ValueError:
            return text
        place = parse_whole_number(style, -1)
        shows = self.kinds[place] if 0 <= place < len(self.kinds) else ""
        return self.moment(number, shows) if shows else plain_number(number) if math.isfinite(number) else text

    def moment(self, number: float, shows: str) -> Value:
        """Return a date, time or duration as ISO writes it; the number where it is none."""
        if not abs(number) < 3_000_000:  # after the year 9999
            return plain_number(number) if math.isfinite(number) else str(number)
        seconds = round(number * SECONDS_OF_DAY)
        if shows == "duration":
            minutes, rest = divmod(abs(seconds), 60)
            return f"{'-' * (seconds < 0)}{minutes // 60}:{minutes % 60:02}:{rest:02}"
        if shows == "time" and 0 <= seconds < SECONDS_OF_DAY:
            return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        if self.since_1904:
            start = datetime.datetime(1904, 1, 1)  # noqa: DTZ001  a spreadsheet's dates have no zone
        else:  # its 1900 has a 29 February
            start = datetime.datetime(1899, 12, 31 if number < 60 else 30)  # noqa: DTZ001  the same
        try:
            moment = start + datetime.timedelta(seconds=seconds)
        except OverflowError:
            return plain_number(number)
        return moment.date().isoformat() if seconds % SECONDS_OF_DAY == 0 else moment.isoformat(" ")

    def remarks(self, sheet: Sheet) -> Iterator[str]:
        """Yield comments, and the texts of shapes, pictures and charts."""
        parts = [*related(self.archive, sheet.part).values()]
        threads = any(kind == "threadedComment" for kind, _part in parts)  # then `comments` repeats them
        for kind, part in parts:
            if kind in ("threadedComment", *(() if threads else ("comments",))):
                root, remark = side_part(self.archive, part)
                yield from [remark] if remark else comment_lines(root)
            elif kind == "drawing":
                yield from self.drawing_lines(part)

    def drawing_lines(self, part: str) -> Iterator[str]:
        root, remark = side_part(self.archive, part)
        if remark:
            yield remark
        charts = related(self.archive, part)
        for shape in flatten(root):
            if local(shape) == "pic":
                yield picture_text(shape)
                continue
            if lines := lines_of(shape):
                yield f"[shape] {' '.join(line.strip()[2:] for line in lines)}"
            for each in shape.iter():
                kind, target = charts.get(value_of_id(each), ("", ""))
                if kind in ("chart", "chartEx"):
                    chart, remark = side_part(self.archive, target)
                    texts = (t.text or "" for t in chart.iter() if local(t) == "t")
                    yield remark or f"[chart] {' '.join(' '.join(texts).split())}"


def comment_lines(root: Element) -> Iterator[str]:
    """Yield the comments of a sheet with their cells."""
    for node in root.iter():
        if local(node) in ("comment", "threadedComment"):
            texts = (each.text or "" for each in node.iter() if local(each) in ("t", "text"))
            yield f"[comment {node.get('ref', '')[:12]}] {' '.join(''.join(texts).split())}"


def filled(rows: Iterable[Row]) -> Iterator[tuple[Row, list[Value]]]:
    """Yield each row with a value for every column up to its last. Raises DocumentUnreadable for cells far apart."""
    blanks = 0
    for row in rows:
        last = max(row.values)
        blanks += last - len(row.values)
        if blanks > MAX_CELLS:
            raise DocumentUnreadable(
                f"its cells lie too far apart (row {row.number:,}, column {last:,}); read the cells that you need with"
                " a program"
            )
        yield row, [row.values.get(column, "") for column in range(1, last + 1)]


# ---------------------------------------------------------------- text


def describe_book(path: str) -> str:
    """Return the sheets, with their rows as far as they are counted in time."""
    with open_archive(path) as archive:
        book = Book(archive)
        shown = []
        try:
            for sheet in book.sheets[:10]:
                shown.append(f"{sheet.name} ({sheet_facts(sheet, count_rows(book, sheet))})")
        except TimeIsOver:
            shown += [sheet.name for sheet in book.sheets[len(shown) : 10]]
        more = ", …" * (len(book.sheets) > len(shown))
        return f"spreadsheet, {count_text(len(book.sheets), 'sheet')}: {', '.join(shown)}{more}"


def count_rows(book: Book, sheet: Sheet) -> str:
    """Return how many rows have a value or formula. Raises PartUnreadable if the only sheet is damaged."""
    rows = 0
    try:
        for row in book.rows(sheet):
            rows += bool(row.formulas) or any(value != "" for value in row.values.values())
    except PartUnreadable:
        if len(book.sheets) == 1:
            raise
        return f"damaged after {count_text(rows, 'row')}"
    return count_text(rows, "row")


def sheet_facts(sheet: Sheet, rows: str) -> str:
    facts = rows if sheet.kind == "worksheet" else "a chart"
    return facts + ", hidden" * sheet.hidden


def convert_book(path: str) -> Iterator[str]:
    """Yield the sheets as tables of the columns that are used. A cell that was never calculated is its formula."""
    with open_archive(path) as archive:
        book = Book(archive)
        for sheet in book.sheets:
            yield from sheet_lines(book, sheet)


def sheet_lines(book: Book, sheet: Sheet) -> Iterator[str]:
    """Yield a sheet as a table. Raises TimeIsOver after what was read in time, PartUnreadable for the only sheet."""
    rows: list[tuple[int, dict[int, str]]] = []
    used: set[int] = set()
    size, is_cut, is_late, remark = 0, False, False, ""
    try:
        for number, values, formulas in book.rows(sheet):
            texts = {
                column: cell_text(value) if value != "" or column not in formulas else f"={formulas[column]}"
                for column, value in values.items()
                if value != "" or column in formulas
            }
            if texts:
                rows.append((number, texts))
                used.update(texts)
                size += sum(map(len, texts.values())) + 4 * len(texts) + 12
            if is_cut := size > MAX_SHEET_CHARS:
                break
    except TimeIsOver:
        is_late = True
    except PartUnreadable as error:
        if len(book.sheets) == 1:
            raise
        remark = f"{left_out(error)}\n\n"
    count = "more than " * bool(is_cut or is_late or remark) + count_text(len(rows), "row")
    yield f"## {sheet.name} ({sheet_facts(sheet, count)})\n\n"
    if rows:
        places = sorted(used)
        yield table_line(["row", *map(column_letters, places)])
        yield "|" + " --- |" * (len(places) + 1) + "\n"
        for number, texts in rows:
            width = bisect.bisect_right(places, max(texts))
            yield table_line([str(number), *(texts.get(column, "") for column in places[:width])])
        yield "\n"
    yield remark
    if is_late:
        raise TimeIsOver
    if is_cut:
        yield LEFT_OUT
    for line in book.remarks(sheet):
        yield f"{line}\n\n"
