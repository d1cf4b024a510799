"""Workbooks are read row by row: values as people see them, formulas, remarks; hostile ones end within their bounds."""

from __future__ import annotations

import datetime
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import xlsxwriter  # type: ignore[import-untyped]  # it has no stubs

from sandbox.inside import documents, sheets
from sandbox.inside.archives import DocumentUnreadable, TimeIsOver, open_archive
from tests.unit.agent.test_office import describe, error_of, relations, text_of, with_parts, zipped

ROOT = Path(__file__).parents[3]
EXTRACT = ROOT / "skills/public/documents/scripts/extract_document.py"
MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
STRICT = "xmlns:x='http://purl.oclc.org/ooxml/spreadsheetml/main'"
REL = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
DRAW = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
BOOK_PARTS = {
    "_rels/.rels": relations(("r1", "officeDocument", "xl/workbook.xml")),
    "xl/_rels/workbook.xml.rels": relations(
        ("r1", "worksheet", "worksheets/sheet1.xml"),
        ("s", "sharedStrings", "sharedStrings.xml"),
        ("y", "styles", "styles.xml"),
    ),
    "xl/workbook.xml": f'<workbook {MAIN} {REL}><sheets><sheet name="One" r:id="r1"/></sheets></workbook>',
}


def book_of(path: Path, rows: str, **more: str) -> str:
    """Write a workbook of one sheet. Further parts are named by their file: `sharedStrings`, `styles`, …"""
    sheet = f"<worksheet {MAIN}><sheetData>{rows}</sheetData></worksheet>"
    others = {name if "/" in name else f"xl/{name}.xml": text for name, text in more.items()}
    return zipped(path, BOOK_PARTS | {"xl/worksheets/sheet1.xml": sheet} | others)


def table_of(path: str) -> list[str]:
    """Return the lines of the tables, without their heads."""
    return [line for line in text_of(path).splitlines() if line.startswith("| ") and line[2].isdecimal()]


def test_values_are_those_that_a_person_sees(tmp_path: Path) -> None:
    formats = {
        "date": "yyyy-mm-dd", "german": "[$-407]d. mmmm yyyy", "chinese": '[$-804]yyyy"年"m"月"d"日"', "time": "hh:mm",
        "both": "dd/mm/yy hh:mm", "duration": "[h]:mm", "money": '#,##0.00 "days"', "power": "0.00E+00",
        "red": "[Red]0",
    }  # fmt: skip
    path = tmp_path / "a.xlsx"
    with xlsxwriter.Workbook(str(path)) as book:
        made = {name: book.add_format({"num_format": code}) for name, code in formats.items()}
        sheet = book.add_worksheet("Größe")
        moment = datetime.datetime(2026, 11, 22, 14, 5)  # noqa: DTZ001  a spreadsheet's dates have no zone
        for column, name in enumerate(("date", "german", "chinese")):
            sheet.write_datetime(0, column, moment.date(), made[name])
        sheet.write_datetime(1, 0, moment, made["both"])
        sheet.write_number(1, 1, 0.59375, made["time"])
        sheet.write_number(1, 2, 10.5, made["duration"])
        sheet.write_row(2, 0, [True, 0.1 + 0.2, 1234567890123456, "007", "a|b\nc"])
        for column, name in enumerate(("money", "power", "red")):
            sheet.write_number(3, column, 44000.5, made[name])
        sheet.write_formula(4, 0, "=1/0", value="#DIV/0!")
        sheet.write_formula(4, 1, "=A1&1", value="東京")
        sheet.write_rich_string(4, 2, "bold", made["red"], "er")
    assert table_of(str(path)) == [
        "| 1 | 2026-11-22 | 2026-11-22 | 2026-11-22 |",
        "| 2 | 2026-11-22 14:05:00 | 14:15:00 | 252:00:00 |",
        "| 3 | True | 0.3 | 1234567890123456 | 007 | a\\|b<br>c |",
        "| 4 | 44000.5 | 44000.5 | 44000.5 |",
        "| 5 | #DIV/0! | 東京 | bolder |",
    ]


@pytest.mark.parametrize(("since", "day"), [("", "1900-02-27"), ('<workbookPr date1904="1"/>', "1904-02-28")])
def test_days_count_from_the_year_of_the_workbook(tmp_path: Path, since: str, day: str) -> None:
    styles = f'<styleSheet {MAIN}><cellXfs><xf numFmtId="14"/></cellXfs></styleSheet>'
    start = f'<workbook {MAIN} {REL}>{since}<sheets><sheet name="One" r:id="r1"/></sheets></workbook>'
    rows = '<row><c s="0"><v>58</v></c><c><v>58</v></c></row>'  # before the 29 February that 1900 did not have
    assert table_of(book_of(tmp_path / "a.xlsx", rows, styles=styles, workbook=start)) == [f"| 1 | {day} | 58 |"]


def test_odd_workbooks_are_read(tmp_path: Path) -> None:
    """Strict and prefixed names, no references, names in other letters, hints, escapes, days as ISO writes them."""
    shared = (
        f"<x:sst {STRICT}><x:si><x:r><x:t>rich </x:t></x:r><x:r><x:t>text</x:t></x:r>"
        "<x:rPh><x:t>reading</x:t></x:rPh></x:si><x:si><x:t>one_x000D_\ntwo_x0041__x0007_</x:t></x:si></x:sst>"
    )
    rows = (
        '<x:row><x:c t="s"><x:v>0</x:v></x:c><x:c t="s"><x:v>1</x:v></x:c><x:c t="d"><x:v>2026-11-22T00:00:00</x:v>'
        '</x:c><x:c/><x:c t="inlineStr"><x:is><x:t>in</x:t></x:is></x:c><x:c t="s"><x:v>99</x:v></x:c></x:row>'
        '<x:row r="9"><x:c r="B9" t="b"><x:v>0</x:v></x:c><x:c r="C9" s="77"><x:v>1e3</x:v></x:c></x:row>'
    )
    parts = {
        "xl/worksheets/sheet1.xml": f"<x:worksheet {STRICT}><x:sheetData>{rows}</x:sheetData></x:worksheet>",
        "xl\\SharedStrings.xml": shared,
    }
    path = zipped(tmp_path / "a.xlsx", BOOK_PARTS | parts)
    assert table_of(path) == ["| 1 | rich text | one<br>twoA | 2026-11-22 | in |", "| 9 |  | False | 1000 |"]


def test_a_formula_without_a_value_is_shown_itself(tmp_path: Path) -> None:
    rows = '<row r="1"><c r="A1"><f>SUM(B1:B9)</f></c><c r="B1"><f>1+1</f><v>2</v></c></row>'
    assert table_of(book_of(tmp_path / "a.xlsx", rows)) == ["| 1 | =SUM(B1:B9) | 2 |"]


def test_columns_without_a_value_take_no_room(tmp_path: Path) -> None:
    rows = '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>'
    text = text_of(book_of(tmp_path / "a.xlsx", rows))
    assert "| row | A | XFD |\n| --- | --- | --- |\n| 1 | 1 |\n| 1048576 |  | 2 |\n" in text


def test_remarks_hidden_sheets_and_charts_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    with xlsxwriter.Workbook(str(path)) as book:
        sheet, secret = book.add_worksheet("Plan"), book.add_worksheet("Old")
        sheet.write("B2", 3)
        sheet.write_comment("B2", "ask Maria")
        sheet.insert_textbox("D4", "draft only")
        chart = book.add_chart({"type": "bar"})
        chart.add_series({"values": "=Plan!$B$2:$B$2"})
        chart.set_title({"name": "Growth"})
        sheet.insert_chart("D9", chart)
        secret.hide()
        trend = book.add_chart({"type": "line"})
        trend.add_series({"values": "=Plan!$B$2:$B$2"})
        trend.set_title({"name": "Trend"})
        book.add_chartsheet("Page").set_chart(trend)
    text = text_of(str(path))
    marks = (
        "ask Maria",
        "[comment B2]",
        "[shape] draft only",
        "[chart] Growth",
        "## Old (0 rows, hidden)",
        "## Page (a chart",
    )
    assert [mark for mark in marks if mark not in text] == []
    assert (
        describe(str(path))["description"]
        == "spreadsheet, 3 sheets: Plan (1 row), Old (0 rows, hidden), Page (a chart)"
    )


def test_a_thread_of_comments_is_read_once(tmp_path: Path) -> None:
    note = '<comment ref="A1"><text><t>[Threaded comment] see below</t></text></comment>'
    thread = '<ThreadedComments><threadedComment ref="A1"><text>who pays?</text></threadedComment></ThreadedComments>'
    more = {
        "xl/worksheets/_rels/sheet1.xml.rels": relations(
            ("c", "comments", "../comments1.xml"), ("t", "threadedComment", "../threads.xml")
        ),
        "comments1": f"<comments><commentList>{note}</commentList></comments>",
        "threads": thread,
    }
    text = text_of(book_of(tmp_path / "a.xlsx", "<row><c><v>1</v></c></row>", **more))
    assert "[comment A1] who pays?" in text
    assert "see below" not in text


def test_the_skill_and_the_service_read_the_same_cells(tmp_path: Path) -> None:
    rows = '<row r="2"><c r="B2" t="str"><v>x</v></c><c r="D2"><f>B2*2</f><v>4.5</v></c></row>'
    path = book_of(tmp_path / "a.xlsx", rows)
    done = subprocess.run(
        [sys.executable, "-S", str(EXTRACT), path, "--json"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [{"mark": "sheet One A1:D2", "text": "row: A\tB\tC\tD\n2: \tx\t\t4.5  [D2=B2*2]"}]
    assert table_of(path) == ["| 2 | x | 4.5 |"]


def test_a_workbook_of_another_age_is_read_by_its_content(tmp_path: Path) -> None:
    path = book_of(tmp_path / "new.xls", "<row><c><v>7</v></c></row>")
    assert table_of(path) == ["| 1 | 7 |"]
    (tmp_path / "old.xlsx").write_bytes(b"\xd0\xcf\x11\xe0" + b"\0" * 4000 + "Workbook".encode("utf-16-le"))
    assert "damaged" in error_of(str(tmp_path / "old.xlsx"))
    for name in ("a.xlsx", "a.docx", "a.pptx"):
        assert "no Office file" in error_of(zipped(tmp_path / name, {"hello.txt": "zip"}))


# ---------------------------------------------------------------- hostile workbooks


def laughs(encoding: str) -> bytes:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    return f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE x [<!ENTITY l0 "ha">{entities}]><x>&l9;</x>'.encode(
        encoding
    )


def with_part(path: Path, name: str, data: bytes) -> str:
    """Write a workbook with a part of raw bytes."""
    made = book_of(path, "<row><c><v>1</v></c></row>")
    out = io.BytesIO()
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for each in {*old.namelist(), name}:
            new.writestr(each, data if each == name else old.read(each))
    path.write_bytes(out.getvalue())
    return made


def sheet_with(rows: bytes) -> bytes:
    return f"<worksheet {MAIN}><sheetData>".encode() + rows + b"</sheetData></worksheet>"


def bad_styles() -> bytes:
    formats = {"y": "[" * 100_000, "200": "[h" * 100_000, "201": '"' * 100_000}
    nodes = "".join(f"<numFmt numFmtId='{number}' formatCode='{code}'/>" for number, code in formats.items())
    return f'<styleSheet {MAIN}><numFmts>{nodes}</numFmts><cellXfs><xf numFmtId="9z"/></cellXfs></styleSheet>'.encode()


def same_sheet(sheets_text: str) -> bytes:
    return f"<workbook {MAIN} {REL}><sheets>{sheets_text}</sheets></workbook>".encode()


SHEET, SHARED = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"
HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "entities": (SHEET, lambda: laughs("utf-8"), "document type"),
    "entities in other letters": (SHEET, lambda: laughs("utf-16"), "document type"),
    "entities of texts": (SHARED, lambda: laughs("utf-8"), "document type"),
    "entities of styles in other letters": ("xl/styles.xml", lambda: laughs("utf-16"), "document type"),
    "levels": (SHEET, lambda: b"<a>" * 1_000_000, "nested too deep"),
    "a column too many": (SHEET, lambda: sheet_with(b"<row>" + b"<c><v>1</v></c>" * 16_385 + b"</row>"), "16,385"),
    "a column far out": (SHEET, lambda: sheet_with(b'<row><c r="ZZZZZZ1"><v>1</v></c></row>'), "at most 16,384"),
    "a row far out": (SHEET, lambda: sheet_with(b'<row r="1048577"><c><v>1</v></c></row>'), "row 1,048,577"),
    "a tag without end": (SHEET, lambda: b"<worksheet a='" + b"x" * (20 << 20), "has a tag of more than 8 MB"),
    "a long row": (
        SHEET,
        lambda: sheet_with(b"<row>" + (b'<c t="str"><v>' + b"y" * 32_000 + b"</v></c>") * 200 + b"</row>"),
        "longer than 5,000,000 characters",
    ),
    "many texts": (SHARED, lambda: b"<sst>" + (b"<si><t>" + b"y" * 32_000 + b"</t></si>") * 3200, "too long together"),
    "a cut sheet": (SHEET, lambda: sheet_with(b"<row><c><v>1</v></c></row>")[:-20], "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_workbook_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    part, data, reason = HOSTILE[name]
    path = with_part(tmp_path / "a.xlsx", part, data())
    with pytest.raises(DocumentUnreadable, match=reason):
        text_of(path)
    done = subprocess.run([sys.executable, str(EXTRACT), path], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["error"].startswith("a.xlsx: ")


REMARKS = relations(("c", "comments", "../comments1.xml"), ("d", "drawing", "../drawings/drawing1.xml"))
DAMAGED_PARTS = {
    "a sheet of two": (SHEET, "| 1 | 7 |"),
    "comments": ("xl/comments1.xml", "| 1 | 1 |"),
    "a drawing": ("xl/drawings/drawing1.xml", "| 1 | 1 |"),
}


@pytest.mark.parametrize("name", DAMAGED_PARTS)
def test_a_damaged_part_of_a_workbook_leaves_the_others(tmp_path: Path, name: str) -> None:
    part, kept = DAMAGED_PARTS[name]
    rels = relations(("r1", "worksheet", "worksheets/sheet1.xml"), ("r2", "worksheet", "worksheets/sheet2.xml"))
    more = {
        "xl/workbook.xml": same_sheet("<sheet name='One' r:id='r1'/><sheet name='Two' r:id='r2'/>").decode(),
        "xl/_rels/workbook.xml.rels": rels,
        "xl/worksheets/_rels/sheet1.xml.rels": REMARKS,
        "xl/worksheets/sheet2.xml": f"<worksheet {MAIN}><sheetData><row><c><v>7</v></c></row></sheetData></worksheet>",
    }
    path = book_of(tmp_path / "a.xlsx", "<row><c><v>1</v></c></row>", **more)
    with_parts(path, {part: b"<worksheet><sheetData><row>"})
    text = text_of(path)
    assert kept in text
    assert "## Two (1 row)" in text
    assert text.count("[left out: ") == 1
    assert describe(path)["description"].startswith("spreadsheet, 2 sheets: One (")


BOUNDED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "empty cells": (SHEET, lambda: sheet_with(b"<row>" + b"<c/>" * 800_000 + b"</row>")),
    "a cell again and again": (SHEET, lambda: sheet_with(b"<row>" + b'<c r="A1"><v>1</v></c>' * 200_000 + b"</row>")),
    "a cell of many texts": (
        SHEET,
        lambda: sheet_with(b'<row><c t="inlineStr"><is>' + b"<t>xyz</t>" * 300_000 + b"</is></c></row>"),
    ),
    "numbers that are none": (
        SHEET,
        lambda: sheet_with(
            b'<row r="x"><c s="-1"><v>1e999</v></c><c t="s"><v>' + b"9" * 5000 + b"</v></c><c t='s'><v>-1</v></c>"
            b"<c><v>nan</v></c><c t='n'><v>1_0</v></c></row>"
        ),
    ),
    "formats that are none": ("xl/styles.xml", lambda: bad_styles()),
    "a sheet of one name many times": (
        "xl/workbook.xml",
        lambda: same_sheet("<sheet name='One' r:id='r1'/>" * 100_000),
    ),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_an_odd_workbook_is_read_within_bounds(tmp_path: Path, name: str) -> None:
    """What is repeated without end takes time in proportion, and no memory of its own."""
    part, data = BOUNDED[name]
    path = with_part(tmp_path / "a.xlsx", part, data())
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
        "resource.setrlimit(resource.RLIMIT_CPU, (60, 60)); sys.argv[0] = '-';"
        f"sys.path.insert(0, {str(ROOT)!r}); from sandbox.inside.sheets import convert_book;"
        "print(sum(map(len, convert_book(sys.argv[1]))))"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100_000
    assert describe(path)["description"].startswith("spreadsheet, 1 sheet: One (")


class LateBook(sheets.Book):
    """A workbook whose time is over in the middle of a sheet."""

    def rows(self, sheet: sheets.Sheet) -> Iterator[sheets.Row]:
        for row in super().rows(sheet):
            if row.number > 1000:
                raise TimeIsOver
            yield row


def test_a_sheet_that_takes_too_long_is_read_up_to_there(tmp_path: Path) -> None:
    path = book_of(tmp_path / "a.xlsx", "<row><c><v>1</v></c></row>" * 2000)
    draft = tmp_path / "draft.md"
    with open_archive(path) as archive:
        book = LateBook(archive)
        documents.write_text(str(draft), sheets.sheet_lines(book, book.sheets[0]))
    lines = draft.read_text().splitlines()
    assert lines[0] == "## One (more than 1,000 rows)"
    assert "| 1000 | 1 |" in lines
    assert lines[-1] == documents.TOO_SLOW.strip()
