"""Tracked changes of Word: what they are in the XML, and how to accept or reject them."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Callable
from typing import NamedTuple

from office_file import Node, Splice, XmlText, escape, splice
from skill_program import Problem

HIDDEN = ("del", "moveFrom", "rPr", "pPr", "instrText", "mc:Fallback", "p")  # what is no text of a paragraph
SIGNS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
CHANGES = ("ins", "del", "moveFrom", "moveTo")
RANGE_MARKS = ("moveFromRangeStart", "moveFromRangeEnd", "moveToRangeStart", "moveToRangeEnd")
PROPERTY_CHANGES = (
    "rPrChange",
    "pPrChange",
    "tblPrChange",
    "trPrChange",
    "tcPrChange",
    "sectPrChange",
    "tblGridChange",
)


class Author:
    """Who changes, and when (ISO with Z). Each change of theirs has a number of its own."""

    def __init__(self, name: str, date: str, first: int) -> None:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.name, self.date = name, date or now
        self._numbers = itertools.count(first)

    def next_number(self) -> int:
        return next(self._numbers)

    def attributes(self, prefix: str, number: int | None = None) -> str:
        """Return the attributes of a change, by default with the next number."""
        number = self.next_number() if number is None else number
        return f'{prefix}id="{number}" {prefix}author="{escape(self.name)}" {prefix}date="{escape(self.date)}"'


class Operation(NamedTuple):
    """Delete the characters from `start` to `end` of a paragraph, and write XML before and after them."""

    start: int
    end: int
    before: str = ""
    after: str = ""


class Run(NamedTuple):
    """A run of a paragraph: its place among the visible characters, and its children with theirs."""

    node: Node
    start: int
    end: int
    children: tuple[tuple[Node, int, str], ...]


def paragraph_runs(paragraph: Node) -> list[Run]:
    """Return the runs that are visible when all changes are accepted."""
    runs, place = [], 0
    for node in paragraph.walk(*HIDDEN):
        if node.name != "r":
            continue
        children, start = [], place
        for child in node.children:
            if child.name != "rPr":
                text = child.text() if child.name == "t" else SIGNS.get(child.name, "")
                children.append((child, place, text))
                place += len(text)
        runs.append(Run(node, start, place, tuple(children)))
    return runs


def runs_text(runs: list[Run]) -> str:
    return "".join(text for run in runs for _, _, text in run.children)


def text_xml(text: str, prefix: str, name: str = "t") -> str:
    """Return text as the children of a run."""
    pieces = []
    for piece in re.split(r"([\t\n])", text):
        if piece == "\t":
            pieces.append(f"<{prefix}tab/>")
        elif piece == "\n":
            pieces.append(f"<{prefix}br/>")
        elif piece:
            pieces.append(f'<{prefix}{name} xml:space="preserve">{escape(piece)}</{prefix}{name}>')
    return "".join(pieces)


def run_properties(run: Node) -> str:
    """Return the format of a run, without its own tracked change."""
    found = run.child("rPr")
    if not found:
        return ""
    inside = found.child("rPrChange")
    changes = [Splice(inside.start - found.start, inside.end - found.start, "")] if inside else []
    return splice(found.source, changes)


class RunWriter:
    """Writes one run again, in pieces."""

    def __init__(self, run: Run, prefix: str) -> None:
        self.run, self.prefix = run, prefix
        self.format = run_properties(run.node)
        raw = run.node.child("rPr")
        self.kept_format = raw.source if raw else ""
        self._written: set[int] = set()  # the children without characters that have their place

    def piece(self, start: int, end: int, deleted: bool = False) -> str:
        """Return the characters from `start` to `end` as a run; "" for nothing."""
        inside = []
        for index, (child, place, text) in enumerate(self.run.children):
            stop = place + len(text)
            if not text:
                within = start < place < end if deleted else start <= place <= end
                if within and index not in self._written:
                    self._written.add(index)
                    inside.append(child.source)
            elif place < end and stop > start:
                if child.name == "t":
                    name = "delText" if deleted else "t"
                    inside.append(text_xml(text[max(start - place, 0) : end - place], self.prefix, name))
                else:
                    inside.append(child.source)
        if not inside:
            return ""
        if deleted and any("fldChar" in each or "instrText" in each for each in inside):
            raise Problem("The text reaches into a field, such as a date or a reference; change less of it.")
        return f"{self.run.node.tag}{self.kept_format}{''.join(inside)}</{self.prefix}r>"


class Stroke(NamedTuple):
    """What an operation does in one run."""

    operation: Operation
    start: int
    end: int
    first: bool
    last: bool


def strokes_by_run(runs: list[Run], operations: list[Operation]) -> dict[int, list[Stroke]]:
    """Return what each operation does in which run; where nothing is deleted, the run before the place is changed."""
    found: dict[int, list[Stroke]] = {}
    full = [index for index, run in enumerate(runs) if run.end > run.start] or [len(runs) - 1]
    for each in sorted(operations, key=lambda operation: operation.start):  # those of one place keep their order
        covered = [index for index in full if runs[index].start < each.end and runs[index].end > each.start]
        if each.start == each.end:
            covered = [index for index in full if runs[index].start < each.start <= runs[index].end][:1] or full[:1]
        for index in covered:
            start, end = max(each.start, runs[index].start), min(each.end, runs[index].end)
            stroke = Stroke(each, start, max(start, end), index == covered[0], index == covered[-1])
            found.setdefault(index, []).append(stroke)
    return found


def apply_operations(paragraph: Node, operations: list[Operation], author: Author) -> list[Splice]:
    """Return the changes of the XML. Operations do not overlap."""
    runs, prefix = paragraph_runs(paragraph), paragraph.xml.prefix
    if not runs:
        added = "".join(each.before + each.after for each in operations)
        if paragraph.is_empty_tag:
            return [Splice(paragraph.start, paragraph.end, f"{paragraph.tag[:-2]}>{added}</{prefix}p>")]
        return [Splice(paragraph.inner_end, paragraph.inner_end, added)]
    found = []
    for index, strokes in strokes_by_run(runs, operations).items():
        run = runs[index]
        writer, pieces, place = RunWriter(run, prefix), [], run.start
        around = run.node.parent if run.node.parent and run.node.parent.name == "ins" else None
        closing, opening = (f"</{prefix}ins>", around.tag) if around else ("", "")
        for stroke in strokes:
            pieces.append(writer.piece(place, stroke.start))
            if stroke.first and stroke.operation.before:
                pieces.append(f"{closing}{stroke.operation.before}{opening}")
            if stroke.start < stroke.end:
                deleted = writer.piece(stroke.start, stroke.end, deleted=True)
                pieces.append(f"<{prefix}del {author.attributes(prefix)}>{deleted}</{prefix}del>")
            if stroke.last and stroke.operation.after:
                pieces.append(f"{closing}{stroke.operation.after}{opening}")
            place = stroke.end
        pieces.append(writer.piece(place, run.end))
        found.append(Splice(run.node.start, run.node.end, "".join(pieces)))
    return found


def is_paragraph_mark(change: Node) -> bool:
    """Whether a change is of the end of a paragraph, not of its text."""
    parent = change.parent
    return bool(parent and parent.name == "rPr" and parent.parent and parent.parent.name == "pPr")


class Resolver:
    """Accepts or rejects the chosen changes of one part."""

    def __init__(self, xml: XmlText, accept: bool, chosen: Callable[[Node], bool]) -> None:
        self.xml, self.accept = xml, accept
        names = (*CHANGES, *PROPERTY_CHANGES)
        self.changes = {node for node in xml.root.walk() if node.name in names and chosen(node)}
        self._touched: set[Node] = set()
        for node in self.changes:
            above: Node | None = node
            while above and above not in self._touched:
                self._touched.add(above)
                above = above.parent

    def resolve(self) -> str:
        """Return the part without the chosen changes."""
        root = self.xml.root
        text = splice(self.xml.text, [Splice(root.start, root.end, self._render(root))])
        if not re.search(rf"<{self.xml.prefix}move(?:From|To)[ />]", text):
            marks = "|".join(RANGE_MARKS)
            text = re.sub(rf"<{self.xml.prefix}(?:{marks})(?:\s[^<>]*)?/>", "", text)
        return text

    def _stays(self, change: Node) -> bool:
        return self.accept == (change.name in ("ins", "moveTo"))

    def _chosen_in(self, node: Node | None, *names: str) -> Node | None:
        """Return a chosen change directly in an element."""
        return next(
            (each for each in (node.children if node else ()) if each in self.changes and each.name in names), None
        )

    def _gone_mark(self, paragraph: Node) -> bool:
        """Whether the end of a paragraph goes away, so that the next paragraph continues it."""
        properties = paragraph.child("pPr")
        mark = self._chosen_in(properties.child("rPr") if properties else None, *CHANGES)
        return bool(mark and not self._stays(mark) and properties and not properties.child("sectPr"))

    def _render(self, node: Node) -> str:
        if node not in self._touched:
            return node.source
        if node in self.changes:
            return self._render_change(node)
        if node.name == "tr":
            mark = self._chosen_in(node.child("trPr"), "ins", "del")
            if mark and not self._stays(mark):
                return ""
        changed = self._chosen_in(node, *PROPERTY_CHANGES)
        if changed and not self.accept:
            return self._former_properties(node, changed)
        inside = self._render_children(node)
        if node.name == "tbl" and not re.search(rf"<{self.xml.prefix}tr[ >]", inside):
            return ""
        return f"{node.tag}{inside}{self.xml.text[node.inner_end : node.end]}"

    def _render_change(self, change: Node) -> str:
        parent = change.parent.name if change.parent else ""
        if change.name in PROPERTY_CHANGES or parent in ("rPr", "trPr", "numPr"):
            return ""  # only a mark; what it means is done where it has effect
        if not self._stays(change):
            return ""
        inside = self._render_children(change)
        if change.name == "del":
            inside = re.sub(rf"(</?{self.xml.prefix})del(Text|InstrText)(?=[ />])", restored_name, inside)
        return inside

    def _former_properties(self, node: Node, change: Node) -> str:
        """Return properties as they were before; what such a change does not cover is kept."""
        before = change.child(node.name)
        kept_names = {"pPr": ("rPr", "sectPr"), "sectPr": ("headerReference", "footerReference"), "rPr": CHANGES}
        kept = "".join(self._render(each) for each in node.children if each.name in kept_names.get(node.name, ()))
        old = before.content if before else ""
        inside = old + kept if node.name == "pPr" else kept + old
        return f"{node.tag}{inside}{self.xml.text[node.inner_end : node.end]}" if inside else ""

    def _render_children(self, node: Node) -> str:
        pieces, place, carried = [], node.inner, ""
        siblings = [child for child in node.children if child.name not in RANGE_MARKS]
        for child in node.children:
            pieces.append(self.xml.text[place : child.start])
            place = child.end
            if child.name != "p":
                pieces.append(self._render(child))
                continue
            text = self._render(child)
            if carried:
                text, carried = put_into(text, carried, self.xml.prefix), ""
            position = siblings.index(child) + 1 if child in self._touched else 0
            follower = siblings[position] if 0 < position < len(siblings) else None
            if child in self._touched and self._gone_mark(child):
                if follower and follower.name == "p":
                    carried = content_of(text, self.xml.prefix)
                    continue
                if not content_of(text, self.xml.prefix) and (follower and follower.name != "tcPr"):
                    continue
            pieces.append(text)
        return "".join([*pieces, self.xml.text[place : node.inner_end]])


def restored_name(match: re.Match[str]) -> str:
    return match[1] + {"Text": "t", "InstrText": "instrText"}[match[2]]


def content_of(paragraph: str, prefix: str) -> str:
    """Return what is in a paragraph behind its properties."""
    node = fragment(paragraph, prefix)
    properties = node.child("pPr")
    return node.xml.text[properties.end if properties else node.inner : node.inner_end]


def put_into(paragraph: str, content: str, prefix: str) -> str:
    """Return a paragraph that begins with this content."""
    node = fragment(paragraph, prefix)
    properties = node.child("pPr")
    if node.is_empty_tag:
        return f"{node.tag[:-2]}>{content}</{prefix}p>"
    place = properties.end if properties else node.inner
    text = splice(node.xml.text, [Splice(place, place, content)])
    return text[node.start : node.end + len(content)]


def fragment(source: str, prefix: str) -> Node:
    """Parse a paragraph by itself."""
    outer = f"<{prefix}x>{source}</{prefix}x>"
    return XmlText(outer, "a paragraph").root.children[0]
