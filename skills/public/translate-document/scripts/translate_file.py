"""Take the texts out of a docx, pptx, xlsx, html, srt or po file, and put their translations back at the same places.

The layout stays: what is no text keeps its bytes. Needs no package. The translation itself is made by the agent.
Without arguments, the program reads the same as JSON from stdin.
"""

from __future__ import annotations

import argparse
import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from office_file import Node, OfficeFile, Splice, XmlText, escape, splice
from skill_program import Problem, check_size, read_json, run_program

MAX_TEXT_BYTES = 20 << 20
MAX_SEGMENTS = 50_000
MAX_SHOWN = 200
TAG = re.compile(r"</?\d{1,4}/?>")
PLACEHOLDER = re.compile(
    r"\{[^{}\s]{0,60}\}|%(?:\(\w{1,60}\))?[-+#0]?\d{0,3}(?:\.\d{1,3})?[sdifgxc]|https?://[^\s<>\"]{1,500}"
)
NUMBER = re.compile(r"\d+")
HTML_SKIPPED = ("script", "style", "code", "pre", "svg", "math", "textarea")
TIMES = re.compile(r"\s*\d{1,3}:\d\d:\d\d[,.]\d{1,3}\s*-->\s*\d{1,3}:\d\d:\d\d[,.]\d{1,3}.*")
WORD_PARTS = ("header", "footer", "footnotes", "endnotes")


class Place(NamedTuple):
    """A text with its pieces in the file: each is a range and how its translation is written there."""

    source: str
    pieces: tuple[
        tuple[int, int, str], ...
    ]  # start, end, and its form: "xml", "html", "po", "plain", or a prefix and "t"
    emptied: tuple[tuple[int, int], ...] = ()  # ranges whose text is now in a piece before


class Source:
    """The texts of a file by part; `write` puts translations in."""

    def __init__(self, path: Path) -> None:
        self.path, self.kind = path, path.suffix.lower().lstrip(".")
        self.office = OfficeFile(path) if self.kind in ("docx", "pptx", "xlsx") else None
        self.texts: dict[str, str] = {}
        self.places: dict[str, list[Place]] = {}
        self.notes: list[str] = []
        if self.office:
            for part, found in office_places(self.office, self.kind, self.notes):
                self.texts[part] = self.office.read(part)
                self.places[part] = found
        elif self.kind in TEXT_READERS:
            data = check_size(path, MAX_TEXT_BYTES).read_bytes()
            try:
                text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
            except UnicodeDecodeError:
                raise Problem(f"{path.name} is not UTF-8; convert it first, such as with iconv.") from None
            self.texts[""], self.places[""] = text, list(TEXT_READERS[self.kind](text))
        else:
            raise Problem(
                f"{path.suffix or 'A file without suffix'} is not translated; use docx, pptx, xlsx, html, srt or po."
            )
        if sum(map(len, self.places.values())) > MAX_SEGMENTS:
            raise Problem(f"{path.name} has more than {MAX_SEGMENTS:,} texts; split it first.")

    def segments(self) -> list[dict[str, str]]:
        """Return the texts with ids; equal texts of a file have one id each, in the order of the file."""
        return [
            {"id": f"{part}#{number}" if part else str(number), "source": place.source}
            for part, places in self.places.items()
            for number, place in enumerate(places, 1)
        ]

    def write(self, targets: dict[str, str], out: Path) -> None:
        """Write the file with the translations."""
        out.parent.mkdir(parents=True, exist_ok=True)
        for part, places in self.places.items():
            changes: list[Splice] = []
            for number, place in enumerate(places, 1):
                target = targets.get(f"{part}#{number}" if part else str(number))
                if target is not None:
                    changes += place_changes(place, target)
            text = splice(self.texts[part], changes)
            if self.office and changes:
                self.office.write(part, text)
            elif not self.office:
                out.write_text(text, "utf-8", newline="")
        if self.office:
            self.office.save(out)


def place_changes(place: Place, target: str) -> Iterator[Splice]:
    """Return the changes of the pieces; with several, each is between its tags."""
    texts = [target]
    if len(place.pieces) > 1:
        texts = re.findall(r"<\d{1,4}>(.*?)</\d{1,4}>", target, re.DOTALL)
    for (start, end, form), text in zip(place.pieces, texts):
        if form.endswith("t") and form != "plain" and form != "xml":
            yield Splice(start, end, f'<{form} xml:space="preserve">{escape(text)}</{form}>')
            continue
        written = {"xml": escape, "html": lambda each: html.escape(each, quote=False), "po": po_text}.get(form, str)(
            text
        )
        yield Splice(start, end, written)
    yield from (Splice(start, end, "") for start, end in place.emptied)


def tagged(texts: list[str]) -> str:
    """Return texts in one, each in tags with its number if there are several."""
    if len(texts) == 1:
        return texts[0]
    return "".join(f"<{number}>{text}</{number}>" for number, text in enumerate(texts, 1))


def office_places(office: OfficeFile, kind: str, notes: list[str]) -> Iterator[tuple[str, list[Place]]]:
    """Return the parts with their texts."""
    main = office.main_part()
    if kind == "docx":
        parts = [
            main,
            *(part for name, part in office.relations(main).values() if name in WORD_PARTS and office.has(part)),
        ]
        for part in parts:
            yield part, list(paragraph_places(office.xml(part), "p", "r", "t", "rPr"))
    elif kind == "pptx":
        relations = office.relations(main)
        order = [
            relations[node.get("id")][1]
            for node in office.xml(main).root.walk()
            if node.name == "sldId" and node.get("id") in relations
        ]
        slides = order or [part for name, part in relations.values() if name == "slide"]
        for part in slides:
            yield part, list(paragraph_places(office.xml(part), "a:p", "a:r", "a:t", "a:rPr"))
            if note := office.part_of_kind(part, "notesSlide"):
                yield note, list(paragraph_places(office.xml(note), "a:p", "a:r", "a:t", "a:rPr"))
    else:
        part = office.part_of_kind(main, "sharedStrings")
        heads = table_heads(office, main)
        if heads:
            notes.append(f"headings of tables stay, because formulas use them: {', '.join(sorted(heads)[:20])}")
        if part:
            items = office.xml(part).root.children
            yield part, [place for place in string_places(items) if place.source not in heads]
        for name, sheet in office.relations(main).values():
            if name == "worksheet" and office.has(sheet):
                items = [node for node in office.xml(sheet).root.walk() if node.name == "is"]
                yield sheet, [place for place in string_places(items) if place.source not in heads]


def table_heads(office: OfficeFile, main: str) -> set[str]:
    found = set()
    for kind, sheet in office.relations(main).values():
        for other, part in office.relations(sheet).values() if kind == "worksheet" else ():
            if other == "table" and office.has(part):
                found |= {node.get("name") for node in office.xml(part).root.walk() if node.name == "tableColumn"}
    return found


def group_places(groups: list[list[Node]]) -> Place | None:
    """Return a place of groups of text nodes: the first node of each takes its translation."""
    kept = [group for group in groups if any(node.text() for node in group)]
    texts = ["".join(node.text() for node in group) for group in kept]
    if not "".join(texts).strip() or not re.search(r"[^\W\d_]", "".join(texts)):
        return None  # numbers and signs are not translated
    firsts = [next(node for node in group if node.text()) for group in kept]
    others = [node for group in kept for node in group if node not in firsts and node.text()]
    emptied = tuple((node.inner, node.inner_end) for node in others)
    return Place(tagged(texts), tuple(xml_piece(node) for node in firsts), emptied)


def paragraph_places(xml: XmlText, paragraph: str, run: str, text: str, style: str) -> Iterator[Place]:
    """Return the paragraphs; runs of one format that follow each other are one text."""
    for node in xml.root.walk("mc:Fallback"):
        if node.name != paragraph:
            continue
        groups: list[list[Node]] = []
        before: tuple[str, Node] | None = None
        for each in node.walk(paragraph, "del", "moveFrom", "mc:Fallback"):
            if each.name != run:
                continue
            look = each.child(style)
            form = re.sub(r'\s(?:lang|altLang|dirty|err|noProof)="[^"]*"', "", look.source) if look else ""
            inside = [child for child in each.children if child.name != style]
            for child in inside:
                if child.name != text:
                    before = None
                    continue
                if (
                    before
                    and before[0] == form
                    and before[1].parent
                    and before[1].parent.parent is each.parent
                    and len(inside) == 1
                ):
                    groups[-1].append(child)
                else:
                    groups.append([child])
                before = (form, child)
        if place := group_places(groups):
            yield place


def xml_piece(node: Node) -> tuple[int, int, str]:
    """Return what is written anew: the whole element where it has to keep blanks at its ends."""
    if node.name == "t":
        return node.start, node.end, f"{node.xml.prefix}t"
    return node.inner, node.inner_end, "xml"


def string_places(items: list[Node]) -> Iterator[Place]:
    for item in items:
        nodes = [node for node in item.walk("rPh") if node.name == "t"]
        if place := group_places([[node] for node in nodes]):
            yield place


def html_tags(text: str) -> Iterator[tuple[int, int, str]]:
    """Return where tags and comments are, and the name of a tag: "p" or "/p". Takes linear time."""
    place, hopeless = 0, set()
    while (start := text.find("<", place)) >= 0:
        if text.startswith("<!--", start):
            end = text.find("-->", start)
            if end < 0:
                return
            place = end + 3
            yield start, place, ""
            continue
        name = re.compile(r"<(/?[A-Za-z][\w:-]{0,60})|<[!?]").match(text, start)
        place = start + 1
        if not name:
            continue
        end = name.end()
        while (stop := re.compile(r"[\"'>]").search(text, end)) and stop[0] != ">":
            end = stop.end()
            closing = -1 if stop[0] in hopeless else text.find(stop[0], end)
            if closing < 0:
                hopeless.add(stop[0])
            else:
                end = closing + 1
        if not stop:
            return
        place = stop.end()
        yield start, place, (name[1] or "").lower()


def html_places(text: str) -> Iterator[Place]:
    """Return the texts between tags, each for itself."""
    place, skipped = 0, ""
    for start, end, name in [*html_tags(text), (len(text), len(text), "")]:
        words = text[place:start]
        if not skipped and re.search(r"[^\W\d_]", html.unescape(words)):
            left, right = len(words) - len(words.lstrip()), len(words.rstrip())
            yield Place(html.unescape(words[left:right]), ((place + left, place + right, "html"),))
        place = end
        if skipped:
            skipped = "" if name == f"/{skipped}" else skipped
        elif name in HTML_SKIPPED and not text.endswith("/>", start, end):
            skipped = name


def srt_places(text: str) -> Iterator[Place]:
    """Return the lines of each subtitle."""
    place, start = 0, -1
    for line in [*text.splitlines(keepends=True), "\n"]:
        bare = line.strip("\r\n\ufeff")
        if TIMES.fullmatch(bare):
            start = place + len(line)
        elif not bare.strip() and start >= 0:
            words = text[start:place].rstrip("\r\n")
            if words.strip():
                yield Place(words.replace("\r\n", "\n"), ((start, start + len(words), "plain"),))
            start = -1
        place += len(line)


def po_places(text: str) -> Iterator[Place]:
    """Return the messages; a translation goes into msgstr. Plurals keep their numbers."""
    source, plural = "", ""
    pattern = re.compile(
        r'^(msgid|msgid_plural|msgstr(?:\[\d\])?)\s+("(?:[^"\\\n]|\\.)*"(?:\r?\n"(?:[^"\\\n]|\\.)*")*)', re.MULTILINE
    )
    for match in pattern.finditer(text):
        words = "".join(po_words(each) for each in re.findall(r'"((?:[^"\\\n]|\\.)*)"', match[2]))
        if match[1] == "msgid":
            source, plural = words, ""
        elif match[1] == "msgid_plural":
            plural = words
        elif source:
            yield Place(
                plural if plural and match[1] != "msgstr[0]" else source, ((match.start(2), match.end(2), "po"),)
            )


def po_words(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), text)


def po_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


TEXT_READERS = {"html": html_places, "htm": html_places, "srt": srt_places, "po": po_places}


def differences(source: str, target: str) -> tuple[list[str], list[str]]:
    """Return what is wrong with a translation, and what may be."""
    wrong, doubtful = [], []
    if TAG.findall(source) != TAG.findall(target):
        wrong.append(
            f"its tags are {' '.join(TAG.findall(target)) or 'missing'}, not {' '.join(TAG.findall(source)) or 'none'}"
        )
    elif TAG.findall(source) and re.sub(r"<(\d{1,4})>.*?</\1>", "", target, flags=re.DOTALL).strip():
        wrong.append("it has words outside of its tags")
    bare, other = TAG.sub(" ", source), TAG.sub(" ", target)
    ours, theirs = Counter(PLACEHOLDER.findall(bare)), Counter(PLACEHOLDER.findall(other))
    if ours != theirs:
        changed = sorted((ours - theirs) + (theirs - ours))
        wrong.append(f"these placeholders differ: {', '.join(changed)}")
    numbers, others = (
        Counter(NUMBER.findall(re.sub(r"(?<=\d)[.,\u00a0\u202f' ](?=\d)", "", each))) for each in (bare, other)
    )
    if numbers != others:
        doubtful.append(f"these numbers differ: {', '.join(sorted((numbers - others) + (others - numbers)))}")
    if len(source) > 20 and source == target:
        doubtful.append("it is the same as the source")
    if len(other) > 40 and len(other) > 2.5 * len(bare):
        doubtful.append("it is much longer and may not fit")
    return wrong, doubtful


def extract(options: argparse.Namespace) -> dict[str, Any]:
    """Write the texts as JSON: a list of {id, source, target}."""
    source = Source(options.file)
    segments = [{**each, "target": ""} for each in source.segments()]
    if not segments:
        raise Problem(f"{options.file.name} has no text to translate.")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(segments, ensure_ascii=False, indent=1), "utf-8")
    unique = {each["source"] for each in segments}
    return {
        "written": str(options.out), "segments": len(segments), "different": len(unique),
        "characters": sum(map(len, unique)), "notes": source.notes,
    }  # fmt: skip


def read_targets(given: Any, segments: list[dict[str, str]]) -> dict[str, str]:
    """Return the translations by id; equal sources may be translated once. Raises Problem."""
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise Problem("The translations are the list that `extract` wrote, with each target filled in.")
    by_id = {str(each.get("id")): each for each in given}
    sources = {each["id"]: each["source"] for each in segments}
    if unknown := sorted(set(by_id) - set(sources)):
        raise Problem(f"There is no text with the id {unknown[0]}; extract the same file again.")
    by_source: dict[str, str] = {}
    for number, each in by_id.items():
        if each.get("source", sources[number]) != sources[number]:
            raise Problem(f"The source of {number} is not that of the file; extract the same file again.")
        if isinstance(each.get("target"), str) and each["target"].strip():
            by_source.setdefault(sources[number], each["target"])
    found = {}
    for number, source in sources.items():
        own = by_id.get(number, {}).get("target")
        target = own if isinstance(own, str) and own.strip() else by_source.get(source)
        if target is not None:
            found[number] = target
    return found


def apply(options: argparse.Namespace) -> dict[str, Any]:
    """Put the translations in; if one is wrong, nothing is written."""
    source = Source(options.file)
    segments = source.segments()
    targets = read_targets(read_json(str(options.translations)), segments)
    missing = [each["id"] for each in segments if each["id"] not in targets]
    wrong, doubtful = [], []
    for each in segments:
        if each["id"] in targets:
            faults, doubts = differences(each["source"], targets[each["id"]])
            wrong += [f"{each['id']}: {fault}" for fault in faults]
            doubtful += [f"{each['id']}: {doubt}" for doubt in doubts]
    if wrong:
        raise Problem(f"{len(wrong)} translations are wrong; correct them: " + "; ".join(wrong[:20]) + ".")
    if missing and not options.partly:
        raise Problem(f"{len(missing)} texts have no target: {', '.join(missing[:20])}. Fill them in, or use --partly.")
    source.write(targets, options.out)
    return {
        "written": str(options.out), "translated": len(targets), "left": len(missing),
        "check": doubtful[:MAX_SHOWN], "notes": source.notes,
    }  # fmt: skip


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("extract", help="write the texts as JSON")
    command.add_argument("file", type=Path)
    command.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    command = commands.add_parser("apply", help="put translations in, after checks")
    command.add_argument("file", type=Path, help="the original")
    command.add_argument("--translations", required=True, metavar="JSON", help="the file of extract with its targets")
    command.add_argument("--partly", action="store_true", help="texts without a target stay as they are")
    command.add_argument("--out", type=Path, required=True)
    return parser


if __name__ == "__main__":
    run_program(make_parser(), {"extract": extract, "apply": apply})
