"""Office files are read whole: nested, boxed and strict text, linked pictures, passwords, other formats."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from email.message import EmailMessage
from pathlib import Path

import docx
import pptx
import pptx.chart.data
import pptx.enum.chart
import pptx.enum.shapes
import pytest

from agent.parsing.documents import MODULES
from sandbox.inside import documents
from sandbox.inside.archives import DocumentUnreadable
from sandbox.inside.letters import rtf_text
from sandbox.wire.connection import program_source

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
STRICT = 'xmlns:w="http://purl.oclc.org/ooxml/wordprocessingml/main"'
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
ODF = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    ' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
)


def zipped(path: Path, parts: dict[str, str]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return str(path)


def relations(*given: tuple[str, str, str], mode: str = "") -> str:
    rows = "".join(f'<Relationship Id="{i}" Type="{OFFICE}/{kind}" Target="{to}"{mode}/>' for i, kind, to in given)
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{rows}</Relationships>'


def word(path: Path, body: str, namespace: str = W, name: str = "word/document.xml") -> str:
    document = f"<w:document {namespace} {MATH} {MC}><w:body>{body}</w:body></w:document>"
    return zipped(path, {"_rels/.rels": relations(("r1", "officeDocument", name)), name: document})


def text_of(path: str) -> str:
    reader = documents.READERS[Path(path).suffix]
    reader[0](path)
    return "".join(reader[1](path))


def describe(path: str) -> dict[str, str]:
    """Run the script as a sandbox does."""
    call = [sys.executable, "-", "describe", path, "60"]
    done = subprocess.run(call, input=program_source(MODULES, "documents"), capture_output=True, text=True, check=True)
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def error_of(path: str) -> str:
    answer = describe(path)
    if "error" not in answer:
        with pytest.raises(DocumentUnreadable) as raised:
            text_of(path)
        return str(raised.value)
    return str(answer["error"])


def p(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


HIDDEN_PLACES = {
    "a table in a cell": f"<w:tbl><w:tr><w:tc><w:tbl><w:tr><w:tc>{p('here')}"
    "</w:tc></w:tr></w:tbl></w:tc></w:tr></w:tbl>",
    "a text box": "<w:p><w:r><mc:AlternateContent><mc:Choice><w:drawing><w:txbxContent>"
    f"{p('here')}</w:txbxContent></w:drawing></mc:Choice><mc:Fallback>{p('here')}</mc:Fallback>"
    "</mc:AlternateContent></w:r></w:p>",
    "a content control": f"<w:sdt><w:sdtContent>{p('here')}</w:sdtContent></w:sdt>",
    "a control in a line": "<w:p><w:sdt><w:sdtContent><w:r><w:t>here</w:t></w:r></w:sdtContent></w:sdt></w:p>",
    "an equation": "<w:p><m:oMath><m:r><m:t>here</m:t></m:r></m:oMath></w:p>",
    "an insertion": "<w:p><w:ins><w:r><w:t>here</w:t></w:r></w:ins>"
    "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>",
    "a link": "<w:p><w:hyperlink><w:r><w:t>here</w:t></w:r></w:hyperlink></w:p>",
    "a row in a control": f"<w:tbl><w:sdt><w:sdtContent><w:tr><w:tc>{p('here')}"
    "</w:tc></w:tr></w:sdtContent></w:sdt></w:tbl>",
}


@pytest.mark.parametrize("place", HIDDEN_PLACES)
@pytest.mark.parametrize("namespace", [W, STRICT])
def test_text_in_a_word_document_is_read_once_wherever_it_stands(tmp_path: Path, place: str, namespace: str) -> None:
    text = text_of(word(tmp_path / "a.docx", HIDDEN_PLACES[place], namespace, "word/document2.xml"))
    assert text.count("here") == 1
    assert "gone" not in text


def test_footnotes_headers_and_comments_of_a_word_document_are_read(tmp_path: Path) -> None:
    note = "<w:p><w:r><w:t>said</w:t><w:footnoteReference w:id='2'/></w:r></w:p>"
    path = word(tmp_path / "a.docx", note)
    kinds = ("header", "footer", "footnotes", "endnotes", "comments")
    with zipfile.ZipFile(path, "a") as archive:
        rels = relations(*((f"n{kind}", kind, f"{kind}1.xml") for kind in kinds))
        archive.writestr("word/_rels/document.xml.rels", rels)
        for kind in kinds:
            inner = p(f"in {kind}")
            wrapped = inner if kind in ("header", "footer") else f"<w:footnote w:id='2'>{inner}</w:footnote>"
            archive.writestr(f"word/{kind}1.xml", f"<w:x {W}>{wrapped}</w:x>")
    text = text_of(path)
    assert [kind for kind in kinds if f"in {kind}" not in text] == []
    assert "said[^2]" in text
    assert "[^2]: in footnotes" in text


def test_a_document_of_pictures_says_so(tmp_path: Path) -> None:
    drawing = '<w:p><w:r><w:drawing><w:docPr id="1" name="Picture 1" descr="A bar chart"/></w:drawing></w:r></w:p>'
    text = text_of(word(tmp_path / "a.docx", drawing))
    assert "[picture: A bar chart]" in text
    assert "only pictures" in text


def test_a_document_of_a_real_library_has_all_words(tmp_path: Path) -> None:
    made = docx.Document()
    made.add_heading("季度报告", 2)
    made.add_paragraph("first", style="List Bullet")
    outer = made.add_table(2, 2)
    for number, cell in enumerate(cell for row in outer.rows for cell in row.cells):
        cell.text = f"outer{number}"
        inner = cell.add_table(1, 2)
        inner.cell(0, 0).text, inner.cell(0, 1).text = f"in{number}a", f"in{number}b"
    made.sections[0].header.paragraphs[0].text = "the head"
    path = tmp_path / "a.docx"
    made.save(str(path))
    text = text_of(str(path))
    wanted = [f"{word}" for n in range(4) for word in (f"outer{n}", f"in{n}a", f"in{n}b")]
    assert [each for each in (*wanted, "[header] the head", "## 季度报告", "- first") if text.count(each) != 1] == []


def deck(path: Path) -> str:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    assert slide.shapes.title is not None
    slide.shapes.title.text = "Plan"
    slide.placeholders[1].text = "step one"
    frame = slide.shapes.add_table(1, 2, 0, 0, 100, 100)
    frame.table.cell(0, 0).text = "cell a"
    show.save(str(path))
    return str(path)


def test_a_deck_with_a_linked_picture_is_read(tmp_path: Path) -> None:
    source = deck(tmp_path / "a.pptx")
    picture = (
        '<p:pic><p:nvPicPr><p:cNvPr id="9" name="Logo"/><p:cNvPicPr/><p:nvPr/></p:nvPicPr>'
        '<p:blipFill><a:blip r:link="rId99"/></p:blipFill><p:spPr/></p:pic>'
    )
    out = tmp_path / "b.pptx"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "ppt/slides/slide1.xml":
                data = data.replace(b"</p:spTree>", picture.encode() + b"</p:spTree>")
            new.writestr(name, data)
    text = text_of(str(out))
    for mark in ("## Slide 1: Plan", "- step one", "cell a", "[picture: Logo]"):
        assert mark in text


def with_parts(path: str, changes: dict[str, bytes]) -> str:
    """Write parts of an Office file anew, or add them."""
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()} | changes
    with zipfile.ZipFile(path, "w") as new:
        for name, data in parts.items():
            new.writestr(name, data)
    return path


def test_a_deck_with_an_embedded_workbook_is_read(tmp_path: Path) -> None:
    show = pptx.Presentation(deck(tmp_path / "a.pptx"))
    (tmp_path / "sales.xlsx").write_bytes(b"PK\x03\x04 no XML")
    show.slides[0].shapes.add_ole_object(str(tmp_path / "sales.xlsx"), pptx.enum.shapes.PROG_ID.XLSX, 0, 0)
    show.save(str(tmp_path / "b.pptx"))
    text = text_of(str(tmp_path / "b.pptx"))
    for mark in ("## Slide 1: Plan", "- step one", "cell a", "[embedded: Excel.Sheet.12]"):
        assert text.count(mark) == 1
    embedded = '<w:p><w:r><w:object><o:OLEObject xmlns:o="o" ProgID="Excel.Sheet.12"/></w:object></w:r></w:p>'
    assert "[embedded: Excel.Sheet.12]" in text_of(word(tmp_path / "a.docx", embedded + p("more")))


CHART_SPACE = '<c:chartSpace xmlns:c="c" xmlns:a="a"><a:t>Sales</a:t><c:v>Tea</c:v><c:v>41</c:v></c:chartSpace>'


@pytest.mark.parametrize("kind", ["chart", "diagramData"])
def test_charts_and_diagrams_in_a_word_document_are_read(tmp_path: Path, kind: str) -> None:
    graphic = (
        f'<w:p><w:r><w:drawing><w:docPr name="Chart 1"/><c:x xmlns:r="{OFFICE}" r:{{}}="g1"/></w:drawing></w:r></w:p>'
    )
    body = graphic.format("id" if kind == "chart" else "dm").replace("c:x", "x")
    path = word(tmp_path / "a.docx", body)
    parts = {
        "word/_rels/document.xml.rels": relations(("g1", kind, "charts/chart1.xml"), ("h1", "header", "header1.xml")),
        "word/charts/chart1.xml": CHART_SPACE,
        "word/header1.xml": f"<w:hdr {W}>{body}</w:hdr>",
        "word/_rels/header1.xml.rels": relations(("g1", kind, "charts/chart2.xml")),
        "word/charts/chart2.xml": CHART_SPACE.replace("Sales", "Logo"),
    }
    text = text_of(with_parts(path, {name: data.encode() for name, data in parts.items()}))
    name = "chart" if kind == "chart" else "diagram"
    assert text.count(f"[{name}] Sales; Tea; 41") == 1
    assert text.count(f"[{name}] Logo; Tea; 41") == 1


def damaged_deck(path: Path, part: str) -> str:
    show = pptx.Presentation(deck(path))
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.placeholders[1].text = "second"
    data = pptx.chart.data.CategoryChartData()  # type: ignore[no-untyped-call]  # the library's
    data.categories = ["Tea"]
    data.add_series("kg", [41])  # type: ignore[no-untyped-call]  # the library's
    slide.shapes.add_chart(pptx.enum.chart.XL_CHART_TYPE.PIE, 0, 0, 100, 100, data)
    slide.notes_slide.notes_text_frame.text = "noted"
    show.slides.add_slide(show.slide_layouts[1]).placeholders[1].text = "third"
    show.save(str(path))
    with zipfile.ZipFile(path) as archive:
        name = next(each for each in archive.namelist() if re.fullmatch(rf"ppt/{part}[0-9]+[.]xml", each))
    return with_parts(str(path), {name: b"<p:sld"})


@pytest.mark.parametrize(
    ("part", "kept"),
    [
        ("slides/slide2|slides/slide", ("- step one", "third")),
        ("charts/chart", ("- step one", "second", "noted", "third")),
        ("notesSlides/notesSlide", ("- step one", "second", "41", "third")),
    ],
)
def test_a_damaged_part_of_a_deck_leaves_the_others(tmp_path: Path, part: str, kept: tuple[str, ...]) -> None:
    if part.startswith("slides"):
        path = with_parts(damaged_deck(tmp_path / "a.pptx", "theme/theme"), {"ppt/slides/slide2.xml": b"<p:sld"})
    else:
        path = damaged_deck(tmp_path / "a.pptx", part)
    text = text_of(path)
    assert [each for each in kept if each not in text] == []
    assert text.count("[left out: one of its parts is damaged") == 1


@pytest.mark.parametrize("part", ["word/styles.xml", "word/footnotes.xml", "word/charts/chart1.xml"])
@pytest.mark.parametrize("damage", [b"<w:x", b"x" * (51 << 20)])
def test_a_damaged_part_of_a_word_document_leaves_the_others(tmp_path: Path, part: str, damage: bytes) -> None:
    graphic = f'<w:p><w:r><w:drawing><x xmlns:r="{OFFICE}" r:id="g"/></w:drawing></w:r></w:p>'
    path = word(tmp_path / "a.docx", p("before") + graphic + p("after"))
    rels = relations(("f", "footnotes", "footnotes.xml"), ("g", "chart", "charts/chart1.xml"))
    text = text_of(with_parts(path, {"word/_rels/document.xml.rels": rels.encode(), part: damage}))
    assert "before" in text
    assert "after" in text
    assert text.count("[left out: ") == 1


def test_a_document_type_in_a_small_part_is_still_refused(tmp_path: Path) -> None:
    rels = relations(("f", "footnotes", "footnotes.xml")).encode()
    path = word(tmp_path / "a.docx", p("before"))
    attack = b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'
    with_parts(path, {"word/_rels/document.xml.rels": rels, "word/footnotes.xml": attack})
    assert "document type" in error_of(path)


def test_a_damaged_chapter_leaves_the_others(tmp_path: Path) -> None:
    parts = {
        "META-INF/container.xml": '<rootfile full-path="a.opf"/>',
        "a.opf": "".join(f'<item id="c{n}" href="c{n}.html"/><itemref idref="c{n}"/>' for n in (1, 2, 3)),
        **{f"c{n}.html": f"<html><body><p>words {n} of the book</p></body></html>" for n in (1, 2, 3)},
    }
    path = Path(zipped(tmp_path / "a.epub", parts))
    path.write_bytes(path.read_bytes().replace(b"words 2 of", b"WORDS 2 of"))  # its checksum does not fit
    text = text_of(str(path))
    assert "words 1" in text
    assert "words 3" in text
    assert "[left out: its part c2.html is damaged" in text


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx"])
def test_a_password_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 500 + "EncryptedPackage".encode("utf-16-le")
    )
    assert "password" in error_of(str(tmp_path / name))


def test_an_open_document_is_read_and_its_password_said(tmp_path: Path) -> None:
    body = (
        '<text:h text:outline-level="2">Head</text:h>'
        "<text:p>one<text:s/>two<text:tab/><text:span>three</text:span></text:p>"
        "<text:list><text:list-item><text:p>item</text:p></text:list-item></text:list><table:table><table:table-row>"
        "<table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell><text:p>b</text:p></table:table-cell>"
        "</table:table-row></table:table><text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
    )
    content = f"<office:document-content {ODF}><office:body><office:text>{body}"
    content += "</office:text></office:body></office:document-content>"
    text = text_of(zipped(tmp_path / "a.odt", {"content.xml": content}))
    for mark in ("## Head", "one two\tthree", "- item", "| a | b |"):
        assert mark in text
    assert "gone" not in text
    for name in ("b.odt", "b.ods"):
        path = zipped(tmp_path / name, {"META-INF/manifest.xml": "<m><encryption-data/></m>", "content.xml": content})
        assert "password" in error_of(path)


def test_rich_text_is_read_in_its_letters(tmp_path: Path) -> None:
    rtf = (
        rb"{\rtf1\ansi\ansicpg1250{\fonttbl{\f0 Arial;}}{\*\generator x;}\uc1 \'a3\'f3d\'9f "
        rb"\b bold\b0  \u26481?\u20140?"
        rb"\par next\line line \{braced\} {\info{\title T}}\cell\row{\pict 0102}}"
    )
    assert rtf_text(rtf) == "Łódź bold 東京\nnext\nline {braced}  |  |"
    (tmp_path / "a.rtf").write_bytes(rtf)
    assert "Łódź" in text_of(str(tmp_path / "a.rtf"))


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "gb18030"])
def test_mail_is_read_with_its_attachments(tmp_path: Path, charset: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Jörg <j@example.org>", "k@example.org", "Größe"
    mail.set_content("Grüße", charset=charset)
    mail.add_attachment(b"123", maintype="application", subtype="pdf", filename="Q3.pdf")
    (tmp_path / "a.eml").write_bytes(mail.as_bytes())
    text = text_of(str(tmp_path / "a.eml"))
    for mark in ("From: Jörg", "Subject: Größe", "Grüße", "[attachment: Q3.pdf, 3 bytes]"):
        assert mark in text


def test_an_old_format_says_what_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.doc").write_bytes(b"\xd0\xcf\x11\xe0")
    assert "LibreOffice" in error_of(str(tmp_path / "a.doc"))


@pytest.mark.parametrize("suffix", [".docx", ".pptx", ".odt"])
def test_hostile_parts_are_refused_or_bounded(tmp_path: Path, suffix: str) -> None:
    deep = "<w:p>" * 20_000 + "</w:p>" * 20_000
    names = {".docx": "word/document.xml", ".pptx": "ppt/presentation.xml", ".odt": "content.xml"}
    path = zipped(tmp_path / f"deep{suffix}", {names[suffix]: f"<w:document {W}><w:body>{deep}</w:body></w:document>"})
    documents.READERS[suffix][0](path)
    assert len(text_of(path)) < 10_000
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'
    assert "document type" in error_of(zipped(tmp_path / f"bomb{suffix}", {names[suffix]: bomb}))
    assert "damaged" in error_of(zipped(tmp_path / f"bad{suffix}", {names[suffix]: "<x><y></x>"}))
    many = {f"p{n}": "" for n in range(50_001)}
    assert re.search("files", error_of(zipped(tmp_path / f"many{suffix}", many)))


def test_every_reader_refuses_what_it_does_not_read(tmp_path: Path) -> None:
    for suffix in (".docx", ".xlsb", ".odt", ".rtf", ".eml", ".ppt"):
        path = tmp_path / f"x{suffix}"
        path.write_bytes(b"PK\x03\x04broken\x00\xff")
        assert describe(str(path)).keys() in ({"error"}, {"description"})


def test_settings_of_formulas_in_rich_text_are_no_words(tmp_path: Path) -> None:
    path = tmp_path / "a.rtf"
    path.write_bytes(rb"{\rtf1\ansi{\mmathPr\mmathFont34\mbrkBin0\mlMargin0}Heading 1\par Words\par}")
    assert text_of(str(path)) == "Heading 1\nWords\n"


def test_notes_in_open_documents_stand_in_brackets(tmp_path: Path) -> None:
    text = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    office = 'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    inside = "<text:note-body><text:p>A note</text:p></text:note-body>"
    note = f"<text:note><text:note-citation>1</text:note-citation>{inside}</text:note>"
    body = f"<office:body><office:text><text:p>Some text{note} goes on.</text:p></office:text></office:body>"
    content = f"<office:document-content {office} {text}>{body}</office:document-content>"
    path = tmp_path / "a.odt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr("content.xml", content)
    assert text_of(str(path)) == "Some text [1: A note] goes on.\n\n"
