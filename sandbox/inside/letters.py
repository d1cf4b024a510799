"""Read mail (`.eml`), rich text (`.rtf`), and Word and PowerPoint files of before 2007 by LibreOffice. Python 3.9+.

Turn HTML into text. Runs in the sandbox: standard library only, Python 3.9+.
"""

from __future__ import annotations

import email.header
import email.message
import email.policy
import html.parser
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator

from sandbox.inside.archives import MAX_MEMBER_BYTES, DocumentUnreadable, count_text
from sandbox.inside.text_encoding import codec_of, decode_text


class PageText(html.parser.HTMLParser):
    """Collects the text of a page, with its headings, items, cells and links."""

    BLOCKS = re.compile("p|div|section|article|br|tr|table|ul|ol|pre|blockquote|header|footer|figure|dd|dt|h[1-6]")
    HIDDEN = frozenset(("script", "style", "template", "noscript", "svg"))

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in self.HIDDEN
        if re.fullmatch("h[1-6]", tag):
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag == "li":
            self.parts.append("\n- ")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif self.BLOCKS.fullmatch(tag):
            self.parts.append("\n")
        elif tag == "a":
            self.links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in self.HIDDEN and self.hidden > 0
        if self.BLOCKS.fullmatch(tag):
            self.parts.append("\n")
        elif tag == "a" and self.links:
            target = self.links.pop()
            self.parts.append(f" ({target})" if target.startswith("http") else "")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def html_text(text: str) -> str:
    """Return the text of a page."""
    parser = PageText()
    parser.feed(without_comments(text))
    parser.close()
    return re.sub(r"\n\s*\n\s*", "\n\n", "".join(parser.parts)).strip() + "\n"


def without_comments(text: str) -> str:
    """Return HTML without its comments, each of which an unclosed one would make the parser search again."""
    parts, at = [], 0
    while (begin := text.find("<!--", at)) >= 0:
        parts.append(text[at:begin])
        end = text.find("-->", begin + 4)
        if end < 0:
            return "".join(parts)
        at = end + 3
    return "".join([*parts, text[at:]])


OFFICE_SECONDS = 100
_BOUNDARY = re.compile(
    rb"(\bboundary=)([^\s\";]{1,200})", re.IGNORECASE
)  # one with a `=` needs quotes, and often has none
MAX_HEAD_BYTES = 1 << 16
MAX_PARTS = 200  # of a mail
MAX_MAIL_LEVELS = 10  # of parts within parts
MAIL_HEAD = ("From", "To", "Cc", "Date", "Subject")
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
    data = read_bytes(path)
    head = _BOUNDARY.sub(rb'\1"\2"', data[:MAX_HEAD_BYTES])
    mail = email.message_from_bytes(head + data[MAX_HEAD_BYTES:], policy=email.policy.default)
    if not mail.keys():
        raise DocumentUnreadable("it is no mail, whatever its name says")
    return mail


def describe_mail(path: str) -> str:
    mail = read_mail(path)
    files = sum(_file_name(part) != "" for part, _level in walk_parts(mail))
    return f"mail, “{_said(mail, 'Subject')}”, {count_text(files, 'attachment')}"


def convert_mail(path: str) -> Iterator[str]:
    """Yield head and text of a mail and of those within it, in order, and what its other parts are."""
    mail = read_mail(path)
    yield _mail_head(mail)
    found = False
    for part, level in itertools.islice(walk_parts(mail), MAX_PARTS):
        kind, name = part.get_content_type(), _file_name(part)
        if kind == "message/rfc822":
            inner = part.get_payload()
            first = inner[0] if isinstance(inner, list) and inner else None
            head = _mail_head(first) if isinstance(first, email.message.Message) else ""
            yield f"\n[{'>' * level} a mail within this one{f': {name}' if name else ''}]\n{head}"
            continue
        is_text = kind in ("text/plain", "text/html", "text/calendar") and (not name or kind == "text/calendar")
        if is_text and (text := _part_text(part).strip()):
            found = True
            yield f"\n{text}\n\n"
        if name or not is_text:
            yield f"[attachment: {name or kind}, {len(_part_bytes(part)):,} bytes]\n"
    if not found:
        yield "\n[no text found in this mail]\n"


def walk_parts(mail: email.message.Message, level: int = 1) -> Iterator[tuple[email.message.Message, int]]:
    """Yield the parts of a mail at every depth, of alternatives the plain text, or else the page."""
    kind, inner = mail.get_content_type(), mail.get_payload()
    if kind == "message/rfc822" or not isinstance(inner, list):
        yield mail, level
    if level > MAX_MAIL_LEVELS or not isinstance(inner, list):
        return
    parts = [part for part in inner if isinstance(part, email.message.Message)]
    if kind == "multipart/alternative":
        kinds = [part.get_content_type() for part in parts]
        best = next((each for each in ("text/plain", "text/html") if each in kinds), "")
        forms = ("text/plain", "text/html", "text/enriched")
        kept = kinds.index(best) if best else -1
        parts = [part for at, part in enumerate(parts) if at == kept or kinds[at] not in forms]
    for part in parts:
        yield from walk_parts(part, level + (kind == "message/rfc822"))


def _mail_head(mail: email.message.Message) -> str:
    return "".join(f"{name}: {_said(mail, name)}\n" for name in MAIL_HEAD if _said(mail, name))


def _said(mail: email.message.Message, name: str) -> str:
    """Return a header; one that is broken in a way that the library does not forgive comes as it stands."""
    try:
        return str(mail.get(name) or "")
    except Exception:  # noqa: BLE001  the parser of headers raises many things
        return next((str(value) for key, value in mail.raw_items() if key.lower() == name.lower()), "")


def _file_name(part: email.message.Message) -> str:
    """Return the name of a part that is a file, also one in encoded words, "" of a part of the letter itself."""
    try:
        name = part.get_filename() or ""
        if "=?" in name:
            name = "".join(
                word if isinstance(word, str) else word.decode(codec_of(charset or "") or "utf-8", "replace")
                for word, charset in email.header.decode_header(name)
            )
    except Exception:  # noqa: BLE001  the parser of headers raises many things
        name = "unnamed"
    is_file = part.get_content_disposition() == "attachment" and part.get_content_type() != "message/rfc822"
    return " ".join(name.split()) or ("unnamed" if is_file else "")


def _part_bytes(part: email.message.Message) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _part_text(part: email.message.Message) -> str:
    is_page = part.get_content_type() == "text/html"
    text, _codec = decode_text(_part_bytes(part), codec_of(part.get_content_charset("") or ""), markup=is_page)
    return html_text(text) if is_page else text


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
