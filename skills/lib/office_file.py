"""Change single places in the XML of an Office file: whatever is not changed stays as it is, to the byte.

Several shipped skills have this file, each its own copy; a test keeps the copies equal.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from skill_program import Problem, check_size

MAX_FILE_BYTES = 200 << 20
MAX_PART_BYTES = 64 << 20  # of one XML part, unpacked
MAX_UNPACKED_BYTES = 1 << 30
MAX_ENTRIES = 10_000
MAX_DEPTH = 200
MAX_NODES = 1_500_000
CONTENT_TYPES = "[Content_Types].xml"
# A file is checked by expat before this reads it, so that each construct has its end.
TOKEN = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<(/?)([^\s/>]+)((?:[^\"'>]|\"[^\"]*\"|'[^']*')*)>", re.DOTALL
)
ATTRIBUTE = re.compile(r"([^\s=/]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
ENTITY = re.compile(r"&(?:#(\d{1,7})|#x([0-9a-fA-F]{1,6})|(amp|lt|gt|quot|apos));")
ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[3]:
            return ENTITIES[match[3]]
        return chr(int(match[1]) if match[1] else int(match[2], 16))

    return ENTITY.sub(character, text)


def escape(text: str) -> str:
    """Return text as XML. Raises Problem for characters that XML does not have."""
    if found := FORBIDDEN.search(text):
        raise Problem(f"The text contains the control character U+{ord(found[0]):04X}, which the format does not have.")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


class Node:
    """An element: where its tag, its content and its end are in the text.

    `name` is without prefix for elements of the part's own namespace: "p" for <w:p>, but "a:p" for <a:p>.
    """

    __slots__ = ("children", "end", "inner", "inner_end", "name", "parent", "start", "xml")

    def __init__(self, name: str, xml: XmlText, start: int, inner: int, parent: Node | None) -> None:
        self.name, self.xml, self.start, self.inner, self.parent = name, xml, start, inner, parent
        self.inner_end = self.end = inner
        self.children: list[Node] = []

    @property
    def tag(self) -> str:
        """The opening tag, which closes itself if the element is empty."""
        return self.xml.text[self.start : self.inner]

    @property
    def source(self) -> str:
        return self.xml.text[self.start : self.end]

    @property
    def content(self) -> str:
        return self.xml.text[self.inner : self.inner_end]

    @property
    def is_empty_tag(self) -> bool:
        return self.tag.endswith("/>")

    def get(self, name: str, otherwise: str = "") -> str:
        """Return an attribute by its local name."""
        for key, double, single in ATTRIBUTE.findall(self.tag, re.match(r"<[^\s/>]+", self.tag).end()):  # type: ignore[union-attr]  # a tag has a name
            if key.rpartition(":")[2] == name and not key.startswith("xmlns:"):
                return unescape(double or single)
        return otherwise

    def child(self, name: str) -> Node | None:
        return next((node for node in self.children if node.name == name), None)

    def walk(self, *without: str) -> Iterator[Node]:
        """Return the elements below, in their order; of those called `without`, neither they nor what is in them."""
        waiting = list(reversed(self.children))
        while waiting:
            node = waiting.pop()
            if node.name not in without:
                yield node
                waiting += reversed(node.children)

    def above(self, *names: str) -> Node | None:
        """Return the nearest element around this one with one of these names."""
        node = self.parent
        while node and node.name not in names:
            node = node.parent
        return node

    def text(self) -> str:
        """Return the characters of an element without elements in it."""
        return unescape(re.sub(r"<!\[CDATA\[(.*?)\]\]>", lambda match: escape(match[1]), self.content, flags=re.DOTALL))


class Splice(NamedTuple):
    start: int
    end: int
    text: str


def splice(text: str, changes: Iterable[Splice]) -> str:
    """Replace ranges that do not overlap."""
    pieces, place = [], 0
    for change in sorted(changes, key=lambda each: (each.start, each.end)):
        if change.start < place:
            raise Problem("Two changes overlap; make them one after the other.")
        pieces += [text[place : change.start], change.text]
        place = change.end
    return "".join([*pieces, text[place:]])


class XmlText:
    """An XML part as text, and its elements. `prefix` is that of the namespace of its root, such as "w:"."""

    def __init__(self, text: str, name: str) -> None:
        check_xml(text, name)
        self.text = text
        self.prefix = ""
        self.root = self._parse(name)

    def _parse(self, name: str) -> Node:
        top, count = Node("", self, 0, 0, None), 0
        node = top
        for match in TOKEN.finditer(self.text):
            raw = match[2]
            if raw is None:
                continue
            if match[1]:
                node.inner_end, node.end = match.start(), match.end()
                node = node.parent or top
                continue
            if node is top:
                self.prefix = raw[: raw.find(":") + 1]
            count += 1
            if count > MAX_NODES:
                raise Problem(f"{name} has more than {MAX_NODES:,} elements.")
            own = raw.startswith(self.prefix) if self.prefix else True
            made = Node(raw[len(self.prefix) :] if own else raw, self, match.start(), match.end(), node)
            node.children.append(made)
            made.inner_end = made.end = match.end()
            if not match[3].endswith("/"):
                node = made
        return top.children[0]


def check_xml(text: str, name: str) -> None:
    """Check that this is XML without a document type, and not too deep. Raises Problem."""
    depth = 0

    def refuse(*_: object) -> None:
        raise Problem(f"{name} declares a document type, which Office files never do.")

    def enter(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise Problem(f"{name} has more than {MAX_DEPTH} levels.")

    def leave(*_: object) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = enter, leave
    try:
        parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise Problem(f"{name} is damaged: {error}.") from None


class OfficeFile:
    """The parts of a docx, xlsx or pptx file. Changes are kept until `save`."""

    def __init__(self, path: Path) -> None:
        check_size(path, MAX_FILE_BYTES)
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile:
            with path.open("rb") as file:
                old = file.read(8) == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
            hint = "It has a password, or is of the format before 2007; save it as a new one without." if old else ""
            raise Problem(f"{path.name} is not an Office file. {hint}".strip()) from None
        self._changed: dict[str, bytes] = {}
        self._removed: set[str] = set()
        entries = self._zip.infolist()
        self.names = [entry.filename for entry in entries]
        if len(entries) > MAX_ENTRIES or len(set(self.names)) != len(entries):
            raise Problem(f"{path.name} has repeated parts, or more than {MAX_ENTRIES:,}.")
        if sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES or any(e.flag_bits & 1 for e in entries):
            raise Problem(
                f"{path.name} is encrypted, or larger than {MAX_UNPACKED_BYTES >> 30} GB when it is unpacked."
            )
        if CONTENT_TYPES not in self.names:
            raise Problem(f"{path.name} is a zip archive, but not an Office file.")

    def read(self, name: str) -> str:
        """Return a part as text. Raises Problem."""
        if name in self._changed:
            return self._changed[name].decode("utf-8")
        if name not in self.names or name in self._removed:
            raise Problem(f"The file has no part {name}.")
        try:
            with self._zip.open(name) as file:
                data = file.read(MAX_PART_BYTES + 1)
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise Problem(f"{name} is damaged: {error}.") from None
        if len(data) > MAX_PART_BYTES:
            raise Problem(f"{name} is larger than {MAX_PART_BYTES >> 20} MB.")
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return re.sub(r"encoding=([\"'])[^\"']*\1", 'encoding="UTF-8"', data.decode("utf-16"), count=1)
        return data.decode("utf-8-sig")

    def xml(self, name: str) -> XmlText:
        return XmlText(self.read(name), name)

    def has(self, name: str) -> bool:
        return (name in self.names and name not in self._removed) or name in self._changed

    def write(self, name: str, text: str) -> None:
        """Replace a part or add one."""
        check_xml(text, name)  # what is written is always readable
        self._changed[name] = text.encode("utf-8")
        self._removed.discard(name)

    def remove(self, name: str) -> None:
        self._removed.add(name)
        self._changed.pop(name, None)

    def save(self, out: Path) -> None:
        """Write the file: unchanged parts have their old bytes, order and dates."""
        out.parent.mkdir(parents=True, exist_ok=True)
        made = out.with_name(f".{out.name}.part")
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
            for entry in self._zip.infolist():
                if entry.filename not in self._removed:
                    data = self._changed.get(entry.filename)
                    target.writestr(entry, self._zip.read(entry) if data is None else data)
            for name in sorted(self._changed.keys() - set(self.names)):
                target.writestr(name, self._changed[name])
        os.replace(made, out)

    def relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the parts that a part refers to: id → (kind, part). The kind is the last word of its type."""
        relations = relations_of(name)
        if not self.has(relations):
            return {}
        folder, found = name.rpartition("/")[0], {}
        for node in self.xml(relations).root.children:
            if node.get("TargetMode") != "External":
                target = node.get("Target")
                path = target[1:] if target.startswith("/") else os.path.normpath(f"{folder}/{target}").lstrip("/")
                found[node.get("Id")] = (node.get("Type").rpartition("/")[2], path)
        return found

    def part_of_kind(self, name: str, kind: str) -> str:
        """Return the first part of a kind that a part refers to, "" if there is none."""
        return next((part for each, part in self.relations(name).values() if each == kind and self.has(part)), "")

    def main_part(self) -> str:
        """Return the part that is the document. Raises Problem."""
        if part := self.part_of_kind("", "officeDocument"):
            return part
        raise Problem("The file does not say which part is its document.")

    def add_relation(self, name: str, kind: str, target: str) -> str:
        """Refer from a part to another one, and return the new id."""
        relations = relations_of(name)
        base = "http://schemas.openxmlformats.org"
        if not self.has(relations):
            self.write(relations, f'<Relationships xmlns="{base}/package/2006/relationships"></Relationships>')
        xml = self.xml(relations)
        taken = {node.get("Id") for node in xml.root.children}
        made = next(each for each in (f"rIdF{number}" for number in range(1, len(taken) + 2)) if each not in taken)
        kind = f"{base}/officeDocument/2006/relationships/{kind}"
        line = f'<{xml.prefix}Relationship Id="{made}" Type="{kind}" Target="{escape(target)}"/>'
        self._append(relations, xml, line)
        return made

    def add_content_type(self, name: str, kind: str) -> None:
        xml = self.xml(CONTENT_TYPES)
        if not any(node.get("PartName") == f"/{name}" for node in xml.root.children):
            self._append(CONTENT_TYPES, xml, f'<{xml.prefix}Override PartName="/{escape(name)}" ContentType="{kind}"/>')

    def _append(self, name: str, xml: XmlText, line: str) -> None:
        root = xml.root
        if root.is_empty_tag:
            opened = f"{root.tag[:-2]}>{line}</{re.match(r'<([^ />]+)', root.tag)[1]}>"  # type: ignore[index]  # a tag has a name
            self.write(name, splice(xml.text, [Splice(root.start, root.end, opened)]))
        else:
            self.write(name, splice(xml.text, [Splice(root.inner_end, root.inner_end, line)]))


def relations_of(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return f"{folder}/_rels/{base}.rels" if folder else f"_rels/{base}.rels"
