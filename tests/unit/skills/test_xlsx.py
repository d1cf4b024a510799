"""The skill xlsx on real files: cells are changed, calculated, and read again by openpyxl; all else keeps its bytes."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

BOOK = """
import datetime, openpyxl
from openpyxl.chart import BarChart, Reference
from openpyxl.styles import Font
from openpyxl.worksheet.table import Table
book = openpyxl.Workbook()
sales = book.active
sales.title = "Sales"
for row in [["Item", "Price", "Count", "Sum", "Day"], ["Tea", 3.5, 10, "=B2*C2", datetime.date(2026, 11, 2)],
            ["Coffee", 4, 20, "=B3*C3", datetime.date(2026, 11, 3)], ["Cake", 2.25, 8, "=B4*C4", None],
            ["Total", None, None, "=SUM(D2:D4)", None]]:
    sales.append(row)
sales["D2"].number_format = '0.00 "EUR"'
sales["A1"].font = Font(bold=True)
chart = BarChart()
chart.add_data(Reference(sales, min_col=4, min_row=1, max_row=4), titles_from_data=True)
sales.add_chart(chart, "G1")
sales.merge_cells("A8:B8")
report = book.create_sheet("Report of it")
for index, formula in enumerate(FORMULAS, 1):
    report.cell(index, 1, formula)
lists = book.create_sheet("Lists")
lists.append(["Name", "Size"])
lists.append(["a", 1])
lists.add_table(Table(displayName="Sizes", ref="A1:B2"))
book.save("book.xlsx")
"""
READ = """
import json, openpyxl
book = openpyxl.load_workbook("edited.xlsx", data_only=True)
sales = book["Sales"]
print(json.dumps({"report": [cell.value for cell in book["Report of it"]["A"]],
    "sales": [[str(cell.value) for cell in row] for row in sales["A1:E6"]],
    "formats": [sales["D2"].number_format, sales["C9"].number_format], "bold": sales["A1"].font.b}))
"""
# What Excel gives for them, by the definitions of its functions; the calculation must agree or say that it cannot.
FORMULAS: list[tuple[str, Any]] = [
    ("=Sales!D5*(1+19%)", 166.6),
    ('=IF(Sales!D5>100,"good","bad")', "good"),
    ('=VLOOKUP("coffee",Sales!A2:D4,4,FALSE)', 80),
    ('=SUMIF(Sales!A2:A4,"C*",Sales!D2:D4)', 98),
    ("=1/0", "#DIV/0!"),
    ('=ROUND(A1,0)&" EUR"', "167 EUR"),
    ("=SUMPRODUCT((Sales!C2:C4>9)*Sales!B2:B4)", 7.5),
    ("=-2^2", 4),
    ("=INDEX(Sales!A:A,MATCH(20,Sales!C:C,0))", "Coffee"),
    ('=IFERROR(A5,"none")', "none"),
    ('=COUNTIFS(Sales!C2:C4,">9",Sales!B2:B4,"<4")', 1),
    ("=ROUND(2.5,0)+ROUND(-2.5,0)+ROUND(1.005,2)", 1.01),
    ("=YEAR(Sales!E3)*100+MONTH(DATE(2026,13,1))", 202601),
    ('=TEXTJOIN("-",TRUE,Sales!A2:A4)', "Tea-Coffee-Cake"),
    ("=MEDIAN(Sales!B2:B4)+MAX(1,Sales!C2:C4)", 23.5),
    ('=VLOOKUP("water",Sales!A2:D4,4,FALSE)', "#N/A"),
    ('=AND(1<2,"a"="A",NOT(FALSE))', True),
    ("=XIRR(A1:A2,B1:B2)", None),
    ("=A20", None),
    ("=A19", None),
]
CELLS = {
    "C2": 12, "A6": "Average & more <", "D6": "=AVERAGE(D2:D4)", "E2": "2026-12-01", "E4": "2026-12-01",
    "Report of it!B1": "with tax", "C9": {"value": 5, "like": "D2"},
}  # fmt: skip


@pytest.fixture
async def book(runner: SkillRunner) -> SkillRunner:
    formulas = f"FORMULAS = {[formula for formula, _ in FORMULAS]!r}\n"
    await runner.write(book_py=formulas + BOOK, read_py=READ, cells_json=json.dumps(CELLS))
    result = await runner.bash("python3 book.py")
    assert result.exit_code == 0, result.output
    return runner


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


async def test_cells_are_changed_and_everything_is_calculated(book: SkillRunner) -> None:
    made = await book.json("xlsx", "edit_xlsx.py edit book.xlsx --own --cells cells.json --out edited.xlsx")
    assert (made["cells"], made["calculated"], made["by"]) == (7, 22, "own calculation of common functions")
    assert {"cell": "Sales!D5", "before": None, "after": 140} in made["changed"]
    assert [each["cell"] for each in made["errors"]] == ["'Report of it'!A5", "'Report of it'!A16"]
    reasons = {each["cell"]: each["why"] for each in made["not_calculated"]}
    assert reasons["'Report of it'!A18"] == "the function XIRR"
    assert "a circle of formulas that need each other" in reasons.values()
    assert len(reasons) == 3
    seen = json.JSONDecoder().raw_decode((await book.bash("python3 read.py")).output)[0]
    for (formula, wanted), value in zip(FORMULAS, seen["report"], strict=True):
        assert value == (pytest.approx(wanted) if isinstance(wanted, float) else wanted), formula
    assert seen["sales"][1] == ["Tea", "3.5", "12", "42", "2026-12-01 00:00:00"]
    assert seen["sales"][3][4] == "2026-12-01"  # that cell shows no dates: a text
    assert seen["sales"][5][0] == "Average & more <"
    assert float(seen["sales"][5][3]) == pytest.approx(140 / 3)
    assert (seen["formats"], seen["bold"]) == (['0.00 "EUR"', '0.00 "EUR"'], True)


async def test_whatever_is_not_changed_keeps_its_bytes(book: SkillRunner) -> None:
    await book.json("xlsx", "edit_xlsx.py edit book.xlsx --own --cells '{\"C2\": 12}' --out edited.xlsx")
    before, after = parts(await book.read("book.xlsx")), parts(await book.read("edited.xlsx"))
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"xl/worksheets/sheet1.xml", "xl/worksheets/sheet2.xml"}
    assert "xl/charts/chart1.xml" in after
    assert b'fullCalcOnLoad="1"' in after["xl/workbook.xml"]


async def test_a_shared_formula_is_split_when_its_first_cell_is_changed(book: SkillRunner) -> None:
    await book.write(
        share_py="""
import sys; sys.path.insert(0, "/mnt/skills/xlsx/scripts")
import re
from pathlib import Path
from office_file import OfficeFile
file = OfficeFile(Path("book.xlsx"))
text = file.read("xl/worksheets/sheet1.xml")
text = text.replace("<f>B2*C2</f>", '<f t="shared" ref="D2:D4" si="0">B2*C2</f>')
text = text.replace("<f>B3*C3</f>", '<f t="shared" si="0"/>').replace("<f>B4*C4</f>", '<f t="shared" si="0"/>')
file.write("xl/worksheets/sheet1.xml", text)
file.save(Path("shared.xlsx"))
"""
    )
    result = await book.bash("python3 share.py")
    assert result.exit_code == 0, result.output
    seen = await book.json("xlsx", "edit_xlsx.py show shared.xlsx --range D2:D4")
    assert [cell["formula"] for cell in seen["cells"].values()] == ["=B2*C2", "=B3*C3", "=B4*C4"]
    await book.json("xlsx", "edit_xlsx.py edit shared.xlsx --own --cells '{\"D2\": 1}' --out edited.xlsx")
    seen = await book.json("xlsx", "edit_xlsx.py show edited.xlsx --range D2:D5")
    assert seen["cells"] == {
        "D2": 1, "D3": {"formula": "=B3*C3", "value": 80}, "D4": {"formula": "=B4*C4", "value": 18},
        "D5": {"formula": "=SUM(D2:D4)", "value": 99},
    }  # fmt: skip


async def test_a_check_finds_errors_and_outdated_values(book: SkillRunner) -> None:
    found = await book.json("xlsx", "edit_xlsx.py check book.xlsx")
    assert (found["formulas"], len(found["without_value"])) == (24, 24)  # openpyxl writes no values
    await book.json("xlsx", "edit_xlsx.py recalculate book.xlsx --own --out full.xlsx")
    await book.write(
        stale_py="""
import sys; sys.path.insert(0, "/mnt/skills/xlsx/scripts")
from pathlib import Path
from office_file import OfficeFile
file = OfficeFile(Path("full.xlsx"))
text = file.read("xl/worksheets/sheet1.xml")
file.write("xl/worksheets/sheet1.xml", text.replace("<v>133</v>", "<v>999</v>"))
file.save(Path("stale.xlsx"))
"""
    )
    assert (await book.bash("python3 stale.py")).exit_code == 0
    found = await book.json("xlsx", "edit_xlsx.py check stale.xlsx")
    assert found["out_of_date"][0] == {"cell": "Sales!D5", "stored": 999, "calculated": 133}
    assert found["error_count"] == 2


async def test_what_cannot_be_changed_is_said_and_nothing_is_written(book: SkillRunner) -> None:
    for cells, reason in (
        ({"Lists!A1": "New"}, "a heading of the table Sizes"),
        ({"B8": 1}, "inside of the merged cells A8:B8"),
        ({"Gone!A1": 1}, "There is no sheet 'Gone'; there are: Sales, Report of it, Lists."),
        ({"ZZZZ1": 1}, "is not a cell"),
        ({"A1": [1]}, "takes a number, a text"),
        ({}, "The cells are a JSON object"),
    ):
        await book.write(cells_json=json.dumps(cells))
        answer = await book.json("xlsx", "edit_xlsx.py edit book.xlsx --cells cells.json --out no.xlsx", exit_code=1)
        assert reason in answer["error"]
    assert (await book.bash("ls no.xlsx")).exit_code != 0


async def test_a_long_chain_and_a_deep_formula_end_in_time(book: SkillRunner) -> None:
    chain = {
        "A1": 1,
        **{f"A{row}": f"=A{row - 1}+1" for row in range(2, 5000)},
        "B1": "=" + "(" * 500 + "1" + ")" * 500,
    }
    await book.write(
        cells_json=json.dumps(chain),
        empty_py="import openpyxl\nbook = openpyxl.Workbook()\nbook.active['C1'] = 1\nbook.save('empty.xlsx')\n",
    )
    await book.bash("python3 empty.py")
    made = await book.json("xlsx", "edit_xlsx.py edit empty.xlsx --own --cells cells.json --out edited.xlsx")
    assert made["not_calculated"] == [{"cell": "Sheet!B1", "why": "so many levels"}]
    seen = await book.json("xlsx", "edit_xlsx.py show edited.xlsx --range A4999")
    assert seen["cells"] == {"A4999": {"formula": "=A4998+1", "value": 4999}}
