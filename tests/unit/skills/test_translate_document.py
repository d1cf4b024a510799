"""The skill translate-document on real files: texts are taken out, changed, put back, and read again."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

FILES = r"""
import docx, openpyxl, pptx
made = docx.Document()
line = made.add_paragraph("Dear ")
line.add_run("Jane").bold = True
line.add_run(", we owe ")
line.add_run("you 1,200 euros.")
made.add_paragraph("2026")
made.add_table(1, 1).cell(0, 0).text = "Tea & cake"
made.sections[0].header.paragraphs[0].text = "Draft"
made.save("a.docx")
deck = pptx.Presentation()
slide = deck.slides.add_slide(deck.slide_layouts[1])
slide.shapes.title.text, slide.placeholders[1].text = "Our plan", "First\nSecond"
slide.notes_slide.notes_text_frame.text = "Speak slowly"
deck.save("a.pptx")
book = openpyxl.Workbook()
book.active.append(["Item", 3, "=A1"])
book.save("a.xlsx")
open("a.srt", "w").write("1\n00:00:01,000 --> 00:00:02,000\nHello {name}\nagain\n\n"
    "2\n00:00:03,000 --> 00:00:04,000\nBye\n")
open("a.po", "w").write('msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "Say \\"%s\\""\nmsgstr ""\n\n'
    'msgid "One"\nmsgid_plural "Many"\nmsgstr[0] ""\nmsgstr[1] ""\n')
open("a.html", "w").write('<style>p {}</style><p title="a>b">Good <b>day</b> &amp; so on</p>'
    '<script>var x = "no";</script>')
"""
# What a translator does here: swap the case of letters, but not of tags and placeholders.
SWAP = r"""
import json, re, sys
segments = json.load(open("segments.json"))
for each in segments:
    each["target"] = re.sub(r"\{\w+\}|%s|([^\W\d_])", lambda m: m[1].swapcase() if m[1] else m[0], each["source"])
json.dump(segments, open("translated.json", "w"))
"""
READ = r"""
import docx, json, openpyxl, pptx
made, deck, book = docx.Document("b.docx"), pptx.Presentation("b.pptx"), openpyxl.load_workbook("b.xlsx")
slide = deck.slides[0]
print(json.dumps({"docx": [each.text for each in made.paragraphs],
    "runs": [each.text for each in made.paragraphs[0].runs],
    "cell": made.tables[0].cell(0, 0).text, "header": made.sections[0].header.paragraphs[0].text,
    "pptx": [shape.text_frame.text for shape in slide.placeholders], "notes": slide.notes_slide.notes_text_frame.text,
    "xlsx": [cell.value for cell in book.active[1]]}))
"""


@pytest.fixture
async def files(runner: SkillRunner) -> SkillRunner:
    await runner.write(files_py=FILES, swap_py=SWAP, read_py=READ)
    result = await runner.bash("python3 files.py")
    assert result.exit_code == 0, result.output
    return runner


async def translated(runner: SkillRunner, kind: str) -> Any:
    await runner.json("translate-document", f"translate_file.py extract a.{kind} --out segments.json")
    assert (await runner.bash("python3 swap.py")).exit_code == 0
    line = f"translate_file.py apply a.{kind} --translations translated.json --out b.{kind}"
    return await runner.json("translate-document", line)


async def test_office_files_keep_their_layout(files: SkillRunner) -> None:
    for kind in ("docx", "pptx", "xlsx"):
        made = await translated(files, kind)
        assert (made["left"], made["check"]) == (0, [])
    seen = json.JSONDecoder().raw_decode((await files.bash("python3 read.py")).output)[0]
    assert seen["docx"] == ["dEAR jANE, WE OWE YOU 1,200 EUROS.", "2026"]
    assert seen["runs"] == ["dEAR ", "jANE", ", WE OWE YOU 1,200 EUROS.", ""]
    assert (seen["cell"], seen["header"]) == ("tEA & CAKE", "dRAFT")
    assert (seen["pptx"], seen["notes"]) == (["oUR PLAN", "fIRST\nsECOND"], "sPEAK SLOWLY")
    assert seen["xlsx"] == ["iTEM", 3, "=A1"]
    before, after = [zipfile.ZipFile(io.BytesIO(await files.read(name))) for name in ("a.docx", "b.docx")]
    changed = {name for name in before.namelist() if before.read(name) != after.read(name)}
    assert changed == {"word/document.xml", "word/header1.xml"}


async def test_texts_of_other_files_are_put_back_at_their_places(files: SkillRunner) -> None:
    for kind in ("srt", "po", "html"):
        await translated(files, kind)
    assert await files.read("b.srt") == (
        b"1\n00:00:01,000 --> 00:00:02,000\nhELLO {name}\nAGAIN\n\n2\n00:00:03,000 --> 00:00:04,000\nbYE\n"
    )
    assert await files.read("b.po") == (
        b'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "Say \\"%s\\""\nmsgstr "sAY \\"%s\\""\n\n'
        b'msgid "One"\nmsgid_plural "Many"\nmsgstr[0] "oNE"\nmsgstr[1] "mANY"\n'
    )
    assert await files.read("b.html") == (
        b'<style>p {}</style><p title="a>b">gOOD <b>DAY</b> &amp; SO ON</p><script>var x = "no";</script>'
    )


async def test_wrong_translations_are_named_and_nothing_is_written(files: SkillRunner) -> None:
    await files.json("translate-document", "translate_file.py extract a.docx --out segments.json")
    segments = json.loads(await files.read("segments.json"))
    source = segments[0]["source"]
    assert source == "<1>Dear </1><2>Jane</2><3>, we owe you 1,200 euros.</3>"
    line = "translate_file.py apply a.docx --translations segments.json --out no.docx"
    for target, reason in (
        ("Liebe Jane, wir schulden", "its tags are missing"),
        ("<2>Jane</2><1>Liebe </1><3>x</3>", "its tags are"),
        ("<1>Liebe</1> ja <2>Jane</2><3>x</3>", "words outside of its tags"),
        ("", "texts have no target"),
    ):
        segments[0]["target"] = target
        for each in segments[1:]:
            each["target"] = "Tee"
        await files.write(segments_json=json.dumps(segments))
        answer = await files.json("translate-document", line, exit_code=1)
        assert reason in answer["error"]
    assert (await files.bash("ls no.docx")).exit_code != 0
    segments[0]["target"] = "<1>Liebe </1><2>Jane</2><3>, es sind 1.300 Euro.</3>"
    await files.write(segments_json=json.dumps(segments))
    made = await files.json("translate-document", line)
    assert any("these numbers differ: 1200, 1300" in each for each in made["check"])
    await files.json("translate-document", "translate_file.py extract a.srt --out segments.json")
    segments = [{**each, "target": "Hallo"} for each in json.loads(await files.read("segments.json"))]
    await files.write(segments_json=json.dumps(segments))
    answer = await files.json(
        "translate-document", "translate_file.py apply a.srt --translations segments.json --out no.srt", exit_code=1
    )
    assert "these placeholders differ: {name}" in answer["error"]
