"""The child process that parses untrusted data: `run_parser` in agent/parsing/child.py starts it.

stdin is one line of JSON (`task` and its options), then the data. stdout is one line of JSON, then data. Imports no
module of Fawn, and a library only where it is needed.
"""

from __future__ import annotations

import functools
import io
import json
import os
import re
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any

MEMORY_BYTES = 1 << 30
CPU_SECONDS = 30
MAX_TEXT_CHARS = 2_000_000
MAX_PAGES = 500
SHORT_ARTICLE_CHARS = 300
_LINK = re.compile(r"\[[^\[\]]*+\]\([^)\[]*+\)")
MAX_PIXELS = 64_000_000
MAX_PNG_COLOURS = 512
PICTURE_FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"]
ORIENTATION_TAG = 0x0112  # of EXIF; above 4 the sides are exchanged


class NotParsed(Exception):
    """The text is for the model."""


def parse_html(data: bytes, url: str, charset: str) -> dict[str, Any]:
    """Return the main content as Markdown with links, and the title and the date of the page."""
    import trafilatura

    tree = trafilatura.load_html(_decode(data, charset) if charset else data)
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


def _decode(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset, "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def parse_text(data: bytes, charset: str, **_: str) -> dict[str, Any]:
    """Return plain text as it is."""
    return {"title": "", "date": "", "text": _decode(data, charset or "utf-8")}


def scale_picture(data: bytes, edge: int) -> tuple[dict[str, Any], bytes]:
    """Return the picture without its metadata, at most `edge` pixels long, as PNG (few colours) or JPEG."""
    from PIL import Image, ImageOps, UnidentifiedImageError

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


def main() -> None:
    """Run one task."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it may not write to any file
    os.nice(5)  # the service comes first
    options = json.loads(sys.stdin.buffer.readline())
    body = b""
    try:
        found = TASKS[options.pop("task")](sys.stdin.buffer.read(), **options)
        answer, body = found if isinstance(found, tuple) else (found, b"")
        if len(text := answer.get("text", "")) > MAX_TEXT_CHARS:
            answer["text"] = text[:MAX_TEXT_CHARS] + "\n[the rest is left out]"
    except NotParsed as error:
        answer = {"error": str(error)}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + body)


if __name__ == "__main__":
    main()
