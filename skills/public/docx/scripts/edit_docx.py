"""Edit a Word file with tracked changes and comments, list them, and accept or reject them.

Only what is changed is written anew; styles, pictures and everything else stay as they are. Needs no package.
Without arguments, the program reads the same as JSON from stdin.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from office_file import Node, OfficeFile, Splice, XmlText, escape, splice
from skill_program import Problem, read_json, run_program
from tracked_changes import (
    CHANGES,
    PROPERTY_CHANGES,
    Author,
    Operation,
    Resolver,
    apply_operations,
    is_paragraph_mark,
    paragraph_runs,
    run_properties,
    runs_text,
    text_xml,
)

MAX_EDITS = 300
MAX_WORDS = 4000  # that are compared one by one
BODY_KINDS = ("header", "footer", "footnotes", "endnotes")
CONTENT = "application/vnd.openxmlformats-officedocument.wordprocessingml.comments+xml"
LOOKALIKES = str.maketrans("\u00a0\u2018\u2019\u201c\u201d\u2011", " ''\"\"-")
ACTIONS = ("replace", "delete", "insert_before", "insert_after", "new_paragraph_after", "delete_paragraph", "comment")


class Place(NamedTuple):
    """Where a text was found: the paragraph, and the characters in it."""

    part: str
    paragraph: Node
    start: int
    end: int


class WordFile:
    """A docx file, and the texts of its parts with paragraphs: the document first, then headers, footers, notes."""

    def __init__(self, path: Path) -> None:
        self.office = OfficeFile(path)
        self.main = self.office.main_part()
        self.parts: dict[str, XmlText] = {self.main: self.office.xml(self.main)}
        if self.parts[self.main].root.name != "document":
            raise Problem(f"{path.name} is not a Word document.")
        for kind, part in self.office.relations(self.main).values():
            if kind in BODY_KINDS and self.office.has(part):
                self.parts[part] = self.office.xml(part)
        self.comments = self.office.part_of_kind(self.main, "comments")

    def paragraphs(self) -> Iterator[tuple[str, Node]]:
        for part, xml in self.parts.items():
            for node in xml.root.walk("mc:Fallback"):
                if node.name == "p":
                    yield part, node

    def change(self, part: str, changes: list[Splice]) -> None:
        """Change a part, and read it again."""
        self.replace(part, splice(self.parts[part].text, changes))

    def replace(self, part: str, text: str) -> None:
        self.office.write(part, text)
        self.parts[part] = self.office.xml(part)

    def next_id(self) -> int:
        """Return a number that no change and no comment has."""
        texts = [xml.text for xml in self.parts.values()]
        if self.comments:
            texts.append(self.office.read(self.comments))
        numbers = [int(match[1]) for text in texts for match in re.finditer(r":id=[\"'](\d{1,9})[\"']", text)]
        return max(numbers, default=0) + 1

    def find(self, text: str, occurrence: Any) -> list[Place]:
        """Return where a text is: exactly, or with other quotes and spaces. Raises Problem if it is not one place."""
        wanted = text.translate(LOOKALIKES)
        found = []
        for part, paragraph in self.paragraphs():
            line = runs_text(paragraph_runs(paragraph)).translate(LOOKALIKES)
            place = line.find(wanted)
            while place >= 0:
                found.append(Place(part, paragraph, place, place + len(wanted)))
                place = line.find(wanted, place + len(wanted))
        if not found:
            raise Problem(f"The text {text[:200]!r} is not in one paragraph of the document; copy it from `text`.")
        if occurrence == "all":
            return found
        if occurrence is None and len(found) > 1:
            raise Problem(
                f'The text {text[:200]!r} is there {len(found)} times; add "occurrence": 1 (or 2, … or "all").'
            )
        number = occurrence if isinstance(occurrence, int) else 1
        if not 1 <= number <= len(found):
            raise Problem(f"The text {text[:200]!r} is there {len(found)} times; there is no occurrence {occurrence}.")
        return [found[number - 1]]


class Editor:
    """Applies one edit after the other, as one author."""

    def __init__(self, word: WordFile, author: Author) -> None:
        self.word, self.author = word, author

    def apply(self, edit: dict[str, Any]) -> int:
        """Apply an edit wherever it is asked for. Returns the number of places. Raises Problem."""
        chosen = [name for name in ACTIONS if name in edit]
        if not isinstance(edit.get("find"), str) or not edit["find"] or not chosen:
            raise Problem(f'An edit has "find" and one of {", ".join(ACTIONS)}: {str(edit)[:200]}.')
        if unknown := set(edit) - {"find", "occurrence", *ACTIONS}:
            raise Problem(f"An edit has no {', '.join(sorted(unknown))}.")
        if len(chosen) - ("comment" in chosen) > 1:
            raise Problem(f"An edit does one thing, not {' and '.join(chosen)}; make several edits.")
        places = self.word.find(edit["find"], edit.get("occurrence"))
        for index in reversed(range(len(places))):  # from the end, so that the numbers of occurrences stay
            place = places[index] if index == len(places) - 1 else self.word.find(edit["find"], "all")[index]
            self._apply_at(place, edit, chosen)
        return len(places)

    def _apply_at(self, place: Place, edit: dict[str, Any], chosen: list[str]) -> None:
        marks = ("", "")
        if "comment" in chosen:
            if place.part != self.word.main:
                raise Problem("Word has comments in the document's body only, not in headers, footers and notes.")
            marks = self._add_comment(str(edit["comment"]))
        if "new_paragraph_after" in chosen or "delete_paragraph" in chosen:
            if marks[0]:
                number = self._position(place)
                self.word.change(
                    place.part, apply_operations(place.paragraph, comment_marks(place, marks), self.author)
                )
                place = self.word.find(edit["find"], "all")[number]
            changes = self._paragraph_change(place, edit)
        else:
            changes = apply_operations(place.paragraph, self._operations(place, edit, marks), self.author)
        self.word.change(place.part, changes)

    def _position(self, place: Place) -> int:
        """Return how many earlier places have the same text."""
        line = runs_text(paragraph_runs(place.paragraph))
        same = self.word.find(line[place.start : place.end], "all")
        return next(
            index for index, each in enumerate(same)
            if each.part == place.part and each.paragraph.start == place.paragraph.start and each.start == place.start
        )  # fmt: skip

    def _operations(self, place: Place, edit: dict[str, Any], marks: tuple[str, str]) -> list[Operation]:
        """Return what is deleted and inserted; of a replacement, only the words that differ."""
        runs = paragraph_runs(place.paragraph)
        line = runs_text(runs)
        if "replace" in edit:
            spans = word_changes(line[place.start : place.end], str(edit["replace"]))
        elif edit.get("delete"):
            spans = [(0, place.end - place.start, "")]
        elif "insert_before" in edit:
            spans = [(0, 0, str(edit["insert_before"]))]
        elif "insert_after" in edit:
            spans = [(place.end - place.start, place.end - place.start, str(edit["insert_after"]))]
        else:
            return comment_marks(place, marks)
        found = [
            Operation(place.start + start, place.start + end, "", self._insertion(place, runs, place.start + end, text))
            for start, end, text in spans
        ]
        if not found:
            raise Problem(f"The replacement of {edit['find'][:100]!r} is the same text.")
        if not marks[0]:
            return found
        first, last = comment_marks(place, marks)
        return [first, *found, last]

    def _insertion(self, place: Place, runs: list[Any], position: int, text: str) -> str:
        """Return text as an insertion, in the format of the text before it."""
        if not text:
            return ""
        prefix = place.paragraph.xml.prefix
        full = [run for run in runs if run.end > run.start]
        near = next((run for run in full if run.start < position <= run.end), full[0] if full else None)
        style = run_properties(near.node) if near else ""
        run = f"<{prefix}r>{style}{text_xml(text, prefix)}</{prefix}r>"
        return f"<{prefix}ins {self.author.attributes(prefix)}>{run}</{prefix}ins>"

    def _paragraph_change(self, place: Place, edit: dict[str, Any]) -> list[Splice]:
        node, prefix = place.paragraph, place.paragraph.xml.prefix
        runs = paragraph_runs(node)
        properties = node.child("pPr")
        if "new_paragraph_after" in edit:
            mark = f"<{prefix}ins {self.author.attributes(prefix)}/>"
            made = marked_properties(properties, mark, prefix, copy=True)
            text = self._insertion(place, runs, runs[-1].end if runs else 0, str(edit["new_paragraph_after"]))
            new = f"<{prefix}p>{made}{text}</{prefix}p>"
            return [Splice(node.end, node.end, new)]
        mark = f"<{prefix}del {self.author.attributes(prefix)}/>"
        made = marked_properties(properties, mark, prefix)
        where = (properties.start, properties.end) if properties else (node.inner, node.inner)
        whole = [Operation(0, runs[-1].end)] if runs and runs[-1].end else []
        return [Splice(*where, made), *(apply_operations(node, whole, self.author) if whole else [])]

    def _add_comment(self, text: str) -> tuple[str, str]:
        """Add a comment to its part, and return the marks around what it is about."""
        word, prefix = self.word, self.word.parts[self.word.main].prefix
        if not word.comments:
            word.comments = f"{word.main.rpartition('/')[0]}/comments.xml".lstrip("/")
            space = re.search(rf"xmlns:{prefix[:-1]}=([\"'][^\"']*[\"'])" if prefix else r"xmlns=(\S+?)[\s>]",
                              word.parts[word.main].root.tag)  # fmt: skip
            if not space:
                raise Problem("The document does not declare its namespace at its beginning.")
            declared = f"xmlns:{prefix[:-1]}" if prefix else "xmlns"
            head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
            word.office.write(word.comments, f"{head}<{prefix}comments {declared}={space[1]}></{prefix}comments>")
            word.office.add_content_type(word.comments, CONTENT)
            word.office.add_relation(word.main, "comments", word.comments.rpartition("/")[2])
        xml = word.office.xml(word.comments)
        p, number = xml.prefix, self.author.next_number()
        initials = "".join(part[0] for part in self.author.name.split()[:3]).upper()
        lines = "".join(f"<{p}p><{p}r>{text_xml(line, p)}</{p}r></{p}p>" for line in text.split("\n"))
        attributes = f'{self.author.attributes(p, number)} {p}initials="{escape(initials)}"'
        added = f"<{p}comment {attributes}>{lines}</{p}comment>"
        root = xml.root
        if root.is_empty_tag:
            changed = Splice(root.start, root.end, f"{root.tag[:-2]}>{added}</{p}comments>")
        else:
            changed = Splice(root.inner_end, root.inner_end, added)
        word.office.write(word.comments, splice(xml.text, [changed]))
        reference = f'<{prefix}r><{prefix}commentReference {prefix}id="{number}"/></{prefix}r>'
        end = f'<{prefix}commentRangeEnd {prefix}id="{number}"/>{reference}'
        return f'<{prefix}commentRangeStart {prefix}id="{number}"/>', end


def comment_marks(place: Place, marks: tuple[str, str]) -> list[Operation]:
    return [
        Operation(place.start, place.start, "", marks[0]),
        Operation(place.end, place.end, "", marks[1]),
    ]


def marked_properties(properties: Node | None, mark: str, prefix: str, copy: bool = False) -> str:
    """Return the properties of a paragraph with a mark at its end. A copy has no section and no tracked changes."""
    if not properties:
        return f"<{prefix}pPr><{prefix}rPr>{mark}</{prefix}rPr></{prefix}pPr>"
    own = properties.child("rPr")
    without = ("sectPr", "pPrChange", "rPr") if copy else ("rPr",)
    behind = ("sectPr", "pPrChange")  # which stand behind the format of the mark
    kept = [each for each in (own.children if own else ()) if not copy or each.name not in (*CHANGES, "rPrChange")]
    first = "".join(each.source for each in kept if each.name == "ins")  # the order of the format
    inner = "".join(each.source for each in kept if each.name != "ins")
    before = "".join(each.source for each in properties.children if each.name not in (*without, *behind))
    after = "".join(each.source for each in properties.children if each.name in behind and each.name not in without)
    return f"<{prefix}pPr>{before}<{prefix}rPr>{first}{mark}{inner}</{prefix}rPr>{after}</{prefix}pPr>"


def word_changes(old: str, new: str) -> list[tuple[int, int, str]]:
    """Return which characters of `old` become which text, by whole words."""
    ours, theirs = (re.findall(r"\w+|\s+|[^\w\s]", text) for text in (old, new))
    if len(ours) + len(theirs) > MAX_WORDS:
        return [(0, len(old), new)]
    places = [0]
    for word in ours:
        places.append(places[-1] + len(word))
    found: list[tuple[int, int, str]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        start, end, text = places[a], places[b], "".join(theirs[c:d])
        if found and not old[found[-1][1] : start].strip():  # only a space stays between two changes: one change
            between = old[found[-1][1] : start]
            start, text = found[-1][0], found[-1][2] + between + text
            found.pop()
        found.append((start, end, text))
    return found


def visible_text(options: argparse.Namespace) -> dict[str, Any]:
    """Return the paragraphs as they are when all changes are accepted."""
    word = WordFile(options.file)
    lines = [(part, runs_text(paragraph_runs(node))) for part, node in word.paragraphs()]
    found = [
        {"paragraph": number, "text": text, **({} if part == word.main else {"part": part})}
        for number, (part, text) in enumerate(lines, 1)
        if text and (not options.find or options.find.lower() in text.lower())
    ]
    return {"paragraphs": found}


def describe_change(change: Node) -> str:
    kinds = {"ins": "insertion", "del": "deletion", "moveFrom": "moved from", "moveTo": "moved to"}
    if change.name in PROPERTY_CHANGES:
        return "format"
    parent = change.parent.name if change.parent else ""
    of = " of a paragraph's end" if is_paragraph_mark(change) else " of a table row" if parent == "trPr" else ""
    return kinds[change.name] + of


def change_text(change: Node) -> str:
    pieces = []
    for node in change.walk("rPr", "pPr"):
        if node.name in ("t", "delText"):
            pieces.append(node.text())
        elif node.name in ("tab", "br"):
            pieces.append(" ")
    return "".join(pieces)


def list_changes(options: argparse.Namespace) -> dict[str, Any]:
    """List changes and comments with their authors."""
    word = WordFile(options.file)
    found = []
    for part, xml in word.parts.items():
        number = 0
        for node in xml.root.walk("mc:Fallback"):
            number += node.name == "p"
            if node.name in (*CHANGES, *PROPERTY_CHANGES):
                found.append({
                    "id": node.get("id"), "kind": describe_change(node), "author": node.get("author"),
                    "date": node.get("date"), "text": change_text(node)[:1000], "paragraph": number,
                    **({} if part == word.main else {"part": part}),
                })  # fmt: skip
    found = [each for each in found if each["text"] or each["kind"] not in ("insertion", "deletion")]
    return {"changes": found, "comments": list_comments(word)}


def list_comments(word: WordFile) -> list[dict[str, str]]:
    if not word.comments:
        return []
    about: dict[str, list[str]] = {}
    open_ids: set[str] = set()
    for node in word.parts[word.main].root.walk():
        if node.name == "commentRangeStart":
            open_ids.add(node.get("id"))
        elif node.name == "commentRangeEnd":
            open_ids.discard(node.get("id"))
        elif node.name == "t" and not node.above("del", "moveFrom"):
            for number in open_ids:
                about.setdefault(number, []).append(node.text())
    found = []
    for node in word.office.xml(word.comments).root.children:
        lines = [change_text(each) for each in node.children if each.name == "p"]
        number = node.get("id")
        found.append({
            "id": number, "author": node.get("author"), "date": node.get("date"), "text": "\n".join(lines),
            "about": "".join(about.get(number, []))[:1000],
        })  # fmt: skip
    return found


def edit(options: argparse.Namespace) -> dict[str, Any]:
    """Make the edits as tracked changes; if one cannot be made, nothing is written."""
    edits = read_json(options.edits)
    if not isinstance(edits, list) or not all(isinstance(each, dict) for each in edits) or not edits:
        raise Problem('The edits are a JSON list: [{"find": "…", "replace": "…"}].')
    if len(edits) > MAX_EDITS:
        raise Problem(f"At most {MAX_EDITS} edits are made at once.")
    word = WordFile(options.file)
    editor = Editor(word, Author(options.author, options.date, word.next_id()))
    places = [editor.apply(each) for each in edits]
    word.office.save(options.out)
    return {"written": str(options.out), "author": options.author, "edits": len(edits), "places": sum(places)}


def resolve(options: argparse.Namespace) -> dict[str, Any]:
    """Accept or reject changes: all, or those with an id or of an author."""
    word, count = WordFile(options.file), 0

    def chosen(node: Node) -> bool:
        by_id = not options.id or node.get("id") in options.id
        return by_id and (not options.author or node.get("author") == options.author)

    for part, xml in list(word.parts.items()):
        resolver = Resolver(xml, options.command == "accept", chosen)
        count += len(resolver.changes)
        if resolver.changes:
            word.replace(part, resolver.resolve())
    if not count:
        raise Problem("No tracked change matches; see `list`.")
    if options.remove_comments and word.comments:
        remove_comments(word)
    word.office.save(options.out)
    left = sum(node.name in (*CHANGES, *PROPERTY_CHANGES) for xml in word.parts.values() for node in xml.root.walk())
    return {"written": str(options.out), f"{options.command}ed": count, "left": left}


def remove_comments(word: WordFile) -> None:
    """Remove all comments: their marks in the document, and their texts."""
    names = ("commentRangeStart", "commentRangeEnd", "commentReference")
    marks = [node for node in word.parts[word.main].root.walk() if node.name in names]
    word.change(word.main, [Splice(node.start, node.end, "") for node in marks])
    root = word.office.xml(word.comments).root
    word.office.write(word.comments, splice(root.xml.text, [Splice(root.inner, root.inner_end, "")]))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("text", help="the paragraphs, as if all changes were accepted")
    command.add_argument("file", type=Path)
    command.add_argument("--find", default="", help="only paragraphs with this text")
    command = commands.add_parser("list", help="tracked changes and comments")
    command.add_argument("file", type=Path)
    command = commands.add_parser("edit", help="change text as tracked changes, and comment on it")
    command.add_argument("file", type=Path)
    command.add_argument("--edits", required=True, metavar="JSON", help="a list of edits, or a file with one")
    command.add_argument("--author", default="Fawn", help="who changes, as Word shows it")
    command.add_argument("--date", default="", help="such as 2026-11-23T10:00:00Z; default: now")
    command.add_argument("--out", type=Path, required=True)
    for name in ("accept", "reject"):
        command = commands.add_parser(name, help=f"{name} tracked changes: all, or the chosen ones")
        command.add_argument("file", type=Path)
        command.add_argument("--id", action="append", default=[], help="of a change; repeat it for more")
        command.add_argument("--author", default="", help="only changes of this author")
        command.add_argument("--remove-comments", action="store_true", help="remove all comments, too")
        command.add_argument("--out", type=Path, required=True)
    return parser


if __name__ == "__main__":
    actions = {"text": visible_text, "list": list_changes, "edit": edit, "accept": resolve, "reject": resolve}
    run_program(make_parser(), actions)
