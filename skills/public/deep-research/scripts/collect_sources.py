"""Fetch web pages and files in parallel as numbered text sources: FOLDER/1.txt, … and FOLDER/sources.json.

A second call adds to the folder. Pages need a network that the operator allows; pdf files need pypdfium2, pypdf
or pdftotext.
"""

from __future__ import annotations

import argparse
import datetime
import html
import importlib
import io
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

USER_AGENT = "FawnResearch/1.0"
PARALLEL_FETCHES = 4
TIMEOUT_SECONDS = 25
MAX_BYTES = 15 << 20
SKIPPED = {"script", "style", "noscript", "template", "svg", "nav", "footer", "form"}
BLOCKS = {
    "p",
    "div",
    "br",
    "li",
    "tr",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "section",
    "article",
    "pre",
    "blockquote",
    "dd",
    "dt",
}


class Source(NamedTuple):
    """A fetched source, or why it could not be fetched."""

    url: str
    title: str = ""
    text: str = ""
    error: str = ""


class TextParser(HTMLParser):
    """Collects the title and the readable text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.title, self._in_title = "", False
        self._pieces: list[str] = []
        self._skipped: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SKIPPED:
            self._skipped.append(tag)
        elif tag in BLOCKS:
            self._pieces.append("\n")
        self._in_title = tag == "title" and not self.title

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipped:
            del self._skipped[self._skipped.index(tag) :]
        self._in_title = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._skipped:
            self._pieces.append(data)

    def text(self) -> str:
        lines = (re.sub(r"[ \t\r\f\xa0]+", " ", line).strip() for line in "".join(self._pieces).split("\n"))
        return "\n".join(line for line in lines if line)


def read_pdf(data: bytes) -> str:
    """Return the text of a pdf. Raises ImportError if nothing can read it."""
    for name in ("pypdfium2", "pypdf"):
        try:
            reader: Any = importlib.import_module(name)
        except ImportError:
            continue
        if name == "pypdf":
            return "\n".join(page.extract_text() for page in reader.PdfReader(io.BytesIO(data)).pages)
        with reader.PdfDocument(data) as document:
            return "\n".join(page.get_textpage().get_text_bounded() for page in document)
    if not shutil.which("pdftotext"):
        raise ImportError("pdf files need pypdfium2 (pip install pypdfium2)")
    return subprocess.run(["pdftotext", "-", "-"], input=data, capture_output=True, check=True).stdout.decode(
        "utf-8", "replace"
    )


def read_source(url: str) -> Source:
    """Fetch one page or read one file."""
    try:
        charset = None
        if url.startswith(("http://", "https://")):
            request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                data, charset = response.read(MAX_BYTES + 1), response.headers.get_content_charset()
        else:
            data = Path(url).read_bytes()
        if len(data) > MAX_BYTES:
            return Source(url, error=f"larger than {MAX_BYTES >> 20} MB")
        if data.startswith(b"%PDF"):
            return Source(url, Path(url).name, read_pdf(data))
        text = data.decode(charset or "utf-8", "replace")
        if not re.search(r"<(html|body|p|div|article)[\s>]", text[:5000], re.IGNORECASE):
            return Source(url, Path(url).name, text)
        parser = TextParser()
        parser.feed(text)
        return Source(url, html.unescape(parser.title).strip() or url, parser.text())
    except (OSError, ImportError, LookupError, subprocess.CalledProcessError) as error:
        return Source(url, error=str(getattr(error, "reason", "") or error))


def collect(urls: list[str], folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Fetch what the folder does not have yet. Returns all its sources, and the failures of this call."""
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "sources.json"
    sources: list[dict[str, Any]] = json.loads(index.read_text("utf-8")) if index.is_file() else []
    known = {source["url"] for source in sources}
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    failures = []
    with ThreadPoolExecutor(PARALLEL_FETCHES) as pool:
        for found in pool.map(read_source, [url for url in dict.fromkeys(urls) if url not in known]):
            if found.error or not found.text.strip():
                failures.append(
                    {"url": found.url, "error": found.error or "the page has no text (it may need JavaScript)"}
                )
                continue
            number = len(sources) + 1
            (folder / f"{number}.txt").write_text(found.text, encoding="utf-8")
            sources.append(
                {
                    "number": number,
                    "url": found.url,
                    "title": found.title,
                    "accessed": today,
                    "characters": len(found.text),
                }
            )
    index.write_text(json.dumps(sources, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return sources, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="+", help="URLs or files (html, txt, md, pdf)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    sources, failures = collect(options.source, options.out)
    print(json.dumps({"sources": sources, "failures": failures}, ensure_ascii=False, indent=1))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
