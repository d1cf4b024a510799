"""Create a docx, pptx or pdf file from Markdown, or an xlsx file from JSON or CSV.

docx needs python-docx (or the program pandoc), pptx python-pptx (or pandoc), pdf reportlab, xlsx openpyxl. If a package
is missing, the script names it and exits with 3.
"""

from __future__ import annotations

import argparse
import csv
import html
import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from markdown_blocks import Block, parse_markdown, parse_runs

EXIT_MISSING_PACKAGE = 3
CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+")
DEJAVU = Path("/usr/share/fonts/truetype/dejavu")
PAGE_WIDTH_POINTS = 451.0  # A4 without margins of 2.5 cm
ACCENT = "1F4E79"


def plain(text: str) -> str:
    """Return the text without Markdown's marks."""
    return "".join(run.text for run in parse_runs(text))


def image_path(block: Block, folder: Path) -> Path | None:
    """Return the picture of a block if it is a file; pictures of web addresses are not loaded."""
    path = folder / block.text
    return path if path.is_file() else None


def create_docx(blocks: list[Block], folder: Path, out: Path, title: str) -> None:
    docx = importlib.import_module("docx")
    shared = importlib.import_module("docx.shared")
    document = docx.Document()
    document.core_properties.title, document.core_properties.author = title, ""
    for block in blocks:
        if block.kind == "heading":
            document.add_heading(plain(block.text), min(block.level, 6))
        elif block.kind == "table":
            table = document.add_table(len(block.rows), len(block.rows[0]), style="Light Grid Accent 1")
            for cells, row in zip(table.rows, block.rows):
                for cell, text in zip(cells.cells, row):
                    cell.text = plain(text)
        elif block.kind == "image" and (picture := image_path(block, folder)):
            document.add_picture(str(picture), width=shared.Pt(PAGE_WIDTH_POINTS * 0.95))
        elif block.kind == "rule":
            document.add_page_break()
        else:
            styles = {"bullet": "List Bullet", "number": "List Number", "quote": "Intense Quote"}
            name = styles.get(block.kind, "Normal")
            if block.kind in ("bullet", "number") and 1 < block.level <= 3:
                name = f"{name} {block.level}"
            paragraph = document.add_paragraph(style=name)
            for run in (
                [(block.text, "code")] if block.kind == "code" else [(r.text, r.style) for r in parse_runs(block.text)]
            ):
                written = paragraph.add_run(run[0])
                written.bold, written.italic = run[1] == "bold" or None, run[1] == "italic" or None
                if run[1] == "code":
                    written.font.name = "DejaVu Sans Mono"
    document.save(out)


def slides_of(blocks: list[Block]) -> list[tuple[str, list[Block]]]:
    """Start a slide at each heading of level 1 and 2, and at each rule."""
    slides: list[tuple[str, list[Block]]] = []
    for block in blocks:
        if (block.kind == "heading" and block.level <= 2) or block.kind == "rule" or not slides:
            slides.append((plain(block.text) if block.kind == "heading" else "", []))
        if not (block.kind == "rule" or (block.kind == "heading" and block.level <= 2)):
            slides[-1][1].append(block)
    return [slide for slide in slides if slide[0] or slide[1]]


def create_pptx(blocks: list[Block], folder: Path, out: Path, title: str) -> None:
    presentation = importlib.import_module("pptx").Presentation()
    points = importlib.import_module("pptx.util").Pt
    presentation.core_properties.title, presentation.core_properties.author = title, ""
    for number, (head, body) in enumerate(slides_of(blocks)):
        texts = [block for block in body if block.kind not in ("table", "image")]
        opening = number == 0 and bool(head) and len(body) <= 1 and len(texts) == len(body)
        layout = 0 if opening else 1 if texts else 5  # title, title and text, only title
        slide = presentation.slides.add_slide(presentation.slide_layouts[layout])
        slide.shapes.title.text = head
        if texts:
            frame = slide.placeholders[1].text_frame
            for index, block in enumerate(texts):
                paragraph = frame.paragraphs[0] if index == 0 else frame.add_paragraph()
                paragraph.text = plain(block.text) if block.kind != "code" else block.text
                paragraph.level = min(block.level - 1, 4) if block.kind in ("bullet", "number") else 0
                paragraph.font.bold = True if block.kind == "heading" else None
        top = 130.0 + (180 if texts and not opening else 0)
        for block in body:
            if block.kind == "table":
                rows, columns = len(block.rows), len(block.rows[0])
                shape = slide.shapes.add_table(rows, columns, points(40), points(top), points(640), points(24 * rows))
                for y, row in enumerate(block.rows):
                    for x, text in enumerate(row):
                        shape.table.cell(y, x).text = plain(text)
                        shape.table.cell(y, x).text_frame.paragraphs[0].font.size = points(14)
                top += 24 * rows + 20
            elif block.kind == "image" and (picture := image_path(block, folder)):
                slide.shapes.add_picture(str(picture), points(60), points(top), height=points(max(520 - top, 120)))
    presentation.save(out)


def register_fonts() -> tuple[str, str, str]:
    """Register fonts with reportlab. Returns the names of text, bold and code."""
    metrics = importlib.import_module("reportlab.pdfbase.pdfmetrics")
    metrics.registerFont(importlib.import_module("reportlab.pdfbase.cidfonts").UnicodeCIDFont("STSong-Light"))
    names = {"DejaVuSans": "text", "DejaVuSans-Bold": "bold", "DejaVuSansMono": "code"}
    if not all((DEJAVU / f"{name}.ttf").is_file() for name in names):
        return "Helvetica", "Helvetica-Bold", "Courier"
    for name in names:
        metrics.registerFont(
            importlib.import_module("reportlab.pdfbase.ttfonts").TTFont(name, str(DEJAVU / f"{name}.ttf"))
        )
    return "DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono"


def pdf_markup(text: str, code: bool, bold: str, mono: str) -> str:
    """Return reportlab's markup. Chinese, Japanese and Korean text gets a font that has it."""

    def escape(words: str) -> str:
        return CJK.sub(lambda match: f'<font name="STSong-Light">{match[0]}</font>', html.escape(words))

    if code:
        return escape(text).replace(" ", "&nbsp;").replace("\n", "<br/>")
    forms = {
        "": "{}", "bold": f'<font name="{bold}">{{}}</font>', "italic": "<i>{}</i>",
        "code": f'<font name="{mono}">{{}}</font>',
        "link": '<font color="#1F4E79">{}</font>',
    }  # fmt: skip
    return "".join(forms[run.style].format(escape(run.text)) for run in parse_runs(text))


def create_pdf(blocks: list[Block], folder: Path, out: Path, title: str) -> None:
    flow = importlib.import_module("reportlab.platypus")
    style = importlib.import_module("reportlab.lib.styles").ParagraphStyle
    colors = importlib.import_module("reportlab.lib.colors")
    text, bold, mono = register_fonts()

    def paragraph(words: str, size: float = 10.5, code: bool = False, **more: Any) -> Any:
        made = style("x", fontName=mono if code else text, fontSize=size, leading=size * 1.4, spaceAfter=6, **more)
        return flow.Paragraph(pdf_markup(words, code, bold, mono), made)

    story: list[Any] = []
    number = 0  # of the last item in a numbered list
    for block in blocks:
        number = number + 1 if block.kind == "number" else 0
        if block.kind == "heading":
            size = {1: 20, 2: 15, 3: 12.5}.get(block.level, 11)
            story.append(
                paragraph(f"**{plain(block.text)}**", size, textColor=f"#{ACCENT}", spaceBefore=10, keepWithNext=1)
            )
        elif block.kind == "table":
            width = PAGE_WIDTH_POINTS / len(block.rows[0])
            cells = [
                [paragraph(f"**{plain(cell)}**" if y == 0 else cell, 9) for cell in row]
                for y, row in enumerate(block.rows)
            ]
            table = flow.Table(cells, colWidths=[width] * len(block.rows[0]), repeatRows=1)
            line, fill = colors.HexColor("#BFBFBF"), colors.HexColor("#DCE6F1")
            table.setStyle(
                [
                    ("GRID", (0, 0), (-1, -1), 0.5, line),
                    ("BACKGROUND", (0, 0), (-1, 0), fill),
                    ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ]
            )
            story += [table, flow.Spacer(1, 10)]
        elif block.kind == "image" and (picture := image_path(block, folder)):
            story.append(flow.Image(str(picture), PAGE_WIDTH_POINTS, PAGE_WIDTH_POINTS * 1.2, kind="proportional"))
        elif block.kind == "rule":
            story.append(flow.PageBreak())
        elif block.kind in ("bullet", "number"):
            story.append(paragraph(f"{f'{number}.' if number else '•'} {block.text}", leftIndent=14 * block.level))
        else:
            story.append(
                paragraph(
                    block.text,
                    9 if block.kind == "code" else 10.5,
                    block.kind == "code",
                    leftIndent=0 if block.kind == "paragraph" else 14,
                )
            )

    def number_page(canvas: Any, document: Any) -> None:
        canvas.setFont(text, 8)
        canvas.drawCentredString(297, 36, str(document.page))

    flow.SimpleDocTemplate(str(out), title=title, leftMargin=72, rightMargin=72).build(
        story, onFirstPage=number_page, onLaterPages=number_page
    )


def read_sheets(path: Path) -> list[dict[str, Any]]:
    """Return [{name, rows}, …] of a CSV or JSON file. Rows may be objects; then their keys are the head."""
    if path.suffix.lower() == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [[number_or_text(cell) for cell in row] for row in csv.reader(file)]
        return [{"name": path.stem, "rows": rows}]
    data = json.loads(path.read_text("utf-8"))
    sheets = data["sheets"] if isinstance(data, dict) and "sheets" in data else [{"name": path.stem, "rows": data}]
    for sheet in sheets:
        if sheet["rows"] and isinstance(sheet["rows"][0], dict):
            head = list(dict.fromkeys(key for row in sheet["rows"] for key in row))
            sheet["rows"] = [head, *[[row.get(key) for key in head] for row in sheet["rows"]]]
    return list(sheets)


def number_or_text(cell: str) -> Any:
    """Convert a cell that is a plain number. Leading zeros mark an identifier, which stays text."""
    if re.fullmatch(r"-?(0|[1-9]\d{0,14})", cell):
        return int(cell)
    return float(cell) if re.fullmatch(r"-?(0|[1-9]\d*)\.\d+", cell) else cell


def create_xlsx(source: Path, out: Path, title: str) -> None:
    """Write a workbook: bold head, filter, frozen first row, fitted columns. Only JSON input may contain formulas."""
    openpyxl = importlib.import_module("openpyxl")
    styles = importlib.import_module("openpyxl.styles")
    book = openpyxl.Workbook()
    book.remove(book.active)
    book.properties.title = title
    for sheet in read_sheets(source):
        page = book.create_sheet(re.sub(r"[\[\]:*?/\\]", "_", str(sheet["name"]))[:31])
        for row in sheet["rows"]:
            page.append(row)
            if source.suffix.lower() == ".csv":
                for cell in page[page.max_row]:
                    cell.data_type = "s" if isinstance(cell.value, str) else cell.data_type
        if sheet["rows"]:
            for cell in page[1]:
                cell.font = styles.Font(bold=True, color="FFFFFF")
                cell.fill = styles.PatternFill("solid", fgColor=ACCENT)
            page.freeze_panes, page.auto_filter.ref = "A2", page.dimensions
        for column in page.columns:
            width = max(sum(2 if CJK.match(sign) else 1 for sign in str(cell.value or "")) for cell in column[:200])
            page.column_dimensions[column[0].column_letter].width = min(max(width + 2, 8), 60)
    book.save(out)


MAKERS: dict[str, tuple[Callable[[list[Block], Path, Path, str], None], str]] = {
    ".docx": (create_docx, "python-docx"),
    ".pptx": (create_pptx, "python-pptx"),
    ".pdf": (create_pdf, "reportlab"),
}


def create_document(source: Path, out: Path, title: str) -> str:
    """Create `out`. Returns the name of the package or program that made it. Raises ImportError."""
    kind = out.suffix.lower()
    if kind == ".xlsx":
        create_xlsx(source, out, title)
        return "openpyxl"
    maker, package = MAKERS[kind]
    try:
        maker(parse_markdown(source.read_text("utf-8")), source.parent, out, title)
    except ImportError:
        if kind == ".pdf" or not shutil.which("pandoc"):
            raise
        subprocess.run(["pandoc", str(source), "-o", str(out), "--metadata", f"title={title}"], check=True)
        return "pandoc"
    return package


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "source", type=Path, help="Markdown, or for xlsx: CSV or JSON ([{…}] or {sheets: [{name, rows}]})"
    )
    parser.add_argument("out", type=Path, help="the file to create: .docx, .pptx, .pdf or .xlsx")
    parser.add_argument("--title", default="", help="in the file's properties; default: the name of the source")
    options = parser.parse_args()
    kind = options.out.suffix.lower()
    if kind != ".xlsx" and kind not in MAKERS:
        parser.error(f"{kind or 'no suffix'} is not supported; use .docx, .pptx, .pdf or .xlsx")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        made_by = create_document(options.source, options.out, options.title or options.source.stem)
    except ImportError:
        package = "openpyxl" if kind == ".xlsx" else MAKERS[kind][1]
        other = {".docx": " or the program pandoc", ".pptx": " or the program pandoc"}.get(kind, "")
        print(
            json.dumps(
                {"error": f"{kind} needs {package}{other}.", "missing": [package], "fix": f"pip install {package}"}
            )
        )
        sys.exit(EXIT_MISSING_PACKAGE)
    print(json.dumps({"written": str(options.out), "bytes": options.out.stat().st_size, "by": made_by}))


if __name__ == "__main__":
    main()
