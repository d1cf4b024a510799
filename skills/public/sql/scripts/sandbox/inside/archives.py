"""Read what documents have in common: XML without entities, relations of parts, tables. Python 3.9+."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from sandbox.inside.document_bounds import (
    DOCUMENT_TYPE,
    DocumentArchive,
    DocumentUnreadable,
    PartUnreadable,
    read_member,
)

MAX_LEVELS = 60  # of nested elements that are followed


def parse_xml(data: bytes) -> ElementTree.Element:
    """Parse a part of a document; an empty element if it is missing. Raises DocumentUnreadable."""
    if not data.strip():
        return ElementTree.Element("nothing")
    check_prolog(data)
    try:
        return ElementTree.fromstring(data)  # noqa: S314  without a document type, and inside a sandbox
    except ElementTree.ParseError as error:
        raise PartUnreadable(f"one of its parts is damaged ({error})") from error


def side_part(archive: DocumentArchive, name: str) -> tuple[ElementTree.Element, str]:
    """Parse a part that a document can be read without. Returns an empty element and a remark if it is unreadable."""
    try:
        return parse_xml(read_member(archive, name)), ""
    except PartUnreadable as error:
        return ElementTree.Element("nothing"), left_out(error)


def left_out(error: PartUnreadable) -> str:
    """Return the remark that stands where a part would be."""
    return f"[left out: {error}]"


class _RootSeen(Exception):
    """The part of an XML file that can declare something is over."""


def refuse_document_type(*_: Any) -> None:
    raise DocumentUnreadable(DOCUMENT_TYPE)


def check_prolog(data: bytes) -> None:
    """Raise DocumentUnreadable for a document type, in whatever encoding: entities could grow without end."""
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler, parser.StartElementHandler = refuse_document_type, _end_prolog
    try:
        parser.Parse(data, True)
    except (_RootSeen, expat.ExpatError):  # what is wrong with it, the next parser says
        return


def _end_prolog(*_: Any) -> None:
    raise _RootSeen


def local(node: ElementTree.Element) -> str:
    """Return the name of an element without its namespace: strict documents have others."""
    tag = node.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def value_of(node: ElementTree.Element, name: str) -> str:
    """Return an attribute, whatever its namespace."""
    return next((value for key, value in node.items() if key.rpartition("}")[2] == name), "")


def related(archive: DocumentArchive, part: str) -> dict[str, tuple[str, str]]:
    """Return what a part refers to inside the archive: relation id → (last word of its type, name)."""
    folder, _, base = part.rpartition("/")
    found = {}
    for node in parse_xml(read_member(archive, posixpath.join(folder, "_rels", f"{base}.rels"))):
        if node.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/" + folder, node.get("Target", ""))).lstrip("/")
            found[node.get("Id", "")] = (node.get("Type", "").rpartition("/")[2], target)
    return found


def main_part(archive: DocumentArchive, usual: str) -> str:
    """Return the name of the part with the document itself. Raises DocumentUnreadable for another kind of zip."""
    name = next((name for kind, name in related(archive, "").values() if kind == "officeDocument"), usual)
    if archive.find(name) is None:
        raise DocumentUnreadable("it is no Office file, whatever its name says")
    return name


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)


def table_line(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    line = " | ".join([cell.strip().replace("|", "\\|") for cell in cells])
    return "| " + re.sub("\n+", "<br>", line) + " |\n"


def table_lines(rows: Iterable[list[str]], width: int) -> Iterator[str]:
    """Yield a Markdown table."""
    for number, row in enumerate(rows):
        yield table_line(row + [""] * (width - len(row)))
        if number == 0:
            yield "|" + " --- |" * width + "\n"
    yield "\n"


def list_table(rows: list[list[str]]) -> Iterator[str]:
    return table_lines(rows, max(map(len, rows), default=0))
