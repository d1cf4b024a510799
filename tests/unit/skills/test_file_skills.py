"""The skills that read and make files: documents, data-analysis, chart. Results are read back, not only counted."""

from __future__ import annotations

import struct
import zlib

import pytest

from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

REPORT = """# Quarter 季度

Sales grew by **12 %** to `4,200` units.

- Tea
  - green
1. first
2. second

| Item | Sum |
| --- | --- |
| Tea | 3 |
| 咖啡 | 4 |

---
## Outlook
> No change.
"""
SALES = """day,region,amount,cost,zip
2026-01-01,North,"1,200",600,01234
2026-01-02,South,1300,650,01235
2026-01-03,North,1250,n/a,01236
2026-01-04,South,9999,5000,01237
2026-01-05,East,1100,550,01238
2026-01-05,East,1100,550,01238
"""


async def test_a_word_document_from_markdown_has_its_headings_tables_and_pages(runner: SkillRunner) -> None:
    await runner.write(report_md=REPORT)
    made = await runner.json("documents", "create_document.py report.md report.docx")
    assert made["by"] == "python-docx"
    parts = await runner.without_packages("documents", "extract_document.py report.docx --json", exit_code=0)
    assert [part["mark"] for part in parts] == ["page 1", "page 2"]
    assert parts[0]["text"].startswith("# Quarter 季度\n\nSales grew by 12 % to 4,200 units.\n\n- Tea")
    assert "| Item | Sum |\n| --- | --- |\n| Tea | 3 |\n| 咖啡 | 4 |" in parts[0]["text"]
    assert parts[1]["text"] == "## Outlook\n\nNo change."


async def test_slides_from_markdown_have_titles_text_and_tables(runner: SkillRunner) -> None:
    await runner.write(talk_md=REPORT)
    await runner.json("documents", "create_document.py talk.md talk.pptx")
    first, second = await runner.without_packages("documents", "extract_document.py talk.pptx --json", exit_code=0)
    assert first["mark"] == "slide 1"
    assert first["text"].startswith("## Slide 1: Quarter 季度\n\n- Sales grew by 12 % to 4,200 units.\n- Tea\n")
    assert "| 咖啡 | 4 |" in first["text"]
    assert second == {"mark": "slide 2", "text": "## Slide 2: Outlook\n\n- No change."}


async def test_a_pdf_from_markdown_has_its_text_on_the_right_page_also_in_chinese(runner: SkillRunner) -> None:
    await runner.write(report_md=REPORT)
    await runner.json("documents", "create_document.py report.md report.pdf")
    first, second = await runner.json("documents", "extract_document.py report.pdf --json")
    assert (first["mark"], second["mark"]) == ("page 1", "page 2")
    assert "Sales grew by 12 % to 4,200 units." in first["text"]
    assert "2. second" in first["text"]
    assert "季度" in first["text"]
    assert "Outlook" in second["text"]
    assert await runner.json("documents", "extract_document.py report.pdf --json --find outlook") == [second]


async def test_a_workbook_keeps_numbers_formulas_and_dates(runner: SkillRunner) -> None:
    await runner.write(
        book_json='{"sheets": [{"name": "Sales", "rows": [{"item": "Tea", "n": 3}, {"item": "咖啡", "n": 4.5}]},'
        '{"name": "Total", "rows": [["sum"], ["=SUM(Sales!B2:B3)"]]}]}',
        dates_py="import openpyxl, datetime\nb = openpyxl.Workbook()\nb.active['B2'] = datetime.date(2026, 11, 22)\n"
        "b.active['C2'] = datetime.datetime(2026, 11, 22, 14, 5)\nb.active['D2'] = True\nb.save('dates.xlsx')\n",
    )
    await runner.json("documents", "create_document.py book.json book.xlsx")
    sales, total = await runner.without_packages("documents", "extract_document.py book.xlsx --json", exit_code=0)
    assert sales == {"mark": "sheet Sales A1:B3", "text": "row: A\tB\n1: item\tn\n2: Tea\t3\n3: 咖啡\t4.5"}
    assert total["text"].endswith("2:   [A2=SUM(Sales!B2:B3)]")
    await runner.bash("python3 dates.py")
    (dates,) = await runner.json("documents", "extract_document.py dates.xlsx --json")
    assert dates["text"].endswith("2: \t2026-11-22\t2026-11-22 14:05:00\tTrue")
    written = await runner.json("documents", "extract_document.py book.xlsx --csv csv")
    assert written == {"written": ["csv/Sales.csv", "csv/Total.csv"]}
    assert await runner.read("csv/Sales.csv") == "item,n\r\nTea,3\r\n咖啡,4.5\r\n".encode()


async def test_text_of_a_csv_file_never_becomes_a_formula(runner: SkillRunner) -> None:
    await runner.write(list_csv="code,n\n=1+1,7\n007,8\n")
    await runner.json("documents", "create_document.py list.csv list.xlsx")
    (sheet,) = await runner.json("documents", "extract_document.py list.xlsx --json")
    assert sheet["text"].endswith("2: =1+1\t7\n3: 007\t8")


async def test_documents_name_what_is_missing_and_what_cannot_be_read(runner: SkillRunner) -> None:
    await runner.write(report_md=REPORT, book_csv="a\n1\n", broken_docx="not a zip", scan_pdf="%PDF-1.4")
    for out, package in (("r.pdf", "reportlab"), ("r.docx", "python-docx"), ("r.pptx", "python-pptx")):
        answer = await runner.without_packages("documents", f"create_document.py report.md {out}", exit_code=3)
        assert answer["missing"] == [package]
        assert answer["fix"] == f"pip install {package}"
    answer = await runner.without_packages("documents", "create_document.py book.csv b.xlsx", exit_code=3)
    assert answer["missing"] == ["openpyxl"]
    answer = await runner.without_packages("documents", "extract_document.py scan.pdf", exit_code=3)
    assert answer["missing"] == ["pypdfium2"]
    answer = await runner.without_packages("documents", "extract_document.py broken.docx", exit_code=1)
    assert answer["error"].startswith("broken.docx is not an Office file")


async def test_a_profile_has_the_numbers_and_what_is_wrong_with_them(runner: SkillRunner) -> None:
    await runner.write(sales_csv=SALES)
    line = "profile_table.py sales.csv --group-by region --value amount"
    found = await runner.json("data-analysis", line)
    columns = {column["name"]: column for column in found["columns"]}
    assert (found["rows"], found["duplicate_rows"], found["ragged_rows"]) == (6, 1, 0)
    assert {name: column["type"] for name, column in columns.items()} == {
        "day": "date", "region": "text", "amount": "number", "cost": "number", "zip": "text",
    }  # fmt: skip
    amount = columns["amount"]
    assert (amount["sum"], amount["median"], amount["min"], amount["max"]) == (15949, 1225, 1100, 9999)
    assert (amount["q1"], amount["q3"], amount["outliers"], amount["extreme"]) == (1125, 1287.5, 1, [9999])
    assert (columns["cost"]["missing"], columns["cost"]["mean"]) == (1, 1470)
    assert columns["day"]["max"] == "2026-01-05"
    assert found["correlations"] == [{"columns": ["amount", "cost"], "r": 1.0, "rows": 5}]
    assert found["groups"][0] == {"region": "South", "count": 2, "sum": 11299, "mean": 5649.5, "median": 5649.5}
    assert "1 duplicate rows." in found["findings"]
    assert "`zip`: leading zeros: treated as identifiers." in found["findings"]
    assert await runner.without_packages("data-analysis", line, exit_code=0) == found


async def test_a_spreadsheet_is_profiled_and_without_a_reader_the_package_is_named(runner: SkillRunner) -> None:
    await runner.write(sales_csv=SALES)
    await runner.script("documents", "create_document.py sales.csv sales.xlsx")
    found = await runner.json("data-analysis", "profile_table.py sales.xlsx")
    assert found["sheets"] == ["sales"]
    assert found["columns"][2]["sum"] == 15949
    assert await runner.without_packages("data-analysis", "profile_table.py sales.xlsx", exit_code=0) == found
    await runner.bash("cp sales.xlsx sales.ods")
    answer = await runner.without_packages("data-analysis", "profile_table.py sales.ods", exit_code=3)
    assert answer["missing"] == ["python-calamine"]
    answer = await runner.json("data-analysis", "profile_table.py sales.xlsx --sheet Nobody", exit_code=1)
    assert answer == {"error": "sales.xlsx: it has no sheet 'Nobody'; there are: sales"}


async def test_a_report_has_charts_or_says_why_not(runner: SkillRunner) -> None:
    await runner.write(sales_csv=SALES)
    found = await runner.json("data-analysis", "profile_table.py sales.csv --report out")
    assert found["written"] == [
        "out/report.md", "out/01_region.png", "out/02_amount.png", "out/03_cost.png", "out/04_zip.png",
    ]  # fmt: skip
    assert b"- `amount`: 1 outliers, such as 9999 (median 1225)." in await runner.read("out/report.md")
    assert picture_colors(await runner.read("out/02_amount.png"))["size"] == (960, 540)
    found = await runner.without_packages("data-analysis", "profile_table.py sales.csv --report bare", exit_code=0)
    assert (found["missing"], found["written"]) == (["matplotlib"], ["bare/report.md"])
    assert b"No charts: matplotlib is not installed." in await runner.read("bare/report.md")


def picture_colors(png: bytes) -> dict[str, object]:
    """Decode a PNG of 8-bit RGBA. Returns its size, and the rows that contain the first color of the charts."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    place, data, head = 8, b"", b""
    while place < len(png):
        (size,) = struct.unpack(">I", png[place : place + 4])
        kind, body = png[place + 4 : place + 8], png[place + 8 : place + 8 + size]
        head = body if kind == b"IHDR" else head
        data += body if kind == b"IDAT" else b""
        place += size + 12
    width, height, depth, color = struct.unpack(">IIBB", head[:10])
    assert (depth, color) == (8, 6)
    raw, above, filled = zlib.decompress(data), bytearray(width * 4), 0
    for y in range(height):
        line = bytearray(raw[y * (width * 4 + 1) + 1 : (y + 1) * (width * 4 + 1)])
        for x in range(width * 4):
            left, up = (line[x - 4] if x > 3 else 0), above[x]
            corner = above[x - 4] if x > 3 else 0
            kind_of_line = raw[y * (width * 4 + 1)]
            nearest = min(
                (abs(up - corner), 0, left), (abs(left - corner), 1, up), (abs(left + up - 2 * corner), 2, corner)
            )
            line[x] = (line[x] + (0, left, up, (left + up) // 2, nearest[2])[kind_of_line]) & 255
        filled += sum(line[x : x + 3] == b"\x00\x72\xb2" for x in range(0, width * 4, 4))
        above = line
    return {"size": (width, height), "filled": filled}


async def test_bars_are_as_large_as_their_values(runner: SkillRunner) -> None:
    """Twice the value has twice the pixels of the bar's color."""
    await runner.write(small_csv="x,v\na,10\nb,10\n", large_csv="x,v\na,10\nb,5\n")
    sizes = {}
    for name in ("small", "large"):
        line = f"draw_chart.py {name}.csv {name}.png --kind bar --width 480 --height 320 --title 'One'"
        made = await runner.json("chart", line)
        assert made == {"written": f"{name}.png", "points": 2, "series": ["v"], "notes": [], "missing": []}
        sizes[name] = picture_colors(await runner.read(f"{name}.png"))
    assert sizes["small"]["size"] == sizes["large"]["size"] == (480, 320)
    equal, half = sizes["small"]["filled"], sizes["large"]["filled"]
    assert isinstance(equal, int)
    assert isinstance(half, int)
    assert equal > 10_000
    assert half / equal == pytest.approx(0.75, abs=0.02)


async def test_every_kind_of_chart_can_be_drawn(runner: SkillRunner) -> None:
    await runner.write(sales_csv=SALES)
    for kind in ("line", "barh", "scatter", "area", "hist", "pie", "box"):
        x = "region" if kind in ("pie", "barh") else "day"
        await runner.json("chart", f"draw_chart.py sales.csv {kind}.svg --kind {kind} --x {x} --y amount --y cost")
        assert b"</svg>" in await runner.read(f"{kind}.svg")
    answer = await runner.json("chart", "draw_chart.py sales.csv x.png --x day --y region", exit_code=1)
    assert answer["error"] == "Column 'region' contains text that is not a number."


async def test_without_matplotlib_the_chart_is_a_plain_svg_file(runner: SkillRunner) -> None:
    await runner.write(two_csv="x,v\na<b,10\nb,5\n")
    made = await runner.without_packages(
        "chart", "draw_chart.py two.csv two.png --kind bar --title 'A & B'", exit_code=0
    )
    assert (made["written"], made["missing"]) == ("two.svg", ["matplotlib"])
    svg = (await runner.read("two.svg")).decode()
    assert "A &amp; B" in svg
    assert "a&lt;b" in svg
    assert [svg.count(f'height="{height}"') for height in ("520.0", "260.0")] == [1, 1]
    answer = await runner.without_packages("chart", "draw_chart.py two.csv two.png --kind pie", exit_code=1)
    assert "needs matplotlib" in answer["error"]
