"""Read Word, PowerPoint and OpenDocument files with the standard library only: all that people see in them.

Elements are found by their local names, so that strict documents, whose namespaces differ, are read as well.
Python 3.9+.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from sandbox.inside.archives import (
    MAX_LEVELS,
    PASSWORD,
    DocumentArchive,
    DocumentUnreadable,
    PartUnreadable,
    count_text,
    left_out,
    list_table,
    local,
    main_part,
    open_archive,
    parse_xml,
    read_member,
    related,
    side_part,
    value_of,
)

GONE = frozenset(("del", "moveFrom", "delText", "instrText", "pPr", "rPr", "sectPr", "tblPr", "trPr", "tcPr", "rt"))
NOTES = ("header", "footer", "footnotes", "endnotes", "comments")
WORD, DECK = "word/document.xml", "ppt/presentation.xml"
PAGE_END = "\f"  # where the program that saved a Word document last ended a page

GRAPHICS = {"chart": "chart", "chartEx": "chart", "diagramData": "diagram"}  # kind of relation → what it is

Parts = dict[str, tuple[str, str]]  # what a part refers to: relation id → (last word of its type, name)
Piece = tuple[str, str]  # what it belongs to, such as "slide 3 notes" or "page 2", and its text


def shown(node: Element) -> Iterator[Element]:
    """Yield the children that are shown; of alternatives, only the first."""
    for child in node:
        name = local(child)
        if name == "AlternateContent":
            yield from list(child)[:1]
        elif name not in GONE:
            yield child


def picture_text(node: Element) -> str:
    """Return what is said about a picture: its alternative text, else its name."""
    for each in node.iter():
        if local(each) in ("docPr", "cNvPr"):
            said = each.get("descr") or each.get("title") or each.get("name") or ""
            return f"[picture: {' '.join(said.split())}]" if said else "[picture]"
    return "[picture]"


def embedded_text(node: Element) -> str:
    """Return the kind of an embedded file, such as a workbook; "" where there is none."""
    for each in node.iter():
        if local(each).lower() == "oleobj" or local(each) == "OLEObject":
            program = each.get("progId") or each.get("ProgID") or "an object"
            return f"[embedded: {' '.join(program.split())[:100]}]"
    return ""


def graphic_texts(archive: DocumentArchive, node: Element, parts: Parts) -> Iterator[str]:
    """Yield the texts and values of the charts and diagrams that an element shows."""
    for each in node.iter():
        for wanted in (value for key, value in each.items() if key.endswith(("}id", "}dm"))):
            kind, part = parts.get(wanted, ("", ""))
            if kind in GRAPHICS:
                root, remark = side_part(archive, part)
                texts = [t.text or "" for t in root.iter() if local(t) in ("t", "v")]
                yield remark or f"[{GRAPHICS[kind]}] {'; '.join(filter(str.strip, texts))}"


# ---------------------------------------------------------------- Word


class WordText:
    """The text of a part of a Word document."""

    def __init__(self, archive: DocumentArchive, part: str, headings: dict[str, int]) -> None:
        self.archive = archive
        self.parts = related(archive, part)
        self.headings = headings  # style → level

    def blocks(self, node: Element, level: int = 0) -> Iterator[str]:
        """Yield paragraphs and tables in their order."""
        for child in shown(node) if level < MAX_LEVELS else ():
            name = local(child)
            if name == "p":
                yield from self.paragraph(child, level)
            elif name == "tbl":
                text = "".join(list_table(list(self.rows(child, level))))
                yield text.replace(PAGE_END, "") + PAGE_END * text.count(PAGE_END)
            else:
                yield from self.blocks(child, level + 1)

    def rows(self, table: Element, level: int) -> Iterator[list[str]]:
        """Yield the cells of each row; a table in a cell is its text."""
        for row in own(table, "tr"):
            yield ["".join(self.blocks(cell, level + 1)) for cell in own(row, "tc")]

    def paragraph(self, node: Element, level: int) -> Iterator[str]:
        """Yield a paragraph, then the text boxes in it. PAGE_END stands where a page ends."""
        boxes: list[Element] = []
        whole = "".join(self.pieces(node, boxes, level)).strip(" \n")
        text = whole.lstrip(f" \n{PAGE_END}")
        yield PAGE_END * whole[: len(whole) - len(text)].count(PAGE_END)
        marks = [each for part in node if local(part) == "pPr" for each in part]
        style = next((value_of(each, "val") for each in marks if local(each) == "pStyle"), "")
        if text and style in self.headings:
            yield f"{'#' * self.headings[style]} {text}\n\n"
        elif text:
            numbered = any(local(each) == "numPr" for each in marks)
            yield f"- {text}\n" if numbered or style.startswith("List") else f"{text}\n\n"
        for box in boxes:
            yield from self.blocks(box, level + 1)

    def pieces(self, node: Element, boxes: list[Element], level: int) -> Iterator[str]:
        """Yield the pieces of a line."""
        for child in shown(node) if level < MAX_LEVELS else ():
            name = local(child)
            if name == "t":
                yield child.text or ""
            elif name == "tab":
                yield "\t"
            elif name == "lastRenderedPageBreak" or (name == "br" and value_of(child, "type") == "page"):
                yield PAGE_END
            elif name in ("br", "cr"):
                yield "\n"
            elif name == "noBreakHyphen":
                yield "-"
            elif name in ("footnoteReference", "endnoteReference"):
                yield f"[^{value_of(child, 'id')}]"
            elif name in ("drawing", "pict", "object"):
                found = [each for each in child.iter() if local(each) == "txbxContent"]
                boxes += found
                if not found:
                    graphics = " ".join(graphic_texts(self.archive, child, self.parts))
                    yield graphics or embedded_text(child) or picture_text(child)
            else:
                yield from self.pieces(child, boxes, level + 1)


def own(node: Element, kind: str) -> Iterator[Element]:
    """Yield the rows of a table, or the cells of a row, but not those of a table inside of it."""
    for child in node:
        if local(child) == kind:
            yield child
        elif local(child) in ("sdt", "sdtContent", "ins", "customXml", "smartTag"):
            yield from own(child, kind)


def heading_styles(styles: Element) -> dict[str, int]:
    """Return the level of each style that is a heading; ids differ by language, names do not."""
    found = {}
    for style in styles:
        name = next((value_of(each, "val") for each in style if local(each) == "name"), "")
        level = re.fullmatch(r"heading ([1-9])", name.lower())
        if level or name.lower() == "title":
            found[value_of(style, "styleId")] = min(6, int(level[1])) if level else 1
    return found


def describe_docx(path: str) -> str:
    with open_archive(path) as archive:
        root = parse_xml(read_member(archive, main_part(archive, WORD)))  # the stored number of pages is often wrong
    return f"Word document, {count_text(sum(local(node) == 'p' for node in root.iter()), 'paragraph')}"


def convert_docx(path: str) -> Iterator[str]:
    """Yield the text without pages: where they end differs by program, fonts and paper."""
    for _mark, text in docx_pieces(path):
        yield text


def docx_pieces(path: str) -> Iterator[Piece]:
    """Yield header, body by the pages of the program that saved it last, and notes."""
    with open_archive(path) as archive:
        name = main_part(archive, WORD)
        styles, remark = side_part(archive, f"{name.rpartition('/')[0]}/styles.xml")
        reader = WordText(archive, name, heading_styles(styles))
        heads = {kind: [part for each, part in reader.parts.values() if each == kind] for kind in NOTES}
        yield "header", f"{remark}\n\n" if remark else ""
        yield from (("header", line) for line in note_lines(archive, reader, heads, "header"))
        words, page = 0, 1
        for block in reader.blocks(parse_xml(read_member(archive, name))):
            words += bool(re.search(r"\w", re.sub(r"\[picture[^\[\]]*\]", "", block)))
            for number, text in enumerate(block.split(PAGE_END)):
                page += number > 0
                if text:
                    yield f"page {page}", text
        for kind in NOTES[1:]:
            yield from ((kind, line) for line in note_lines(archive, reader, heads, kind))
        if not words:
            yield "page 1", "[no text: the document has only pictures, charts or empty pages]\n"


def note_lines(archive: DocumentArchive, reader: WordText, parts: dict[str, list[str]], kind: str) -> Iterator[str]:
    """Yield the text of headers, footers or notes, each once."""
    seen = set()
    for part in parts[kind]:
        try:
            root, notes = parse_xml(read_member(archive, part)), WordText(archive, part, reader.headings)
        except PartUnreadable as error:
            yield f"{left_out(error)}\n\n"
            continue
        for note in [root] if kind in ("header", "footer") else root:
            text = " ".join("".join(notes.blocks(note)).split())  # a page end is a blank, too
            if text and text not in seen:
                seen.add(text)
                number = value_of(note, "id")
                yield f"[^{number}]: {text}\n\n" if kind.endswith("notes") else f"[{kind.rstrip('s')}] {text}\n\n"


# ---------------------------------------------------------------- PowerPoint


def slide_parts(archive: DocumentArchive) -> list[str]:
    """Return the slides in their order."""
    main = main_part(archive, DECK)
    parts = related(archive, main)
    ids = [value_of_id(node) for node in parse_xml(read_member(archive, main)).iter() if local(node) == "sldId"]
    return [parts[each][1] for each in ids if each in parts]


def value_of_id(node: Element) -> str:
    """Return the relation id, which has a namespace; the plain id is another one."""
    return next((value for key, value in node.items() if key.endswith("}id")), "")


def describe_pptx(path: str) -> str:
    with open_archive(path) as archive:
        return f"presentation, {count_text(len(slide_parts(archive)), 'slide')}"


def convert_pptx(path: str) -> Iterator[str]:
    for _mark, text in pptx_pieces(path):
        yield text


def pptx_pieces(path: str) -> Iterator[Piece]:
    """Yield slides in their order, each with its title first, and its notes last."""
    with open_archive(path) as archive:
        for number, name in enumerate(slide_parts(archive), 1):
            try:
                parts, slide = related(archive, name), parse_xml(read_member(archive, name))
            except PartUnreadable as error:
                yield f"slide {number}", f"## Slide {number}: {left_out(error)}\n\n"
            else:
                yield from slide_pieces(archive, slide, number, parts)


def slide_pieces(archive: DocumentArchive, slide: Element, number: int, parts: Parts) -> Iterator[Piece]:
    mark = f"slide {number}"
    shapes = sorted(flatten(slide), key=position)
    titles = [shape for shape in shapes if "itle" in placeholder(shape)]
    yield mark, f"## Slide {number}: {' '.join(plain(titles[0]).split()) if titles else ''}\n\n"
    for shape in shapes:
        if shape not in titles[:1]:
            yield from ((mark, text) for text in shape_lines(archive, shape, parts))
    for kind, part in parts.values():
        if kind == "notesSlide":
            notes, remark = side_part(archive, part)
            bodies = [each for each in flatten(notes) if placeholder(each) == "body"]
            text = remark or " ".join(line.strip("- ") for shape in bodies for line in lines_of(shape)).strip()
            yield f"{mark} notes", f"> Notes: {text}\n\n" if text else ""
        elif kind == "comments":
            root, remark = side_part(archive, part)
            texts = [remark] if remark else [each.text for each in root.iter() if local(each) == "text"]
            yield from ((mark, f"> Comment: {text}\n\n") for text in texts)


def flatten(node: Element, level: int = 0) -> Iterator[Element]:
    """Yield the shapes of a slide, those of groups as well."""
    for child in shown(node) if level < MAX_LEVELS else ():
        if local(child) in ("sp", "graphicFrame", "pic", "cxnSp"):
            yield child
        else:
            yield from flatten(child, level + 1)


def placeholder(shape: Element) -> str:
    return next((each.get("type", "other") for each in shape.iter() if local(each) == "ph"), "")


def position(shape: Element) -> tuple[int, int]:
    for each in shape.iter():
        if local(each) == "off":
            numbers = [each.get(name, "0") for name in ("y", "x")]
            return (
                (int(numbers[0]), int(numbers[1])) if all(re.fullmatch(r"-?\d{1,12}", n) for n in numbers) else (0, 0)
            )
    return (0, 0)


def lines_of(shape: Element) -> list[str]:
    """Return the paragraphs of a shape as list items."""
    lines = []
    for paragraph in (each for each in shape.iter() if local(each) == "p"):
        level = next((each.get("lvl", "0") for each in paragraph if local(each) == "pPr"), "0")
        pieces = [
            each.text or "" if local(each) == "t" else "\n" for each in paragraph.iter() if local(each) in ("t", "br")
        ]
        text = "".join(pieces).strip()
        if text:
            lines.append(f"{'  ' * int(level) if re.fullmatch('[0-8]', level) else ''}- {text}")
    return lines


def shape_lines(archive: DocumentArchive, shape: Element, parts: Parts) -> Iterator[str]:
    """Yield a shape: its text, table, chart, diagram, or that it is a picture."""
    name = local(shape)
    if name == "pic":
        yield f"{picture_text(shape)}\n\n"
        return
    tables = [each for each in shape.iter() if local(each) == "tbl"]
    for table in tables:
        rows = [each for each in table if local(each) == "tr"]
        yield from list_table([[plain(cell) for cell in row if local(cell) == "tc"] for row in rows])
    if tables:
        return
    if lines := lines_of(shape):
        yield "\n".join(lines) + "\n\n"
    if name == "graphicFrame":
        embedded = embedded_text(shape)
        yield f"{embedded}\n\n" if embedded else ""
        yield from (f"{text}\n\n" for text in graphic_texts(archive, shape, parts))


def plain(node: Element) -> str:
    """Return the paragraphs of a cell."""
    return "\n".join(line.strip()[2:] for line in lines_of(node))


# ---------------------------------------------------------------- OpenDocument


def describe_odf(path: str) -> str:
    with open_archive(path) as archive:
        root = odf_content(archive)
    pages = sum(local(node) == "page" for node in root.iter())
    count = count_text(pages, "slide") if pages else count_text(sum(local(n) in "ph" for n in root.iter()), "paragraph")
    return f"OpenDocument {'presentation' if pages else 'text'}, {count}"


def odf_content(archive: DocumentArchive) -> Element:
    if b"encryption-data" in read_member(archive, "META-INF/manifest.xml"):
        raise DocumentUnreadable(PASSWORD)
    return parse_xml(read_member(archive, "content.xml"))


def convert_odf(path: str) -> Iterator[str]:
    with open_archive(path) as archive:
        yield from odf_blocks(odf_content(archive))


def odf_blocks(node: Element, level: int = 0, item: str = "") -> Iterator[str]:
    slides = 0
    for child in node if level < MAX_LEVELS else ():
        name = local(child)
        if name == "page":
            slides += 1
            yield f"## Slide {slides}\n\n"
        if name in ("h", "p"):
            text = "".join(odf_pieces(child)).strip()
            depth = min(6, int(value_of(child, "outline-level") or 1)) if name == "h" else 0
            if text:
                yield f"{'#' * depth} {text}\n\n" if depth else f"{item}{text}\n" + "\n" * (not item)
        elif name == "table":
            rows = [each for each in child.iter() if local(each) == "table-row"]
            cells = [[c for c in row if local(c) in ("table-cell", "covered-table-cell")] for row in rows]
            yield from list_table([["".join(odf_blocks(cell, level + 1)) for cell in row] for row in cells])
        elif name not in ("tracked-changes", "automatic-styles", "font-face-decls", "scripts", "sequence-decls"):
            yield from odf_blocks(child, level + 1, "- " if name == "list-item" else item)


def odf_pieces(node: Element, level: int = 0) -> Iterator[str]:
    yield node.text or ""
    for child in node if level < MAX_LEVELS else ():
        name = local(child)
        if name == "s":
            yield " "
        elif name in ("tab", "line-break"):
            yield "\t" if name == "tab" else "\n"
        elif name == "note":  # the citation, then the body
            yield f" [{' '.join(''.join(odf_pieces(child, level + 1)).split())}]"
        elif name == "note-citation":
            yield "".join(odf_pieces(child, level + 1)) + ": "
        else:
            yield from odf_pieces(child, level + 1)
            if name == "p":
                yield "\n"  # of a text box or a note
        yield child.tail or ""
