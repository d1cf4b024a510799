"""Edit cells and formulas of an Excel file, calculate it again, and find its errors. Formats, charts and all else stay.

Needs no package. LibreOffice calculates if it is installed; otherwise this program does, with the common functions.
Without arguments, the program reads the same as JSON from stdin.
"""

from __future__ import annotations

import argparse
import datetime
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cell_formulas import (
    UNKNOWN,
    Area,
    CellError,
    Cells,
    NotUnderstood,
    Parser,
    Unknown,
    column_letters,
    column_number,
    parse_area,
    run_steps,
)
from office_file import CONTENT_TYPES, Node, OfficeFile, Splice, XmlText, escape, relations_of, splice
from skill_program import Problem, read_json, run_program

MAX_EDITS = 10_000
MAX_FORMULAS = 100_000
MAX_VISITS = 20_000_000  # cells that formulas look at
MAX_SHOWN = 5000
MAX_LISTED = 100
LIBREOFFICE_SECONDS = 180
PLACE = re.compile(r"(?:(?:'((?:[^']|'')+)'|([^'!]+))!)?\$?([A-Za-z]{1,3})\$?(\d{1,7})")
RELATIVE = re.compile(
    r"\"(?:[^\"]|\"\")*\"|'(?:[^']|'')+'!|[A-Za-z_][\w.]*(?=[(!])|(\$?)([A-Za-z]{1,3})(\$?)(\d{1,7})(?![\w(.])|[A-Za-z_][\w.]*"
)
DATE_FORMATS = {14, 15, 16, 17, 22}


class Cell(NamedTuple):
    """A cell as it is stored."""

    node: Node
    row: int
    column: int
    formula: str  # "" for none; of a shared formula, what it is in this cell
    value: Any  # the stored one: None, a number, a text, a truth value or a CellError
    kind: str  # of the formula: "", "shared", "array" or "dataTable"


class Sheet:
    """A worksheet and its cells by row and column."""

    def __init__(self, name: str, part: str, xml: XmlText, texts: list[str]) -> None:
        self.name, self.part, self.xml = name, part, xml
        self.rows: dict[int, Node] = {}
        self.cells: dict[tuple[int, int], Cell] = {}
        self.fixed: list[tuple[Area, str]] = []  # where single cells cannot be changed, and why
        shared: dict[str, tuple[int, int, str]] = {}
        data = xml.root.child("sheetData")
        number = 0
        for row in data.children if data else []:
            number = int(row.get("r") or number + 1)
            self.rows[number] = row
            column = 0
            for node in row.children:
                match = re.fullmatch(r"([A-Z]{1,3})\d+", node.get("r"))
                column = column_number(match[1]) if match else column + 1
                self.cells[number, column] = self._cell(node, number, column, texts, shared)
        for merged in xml.root.walk("sheetData"):
            if merged.name == "mergeCell":
                area = parse_area(merged.get("ref"), name)
                self.fixed.append((area, f"it is inside of the merged cells {merged.get('ref')}"))

    def _cell(
        self, node: Node, row: int, column: int, texts: list[str], shared: dict[str, tuple[int, int, str]]
    ) -> Cell:
        found, value = node.child("f"), node.child("v")
        formula, kind = "", ""
        if found:
            formula, kind = unescape_formula(found.text()), found.get("t")
            if kind == "shared":
                if formula:
                    shared[found.get("si")] = (row, column, formula)
                elif found.get("si") in shared:
                    top, left, origin = shared[found.get("si")]
                    formula = moved(origin, row - top, column - left)
            elif kind in ("array", "dataTable") and found.get("ref"):
                self.fixed.append((parse_area(found.get("ref"), self.name), "it belongs to an array or data table"))
        text = value.text() if value else ""
        stored: Any = text
        sort = node.get("t", "n")
        if sort == "s":
            stored = texts[int(text)] if text.isdigit() and int(text) < len(texts) else ""
        elif sort == "inlineStr":
            stored = "".join(each.text() for each in node.walk("rPh") if each.name == "t")
        elif sort == "b":
            stored = text == "1"
        elif sort == "e":
            stored = CellError(text)
        elif sort == "n":
            stored = float(text) if text else None
        return Cell(node, row, column, formula, stored, kind)


def unescape_formula(text: str) -> str:
    return text.strip().lstrip("=")


def moved(formula: str, down: int, right: int) -> str:
    """Return a formula as it is when it is copied to another cell."""

    def shift(match: re.Match[str]) -> str:
        if not match[4]:
            return match[0]
        column = match[2] if match[1] else column_letters(column_number(match[2]) + right)
        row = match[4] if match[3] else str(int(match[4]) + down)
        return f"{match[1]}{column}{match[3]}{row}"

    return RELATIVE.sub(shift, formula)


class Book:
    """An xlsx file: its sheets, names and date formats."""

    def __init__(self, path: Path) -> None:
        self.path, self.office = path, OfficeFile(path)
        self.main = self.office.main_part()
        xml = self.office.xml(self.main)
        if xml.root.name != "workbook":
            raise Problem(f"{path.name} is not a workbook.")
        relations = self.office.relations(self.main)
        self.sheet_parts = {
            node.get("name"): relations[node.get("id")][1]
            for node in xml.root.walk()
            if node.name == "sheet" and relations.get(node.get("id"), ("", ""))[0] == "worksheet"
        }
        self.names = {
            node.get("name").lower(): node.text()
            for node in xml.root.walk()
            if node.name == "definedName" and not node.get("localSheetId")
        }
        self.old_dates = any(n.name == "workbookPr" and n.get("date1904") in ("1", "true") for n in xml.root.children)
        self.texts = self._shared_texts()
        self.dates = self._date_styles()
        self.sheets: dict[str, Sheet] = {}

    def _shared_texts(self) -> list[str]:
        part = self.office.part_of_kind(self.main, "sharedStrings")
        items = self.office.xml(part).root.children if part else []
        return ["".join(each.text() for each in item.walk("rPh") if each.name == "t") for item in items]

    def _date_styles(self) -> set[str]:
        """Return the styles of cells that show a date."""
        part = self.office.part_of_kind(self.main, "styles")
        if not part:
            return set()
        root = self.office.xml(part).root
        own = {
            node.get("numFmtId")
            for node in root.walk()
            if node.name == "numFmt"
            and re.search(r"[yd]", re.sub(r'"[^"]*"|\[[^\]]*\]', "", node.get("formatCode")).lower())
        }
        own |= {str(number) for number in DATE_FORMATS}
        styles = root.child("cellXfs")
        return {
            str(index) for index, node in enumerate(styles.children if styles else []) if node.get("numFmtId") in own
        }

    def sheet(self, name: str) -> Sheet:
        """Return a sheet by its name, "" for the first. Raises Problem."""
        name = name or next(iter(self.sheet_parts), "")
        found = next((each for each in self.sheet_parts if each.lower() == name.lower()), None)
        if found is None:
            raise Problem(f"There is no sheet {name!r}; there are: {', '.join(self.sheet_parts)}.")
        if found not in self.sheets:
            part = self.sheet_parts[found]
            self.sheets[found] = Sheet(found, part, self.office.xml(part), self.texts)
        return self.sheets[found]

    def all_sheets(self) -> list[Sheet]:
        return [self.sheet(name) for name in self.sheet_parts]

    def replace(self, sheet: Sheet, text: str) -> None:
        self.office.write(sheet.part, text)
        self.sheets.pop(sheet.name, None)

    def table_heads(self, sheet: Sheet) -> Iterator[tuple[Area, str]]:
        """Return the head rows of tables: their texts are the names of the columns."""
        for kind, part in self.office.relations(sheet.part).values():
            if kind == "table" and self.office.has(part):
                root = self.office.xml(part).root
                area = parse_area(root.get("ref"), sheet.name)
                if root.get("headerRowCount", "1") != "0":
                    yield area._replace(bottom=area.top), f"it is a heading of the table {root.get('displayName')}"


def place_of(book: Book, text: str) -> tuple[Sheet, int, int]:
    """Return the sheet, row and column of B2 or 'My sheet'!B2. Raises Problem."""
    match = PLACE.fullmatch(text.strip())
    if not match or not 1 <= int(match[4]) <= 1_048_576 or column_number(match[3]) > 16_384:
        raise Problem(f"{text!r} is not a cell; use B2 or 'My sheet'!B2.")
    return book.sheet((match[1] or "").replace("''", "'") or match[2] or ""), int(match[4]), column_number(match[3])


def name_of(sheet: str, row: int, column: int) -> str:
    shown = sheet if re.fullmatch(r"[A-Za-z_]\w*", sheet) else "'" + sheet.replace("'", "''") + "'"
    return f"{shown}!{column_letters(column)}{row}"


def shown_value(value: Any) -> Any:
    if isinstance(value, CellError):
        return value.code
    if isinstance(value, Unknown):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def cell_xml(prefix: str, place: str, style: str, value: Any, formula: str = "") -> str:
    """Return a cell; with a formula, `value` is what it was calculated to, None if that is not known."""
    head = f'<{prefix}c r="{place}"' + (f' s="{style}"' if style else "")
    function = f"<{prefix}f>{escape(formula)}</{prefix}f>" if formula else ""
    return head + value_xml(prefix, value, function, bool(formula)) + f"</{prefix}c>"


def value_xml(prefix: str, value: Any, function: str, is_formula: bool) -> str:
    if value is None or isinstance(value, Unknown):
        return f">{function}"
    if isinstance(value, bool):
        return f' t="b">{function}<{prefix}v>{int(value)}</{prefix}v>'
    if isinstance(value, CellError):
        return f' t="e">{function}<{prefix}v>{escape(value.code)}</{prefix}v>'
    if isinstance(value, (int, float)):
        number = shown_value(float(value))
        return f">{function}<{prefix}v>{number!r}</{prefix}v>"
    if is_formula:
        return f' t="str">{function}<{prefix}v>{escape(str(value))}</{prefix}v>'
    return f' t="inlineStr"><{prefix}is><{prefix}t xml:space="preserve">{escape(str(value))}</{prefix}t></{prefix}is>'


class Edit(NamedTuple):
    """A new content of a cell, and a cell whose style it gets."""

    row: int
    column: int
    value: Any
    like: str


def read_edits(book: Book, given: Any) -> dict[str, dict[tuple[int, int], Edit]]:
    """Return the edits by sheet. Raises Problem."""
    if not isinstance(given, dict) or not given:
        raise Problem('The cells are a JSON object: {"B2": 5, "Sales!C2": "=B2*2", "D2": null}.')
    if len(given) > MAX_EDITS:
        raise Problem(f"At most {MAX_EDITS} cells are changed at once.")
    found: dict[str, dict[tuple[int, int], Edit]] = {}
    for place, content in given.items():
        sheet, row, column = place_of(book, place)
        value, like = (
            (content.get("value"), str(content.get("like", ""))) if isinstance(content, dict) else (content, "")
        )
        if isinstance(value, (list, dict)) or (isinstance(value, float) and not math.isfinite(value)):
            raise Problem(f"{place} takes a number, a text, true, false or null.")
        if isinstance(value, str) and len(value) > 32_767:
            raise Problem(f"{place} takes at most 32,767 characters.")
        fixed = [*sheet.fixed, *book.table_heads(sheet)]
        for area, why in fixed:
            inside = area.top <= row <= area.bottom and area.left <= column <= area.right
            if inside and not ("merged" in why and (row, column) == (area.top, area.left)):
                raise Problem(f"{place} is not changed: {why}.")
        found.setdefault(sheet.name, {})[row, column] = Edit(row, column, value, like)
    return found


def style_for(book: Book, sheet: Sheet, edit: Edit) -> str:
    """Return the style of a changed cell: its own, that of `like`, or that of its row or column."""
    if edit.like:
        other, row, column = place_of(
            book, edit.like if "!" in edit.like else name_of(sheet.name, 1, 1).rpartition("!")[0] + "!" + edit.like
        )
        cell = other.cells.get((row, column))
        return cell.node.get("s") if cell else ""
    if cell := sheet.cells.get((edit.row, edit.column)):
        return cell.node.get("s")
    row_node = sheet.rows.get(edit.row)
    if row_node and row_node.get("customFormat") in ("1", "true"):
        return row_node.get("s")
    columns = sheet.xml.root.child("cols")
    for node in columns.children if columns else []:
        if int(node.get("min") or 0) <= edit.column <= int(node.get("max") or 0):
            return node.get("style")
    return ""


def stored_value(book: Book, value: Any, style: str) -> Any:
    """Return a date as its number where the format of the cell shows a date."""
    if (
        isinstance(value, str)
        and style in book.dates
        and re.fullmatch(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?", value)
    ):
        moment = datetime.datetime.fromisoformat(value)
        start = datetime.datetime(1904, 1, 1) if book.old_dates else datetime.datetime(1899, 12, 30)  # noqa: DTZ001  a spreadsheet's dates have no zone
        return (moment - start).total_seconds() / 86_400
    return value


def apply_edits(book: Book, sheet: Sheet, edits: dict[tuple[int, int], Edit]) -> None:
    """Write the edits of a sheet into its XML."""
    prefix, changes = sheet.xml.prefix, unshared(sheet, edits)
    new_rows: dict[int, dict[int, str]] = {}
    for (row, column), edit in sorted(edits.items()):
        style = style_for(book, sheet, edit)
        value = stored_value(book, edit.value, style)
        is_formula = isinstance(value, str) and value.startswith("=") and len(value) > 1
        place = f"{column_letters(column)}{row}"
        xml = cell_xml(prefix, place, style, None if is_formula else value, value[1:] if is_formula else "")
        if cell := sheet.cells.get((row, column)):
            changes[row, column] = Splice(cell.node.start, cell.node.end, xml)
        else:
            new_rows.setdefault(row, {})[column] = xml
    found = [*changes.values(), *insert_cells(sheet, new_rows)]
    text = splice(sheet.xml.text, found)
    dimension = sheet.xml.root.child("dimension")
    if dimension and new_rows:  # the file may be without it; a wrong one would hide cells
        text = splice(text, [Splice(dimension.start, dimension.end, "")])
    book.replace(sheet, text)


def unshared(sheet: Sheet, edits: dict[tuple[int, int], Edit]) -> dict[tuple[int, int], Splice]:
    """Give each cell of a shared formula its own one, where the first of them is changed."""
    groups = set()
    for place in edits:
        cell = sheet.cells.get(place)
        found = cell.node.child("f") if cell else None
        if found and found.get("t") == "shared" and found.get("ref"):
            groups.add(found.get("si"))
    changes = {}
    for place, cell in sheet.cells.items():
        found = cell.node.child("f")
        if found and cell.kind == "shared" and found.get("si") in groups and place not in edits:
            own = f"<{sheet.xml.prefix}f>{escape(cell.formula)}</{sheet.xml.prefix}f>"
            changes[place] = Splice(found.start, found.end, own)
    return changes


def insert_cells(sheet: Sheet, new_rows: dict[int, dict[int, str]]) -> Iterator[Splice]:
    """Return where new cells are written: cells stand in the order of columns, rows in that of their numbers."""
    prefix, added = sheet.xml.prefix, {}
    data = sheet.xml.root.child("sheetData")
    if not data:
        raise Problem(f"The sheet {sheet.name} has no cells.")
    for number, cells in new_rows.items():
        row = sheet.rows.get(number)
        if row is None or row.is_empty_tag:
            content = "".join(cells[column] for column in sorted(cells))
            opened = f"{row.tag[:-2]}>" if row else f'<{prefix}row r="{number}">'
            text = f"{opened}{content}</{prefix}row>"
            if row:
                yield Splice(row.start, row.end, text)
            else:
                added[number] = text
            continue
        places: dict[int, str] = {}
        there = sorted((column, cell.node) for (r, column), cell in sheet.cells.items() if r == number)
        for column in sorted(cells):
            before = next((node.start for other, node in there if other > column), row.inner_end)
            places[before] = places.get(before, "") + cells[column]
        yield from (Splice(place, place, text) for place, text in places.items())
    places = {}
    for number in sorted(added):
        before = min((node.start for other, node in sheet.rows.items() if other > number), default=data.inner_end)
        places[before] = places.get(before, "") + added[number]
    if data.is_empty_tag:
        content = "".join(places.values())
        if content:
            yield Splice(data.start, data.end, f"<{prefix}sheetData>{content}</{prefix}sheetData>")
    else:
        yield from (Splice(place, place, text) for place, text in places.items())


class Calculator:
    """Calculates the formulas of a book, each after those that it needs."""

    def __init__(self, book: Book) -> None:
        self.values: dict[str, dict[tuple[int, int], Any]] = {}
        self.by_row: dict[str, dict[int, list[int]]] = {}
        self.unknown: dict[tuple[str, int, int], str] = {}  # why a cell was not calculated
        self.formulas: dict[tuple[str, int, int], tuple[str, Any]] = {}
        self.names = {name.lower(): name for name in book.sheet_parts}
        self.visits = 0
        names = {name: target for name, target in book.names.items() if not target.startswith("#")}
        for sheet in book.all_sheets():
            cells = self.values[sheet.name] = {}
            rows = self.by_row[sheet.name] = {}
            for (row, column), cell in sheet.cells.items():
                rows.setdefault(row, []).append(column)
                cells[row, column] = cell.value
                if cell.formula or cell.kind:
                    self._add(sheet.name, cell, names)
        if len(self.formulas) > MAX_FORMULAS:
            raise Problem(
                f"The book has more than {MAX_FORMULAS:,} formulas; LibreOffice or Excel has to calculate it."
            )
        self.row_numbers = {name: sorted(rows) for name, rows in self.by_row.items()}

    def _add(self, sheet: str, cell: Cell, names: dict[str, str]) -> None:
        key = (sheet, cell.row, cell.column)
        steps: Any = None
        try:
            if cell.kind in ("array", "dataTable") or not cell.formula:
                raise NotUnderstood("an array formula or data table")
            steps = Parser(cell.formula, sheet, names).steps
        except NotUnderstood as reason:
            self.unknown[key] = str(reason)
        self.formulas[key] = (cell.formula, steps)

    def calculate(self) -> None:
        """Calculate all formulas; deep chains need no deep stack."""
        state: dict[tuple[str, int, int], int] = {}
        cells = Cells(self._value, self._filled)
        for first in self.formulas:
            waiting = [first]
            while waiting:
                key = waiting[-1]
                if state.get(key) == 2:
                    waiting.pop()
                    continue
                steps = self.formulas[key][1]
                if state.get(key) == 1 or steps is None:
                    value = UNKNOWN if steps is None else run_steps(steps, cells)
                    self.values[key[0]][key[1:]] = value
                    if isinstance(value, Unknown):
                        self.unknown.setdefault(
                            key, "a cell that it needs, or a use of a function that is not known here"
                        )
                    state[key] = 2
                    waiting.pop()
                    continue
                state[key] = 1
                needed = [each for each in self._needed(steps) if state.get(each) != 2]
                if any(state.get(each) == 1 for each in needed):
                    self.unknown[key] = "a circle of formulas that need each other"
                    self.formulas[key] = (self.formulas[key][0], None)
                    continue
                waiting += needed

    def _needed(self, steps: list[tuple[str, Any, int]]) -> list[tuple[str, int, int]]:
        found = []
        for kind, area, _ in steps:
            if kind == "area":
                sheet = self.names.get(area.sheet.lower(), "")
                for row, column in self._places(area):
                    if (sheet, row, column) in self.formulas:
                        found.append((sheet, row, column))
        return found

    def _places(self, area: Area) -> Iterator[tuple[int, int]]:
        """Return the places of an area that have a cell."""
        sheet = self.names.get(area.sheet.lower(), "")
        rows = self.by_row.get(sheet, {})
        inside = range(area.top, area.bottom + 1)
        for row in inside if len(inside) < len(rows) else self.row_numbers.get(sheet, []):
            if area.top <= row <= area.bottom:
                for column in rows.get(row, ()):
                    if area.left <= column <= area.right:
                        self.visits += 1
                        if self.visits > MAX_VISITS:
                            raise Problem(
                                "The formulas look at too many cells; LibreOffice or Excel has to calculate it."
                            )
                        yield row, column

    def _value(self, sheet: str, row: int, column: int) -> Any:
        self.visits += 1
        name = self.names.get(sheet.lower())
        return CellError("#REF!") if name is None else self.values[name].get((row, column))

    def _filled(self, area: Area) -> Iterator[tuple[int, int, Any]]:
        name = self.names.get(area.sheet.lower())
        if name is None:
            yield area.top, area.left, CellError("#REF!")
            return
        for row, column in self._places(area):
            value = self.values[name].get((row, column))
            if value is not None:
                yield row, column, value


def libreoffice_values(path: Path) -> dict[str, dict[tuple[int, int], Any]] | None:
    """Return the values of formulas that LibreOffice calculates, None if it is not installed. Raises Problem."""
    program = shutil.which("soffice") or shutil.which("libreoffice")
    if not program:
        return None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "book.xlsx")
        shutil.copyfile(path, copy)
        command = [
            program,
            "--headless",
            f"-env:UserInstallation=file://{folder}/profile",
            "--convert-to",
            "xlsx:Calc MS Excel 2007 XML",
        ]
        try:
            subprocess.run(
                [*command, "--outdir", f"{folder}/out", str(copy)],
                check=True, capture_output=True, timeout=LIBREOFFICE_SECONDS,
            )  # fmt: skip
            made = Book(Path(folder, "out", "book.xlsx"))
        except (subprocess.SubprocessError, Problem) as error:
            raise Problem(f"LibreOffice could not calculate the file ({type(error).__name__}); use --own.") from error
        return {
            sheet.name: {place: cell.value for place, cell in sheet.cells.items() if cell.formula or cell.kind}
            for sheet in made.all_sheets()
        }


def recalculate(book: Book, own: bool) -> dict[str, Any]:
    """Calculate all formulas and store their values. Returns what happened."""
    forget_values(book)
    values = None
    if not own:
        with tempfile.TemporaryDirectory() as folder:
            book.office.save(Path(folder, "book.xlsx"))
            values = libreoffice_values(Path(folder, "book.xlsx"))
    unknown: dict[tuple[str, int, int], str] = {}
    by = "LibreOffice"
    if values is None:
        calculator = Calculator(book)
        calculator.calculate()
        values, unknown, by = calculator.values, calculator.unknown, "own calculation of common functions"
    changed, count = [], 0
    for sheet in book.all_sheets():
        changes = []
        for place, cell in sheet.cells.items():
            if not (cell.formula or cell.kind) or (sheet.name, *place) in unknown:
                continue
            value = values.get(sheet.name, {}).get(place, cell.value)
            count += 1
            if value != cell.value or type(value) is not type(cell.value):
                changed.append(
                    {
                        "cell": name_of(sheet.name, *place),
                        "before": shown_value(cell.value),
                        "after": shown_value(value),
                    }
                )
                changes.append(value_splice(cell, value))
        if changes:
            book.replace(sheet, splice(sheet.xml.text, changes))
    listed = [{"cell": name_of(*key), "why": why} for key, why in list(unknown.items())[:MAX_LISTED]]
    note = "Excel calculates them when it opens the file; until then they show their old values." if unknown else ""
    return {
        "by": by, "calculated": count, "changed": changed[:MAX_LISTED], "not_calculated": listed,
        "not_calculated_count": len(unknown), **({"note": note} if note else {}),
    }  # fmt: skip


def value_splice(cell: Cell, value: Any) -> Splice:
    """Return the change that stores a value beside the formula."""
    prefix, found = cell.node.xml.prefix, cell.node.child("f")
    tag = re.sub(r"\s+t=(\"[^\"]*\"|'[^']*')", "", cell.node.tag).rstrip("/>").rstrip()
    function = found.source if found else ""
    return Splice(cell.node.start, cell.node.end, tag + value_xml(prefix, value, function, True) + f"</{prefix}c>")


def forget_values(book: Book) -> None:
    """Let Excel calculate everything when it opens the file, in an order of its own."""
    office, main = book.office, book.main
    for number, (kind, part) in office.relations(main).items():
        if kind == "calcChain":
            office.remove(part)
            for name, attribute, wanted in (
                (relations_of(main), "Id", number),
                (CONTENT_TYPES, "PartName", f"/{part}"),
            ):
                xml = office.xml(name)
                gone = [Splice(n.start, n.end, "") for n in xml.root.children if n.get(attribute) == wanted]
                office.write(name, splice(xml.text, gone))
    xml = office.xml(main)
    setting = xml.root.child("calcPr")
    p = xml.prefix
    if setting:
        kept = re.sub(r"\s+fullCalcOnLoad=(\"[^\"]*\"|'[^']*')", "", setting.tag).rstrip("/>").rstrip()
        office.write(
            main,
            splice(
                xml.text,
                [
                    Splice(
                        setting.start,
                        setting.inner,
                        f'{kept} fullCalcOnLoad="1"' + ("/>" if setting.is_empty_tag else ">"),
                    )
                ],
            ),
        )
        return
    before = ("workbookPr", "sheets", "functionGroups", "externalReferences", "definedNames")
    place = max(node.end for node in xml.root.children if node.name in before)
    office.write(main, splice(xml.text, [Splice(place, place, f'<{p}calcPr fullCalcOnLoad="1"/>')]))


def find_errors(book: Book) -> list[dict[str, Any]]:
    return [
        {
            "cell": name_of(sheet.name, *place),
            "value": cell.value.code,
            "formula": f"={cell.formula}" if cell.formula else "",
        }
        for sheet in book.all_sheets()
        for place, cell in sorted(sheet.cells.items())
        if isinstance(cell.value, CellError)
    ]


def show(options: argparse.Namespace) -> dict[str, Any]:
    """Return the sheets, and the cells of a range with formulas and stored values."""
    book = Book(options.file)
    sheet = book.sheet(options.sheet)
    try:
        area = parse_area(options.range or "A1:XFD1048576", sheet.name)
    except NotUnderstood:
        raise Problem(f"{options.range!r} is not a range; use A1:D20.") from None
    cells = {}
    for (row, column), cell in sorted(sheet.cells.items()):
        inside = area.top <= row <= area.bottom and area.left <= column <= area.right
        if inside and (cell.formula or cell.value is not None):
            value = shown_value(cell.value)
            cells[f"{column_letters(column)}{row}"] = (
                {"formula": f"={cell.formula}", "value": value} if cell.formula else value
            )
        if len(cells) >= MAX_SHOWN:
            break
    return {"sheets": list(book.sheet_parts), "sheet": sheet.name, "cells": cells}


def edit(options: argparse.Namespace) -> dict[str, Any]:
    """Change cells, calculate, and say which errors there are."""
    book = Book(options.file)
    edits = read_edits(book, read_json(options.cells))
    for name, each in edits.items():
        apply_edits(book, book.sheet(name), each)
    calculated = recalculate(book, options.own)
    book.office.save(options.out)
    errors = find_errors(book)
    return {"written": str(options.out), "cells": sum(map(len, edits.values())), **calculated,
            "errors": errors[:MAX_LISTED], "error_count": len(errors)}  # fmt: skip


def calculate(options: argparse.Namespace) -> dict[str, Any]:
    """Calculate all formulas again."""
    book = Book(options.file)
    calculated = recalculate(book, options.own)
    book.office.save(options.out)
    errors = find_errors(book)
    return {"written": str(options.out), **calculated, "errors": errors[:MAX_LISTED], "error_count": len(errors)}


def check(options: argparse.Namespace) -> dict[str, Any]:
    """Find error values, formulas without a value, and stored values that are out of date."""
    book = Book(options.file)
    errors = find_errors(book)
    calculator = Calculator(book)
    calculator.calculate()
    stale, empty, formulas = [], [], 0
    for sheet in book.all_sheets():
        for place, cell in sheet.cells.items():
            if not cell.formula:
                continue
            formulas += 1
            value = calculator.values[sheet.name].get(place)
            name = name_of(sheet.name, *place)
            if cell.value is None or cell.value == "":
                empty += [name] if value not in ("", None) else []
            elif not isinstance(value, Unknown) and not same(value, cell.value):
                stale.append({"cell": name, "stored": shown_value(cell.value), "calculated": shown_value(value)})
    return {
        "formulas": formulas, "errors": errors[:MAX_LISTED], "error_count": len(errors),
        "without_value": empty[:MAX_LISTED], "out_of_date": stale[:MAX_LISTED],
        "not_calculated_count": len(calculator.unknown),
    }  # fmt: skip


def same(one: Any, other: Any) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("show", help="sheets, and cells with formulas and values")
    command.add_argument("file", type=Path)
    command.add_argument("--sheet", default="", help="default: the first")
    command.add_argument("--range", default="", help="such as A1:D20 or B:B")
    command = commands.add_parser("edit", help="change cells, then calculate")
    command.add_argument("file", type=Path)
    command.add_argument(
        "--cells", required=True, metavar="JSON", help='{"B2": 5, "Sales!C2": "=B2*2"}, or a file with it'
    )
    add_output(command)
    command = commands.add_parser("recalculate", help="calculate all formulas again")
    command.add_argument("file", type=Path)
    add_output(command)
    command = commands.add_parser("check", help="errors, and values that are missing or out of date")
    command.add_argument("file", type=Path)
    return parser


def add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--own", action="store_true", help="calculate here, even if LibreOffice is installed")


if __name__ == "__main__":
    run_program(
        make_parser(),
        {"show": show, "edit": edit, "recalculate": calculate, "check": check},
        lambda: (ValueError, NotUnderstood),
    )
