"""Turn HTML pages or files into one table (CSV or JSON): their <table> elements, their links, or selected items.

Tables and links need only the standard library, --item and --next need beautifulsoup4.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import re
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from polite_fetch import FetchFailure, Page, PoliteFetcher

EXIT_MISSING_PACKAGE = 3
BREAKS = ("br", "p", "div", "li")


class TableParser(HTMLParser):
    """Collects tables, with cells that span several rows or columns repeated, and links."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.links: list[tuple[str, str]] = []
        self._open: list[list[list[str]]] = []  # nested tables
        self._spans: list[dict[int, tuple[int, str]]] = []  # of each open table: column -> rows left, text
        self._cell: list[str] | None = None
        self._size = (1, 1)
        self._link: tuple[str, list[str]] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "table":
            self._open.append([])
            self._spans.append({})
        elif tag == "tr" and self._open:
            self._close_cell()
            self._open[-1].append([])
        elif tag in ("td", "th") and self._open and self._open[-1]:
            self._close_cell()
            self._cell = []
            self._size = (span(values.get("colspan")), span(values.get("rowspan")))
        elif tag == "a" and values.get("href"):
            self._link = (values["href"] or "", [])
        elif tag in BREAKS and self._cell is not None:
            self._cell.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr"):
            self._close_cell()
        elif tag == "table" and self._open:
            self._close_cell()
            rows = [row for row in self._open.pop() if any(row)]
            self._spans.pop()
            if rows:
                self.tables.append(rows)
        elif tag == "a" and self._link:
            self.links.append((self._link[0], clean("".join(self._link[1]))))
            self._link = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        if self._link:
            self._link[1].append(data)

    def _close_cell(self) -> None:
        """Add the open cell to its row, after the cells that reach down into this row."""
        if self._cell is None or not self._open:
            return
        row, spans, text = self._open[-1][-1], self._spans[-1], clean("".join(self._cell))
        self._cell = None
        self._fill(row, spans)
        for _ in range(self._size[0]):
            if self._size[1] > 1:
                spans[len(row)] = (self._size[1] - 1, text)
            row.append(text)
        self._fill(row, spans, new=self._size[1] > 1)

    def _fill(self, row: list[str], spans: dict[int, tuple[int, str]], *, new: bool = False) -> None:
        while not new and len(row) in spans:
            left, text = spans.pop(len(row))
            if left > 1:
                spans[len(row)] = (left - 1, text)
            row.append(text)


def span(value: str | None) -> int:
    return min(max(int(value), 1), 100) if value and value.isdigit() else 1


def clean(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def table_records(page: Page, wanted: int) -> list[dict[str, str]]:
    """Return a table as records; its first row is the head. `wanted` counts from 1; 0 is the largest."""
    parser = TableParser()
    parser.feed(page.text)
    if not parser.tables or wanted > len(parser.tables):
        return []
    rows = parser.tables[wanted - 1] if wanted else max(parser.tables, key=lambda table: sum(map(len, table)))
    head = [name or f"column {index + 1}" for index, name in enumerate(rows[0])]
    head = [name if head.index(name) == index else f"{name} {index + 1}" for index, name in enumerate(head)]
    return [dict(zip(head, row)) for row in rows[1:]]


def link_records(page: Page) -> list[dict[str, str]]:
    parser = TableParser()
    parser.feed(page.text)
    return [{"text": text, "url": urllib.parse.urljoin(page.url, target)} for target, text in parser.links]


def item_records(soup: Any, page: Page, item: str, fields: list[str]) -> list[dict[str, str]]:
    """Return one record per element that matches `item`.

    A field is NAME=SELECTOR, NAME=SELECTOR@ATTRIBUTE or NAME=@ATTRIBUTE.
    """
    records = []
    for element in soup.select(item):
        record = {}
        for field in fields:
            name, _, place = field.partition("=")
            selector, _, attribute = place.partition("@")
            found = element.select_one(selector) if selector else element
            value = "" if found is None else found.get(attribute, "") if attribute else found.get_text(" ")
            text = clean(" ".join(value) if isinstance(value, list) else str(value))
            record[name] = urllib.parse.urljoin(page.url, text) if attribute in ("href", "src") and text else text
        records.append(record)
    return records


def next_page(soup: Any, page: Page, selector: str) -> str:
    found = soup.select_one(selector) if selector else None
    return urllib.parse.urljoin(page.url, str(found["href"])) if found is not None and found.get("href") else ""


def scrape(options: argparse.Namespace) -> tuple[list[dict[str, str]], list[str], list[str]]:
    """Return the records, the pages read, and what failed. Raises ImportError without beautifulsoup4."""
    soup_of = importlib.import_module("bs4").BeautifulSoup if options.item or options.next else None
    fetcher = PoliteFetcher(options.delay, options.cache)
    waiting, pages, failures = list(options.source), list[str](), list[str]()
    records: list[dict[str, str]] = []
    while waiting and len(pages) + len(failures) < options.max_pages:
        source = waiting.pop(0)
        try:
            page = fetcher.fetch(source)
        except FetchFailure as failure:
            failures.append(str(failure))
            continue
        soup = soup_of(page.text, "html.parser") if soup_of else None
        found = (
            item_records(soup, page, options.item, options.field)
            if options.item
            else link_records(page)
            if options.links
            else table_records(page, options.table)
        )
        pages.append(source)
        records += [record | ({"source": page.url} if options.add_source else {}) for record in found]
        following = next_page(soup, page, options.next)
        if following and following not in pages:
            waiting.insert(0, following)
    return records, pages, failures


def write_records(records: list[dict[str, str]], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix.lower() == ".json":
        out.write_text(json.dumps(records, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for record in records for name in record)), restval="")
        writer.writeheader()
        writer.writerows(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="+", help="URLs or HTML files")
    parser.add_argument("--out", type=Path, required=True, help=".csv or .json")
    parser.add_argument(
        "--table", type=int, default=0, metavar="N", help="the Nth table of each page; default: the largest"
    )
    parser.add_argument("--links", action="store_true", help="collect the links instead")
    parser.add_argument("--item", metavar="SELECTOR", default="", help="CSS selector of one item")
    parser.add_argument(
        "--field", action="append", default=[], metavar="NAME=SELECTOR[@ATTRIBUTE]", help="inside of an item; repeat"
    )
    parser.add_argument("--next", metavar="SELECTOR", default="", help="the link to the next page")
    parser.add_argument("--max-pages", type=int, default=20)
    parser.add_argument("--delay", type=float, default=1.0, metavar="SECONDS", help="between requests to one host")
    parser.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="keep pages, so that a second run does not fetch them"
    )
    parser.add_argument("--add-source", action="store_true", help="add a column with the page of each row")
    options = parser.parse_args()
    if bool(options.item) != bool(options.field):
        parser.error("--item and --field belong together")
    try:
        records, pages, failures = scrape(options)
    except ImportError:
        print(
            json.dumps(
                {
                    "error": "--item and --next need beautifulsoup4.",
                    "missing": ["beautifulsoup4"],
                    "fix": "pip install beautifulsoup4",
                }
            )
        )
        sys.exit(EXIT_MISSING_PACKAGE)
    if records:
        write_records(records, options.out)
    empty = sum(not value for record in records for value in record.values())
    result = {
        "rows": len(records),
        "columns": list(records[0]) if records else [],
        "empty_cells": empty,
        "pages": pages,
        "failures": failures,
    }
    print(json.dumps(result | ({"written": str(options.out)} if records else {}), ensure_ascii=False))
    sys.exit(0 if records and not failures else 1)


if __name__ == "__main__":
    main()
