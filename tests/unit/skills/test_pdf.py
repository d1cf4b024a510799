"""The skill pdf on real files: forms are filled and read again, pages counted, drawn and compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

FORM = """
from reportlab.lib import colors
from reportlab.pdfgen import canvas
from reportlab.platypus import Table
page = canvas.Canvas("form.pdf", pagesize=(420, 298))
page.drawString(30, 258, "Travel request")
form = page.acroForm
form.textfield(name="name", x=110, y=214, width=270, height=22, maxlen=20, fieldFlags="required", tooltip="Your name")
form.choice(name="class", x=110, y=124, width=120, height=22, options=["Economy", "Business"], value="Economy")
form.checkbox(name="agree", x=110, y=96, size=16, fieldFlags="")
for x, value in ((110, "train"), (200, "plane")):
    form.radio(name="by", value=value, x=x, y=66, size=16)
page.showPage()
page.drawString(30, 258, "The costs")
table = Table([["Item", "Euros"], ["Train", "120"], ["Hotel", "240"]], colWidths=[120, 80])
table.setStyle([("GRID", (0, 0), (-1, -1), 0.5, colors.black)])
table.wrapOn(page, 400, 200)
table.drawOn(page, 30, 180)
page.showPage()
page.showPage()
page.save()
import pypdf
locked = pypdf.PdfWriter(clone_from="form.pdf")
locked.encrypt("secret")
locked.write("locked.pdf")
"""
LOOK = """
import json, sys
from PIL import Image
image = Image.open(sys.argv[1]).convert("RGB")
box = tuple(map(int, sys.argv[2].split(",")))
data = image.crop(box).tobytes()
pixels = [data[place : place + 3] for place in range(0, len(data), 3)]
print(json.dumps({"size": image.size, "dark": sum(sum(each) < 300 for each in pixels) / len(pixels),
    "red": sum(each[0] > each[1] + 15 for each in pixels) / len(pixels)}))
"""


@pytest.fixture
async def form(runner: SkillRunner) -> SkillRunner:
    await runner.write(form_py=FORM, look_py=LOOK)
    result = await runner.bash("python3 form.py")
    assert result.exit_code == 0, result.output
    return runner


async def look(runner: SkillRunner, name: str, box: str) -> Any:
    result = await runner.bash(f"python3 look.py {name} {box}")
    return json.JSONDecoder().raw_decode(result.output)[0]


async def texts(runner: SkillRunner, name: str) -> list[str]:
    return [page["text"] for page in (await runner.json("pdf", f"edit_pdf.py text {name}"))["pages"]]


async def test_a_form_is_described_filled_and_drawn(form: SkillRunner) -> None:
    fields = (await form.json("pdf", "edit_pdf.py fields form.pdf"))["fields"]
    assert fields["name"] == {
        "type": "text", "page": 1, "value": "", "max_length": 20, "required": True, "label": "Your name",
    }  # fmt: skip
    assert fields["class"]["options"] == ["Economy", "Business"]
    assert fields["by"]["options"] == ["train", "plane"]
    values = '{"name": "Jörg Doe", "class": "Business", "agree": true, "by": "plane"}'
    made = await form.json("pdf", f"edit_pdf.py fill form.pdf --values '{values}' --out filled.pdf")
    assert (made["filled"], made["required_and_empty"]) == (4, [])
    fields = (await form.json("pdf", "edit_pdf.py fields filled.pdf"))["fields"]
    assert {name: field["value"] for name, field in fields.items()} == {
        "name": "Jörg Doe", "class": "Business", "agree": "Yes", "by": "plane",
    }  # fmt: skip
    await form.json("pdf", "edit_pdf.py pictures filled.pdf --pages 1 --dpi 72 --out pages")
    train, plane = [await look(form, "pages/filled_001.png", f"{x},218,{x + 12},230") for x in (112, 202)]
    assert train["size"] == [420, 298]
    assert plane["dark"] > train["dark"] + 0.1


async def test_a_flat_form_keeps_all_values_and_has_no_fields(form: SkillRunner) -> None:
    await form.json("pdf", 'edit_pdf.py fill form.pdf --values \'{"name": "Jane"}\' --flatten --out flat.pdf')
    found = await form.json("pdf", "edit_pdf.py fields flat.pdf")
    assert found["fields"] == {}
    first = (await texts(form, "flat.pdf"))[0]
    assert "Travel request" in first
    assert "Jane" in first
    assert "Economy" in first


async def test_files_are_merged_split_sorted_and_turned(form: SkillRunner) -> None:
    made = await form.json("pdf", "edit_pdf.py merge form.pdf#2 form.pdf form.pdf#2-1 --out all.pdf")
    assert made["pages"] == 6
    kinds = [text.split("\n")[0] for text in await texts(form, "all.pdf")]
    assert kinds == ["The costs", "Travel request", "The costs", "", "The costs", "Travel request"]
    made = await form.json("pdf", "edit_pdf.py split all.pdf --pages 1-2 --pages 4- --out parts")
    assert made == {"written": ["parts/all_001-002.pdf", "parts/all_004-006.pdf"], "pages": [2, 3]}
    assert [text.split("\n")[0] for text in await texts(form, "parts/all_001-002.pdf")] == kinds[:2]
    made = await form.json("pdf", "edit_pdf.py split all.pdf --every 4 --out fours")
    assert made["pages"] == [4, 2]
    await form.json("pdf", "edit_pdf.py pages all.pdf --pages 6,1 --out sorted.pdf")
    assert [text.split("\n")[0] for text in await texts(form, "sorted.pdf")] == ["Travel request", "The costs"]
    await form.json("pdf", "edit_pdf.py rotate sorted.pdf --pages 2 --out turned.pdf")
    await form.json("pdf", "edit_pdf.py pictures turned.pdf --dpi 72 --out pages")
    assert [(await look(form, f"pages/turned_00{page}.png", "0,0,9,9"))["size"] for page in (1, 2)] == [
        [420, 298], [298, 420],
    ]  # fmt: skip
    found = await form.json("pdf", "edit_pdf.py info turned.pdf")
    assert found["sizes_mm"] == {"148 x 105": 1, "105 x 148": 1}


async def test_stamps_are_where_they_should_be_and_page_numbers_count(form: SkillRunner) -> None:
    await form.json("pdf", "edit_pdf.py rotate form.pdf --pages 3 --out turned.pdf")
    line = "edit_pdf.py stamp turned.pdf --text DRAFT --angle 30 --opacity 0.2 --pages 2-3 --out draft.pdf"
    await form.json("pdf", line)
    await form.json("pdf", "edit_pdf.py pictures draft.pdf --dpi 72 --out pages")
    red = [(await look(form, f"pages/draft_00{page}.png", "60,60,230,230"))["red"] for page in (1, 2, 3)]
    assert red[0] < 0.01
    assert min(red[1:]) > 0.03
    assert (await look(form, "pages/draft_002.png", "60,60,230,230"))["dark"] < 0.05  # one sees the page through it
    line = "edit_pdf.py stamp form.pdf --text '{page} of {pages}' --place bottom-right --points 9 --color black"
    await form.json("pdf", f"{line} --out numbered.pdf")
    assert [text.split("\n")[-1] for text in await texts(form, "numbered.pdf")] == ["1 of 3", "2 of 3", "3 of 3"]


async def test_tables_and_text_are_taken_out(form: SkillRunner) -> None:
    rows = [["Item", "Euros"], ["Train", "120"], ["Hotel", "240"]]
    found = await form.json("pdf", "edit_pdf.py tables form.pdf")
    assert found == {"tables": [{"page": 2, "rows": rows}]}
    found = await form.json("pdf", "edit_pdf.py tables form.pdf --csv tables")
    assert found["tables"] == [{"page": 2, "written": "tables/form_002_01.csv"}]
    assert await form.read("tables/form_002_01.csv") == b"Item,Euros\r\nTrain,120\r\nHotel,240\r\n"
    found = await form.json("pdf", "edit_pdf.py text form.pdf")
    assert found["without_text"] == [3]
    found = await form.json("pdf", "edit_pdf.py text form.pdf --find hotel")
    assert [page["page"] for page in found["pages"]] == [2]
    assert (await form.json("pdf", "edit_pdf.py text locked.pdf --password secret --find hotel"))["pages"]


async def test_run_skill_fills_a_form_by_json(form: SkillRunner) -> None:
    """As the tool calls it: JSON on stdin, in the folder of the skill, files relative to the workspace."""
    asked = {"command": "fill", "file": "form.pdf", "values": {"name": "Jane"}, "flatten": True, "out": "by-json.pdf"}
    await form.write(input_json=json.dumps(asked))
    state = "SKILL_STATE=/mnt/user-data/workspace/.skills/pdf"
    result = await form.bash(
        f"cd /mnt/skills/pdf && {state} python3 scripts/edit_pdf.py < /mnt/user-data/workspace/input.json"
    )
    assert json.JSONDecoder().raw_decode(result.output)[0]["written"] == "by-json.pdf"
    assert "Jane" in (await texts(form, "by-json.pdf"))[0]


async def test_what_cannot_be_done_is_said_with_what_to_do(form: SkillRunner) -> None:
    await form.write(broken_pdf="%PDF-1.4 nothing", logo_png="no picture")
    for line, reason in (
        ('fill form.pdf --values \'{"nom": "x"}\' --out no.pdf', "There is no field 'nom'; there are: name, class"),
        ('fill form.pdf --values \'{"by": "boat"}\' --out no.pdf', "by is one of train, plane"),
        ('fill form.pdf --values \'{"name": "%s"}\' --out no.pdf' % ("x" * 21), "at most 20 characters"),
        ('fill form.pdf --values \'{"class": "First"}\' --out no.pdf', "class is one of Economy, Business"),
        ("pages form.pdf --pages 4 --out no.pdf", "There is no page 4; the file has 3 pages."),
        ("merge form.pdf gone.pdf --out no.pdf", "There is no file gone.pdf."),
        ("text locked.pdf", "The file cannot be read"),
        ("info locked.pdf", "has a password; ask for it"),
        ("info broken.pdf", "The file cannot be read"),
        ("rotate form.pdf --degrees 45 --out no.pdf", "by 90, 180 or 270"),
        ("stamp form.pdf --image logo.png --out no.pdf", "cannot"),
        ("pictures form.pdf --dpi 5000 --out no", "--dpi is between 10 and 600"),
    ):
        answer = await form.json("pdf", f"edit_pdf.py {line}", exit_code=1)
        assert reason in answer["error"]
    assert (await form.bash("ls no.pdf")).exit_code != 0
    for line, package in (
        ("info form.pdf", "pypdf"),
        ("text form.pdf", "pypdfium2"),
        ("tables form.pdf", "pdfplumber"),
    ):
        answer = await form.without_packages("pdf", f"edit_pdf.py {line}", exit_code=3)
        assert answer["missing"] == [package]
