"""Documents become text inside a real sandbox, with parsers that were installed there."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import shutil
import sys
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docx
import pptx
import pypdfium2  # type: ignore[import-untyped]  # it has no stubs
import pytest
import xlsxwriter  # type: ignore[import-untyped]  # it has no stubs

from agent.parsing.documents import convert_document, describe_document, is_document
from agent.tools.read_file import read_file
from sandbox.base import UPLOADS, WORKSPACE, Sandbox, SandboxFileError, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.settings import SandboxSettings
from tests.support.engines import need_bubblewrap

PARSERS = (
    *("docx", "lxml", "pptx", "PIL", "pillow.libs", "python_calamine", "xlsxwriter", "typing_extensions.py"),
    *("pypdfium2", "pypdfium2_raw", "pypdfium2_cfg"),
)


@pytest.fixture
async def plain_sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A sandbox of this machine's own Python, without parsers."""
    need_bubblewrap()
    (tmp_path / "skills").mkdir()
    provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills", memory_mb=768, processes=64, file_mb=64))
    async with provider.acquire("t", tmp_path / "thread") as made:
        yield made
    await provider.close()


@pytest.fixture
async def sandbox(plain_sandbox: Sandbox, tmp_path: Path) -> Sandbox:
    """The same after `pip install --user` of the parsers, as far as files go."""
    version = (await plain_sandbox.run(ShellCommand("python3 -c 'import sys; print(*sys.version_info[:2])'"))).output
    if tuple(map(int, version.split())) != sys.version_info[:2]:
        pytest.skip("the sandbox has another Python than these tests, so their compiled parsers do not load there")
    packages = Path(docx.__file__).parents[1]
    target = tmp_path / f"thread/workspace/.local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    target.mkdir(parents=True)
    for name in PARSERS:
        if (packages / name).is_dir():
            shutil.copytree(packages / name, target / name, copy_function=shutil.copyfile)
        elif (packages / name).exists():
            shutil.copyfile(packages / name, target / name)
    return plain_sandbox


async def upload(sandbox: Sandbox, name: str, data: bytes) -> str:
    path = f"{UPLOADS}/{name}"
    await sandbox.write(path, data)
    return path


async def text_of(sandbox: Sandbox, path: str, **more: Any) -> str:
    """Return what the model gets."""

    async def get() -> Sandbox:
        return sandbox

    runtime = SimpleNamespace(context=SimpleNamespace(sandbox=SimpleNamespace(get=get)))
    answer = await read_file.coroutine(path=path, runtime=runtime, **more)  # type: ignore[misc]  # make_tool sets it
    assert isinstance(answer, str)
    return answer


async def test_a_packed_log_is_read_and_searched(plain_sandbox: Sandbox) -> None:
    log = "".join(f"line {number}\n" for number in range(9000)).encode()
    for name, data in (("a.log.gz", gzip.compress(log)), ("b", bz2.compress(log)), ("c.xz", lzma.compress(log))):
        path = await upload(plain_sandbox, name, data)
        assert "line 8999\n" in await text_of(plain_sandbox, path, start_line=8000)
        found = await plain_sandbox.grep("^line 8999$", UPLOADS, glob=name)
        assert [(match.path, match.line) for match in found] == [(path, 9000)]
    assert await describe_document(plain_sandbox, f"{UPLOADS}/a.log.gz") == "text, packed with gzip"


def word_file() -> bytes:
    document = docx.Document()
    document.add_heading("季度报告", 1)
    document.add_paragraph("Sales grew.")
    document.add_paragraph("first", style="List Bullet")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "a|b", "東京"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def sheet_file() -> bytes:
    out = io.BytesIO()
    with xlsxwriter.Workbook(out) as book:
        sheet = book.add_worksheet("Umsatz")
        for row in range(30):
            sheet.write_row(row, 0, [f"r{row}", row * 1.5, "数"])
        book.add_worksheet("Leer")
    return out.getvalue()


def slide_file() -> bytes:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    assert slide.shapes.title is not None
    slide.shapes.title.text = "Plan"
    slide.placeholders[1].text = "step one"
    assert slide.notes_slide.notes_text_frame is not None
    slide.notes_slide.notes_text_frame.text = "say hello"
    out = io.BytesIO()
    show.save(out)
    return out.getvalue()


def pdf_file(pages: int = 3) -> bytes:
    """A PDF with a line of text on each page."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>"]
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(pages))
    objects.append(f"<</Type/Pages/Count {pages}/Kids[{kids}]>>".encode())
    objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    for n in range(pages):
        stream = f"BT /F1 12 Tf 50 700 Td (Finding number {n + 1}) Tj ET".encode()
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>"
            f"/Contents {5 + 2 * n} 0 R>>".encode()
        )
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    offsets = []
    for number, each in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, each))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % offset for offset in offsets))
    out.write(b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start))
    return out.getvalue()


def zip_file(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


BOOK = zip_file(
    {
        "META-INF/container.xml": '<rootfile full-path="book.opf"/>',
        "book.opf": '<package><item id="b" href="two.xhtml"/><item href="one.xhtml" id="a"/>'
        '<itemref idref="a"/><itemref idref="b"/></package>',
        "one.xhtml": "<h1>Call me</h1><p>Ishmael &amp; friends</p>",
        "two.xhtml": "<p>The end</p><script>no()</script>",
    }
)

CASES = {
    "report.pdf": (pdf_file(), "PDF, 3 pages", ["[page 2 of 3]\nFinding number 2"]),
    "report.docx": (
        word_file(),
        "Word document, 5 paragraphs",
        ["# 季度报告", "Sales grew.", "- first", "| a\\|b | 東京 |"],
    ),
    "sheet.xlsx": (
        sheet_file(),
        "spreadsheet, 2 sheets: Umsatz (30 rows), Leer (0 rows)",
        ["## Umsatz (30 rows)", "| row | A | B | C |", "| 30 | r29 | 43.5 | 数 |"],
    ),
    "show.pptx": (slide_file(), "presentation, 1 slide", ["## Slide 1: Plan", "- step one", "> Notes: say hello"]),
    "people.csv": (
        "姓名;城市\n王;北京\n".encode("gb18030"),
        "table, 2 rows, 2 columns, read as gb18030",
        ["| 姓名 | 城市 |", "| 王 | 北京 |"],
    ),
    "page.html": (
        b"<title>Hi there</title><script>x()</script><h2>Part</h2><p>Text <a href='https://a.test/'>link</a></p>",
        "web page, “Hi there”",
        ["## Part", "Text link (https://a.test/)"],
    ),
    "book.epub": (BOOK, "book (EPUB), 2 chapters", ["[chapter 1 of 2]\n# Call me", "Ishmael & friends", "The end"]),
    "code.zip": (
        zip_file({"src/main.py": "print()"}), "archive, 1 file, 7 bytes unpacked", ["7  ", "src/main.py"]),
}  # fmt: skip


async def test_each_format_is_described_and_read(sandbox: Sandbox) -> None:
    for name, (data, description, marks) in CASES.items():
        path = await upload(sandbox, name, data)
        assert await describe_document(sandbox, path) == description
        text = await text_of(sandbox, path)
        assert text.startswith(f"[{path}: {description}; its text is in {WORKSPACE}/.documents/{name}.")
        assert [mark for mark in marks if mark not in text] == [], name
        assert "no()" not in text
        assert "x()" not in text


async def test_a_long_document_is_a_synopsis_and_a_file(sandbox: Sandbox) -> None:
    big = zip_file({f"chapter{n}.txt": "x" for n in range(4000)})
    path = await upload(sandbox, "big.zip", big)
    text = await text_of(sandbox, path)
    assert len(text) < 10_000
    assert "[lines 1 to 100; continue with start_line=101]" in text
    assert "chapter3999.txt" in await text_of(sandbox, path, start_line=3990)
    pages = await upload(sandbox, "pages.pdf", pdf_file(200))
    outline = (await convert_document(sandbox, pages)).outline
    assert (len(outline), outline[0], outline[1]) == (
        40,
        "line 1: [page 1 of 200] Finding number 1",
        "line 16: [page 6 of 200] Finding number 6",
    )


async def test_a_file_is_converted_again_only_after_a_change(sandbox: Sandbox) -> None:
    path = await upload(sandbox, "a.csv", b"a,b\n")
    first = await convert_document(sandbox, path)
    assert await convert_document(sandbox, path) == first
    await sandbox.write(path, b"a,b\nc,d\ne,f\n")
    assert (await convert_document(sandbox, path)).path != first.path


async def test_damaged_and_hostile_files_are_refused(sandbox: Sandbox) -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for n in range(7):
            archive.writestr(f"{n}.xml", b"\0" * (45 << 20))
    for name, data, reason in [
        ("bad.pdf", b"%PDF-1.4 nonsense", "the PDF is damaged"),
        ("bad.docx", b"PK nonsense", "it is damaged, or not what its name says"),
        ("bomb.docx", bomb.getvalue(), "unpacked, it is larger than 300 MB"),
        ("bad.epub", zip_file({"a": "b"}), "it is not an EPUB book"),
    ]:
        path = await upload(sandbox, name, data)
        with pytest.raises(SandboxFileError, match=reason):
            await convert_document(sandbox, path)
    with pytest.raises(SandboxFileError, match="No such file"):
        await convert_document(sandbox, f"{UPLOADS}/it's not there.pdf")


def sheet_of_repeats() -> bytes:
    """A spreadsheet of one cell that is repeated in each row and column."""
    cell = '<table:table-cell table:number-columns-repeated="16384"><text:p>x</text:p></table:table-cell>'
    row = f'<table:table-row table:number-rows-repeated="1048576">{cell}</table:table-row>'
    spaces = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    content = "office:document-content"
    body = f'<office:spreadsheet><table:table table:name="a">{row}</table:table></office:spreadsheet>'
    return zip_file(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "META-INF/manifest.xml": "<manifest/>",
            "content.xml": f"<{content}{spaces}><office:body>{body}</office:body></{content}>",
        }
    )


def word_file_of(body: str) -> bytes:
    """A Word document with another body."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word_file())) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "word/document.xml":
                head, _, _ = text.partition(b"<w:body>")
                text = head + b"<w:body>" + body.encode() + b"</w:body></w:document>"
            new.writestr(name, text)
    return out.getvalue()


NESTED_TABLES = 5000


def deep_word_file() -> bytes:
    return word_file_of("<w:tbl><w:tr><w:tc>" * NESTED_TABLES + "</w:tc></w:tr></w:tbl>" * NESTED_TABLES)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "files.docx": (lambda: zip_file(dict.fromkeys(map(str, range(50_001)), "")), "more than 50,000 files"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_document_beyond_the_bounds_is_refused_with_a_reason(sandbox: Sandbox, name: str) -> None:
    make_file, reason = HOSTILE[name]
    path = await upload(sandbox, name, make_file())
    with pytest.raises(SandboxFileError, match=reason):
        await convert_document(sandbox, path, seconds=30)
    with pytest.raises(SandboxFileError):
        await describe_document(sandbox, path)


@pytest.mark.parametrize(("name", "make_file"), [("repeats.ods", sheet_of_repeats), ("deep.docx", deep_word_file)])
async def test_repeats_and_levels_without_end_are_read_or_refused(sandbox: Sandbox, name: str, make_file: Any) -> None:
    path = await upload(sandbox, name, make_file())
    try:
        assert (await convert_document(sandbox, path, seconds=30)).chars <= 21_000_000
    except SandboxFileError as error:
        assert re.search("memory|damaged|takes", str(error))  # noqa: PT017  either is right
    assert await text_of(sandbox, await upload(sandbox, "a.csv", b"a,b\n"))


async def test_a_document_that_takes_too_long_is_read_up_to_there(sandbox: Sandbox) -> None:
    path = await upload(sandbox, "long.docx", word_file_of("<w:p><w:r><w:t>word</w:t></w:r></w:p>" * 400_000))
    document = await convert_document(sandbox, path, seconds=30)
    text = (await sandbox.read(document.path, limit=32 << 20)).decode()
    assert text.startswith("word\n\nword\n\n")
    assert "reading it takes too long" in text[-100:] or text.count("word") == 400_000
    assert "paragraphs" in document.description or document.description == "a large document"


async def test_comments_that_do_not_end_are_read_once(sandbox: Sandbox) -> None:
    page = b"<p>before <!-- hidden --> and</p>" + b"<p>x</p><!--" * 400_000  # 4.8 MB
    text = await text_of(sandbox, await upload(sandbox, "page.html", page))
    assert "before and" in text
    assert "hidden" not in text


async def test_a_table_has_a_bound_of_cells(sandbox: Sandbox) -> None:
    wide = b"a," * 20_000 + b"\n" + b"b\n" * 2000  # every row would be 20,000 cells wide
    document = await convert_document(sandbox, await upload(sandbox, "wide.csv", wide))
    assert document.description == "table, more than 250 rows, 20,001 columns"
    result = await sandbox.run(ShellCommand(f"tail -c 100 {document.path}"))
    assert result.output.endswith("[the rest is left out]\n")


async def test_a_missing_parser_is_named_with_its_fix(plain_sandbox: Sandbox) -> None:
    check = await plain_sandbox.run(ShellCommand("python3 -c 'import pypdfium2'"))
    if check.exit_code == 0:
        pytest.skip("this machine's Python has the parser")
    path = await upload(plain_sandbox, "a.pdf", pdf_file())
    with pytest.raises(SandboxFileError, match=r"lacks pypdfium2: `pip install pypdfium2`.*`fawn sandbox build`"):
        await convert_document(plain_sandbox, path)
    assert "| a | b |" in await text_of(plain_sandbox, await upload(plain_sandbox, "a.csv", b"a,b\n"))


async def test_modules_of_the_workspace_do_not_take_part(plain_sandbox: Sandbox) -> None:
    await plain_sandbox.write(f"{WORKSPACE}/csv.py", b"raise SystemExit('mine')")
    await plain_sandbox.run(ShellCommand(f"cd {WORKSPACE}"))
    assert await describe_document(plain_sandbox, await upload(plain_sandbox, "a.csv", b"a,b\n")) == (
        "table, 1 row, 2 columns"
    )


def test_source_code_is_not_a_document() -> None:
    assert is_document(f"{UPLOADS}/page.html")
    assert not is_document(f"{WORKSPACE}/page.html")
    assert is_document(f"{WORKSPACE}/Report.PDF")
    assert not is_document(f"{UPLOADS}/notes.txt")


def test_the_test_pdf_is_valid() -> None:
    assert len(pypdfium2.PdfDocument(pdf_file(2))) == 2


@pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not installed")
async def test_files_of_an_office_before_2007_are_read(sandbox: Sandbox) -> None:
    """LibreOffice runs inside the sandbox, with the memory, time and processes of a document."""
    office = "soffice -env:UserInstallation=file:///tmp/office --headless --convert-to"
    wanted = {
        ("docx", "doc"): (word_file(), ("季度报告", "Sales grew.", "東京")),
        ("pptx", "ppt"): (slide_file(), ("Plan", "step one", "say hello")),
        ("xlsx", "xls"): (sheet_file(), ("Umsatz", "r29", "43.5", "数")),
    }
    for (new, old), (data, words) in wanted.items():
        await sandbox.write(f"{WORKSPACE}/made.{new}", data)
        made = await sandbox.run(ShellCommand(f"{office} {old} made.{new}", cwd=WORKSPACE))
        if "Error: no export filter" in made.output:
            pytest.skip(f"LibreOffice is installed without the part that writes .{old}")
        path = await upload(sandbox, f"made.{old}", await sandbox.read(f"{WORKSPACE}/made.{old}"))
        assert (await sandbox.read(path))[:4] == b"\xd0\xcf\x11\xe0", "not the old format"
        text = await text_of(sandbox, path)
        assert all(word in text for word in words), text
