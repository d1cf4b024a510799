"""Read mail (`.eml`), rich text (`.rtf`), and Word and PowerPoint files of before 2007 by LibreOffice. Python 3.9+."""

from __future__ import annotations

import email.message
import email.policy
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator

from sandbox.inside.archives import count_text
from sandbox.inside.document_bounds import MAX_MEMBER_BYTES, DocumentUnreadable
from sandbox.inside.page_text import html_text
from sandbox.inside.text_encoding import codec_of, decode_text

OFFICE_SECONDS = 100
MAX_PARTS = 200  # of a mail
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\(.)|([{}])|[\r\n]+|([^\\{}\r\n]+)", re.DOTALL
)
_HIDDEN = frozenset(
    b"fonttbl colortbl stylesheet info pict object themedata colorschememapping datastore listtable listoverridetable"
    b" rsidtbl generator xmlnstbl latentstyles fldinst filetbl revtbl mmathPr".split()
)
_SIGNS = {
    b"par": "\n", b"line": "\n", b"row": " |\n", b"cell": " | ", b"tab": "\t", b"emdash": "—", b"endash": "–",
    b"bullet": "•", b"lquote": "‘", b"rquote": "’", b"ldblquote": "“", b"rdblquote": "”", b"page": "\n\n",
    b"sect": "\n",
}  # fmt: skip


def read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        data = file.read(MAX_MEMBER_BYTES + 1)
    if len(data) > MAX_MEMBER_BYTES:
        raise DocumentUnreadable(f"it is larger than {MAX_MEMBER_BYTES >> 20} MB")
    return data


# ---------------------------------------------------------------- rich text


def describe_rtf(path: str) -> str:
    return f"rich text, {count_text(len(rtf_text(read_bytes(path)).split()), 'word')}"


def convert_rtf(path: str) -> Iterator[str]:
    yield rtf_text(read_bytes(path)) + "\n"


def rtf_text(data: bytes) -> str:
    """Return the text of a document in the Rich Text Format 1.9.1."""
    if not data.lstrip().startswith(b"{\\rtf"):
        raise DocumentUnreadable("it is not a rich text file, whatever its name says")
    out: list[str] = []
    codec, hidden, skip, skipped = "cp1252", False, 1, 0
    groups: list[tuple[bool, int]] = []
    run = bytearray()  # characters in the code page, decoded together: some have two bytes

    def flush() -> None:
        if run:
            out.append(run.decode(codec, "replace"))
            run.clear()

    for token in _TOKEN.finditer(data):
        word, number, code, sign, brace, text = token.groups()
        if code and not hidden:
            if skipped:
                skipped -= 1
            else:
                run.append(int(code, 16))
            continue
        if text and not hidden:
            rest = text[skipped:]
            skipped = max(0, skipped - len(text))
            run += rest
            continue
        flush()
        if brace == b"{":
            groups.append((hidden, skip))
        elif brace:
            hidden, skip = groups.pop() if groups else (False, 1)
            skipped = 0
        elif sign == b"*" or (word and word in _HIDDEN):
            hidden = True
        elif word == b"ansicpg" and number:
            codec = _code_page(int(number))
        elif word == b"uc" and number:
            skip = max(0, int(number))
        elif hidden:
            continue
        elif word == b"u" and number:
            out.append(chr(int(number) % 65536))
            skipped = skip
        elif word:
            out.append(_SIGNS.get(word, ""))
        elif sign and sign in b"{}\\~_":
            out.append({b"~": "\u00a0", b"_": "-"}.get(sign, sign.decode("ascii")))
    flush()
    joined = "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return re.sub(r"\n{3,}", "\n\n", joined).strip()


def _code_page(number: int) -> str:
    try:
        b"".decode(f"cp{number}")
    except LookupError:
        return "cp1252"
    return f"cp{number}"


# ---------------------------------------------------------------- mail


def read_mail(path: str) -> email.message.EmailMessage:
    mail = email.message_from_bytes(read_bytes(path), policy=email.policy.default)
    if not mail.keys():
        raise DocumentUnreadable("it is no mail, whatever its name says")
    return mail


def describe_mail(path: str) -> str:
    mail = read_mail(path)
    return f"mail, “{mail.get('Subject', '')}”, {count_text(len(list(mail.iter_attachments())), 'attachment')}"


def convert_mail(path: str) -> Iterator[str]:
    mail = read_mail(path)
    for name in ("From", "To", "Cc", "Date", "Subject"):
        if mail.get(name):
            yield f"{name}: {mail[name]}\n"
    body = mail.get_body(("plain", "html"))
    if body is not None:
        data = body.get_payload(decode=True)
        is_page = body.get_content_type() == "text/html"
        raw = data if isinstance(data, bytes) else b""
        text, _codec = decode_text(raw, codec_of(body.get_content_charset("")), markup=is_page)
        yield f"\n{(html_text(text) if is_page else text).strip()}\n\n"
    for part in itertools.islice(mail.iter_attachments(), MAX_PARTS):
        size = len(part.get_payload(decode=True) or b"")
        yield f"[attachment: {part.get_filename() or part.get_content_type()}, {size:,} bytes]\n"


# ---------------------------------------------------------------- old formats


def describe_old(path: str) -> str:
    return "document of an Office before 2007"


def old_reader(new: str, convert: Callable[[str], Iterator[str]]) -> Callable[[str], Iterator[str]]:
    """Return a converter that lets LibreOffice write the new format, which `convert` reads."""

    def convert_old(path: str) -> Iterator[str]:
        office = shutil.which("soffice") or shutil.which("libreoffice")
        if not office:
            raise DocumentUnreadable(
                f"the sandbox has no LibreOffice, which reads this old format: ask the person to save it as .{new}, or"
                " an operator to run `fawn sandbox build --libreoffice`"
            )
        with tempfile.TemporaryDirectory() as folder:
            profile = f"-env:UserInstallation=file://{folder}/profile"
            call = [office, profile, "--headless", "--norestore", "--convert-to", new, "--outdir", folder, path]
            try:
                subprocess.run(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=OFFICE_SECONDS)
            except subprocess.TimeoutExpired:
                raise DocumentUnreadable(f"LibreOffice did not read it within {OFFICE_SECONDS} s") from None
            made = os.path.join(folder, f"{os.path.splitext(os.path.basename(path))[0]}.{new}")
            if not os.path.exists(made):
                raise DocumentUnreadable("LibreOffice cannot read it: it is damaged, or it has a password")
            yield from convert(made)

    return convert_old
