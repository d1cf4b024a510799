"""Twenty Office files of mixed features, made by code: all of their words are read, whatever they stand in."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pptx
import pytest

from tests.unit.agent.test_office import STRICT, W, p, relations, text_of, word, zipped

Words = Iterator[str]
ROOT = Path(__file__).parents[3]
SKILL = ROOT / "skills/public/documents/scripts/extract_document.py"
SHEET = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
REL = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'


def new_words(seed: int) -> Words:
    """Yield words that no other place of the file has, in several languages."""
    stems = ("Müller", "rapport", "budget", "季度", "会議", "Straße", "отчёт", "plan")
    chance, number = random.Random(seed), 0
    while True:
        number += 1
        yield f"{chance.choice(stems)}{seed}x{number}"


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def table(words: Words, depth: int, chance: random.Random) -> str:
    rows = "".join(
        f"<w:tr>{''.join(f'<w:tc>{block(words, depth + 1, chance)}{p(next(words))}</w:tc>' for _ in range(2))}</w:tr>"
        for _ in range(2)
    )
    return f"<w:tbl>{rows}</w:tbl>"


def box(words: Words, depth: int, chance: random.Random) -> str:
    inner = block(words, depth + 1, chance)
    return (
        "<w:p><w:r><mc:AlternateContent><mc:Choice><w:drawing><w:txbxContent>"
        f"{inner}</w:txbxContent></w:drawing></mc:Choice><mc:Fallback><w:pict><w:txbxContent>{inner}</w:txbxContent>"
        f"</w:pict></mc:Fallback></mc:AlternateContent></w:r>{run(next(words))}</w:p>"
    )


def control(words: Words, depth: int, chance: random.Random) -> str:
    return f"<w:sdt><w:sdtPr/><w:sdtContent>{block(words, depth + 1, chance)}</w:sdtContent></w:sdt>"


def line(words: Words, depth: int, chance: random.Random) -> str:
    forms = (
        run,
        lambda text: f"<w:hyperlink>{run(text)}</w:hyperlink>",
        lambda text: f"<w:ins>{run(text)}</w:ins><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>",
        lambda text: f"<w:sdt><w:sdtContent>{run(text)}</w:sdtContent></w:sdt>",
        lambda text: f"<m:oMath><m:f><m:num><m:r><m:t>{text}</m:t></m:r></m:num></m:f></m:oMath>",
        lambda text: f"<w:smartTag>{run(text)}</w:smartTag>",
        lambda text: f"<w:fldSimple w:instr='PAGE'>{run(text)}</w:fldSimple>",
    )
    return f"<w:p>{'<w:r><w:t> </w:t></w:r>'.join(chance.choice(forms)(next(words)) for _ in range(3))}</w:p>"


def block(words: Words, depth: int, chance: random.Random) -> str:
    """Return a paragraph, or something with blocks in it."""
    kinds: tuple[Callable[[Words, int, random.Random], str], ...] = (line, line, table, box, control)
    return (chance.choice(kinds) if depth < 4 else line)(words, depth, chance)


def make_word(path: Path, seed: int) -> str:
    """Write a Word file with notes, header and footer; every third one is strict."""
    words, chance = new_words(seed), random.Random(seed)
    body = "".join(block(words, 0, chance) for _ in range(12))
    body += f"<w:p>{run(next(words))}<w:r><w:footnoteReference w:id='2'/></w:r></w:p>"
    namespace = STRICT if seed % 3 == 0 else W
    made = word(path, body, namespace)
    kinds = ("header", "footer", "footnotes", "endnotes", "comments")
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr(
            "word/_rels/document.xml.rels", relations(*((f"n{kind}", kind, f"{kind}.xml") for kind in kinds))
        )
        for kind in kinds:
            inner = p(next(words))
            wrapped = inner if kind in ("header", "footer") else f"<w:footnote w:id='2'>{inner}</w:footnote>"
            archive.writestr(f"word/{kind}.xml", f"<w:x {namespace}>{wrapped}</w:x>")
    return made


def make_deck(path: Path, seed: int) -> str:
    """Write a deck with titles, lists, tables, groups in groups, notes and a linked picture."""
    words, show = new_words(seed), pptx.Presentation()
    for _ in range(3):
        slide = show.slides.add_slide(show.slide_layouts[1])
        assert slide.shapes.title is not None
        slide.shapes.title.text = next(words)
        slide.placeholders[1].text = f"{next(words)}\n{next(words)}"
        cells = slide.shapes.add_table(2, 2, 0, 0, 100, 100).table
        for row in range(2):
            for column in range(2):
                cells.cell(row, column).text = next(words)
        group = slide.shapes.add_group_shape().shapes.add_group_shape()
        group.shapes.add_textbox(0, 0, 10, 10).text_frame.text = next(words)
        assert slide.notes_slide.notes_text_frame is not None
        slide.notes_slide.notes_text_frame.text = next(words)
    whole = path.with_suffix(".whole")
    show.save(str(whole))
    linked = (
        '<p:pic><p:nvPicPr><p:cNvPr id="99" name="Logo"/><p:cNvPicPr/><p:nvPr/></p:nvPicPr>'
        '<p:blipFill><a:blip r:link="rId99"/></p:blipFill><p:spPr/></p:pic></p:spTree>'
    )
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if seed % 2 and re.fullmatch(r"ppt/slides/slide\d\.xml", name):
                data = data.replace(b"</p:spTree>", linked.encode())
            new.writestr(name, data)
    return str(path)


def make_book(path: Path, seed: int) -> str:
    """Write a workbook of two sheets: shared texts, rich ones, texts in cells, results of formulas."""
    words = new_words(seed)
    shared = [f"<si><t>{next(words)}</t></si>", f"<si><r><t>{next(words)}</t></r><r><t>{next(words)}</t></r></si>"]
    sheets = {}
    for sheet in (1, 2):
        cells = (
            f'<c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c>'
            f'<c r="C1" t="inlineStr"><is><t>{next(words)}</t></is></c>'
            f'<c r="D1" t="str"><f>"a"</f><v>{next(words)}</v></c><c r="E1"><v>{seed}.5</v></c>'
        )
        data = f'<worksheet {SHEET}><sheetData><row r="1">{cells}</row></sheetData></worksheet>'
        sheets[f"xl/worksheets/sheet{sheet}.xml"] = data
    names = [next(words), next(words)]
    entries = "".join(f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"/>' for n, name in enumerate(names, 1))
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": relations(("r1", "officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f"<workbook {SHEET} {REL}><sheets>{entries}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": relations(
            ("r1", "worksheet", "worksheets/sheet1.xml"),
            ("r2", "worksheet", "worksheets/sheet2.xml"),
            ("r3", "sharedStrings", "sharedStrings.xml"),
        ),
        "xl/sharedStrings.xml": f"<sst {SHEET}>{''.join(shared)}</sst>",
    }
    return zipped(path, parts | sheets)


MAKERS = {"docx": make_word, "pptx": make_deck, "xlsx": make_book}


def given_words(path: str, seed: int) -> set[str]:
    """Return the words that the file has, by its own XML."""
    with zipfile.ZipFile(path) as archive:
        whole = "\n".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())
    return {*re.findall(rf"[^\W\d_]+{seed}x\d+", whole)}


@pytest.mark.parametrize("seed", range(20))
def test_all_words_of_an_office_file_are_read(tmp_path: Path, seed: int) -> None:
    kind = ("docx", "docx", "pptx", "xlsx")[seed % 4]
    path = MAKERS[kind](tmp_path / f"a.{kind}", seed)
    wanted, text = given_words(path, seed), text_of(path)
    assert len(wanted) >= 8
    found = {each for each in wanted if re.search(rf"{re.escape(each)}(?!\d)", text)}
    assert found == wanted
    assert "gone" not in text


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_skill_for_documents_reads_the_same_words(tmp_path: Path, seed: int) -> None:
    kind = ("docx", "docx", "pptx", "xlsx")[seed]
    path = MAKERS[kind](tmp_path / f"a.{kind}", seed)
    done = subprocess.run([sys.executable, str(SKILL), path], capture_output=True, text=True, check=True)
    wanted = given_words(path, seed)
    assert {each for each in wanted if re.search(rf"{re.escape(each)}(?!\d)", done.stdout)} == wanted
