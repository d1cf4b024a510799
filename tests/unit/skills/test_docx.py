"""The skill docx on real files: tracked changes are read again, accepted and rejected, also by python-docx."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CONTRACT = """
import docx
from docx.shared import Pt
from PIL import Image
Image.new("RGB", (8, 8), "red").save("dot.png")
made = docx.Document()
made.add_heading("Contract", 1)
line = made.add_paragraph("The fee is ")
line.add_run("ten ").bold = True
line.add_run("euros, due within ten days of the invoice")
line.add_run(".").italic = True
made.add_paragraph("The supplier\u2019s duties & rights < 3 are below.")
made.add_paragraph("This sentence goes away.")
made.add_picture("dot.png")
table = made.add_table(2, 2)
table.cell(0, 0).text, table.cell(1, 1).text = "Item", "Tea, ten bags"
made.sections[0].header.paragraphs[0].text = "Draft of May"
made.save("contract.docx")
"""
PLAIN = """
import docx, json, sys
made = docx.Document(sys.argv[1])
cells = [cell.text for table in made.tables for row in table.rows for cell in row.cells]
bold = [run.text for paragraph in made.paragraphs for run in paragraph.runs if run.bold]
print(json.dumps({"text": [each.text for each in made.paragraphs], "cells": cells, "bold": bold,
    "header": made.sections[0].header.paragraphs[0].text}))
"""
EDITS: list[dict[str, Any]] = [
    {"find": "ten euros, due within ten days", "replace": "twelve euros, due within 14 days"},
    {"find": "supplier's duties", "insert_after": " (section 4)", "comment": "Which section?\nPlease check."},
    {"find": "This sentence", "delete_paragraph": True},
    {"find": "rights < 3", "new_paragraph_after": "New & <fresh> text."},
    {"find": "Tea, ", "delete": True},
    {"find": "May", "replace": "June"},
]
BEFORE = {
    "text": ["Contract", "The fee is ten euros, due within ten days of the invoice.",
             "The supplier\u2019s duties & rights < 3 are below.", "This sentence goes away.", ""],
    "cells": ["Item", "", "", "Tea, ten bags"], "bold": ["ten "], "header": "Draft of May",
}  # fmt: skip
AFTER = {
    "text": ["Contract", "The fee is twelve euros, due within 14 days of the invoice.",
             "The supplier\u2019s duties (section 4) & rights < 3 are below.", "New & <fresh> text.", ""],
    "cells": ["Item", "", "", "ten bags"], "bold": ["twelve", " "], "header": "Draft of June",
}  # fmt: skip


@pytest.fixture
async def contract(runner: SkillRunner) -> SkillRunner:
    await runner.write(contract_py=CONTRACT, plain_py=PLAIN, edits_json=json.dumps(EDITS))
    result = await runner.bash("python3 contract.py")
    assert result.exit_code == 0, result.output
    return runner


async def plain(runner: SkillRunner, name: str) -> Any:
    """Read a file with python-docx, which ignores tracked changes: only for files without any."""
    result = await runner.bash(f"python3 plain.py {name}")
    return json.JSONDecoder().raw_decode(result.output)[0]


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


async def edited(runner: SkillRunner) -> Any:
    line = "edit contract.docx --edits edits.json --author 'Ada L' --date 2026-11-23T10:00:00Z --out edited.docx"
    return await runner.json("docx", f"edit_docx.py {line}")


async def test_edits_are_tracked_changes_that_can_be_accepted_and_rejected(contract: SkillRunner) -> None:
    assert await plain(contract, "contract.docx") == BEFORE
    made = await edited(contract)
    assert made == {"written": "edited.docx", "author": "Ada L", "edits": 6, "places": 6}
    accepted = await contract.json("docx", "edit_docx.py accept edited.docx --out accepted.docx --remove-comments")
    rejected = await contract.json("docx", "edit_docx.py reject edited.docx --out rejected.docx --remove-comments")
    assert accepted["left"] == rejected["left"] == 0
    assert await plain(contract, "accepted.docx") == AFTER
    seen = await plain(contract, "rejected.docx")
    assert {**seen, "bold": "".join(seen["bold"])} == {**BEFORE, "bold": "ten "}


async def test_changes_and_comments_are_listed_with_their_author(contract: SkillRunner) -> None:
    await edited(contract)
    found = await contract.json("docx", "edit_docx.py list edited.docx")
    told = [(each["kind"], each["text"]) for each in found["changes"]]
    assert told == [
        ("deletion", "ten"), ("insertion", "twelve"), ("deletion", "ten"), ("insertion", "14"),
        ("insertion", " (section 4)"), ("insertion of a paragraph's end", ""), ("insertion", "New & <fresh> text."),
        ("deletion of a paragraph's end", ""), ("deletion", "This sentence goes away."), ("deletion", "Tea, "),
        ("deletion", "May"), ("insertion", "June"),
    ]  # fmt: skip
    assert {(each["author"], each["date"]) for each in found["changes"]} == {("Ada L", "2026-11-23T10:00:00Z")}
    assert len({each["id"] for each in found["changes"]}) == len(told)
    (comment,) = found["comments"]
    assert comment["text"] == "Which section?\nPlease check."
    assert comment["about"] == "supplier\u2019s duties (section 4)"
    seen = await contract.json("docx", "edit_docx.py text edited.docx --find section")
    assert seen["paragraphs"] == [{"paragraph": 3, "text": AFTER["text"][2]}]


async def test_whatever_is_not_changed_keeps_its_bytes(contract: SkillRunner) -> None:
    await edited(contract)
    before, after = parts(await contract.read("contract.docx")), parts(await contract.read("edited.docx"))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"word/document.xml", "word/header1.xml", "[Content_Types].xml", "word/_rels/document.xml.rels"}
    assert after.keys() - before.keys() == {"word/comments.xml"}
    kept = re.compile(rb"<w:drawing>.*?</w:drawing>|<w:sectPr.*?</w:sectPr>|<w:tblPr>.*?</w:tblPr>", re.DOTALL)
    assert kept.findall(before["word/document.xml"]) == kept.findall(after["word/document.xml"])
    assert len(kept.findall(after["word/document.xml"])) == 3
    head = before["word/document.xml"].partition(b"<w:body>")[0]
    assert after["word/document.xml"].startswith(head)


async def test_single_changes_are_resolved_and_edits_go_into_the_insertion_of_another(contract: SkillRunner) -> None:
    await edited(contract)
    again = json.dumps([{"find": "section 4", "replace": "section 5"}])
    await contract.write(again_json=again)
    await contract.json("docx", "edit_docx.py edit edited.docx --edits again.json --author Bob --out twice.docx")
    found = await contract.json("docx", "edit_docx.py list twice.docx")
    bobs = [(each["kind"], each["text"]) for each in found["changes"] if each["author"] == "Bob"]
    assert bobs == [("deletion", "4"), ("insertion", "5")]
    made = await contract.json("docx", "edit_docx.py reject twice.docx --author Bob --out without.docx")
    assert (made["rejected"], made["left"]) == (2, 13)  # Ada's insertion of the section is in two parts now
    seen = await contract.json("docx", "edit_docx.py text without.docx --find section")
    assert seen["paragraphs"][0]["text"] == AFTER["text"][2]
    fourteen = next(each["id"] for each in found["changes"] if each["text"] == "14")
    made = await contract.json("docx", f"edit_docx.py reject twice.docx --id {fourteen} --out one.docx")
    assert made["rejected"] == 1
    await contract.json("docx", "edit_docx.py accept one.docx --out one-clean.docx")
    seen = await plain(contract, "one-clean.docx")
    assert seen["text"][1] == "The fee is twelve euros, due within  days of the invoice."
    assert "(section 5)" in seen["text"][2]


async def test_moves_rows_and_formats_of_word_are_resolved(contract: SkillRunner) -> None:
    """Changes that Word makes and this skill does not: a move, a removed row, another format and style."""
    by = 'w:author="Word" w:date="2026-01-01T00:00:00Z"'
    change = f"""
import sys; sys.path.insert(0, "/mnt/skills/docx/scripts")
from pathlib import Path
from office_file import OfficeFile
file = OfficeFile(Path("contract.docx"))
text = file.read("word/document.xml")
body = '''<w:p><w:pPr><w:pStyle w:val="Heading2"/><w:pPrChange w:id="90" {by}>
<w:pPr><w:jc w:val="right"/></w:pPr></w:pPrChange></w:pPr>
<w:r><w:rPr><w:b/><w:rPrChange w:id="91" {by}><w:rPr><w:i/></w:rPr></w:rPrChange></w:rPr><w:t>styled</w:t></w:r></w:p>
<w:p><w:moveFromRangeStart w:id="92" w:name="m" {by}/>
<w:moveFrom w:id="93" {by}><w:r><w:t>moved</w:t></w:r></w:moveFrom>
<w:moveFromRangeEnd w:id="92"/><w:r><w:t>here</w:t></w:r></w:p>
<w:p><w:r><w:t>there</w:t></w:r><w:moveToRangeStart w:id="94" w:name="m" {by}/>
<w:moveTo w:id="95" {by}><w:r><w:t>moved</w:t></w:r></w:moveTo>
<w:moveToRangeEnd w:id="94"/></w:p>
<w:p><w:pPr><w:rPr><w:del w:id="96" {by}/></w:rPr></w:pPr>
<w:r><w:t>joined to </w:t></w:r></w:p><w:p><w:r><w:t>the next</w:t></w:r></w:p>'''
row = text.index("<w:tr>")
row = text.index("<w:tr>", row + 1)
text = text[:row] + '<w:tr><w:trPr><w:del w:id="97" {by}/></w:trPr>' + text[row + 6:]
file.write("word/document.xml", text.replace("<w:body>", "<w:body>" + body))
file.save(Path("word.docx"))
"""
    await contract.write(change_py=change)
    result = await contract.bash("python3 change.py")
    assert result.exit_code == 0, result.output
    kinds = [each["kind"] for each in (await contract.json("docx", "edit_docx.py list word.docx"))["changes"]]
    assert kinds == [
        "format",
        "format",
        "moved from",
        "moved to",
        "deletion of a paragraph's end",
        "deletion of a table row",
    ]
    await contract.json("docx", "edit_docx.py accept word.docx --out yes.docx")
    await contract.json("docx", "edit_docx.py reject word.docx --out no.docx")
    yes, no = await plain(contract, "yes.docx"), await plain(contract, "no.docx")
    assert yes["text"][:4] == ["styled", "here", "theremoved", "joined to the next"]
    assert no["text"][:5] == ["styled", "movedhere", "there", "joined to ", "the next"]
    assert ("styled" in yes["bold"], "styled" in no["bold"]) == (True, False)
    assert (len(yes["cells"]), len(no["cells"])) == (2, 4)
    document = parts(await contract.read("no.docx"))["word/document.xml"].decode()
    assert '<w:jc w:val="right"/>' in document
    assert "Heading2" not in document
    assert "moveFrom" not in document
    assert "<w:i/>" in document.partition("styled")[0]


async def test_what_cannot_be_edited_is_said_and_nothing_is_written(contract: SkillRunner) -> None:
    await contract.write(broken_docx="no zip", bombs_py=BOMBS)
    await contract.bash("python3 bombs.py")
    for name, edits, reason in (
        ("contract.docx", [{"find": "unknown words", "delete": True}], "is not in one paragraph"),
        ("contract.docx", [{"find": "ten", "delete": True}], 'is there 4 times; add \\"occurrence\\"'),
        ("contract.docx", [{"find": "ten", "delete": True, "occurrence": 9}], "there is no occurrence 9"),
        ("contract.docx", [{"find": "fee", "replace": "fee"}], "is the same text"),
        ("contract.docx", [{"find": "fee", "replace": "a\u0007b"}], "control character U+0007"),
        ("contract.docx", [{"find": "fee", "shout": True}], "one of replace, delete"),
        ("contract.docx", [{"find": "May", "comment": "x"}], "in the document's body only"),
        ("broken.docx", [{"find": "x", "delete": True}], "is not an Office file"),
        ("entity.docx", [{"find": "x", "delete": True}], "declares a document type"),
        ("deep.docx", [{"find": "x", "delete": True}], "more than 200 levels"),
        ("large.docx", [{"find": "x", "delete": True}], "is larger than 64 MB"),
    ):
        await contract.write(edits_json=json.dumps(edits))
        output = await contract.script(
            "docx", f"edit_docx.py edit {name} --edits edits.json --out no.docx", exit_code=1
        )
        assert reason in output
    assert (await contract.bash("ls no.docx")).exit_code != 0


BOMBS = """
import zipfile
def write(name, text):
    with zipfile.ZipFile("contract.docx") as old, zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, text if entry.filename == "word/document.xml" else old.read(entry))
space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
write("entity.docx", '<!DOCTYPE w [<!ENTITY a "aaaa">]><w:document ' + space + '>&a;</w:document>')
write("deep.docx", "<w:document " + space + ">" + "<w:p>" * 5000 + "</w:p>" * 5000 + "</w:document>")
write("large.docx", "<w:document " + space + ">" + " " * (70 << 20) + "</w:document>")
"""
