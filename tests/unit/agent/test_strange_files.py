"""Files as people send them: in any encoding, with names that lie, and mail within mail."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zstandard
from langchain_core.tools import ToolException

from agent.tools import read_file, str_replace
from sandbox.base import Sandbox
from sandbox.disk.files_only import FilesOnlySandbox
from sandbox.inside.archives import DocumentUnreadable
from sandbox.inside.documents import find_reader, named_entries
from sandbox.inside.search import find_lines
from sandbox.inside.text_encoding import find_codec
from tests.unit.agent.conftest import Bench

GERMAN = "Grüße aus München, für die Prüfung der Anlage größer als üblich.\n"
RUSSIAN = "Привет, это обычный текст о работе и погоде в городе.\n"
CHINESE = "今天的会议记录：我们讨论了项目的进度和下一步的计划。\n"
JAPANESE = "これは日本語の文章です。会議の記録を確認してください。\n"
TEXTS = {
    "cp1252": (GERMAN, "cp1252"),
    "cp1251": (RUSSIAN, "cp1251"),
    "koi8-r": (RUSSIAN, "koi8-r"),
    "gbk": (CHINESE, "gb18030"),
    "big5": ("今天的會議記錄：我們討論了項目的進度和下一步的計劃。\n", "big5hkscs"),
    "cp932": (JAPANESE, "cp932"),
    "euc_jp": (JAPANESE, "euc_jp"),
    "utf-8": (CHINESE, "utf-8"),
    "utf-8-sig": (GERMAN, "utf-8"),
    "utf-16": (RUSSIAN, "utf-16-le"),
    "utf-16-le": ("a plain line of a registry\n", "utf-16-le"),
    "utf-16-be": ("a plain line of a registry\n", "utf-16-be"),
    "utf-32": (GERMAN, "utf-32-le"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_in_any_encoding_is_text(name: str) -> None:
    text, codec = TEXTS[name]
    data = (text * 20).encode(name)
    assert find_codec(data) == codec
    assert data.decode(codec).lstrip("\ufeff") == text * 20


@pytest.mark.parametrize("data", [b"log\n" * 500 + b"\0" + b"more\n" * 99, b"\x1b[31mred\x1b[0m\n" * 50, b"", b"a"])
def test_a_stray_control_makes_no_text_a_program(data: bytes) -> None:
    assert find_codec(data) == "utf-8"


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\2\1\1\0" + bytes(range(256)) * 9,
        b"\x89PNG\r\n\x1a\n" + b"\0\1\2\3" * 50,
        bytes(range(256)) * 50,
    ],
)
def test_a_program_is_no_text(data: bytes) -> None:
    assert find_codec(data) == ""


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize("name", TEXTS)
async def test_tools_read_find_and_change_a_text_in_its_encoding(bench: Bench, name: str) -> None:
    text, codec = TEXTS[name]
    await bench.context()
    sandbox = bench.machine.sandbox
    path = "/mnt/user-data/uploads/notes.log"
    await sandbox.write(path, ("first\n" + text * 9).encode(name))
    runtime = SimpleNamespace(context=SimpleNamespace(sandbox=bench.machine))
    tools: Any = SimpleNamespace(read=read_file.read_file, edit=str_replace.str_replace)
    read = await tools.read.coroutine(path=path, runtime=runtime)
    assert text in read
    assert (codec in read) == (codec != "utf-8")
    top = os.open(bench.folder / "uploads", os.O_RDONLY)
    assert find_lines(top, "first", "**", 9) == [("notes.log", 1, "first")]
    os.close(top)
    await tools.edit.coroutine(path=path, old="first", new="second", runtime=runtime)
    assert await sandbox.read(path) == ("second\n" + text * 9).encode(name)


# ---------------------------------------------------------------- names that lie


def package(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return out.getvalue()


PAGE = b"<html><head><meta charset=utf-8></head><body><table><tr><td>a</td><td>b</td></tr></table></body></html>"
MAIL = b"MIME-Version: 1.0\r\nSubject: S\r\nContent-Type: text/html\r\n\r\n<p>hello</p>"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
LIES = {
    ("report.xls", PAGE): "convert_html",
    ("report.xlsx", b"\xef\xbb\xbf" + PAGE): "convert_html",
    ("report.xls", b"a\tb\n1\t2\n"): "convert_csv",
    ("report.xlsx", b"a;b\n1;2\n"): "convert_csv",
    ("report.xls", "a\tb\n1\t2\n".encode("utf-16")): "convert_csv",
    ("data.csv", package("xl/workbook.xml")): "convert_book",
    ("data.xls", package("xl/workbook.xml")): "convert_book",
    ("data", package("word/document.xml")): "convert_docx",
    ("data.zip", package("word/document.xml")): "convert_docx",
    ("data.docx", package("ppt/presentation.xml")): "convert_pptx",
    ("data.docx", package("a.txt")): "convert_docx",
    ("data.bin", package("META-INF/container.xml")): "convert_epub",
    ("old.doc", PAGE): "convert_html",
    ("old.doc", MAIL): "convert_mail",
    ("old.doc", b"{\\rtf1 hello}"): "convert_rtf",
    ("old.doc", b"just words\n"): "convert_text",
    ("old.docx", b"%PDF-1.4\n"): "convert_pdf",
    ("old.docx", OLE + "WordDocument".encode("utf-16-le")): "convert_old",
    ("old.doc", OLE + "Workbook".encode("utf-16-le")): "convert_old_sheets",
    ("mail.txt", b"Received: from x\r\nFrom: a@b\r\nSubject: S\r\n\r\nhello"): "convert_mail",
    ("macros.xlsm", package("xl/workbook.xml")): "convert_book",
    ("table.csv", b"a,b\n1,2\n"): "convert_csv",
    ("page.html", b"words without a tag"): "convert_html",
}


@pytest.mark.parametrize(("name", "data"), LIES)
def test_the_first_bytes_decide_and_not_the_name(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert find_reader(str(tmp_path / name))[1].__name__ == LIES[name, data]


# ---------------------------------------------------------------- packed


def tarred(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
LOG = "".join(f"2026-01-01 line {number} of the log\n" for number in range(2000))
PACKED = {
    "text": ("app.log", LOG.encode(), "text, packed with", "line 1999 of the log"),
    "short text": ("app.log", b"one line\n", "text, packed with", "one line"),
    "another encoding": ("app.log", (RUSSIAN * 99).encode("cp1251"), "text, packed with", RUSSIAN),
    "table": ("data.csv", b"a;b\n1;2\n", "table, 2 rows, 2 columns, packed with", "| 1 | 2 |"),
    "page": ("data", PAGE, "text, packed with", "| a | b\n"),
    "archive": ("all.tar", tarred(one=b"1", two=b"22"), "archive (tar), packed with", "two\n"),
    "document": ("a.zip", package("notes.txt"), "archive, 1 file", "notes.txt"),
}


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("kind", PACKED)
def test_what_is_packed_is_read_as_what_it_is(tmp_path: Path, kind: str, suffix: str) -> None:
    name, data, description, words = PACKED[kind]
    for path in (tmp_path / f"{name}.{suffix}", tmp_path / "F0"):
        path.write_bytes(PACKERS[suffix](data))
        if path.name == "F0" and kind == "table":
            continue  # nothing says that it is one
        reader = find_reader(str(path))
        assert description in reader[0](str(path))
        assert words in "".join(reader[1](str(path)))


def test_files_that_were_packed_one_after_the_other_are_one(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"first\n") + gzip.compress(b"second\n"))
    assert "".join(find_reader(str(tmp_path / "a.gz"))[1](str(tmp_path / "a.gz"))) == "first\nsecond\n"


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
def test_a_bomb_and_a_damaged_file_end_in_a_sentence(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    whole = PACKERS[suffix](os.urandom(3000).hex().encode() * 400)
    path.write_bytes(whole[: len(whole) // 2])
    text = "".join(find_reader(str(path))[1](str(path)))
    assert text.endswith("the rest is left out: the file is damaged or incomplete]\n")
    path.write_bytes(PACKERS[suffix](b"a" * (51 << 20)))
    *pieces, end = find_reader(str(path))[1](str(path))
    assert (sum(map(len, pieces)), "left out" in end) == (50 << 20, True)
    path.write_bytes(PACKERS[suffix](PACKERS[suffix](b"twice")))
    with pytest.raises(DocumentUnreadable, match="packed twice"):
        "".join(find_reader(str(path))[1](str(path)))
    path.write_bytes(b"\x00\x01\x02 no such thing" + bytes(9))
    with pytest.raises(DocumentUnreadable, match="not packed as its name says"):
        find_reader(str(path))[0](str(path))


@pytest.mark.parametrize("suffix", PACKERS)
async def test_a_search_finds_lines_of_what_is_packed_and_says_where_it_ends(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"app.log.{suffix}"
    path.write_bytes(PACKERS[suffix](LOG.encode()))
    top = os.open(tmp_path, os.O_RDONLY)
    assert find_lines(top, "line 7 ", "**", 9) == [(path.name, 8, "2026-01-01 line 7 of the log")]
    path.write_bytes(PACKERS[suffix](b"first\n" + b"a" * (17 << 20)))
    found, note = find_lines(top, "first", "**", 9)
    assert found == (path.name, 1, "first")
    assert "up to its first 16,777,216 bytes only" in note[2]
    path.write_bytes(b"first\n" + b"a" * (17 << 20))
    assert [row[:2] for row in find_lines(top, "first", "**", 9)] == [(path.name, 1), (path.name, 0)]
    os.close(top)


async def test_where_nothing_unpacks_the_model_learns_what_to_ask_for(tmp_path: Path) -> None:
    path, tool = "/mnt/user-data/uploads/app.log.gz", cast("Any", read_file.read_file)
    for name in ("uploads", "workspace", "outputs"):
        (tmp_path / name).mkdir()
    sandbox = FilesOnlySandbox(tmp_path, tmp_path)
    await sandbox.write(path, gzip.compress(LOG.encode()))
    assert [(match.path, match.line) for match in await sandbox.grep("line 7 ", "/mnt/user-data")] == [(path, 8)]

    async def get() -> Sandbox:
        return sandbox

    runtime = SimpleNamespace(context=SimpleNamespace(sandbox=SimpleNamespace(get=get)))
    with pytest.raises(ToolException, match="is packed with gzip; ask the person for the unpacked file"):
        await tool.coroutine(path=path, runtime=runtime)


# ---------------------------------------------------------------- mail


def letter(text: str = "", subject: str = "S") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "a@example.com", subject
    if text:
        mail.set_content(text)
    return mail


def convert(folder: Path, data: bytes) -> str:
    path = folder / "a.eml"
    path.write_bytes(data)
    reader = find_reader(str(path))
    return "".join([reader[0](str(path)), "\n", *reader[1](str(path))])


def test_a_mail_within_mails_is_read_with_its_files(tmp_path: Path) -> None:
    inner = letter("the inmost words", "inmost")
    inner.add_attachment(b"12345", maintype="application", subtype="pdf", filename="Rechnung März.pdf")
    for subject in ("middle", "outer"):
        mail = letter(f"words of {subject}", subject)
        mail.add_attachment(inner)
        inner = mail
    read = convert(tmp_path, bytes(inner))
    for words in (
        "words of outer",
        "words of middle",
        "the inmost words",
        "Subject: inmost",
        "Rechnung März.pdf, 5 bytes",
    ):
        assert words in read
    assert "1 attachment" in read


HEAD = "From: a@example.com\r\nSubject: S\r\nMIME-Version: 1.0\r\n"
PART = "--{0}\r\nContent-Type: text/plain\r\n\r\nthe words\r\n--{0}--\r\n"
LETTERS = {
    "boundary without quotes": f"{HEAD}Content-Type: multipart/mixed; boundary=b=_1\r\n\r\n{PART.format('b=_1')}",
    "boundary with quotes": f'{HEAD}Content-Type: multipart/mixed; boundary="b=_1"\r\n\r\n{PART.format("b=_1")}',
    "plain": f"{HEAD}\r\nthe words",
    "an invitation": f"{HEAD}Content-Type: text/calendar; method=REQUEST\r\n\r\nBEGIN:VCALENDAR\r\nSUMMARY:the words",
    "a broken header": f"{HEAD}To: =?utf-8?q?=\r\n\r\nthe words",
}


@pytest.mark.parametrize("name", LETTERS)
def test_the_words_of_a_letter_are_read(tmp_path: Path, name: str) -> None:
    assert "the words" in convert(tmp_path, LETTERS[name].encode())


@pytest.mark.parametrize("name", ["=?utf-8?Q?R=C3=A9sum=C3=A9.pdf?=", "=?gbk?B?zsS1tS5wZGY=?=", "plain.pdf"])
def test_a_letter_that_is_only_a_file_names_it(tmp_path: Path, name: str) -> None:
    kind = f'Content-Type: application/pdf; name="{name}"\r\nContent-Disposition: attachment; filename="{name}"\r\n'
    read = convert(tmp_path, f"{HEAD}{kind}\r\n12345".encode())
    assert "1 attachment" in read
    assert "no text found" in read
    assert any(each in read for each in ("Résumé.pdf", "文档.pdf", "plain.pdf"))


# ---------------------------------------------------------------- names in archives


@pytest.mark.parametrize(
    ("codec", "names"),
    [
        ("gbk", ["会议记录和项目计划.txt", "财务报表/一月份销售数据.xlsx"]),
        ("cp932", ["会議の記録です.txt", "売上データの一覧/一月.xlsx"]),
        ("cp866", ["Отчет о работе за январь.txt", "Документы/договор аренды.doc"]),
        ("utf-8", ["Résumé.txt", "会议.txt"]),
        ("cp437", ["Résumé für Müller.txt"]),
        ("ascii", ["a.txt", "b/c.txt"]),
    ],
)
def test_names_of_archives_are_read_in_the_encoding_of_their_system(codec: str, names: list[str]) -> None:
    entries = []
    for name in names:
        entry = zipfile.ZipInfo()
        entry.filename = name.encode(codec).decode("cp437")
        entries.append(entry)
    flagged = zipfile.ZipInfo("日本.txt")
    flagged.flag_bits |= 0x800
    assert [name for _entry, name in named_entries([flagged, *entries])] == ["日本.txt", *names]
