"""The child process that parses untrusted data: `run_parser` in agent/parsing/child.py starts it.

stdin is one line of JSON (`task`, its `options`, `seconds` and the filter of system `calls`), then the data. stdout is
one line of JSON, then data. Imports no package of Fawn (it runs without them), and a library only where it is needed.

A library loads further modules and files when it is first used. So each task has a rehearsal on harmless data; then the
process gives up its system calls, and only then it reads the data.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import ctypes
import encodings.aliases
import functools
import io
import json
import os
import re
import resource
import runpy
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

_DECODER = runpy.run_path(str(Path(__file__).parents[2] / "sandbox/inside/text_encoding.py"))
decode_text: Callable[..., tuple[str, str]] = _DECODER["decode_text"]
MEMORY_BYTES = 1 << 30
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, SIGKILL = 1, 38, 9  # linux/prctl.h
SECCOMP_CALLS = {"x86_64": 317, "aarch64": 277}
SET_FILTER, ALL_THREADS = 1, 1  # linux/seccomp.h
MAX_TEXT_CHARS = 2_000_000
MAX_PAGES = 500
SHORT_ARTICLE_CHARS = 300
_LINK = re.compile(r"\[[^\[\]]*+\]\([^)\[]*+\)")
MAX_PIXELS = 64_000_000
MAX_PNG_COLOURS = 512
PICTURE_FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000"]
ORIENTATION_TAG = 0x0112  # of EXIF; above 4 the sides are exchanged


class NotParsed(Exception):
    """The text is for the model."""


def parse_html(data: bytes, url: str, codec: str) -> dict[str, Any]:
    """Return the main content as Markdown with links, and the title and the date of the page."""
    import trafilatura

    tree = trafilatura.load_html(decode_text(data, codec, markup=True)[0])
    if tree is None:
        raise NotParsed("the page is empty, or it is not HTML")
    about = trafilatura.extract_metadata(tree, default_url=url, extensive=False).as_dict()
    extract = functools.partial(
        trafilatura.extract, tree, url=url, fast=True, output_format="markdown", include_comments=False
    )
    text = extract(include_links=True) or ""
    if len(_LINK.sub("", text)) < SHORT_ARTICLE_CHARS:  # some articles are found only without their links
        text = max(text, extract() or "", key=len)
    # Without an article, such as on a start page: all of its text.
    return {"title": about["title"] or "", "date": about["date"] or "", "text": text or trafilatura.html2txt(tree)}


def parse_pdf(data: bytes, **_: str) -> dict[str, Any]:
    """Return the text of each page, after a mark."""
    import pypdfium2  # type: ignore[import-untyped]  # it has no stubs

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise NotParsed("the PDF is damaged, or it needs a password") from error
    parts, size, pages = [], 0, len(document)
    for number in range(min(pages, MAX_PAGES)):
        text = document[number].get_textpage().get_text_range().replace("\r\n", "\n").strip()
        parts.append(f"[page {number + 1} of {pages}]\n{text or '[no text: the page is a picture]'}")
        size += len(text)
        if size > MAX_TEXT_CHARS:
            break
    if len(parts) < pages:
        parts.append(f"[pages {len(parts) + 1} to {pages} are left out]")
    about = document.get_metadata_dict()
    return {"title": about.get("Title", ""), "date": "", "text": "\n\n".join(parts)}


def parse_text(data: bytes, codec: str, **_: str) -> dict[str, Any]:
    """Return plain text as it is."""
    return {"title": "", "date": "", "text": decode_text(data, codec)[0]}


def scale_picture(data: bytes, edge: int) -> tuple[dict[str, Any], bytes]:
    """Return the picture without its metadata, at most `edge` pixels long, as PNG (few colours) or JPEG."""
    from PIL import AvifImagePlugin, Image, ImageOps, UnidentifiedImageError

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    try:
        with Image.open(io.BytesIO(data), formats=PICTURE_FORMATS) as image:
            width, height = image.size
            if image.format == "JPEG":
                image.draft("RGB", (edge, edge))  # decodes at a fraction of the size
            turned = ImageOps.exif_transpose(image)
            if (image.getexif().get(ORIENTATION_TAG) or 1) > 4:
                width, height = height, width
            alpha = turned.mode in ("RGBA", "LA", "PA") or "transparency" in turned.info
            turned = turned.convert("RGBA" if alpha else "RGB")
            turned.thumbnail((edge, edge), Image.Resampling.LANCZOS, reducing_gap=2.0)
    except UnidentifiedImageError as error:
        raise NotParsed("it is not a picture in a known format") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise NotParsed("it has too many pixels") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise NotParsed(f"the picture is damaged ({type(error).__name__})") from error
    if alpha:
        white = Image.new("RGB", turned.size, "white")
        white.paste(turned, mask=turned.getchannel("A"))
        turned = white
    kind = "PNG" if turned.getcolors(MAX_PNG_COLOURS) else "JPEG"  # drawings and screenshots stay sharp
    out = io.BytesIO()
    turned.info.clear()  # it would be written, with the place where the picture was taken
    turned.save(out, kind, quality=85)
    return {"mime": f"image/{kind.lower()}", "width": width, "height": height}, out.getvalue()


TASKS: dict[str, Callable[..., Any]] = {
    "html": parse_html,
    "pdf": parse_pdf,
    "text": parse_text,
    "picture": scale_picture,
}

# ------------------------------------------------------------ rehearsals

PARAGRAPH = "<p>Rangers counted 412 otters along the river, which is more than in the <a href='/s'>year</a> before.</p>"
PAGE = f"<html><head><title>Otters</title></head><body><article><h1>Otters</h1>{PARAGRAPH * 5}</article></body></html>"


def rehearse_html(codec: str) -> None:
    """Parse a page in each way that `parse_html` may take."""
    from trafilatura.utils import detect_encoding

    for name in (codec, *sorted(set(encodings.aliases.aliases.values()))):  # a page without a charset may be in any
        with contextlib.suppress(LookupError):  # of another system
            codecs.lookup(name or "utf-8")
    detect_encoding(("<html><body>é</body></html>" * 20).encode("latin-1"))
    parse_html(PAGE.encode(), "https://e.com/", "")  # so short a domain is looked up in a list, which is a file
    parse_html(b"<html><body>Otters</body></html>", "https://example.com/a", "utf-8")


def rehearse_pdf() -> None:
    """Load the library."""
    import pypdfium2

    pypdfium2.PdfDocument.new().get_metadata_dict()


def rehearse_picture() -> None:
    """Scale a picture of each format."""
    from PIL import Image

    Image.init()
    for mode, kind in (
        *(("RGB", kind) for kind in PICTURE_FORMATS if kind in Image.SAVE),
        ("RGBA", "PNG"),
        ("CMYK", "JPEG"),
        ("P", "GIF"),
    ):
        made = io.BytesIO()
        Image.new(mode, (8, 8)).save(made, kind)
        scale_picture(made.getvalue(), 4)


def rehearse(task: str, codec: str = "", **_: Any) -> None:
    """Load what a task needs."""
    time.strptime("2026", "%Y")  # loads a module, and reads the time zone
    if task == "html":
        rehearse_html(codec)
    elif task == "text":
        for name in (codec or "utf-8", *_DECODER["ALL_CODECS"]):
            codecs.lookup(name)
    elif task == "pdf":
        rehearse_pdf()
    elif task == "picture":
        rehearse_picture()


# ------------------------------------------------------------ the confinement


class _Program(ctypes.Structure):
    """`struct sock_fprog` of linux/filter.h."""

    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def set_limits(seconds: int) -> None:
    """Bound memory, time and files, and end with the service."""
    limits = {
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: 0,  # it may not write to any file
        resource.RLIMIT_CORE: 0,
    }
    for name, value in limits.items():
        resource.setrlimit(name, (value, value))
    os.nice(5)  # the service comes first


def give_up_calls(filter_: bytes) -> bool:
    """Keep only the system calls of the filter; return whether this machine can do so."""
    libc, machine = ctypes.CDLL(None, use_errno=True), os.uname().machine
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if not filter_ or machine not in SECCOMP_CALLS or libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    program = _Program(len(filter_) // 8, filter_)
    return not libc.syscall(SECCOMP_CALLS[machine], SET_FILTER, ALL_THREADS, ctypes.byref(program))


def main() -> None:
    """Run one task."""
    request = json.loads(sys.stdin.buffer.readline())
    task, options, body = request["task"], request["options"], b""
    set_limits(request["seconds"])
    rehearse(task, **options)
    confined = give_up_calls(base64.b64decode(request["calls"]))
    try:
        found = {"confined": confined} if task == "probe" else TASKS[task](sys.stdin.buffer.read(), **options)
        answer, body = found if isinstance(found, tuple) else (found, b"")
        if len(text := answer.get("text", "")) > MAX_TEXT_CHARS:
            answer["text"] = text[:MAX_TEXT_CHARS] + "\n[the rest is left out]"
    except NotParsed as error:
        answer = {"error": str(error)}
    # Lone surrogates are no text: they become question marks.
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n" + body)
    sys.stdout.buffer.flush()
    os._exit(0)  # nothing is left to close


if __name__ == "__main__":
    main()
