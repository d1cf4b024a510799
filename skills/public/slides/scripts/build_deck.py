"""Build slides (pptx) from Markdown, and draw slides as pictures. Needs python-pptx; pictures need LibreOffice.

What does not fit is split over slides, or refused with the number of the slide.
Without arguments, the program reads the same as JSON from stdin.
"""

from __future__ import annotations

import argparse
import copy
import io
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from deck_layout import (
    CELL_X,
    CELL_Y,
    Box,
    Page,
    column_widths,
    item_size,
    pages_of,
    row_height,
)  # fmt: skip
from deck_source import Run, Text, Visual, parse_deck, parse_runs, plain, wrong
from deck_theme import (
    CONTENT,
    COVER,
    EMU,
    MONO,
    NAMES,
    ONLY_TITLE,
    SECTION,
    Look,
    element,
    make_look,
    place,
    scheme,
    style_layouts,
    write_theme,
)  # fmt: skip
from skill_program import EXIT_MISSING_PACKAGE, Problem, check_size, fail, need, run_program

PACKAGE = "python-pptx"
MAX_SOURCE_BYTES, MAX_PICTURE_BYTES, MAX_DECK_BYTES = 2 << 20, 50 << 20, 200 << 20
MAX_PIXELS = 100_000_000
PICTURE_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF")
ORIENTATION = 0x0112
LIBREOFFICE_SECONDS = 240
CHARTS = {
    "column": "COLUMN_CLUSTERED", "stacked": "COLUMN_STACKED", "bar": "BAR_CLUSTERED",
    "line": "LINE_MARKERS", "area": "AREA_STACKED", "pie": "PIE",
}  # fmt: skip
INDENT = 26
NO_STYLE = "{2D5ABB26-0587-4C30-8999-92F81FD0307C}"  # of a table: no lines, no fills


class Deck:
    """Draws pages into a presentation."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.file: Any = need("pptx", PACKAGE).Presentation()
        write_theme(self.file.slide_master, look)
        style_layouts(self.file, look)
        self.layouts = dict(zip((COVER, CONTENT, SECTION, ONLY_TITLE), self.file.slide_layouts))

    def add(self, page: Page) -> None:
        kind = {"title": COVER, "section": SECTION}.get(page.slide.kind, CONTENT if page.texts else ONLY_TITLE)
        slide = self.file.slides.add_slide(self.layouts[kind])
        if page.title:
            slide.shapes.title.text = page.title
        else:
            remove(slide.shapes.title)
        if kind == CONTENT:
            place(slide.placeholders[1], page.text_box)
            self._texts(slide.placeholders[1], page)
        elif kind in (COVER, SECTION):
            self._below_title(slide.placeholders[1], page)
        for visual, box in page.visuals:
            drawn = {"picture": self._picture, "chart": self._chart, "table": self._table}[visual.kind]
            shape = drawn(slide, visual, box, page)
            shape.element.xpath(".//p:cNvPr")[0].set("descr", visual.title or visual.caption or visual.kind)
        if page.notes:
            slide.notes_slide.notes_text_frame.text = page.notes
        if kind not in (COVER, SECTION):
            add_number(slide, self.layouts[kind])

    def _below_title(self, shape: Any, page: Page) -> None:
        if not page.texts:
            remove(shape)
            return
        for index, item in enumerate(page.texts):
            paragraph = shape.text_frame.paragraphs[0] if index == 0 else shape.text_frame.add_paragraph()
            self._runs(paragraph, parse_runs(item.text))

    def _texts(self, shape: Any, page: Page) -> None:
        frame, points = shape.text_frame, need("pptx.util", PACKAGE).Pt
        starts: dict[int, int] = {}  # of the numbered lists, by their levels
        for index, item in enumerate(page.texts):
            paragraph = frame.paragraphs[0] if index == 0 else frame.add_paragraph()
            size = item_size(item, page.size)
            paragraph.font.size = points(size)
            paragraph.space_before, paragraph.line_spacing = points(0), 1.0
            paragraph.space_after = points(0 if item.kind == "code" else size * 0.4)
            starts = {level: start for level, start in starts.items() if level < item.level or item.kind == "number"}
            properties = shape.element.txBody.p_lst[index].get_or_add_pPr()
            list_mark(properties, item, starts.setdefault(item.level, item.number) if item.number else 0)
            code = [Run(item.text, "code")]
            self._runs(paragraph, code if item.kind == "code" else parse_runs(item.text))
            if item.kind == "heading":
                paragraph.font.bold = True
            if item.kind == "quote":
                paragraph.font.italic = True

    def _runs(self, paragraph: Any, runs: list[Run]) -> None:
        for run in runs:
            written = paragraph.add_run()
            written.text = run.text
            written.font.bold, written.font.italic = run.style == "bold" or None, run.style == "italic" or None
            if run.style == "code":
                written.font.name = MONO
            if run.url:
                written.hyperlink.address = run.url

    def _color(self, color: str) -> Any:
        return need("pptx.dml.color", PACKAGE).RGBColor.from_string(color)

    def _picture(self, slide: Any, visual: Visual, box: Box, page: Page) -> Any:
        data, (wide, high) = read_picture(visual.path, page)
        space = box._replace(height=box.height - 28) if visual.caption else box
        scale = min(space.width / wide, space.height / high)
        width, height = wide * scale, high * scale
        at = Box(space.left + (space.width - width) / 2, space.top + (space.height - height) / 2, width, height)
        shape = slide.shapes.add_picture(io.BytesIO(data), *(round(side * EMU) for side in at))
        if visual.caption:
            self._caption(slide, visual.caption, Box(box.left, at.top + height + 4, box.width, 24))
        return shape

    def _caption(self, slide: Any, text: str, box: Box) -> None:
        frame = slide.shapes.add_textbox(*(round(side * EMU) for side in box)).text_frame
        frame.word_wrap = True
        paragraph = frame.paragraphs[0]
        paragraph.text = plain(text)
        paragraph.alignment = need("pptx.enum.text", PACKAGE).PP_ALIGN.CENTER
        paragraph.font.size = need("pptx.util", PACKAGE).Pt(14)
        paragraph.font.color.rgb = self._color(self.look.muted)

    def _chart(self, slide: Any, visual: Visual, box: Box, page: Page) -> Any:
        kind = getattr(need("pptx.enum.chart", PACKAGE).XL_CHART_TYPE, CHARTS[visual.chart])
        if visual.chart == "pie" and (len(visual.head) != 2 or any(float(row[1] or 0) < 0 for row in visual.rows)):
            raise wrong(page.slide.number, page.slide.title, "a pie has one column of numbers, none below zero.")
        data = need("pptx.chart.data", PACKAGE).CategoryChartData()
        data.categories = [row[0] for row in visual.rows]
        for column, name in enumerate(visual.head[1:], 1):
            data.add_series(name, [float(row[column]) if row[column] else None for row in visual.rows])
        shape = slide.shapes.add_chart(kind, *(round(side * EMU) for side in box), data)
        self._style_chart(shape.chart, visual)
        return shape

    def _style_chart(self, chart: Any, visual: Visual) -> None:
        enums = need("pptx.enum.chart", PACKAGE)
        pie, one = visual.chart == "pie", len(visual.head) == 2
        chart.font.size = need("pptx.util", PACKAGE).Pt(14)
        chart.font.color.rgb = self._color(self.look.text)
        chart.has_title = bool(visual.title)
        if visual.title:
            chart.chart_title.text_frame.text = visual.title
            chart.chart_title.text_frame.paragraphs[0].font.size = need("pptx.util", PACKAGE).Pt(16)
            chart.chart_title.text_frame.paragraphs[0].font.color.rgb = self._color(self.look.text)
        chart.has_legend = pie or not one
        if chart.has_legend:
            chart.legend.position = enums.XL_LEGEND_POSITION.BOTTOM
            chart.legend.include_in_layout = False
        for index, series in enumerate(chart.plots[0].series):
            self._paint(series, visual.chart, index)
        if pie:
            for index in range(len(visual.rows)):
                self._fill(chart.plots[0].series[0].points[index].format.fill, index)
        else:
            chart.value_axis.major_gridlines.format.line.color.rgb = self._color(self.look.soft)
            chart.value_axis.format.line.fill.background()
            chart.category_axis.format.line.color.rgb = self._color(self.look.muted)
            if visual.chart == "bar":
                chart.category_axis.reverse_order = True
                chart.value_axis.tick_label_position = enums.XL_TICK_LABEL_POSITION.HIGH
        if (pie or one) and visual.chart != "area" and len(visual.rows) <= 12:
            chart.plots[0].has_data_labels = True
            chart.plots[0].data_labels.show_value = True
            chart.plots[0].data_labels.font.color.rgb = self._color(self.look.text)
            chart.plots[0].data_labels.font.size = need("pptx.util", PACKAGE).Pt(14)
            if pie:
                chart.plots[0].data_labels.position = enums.XL_LABEL_POSITION.OUTSIDE_END
        if visual.chart in ("column", "stacked", "bar"):
            chart.plots[0].gap_width = 60

    def _paint(self, series: Any, chart: str, index: int) -> None:
        if chart == "line":
            series.format.line.width = need("pptx.util", PACKAGE).Pt(2.75)
            series.format.line.color.theme_color = self._accent(index)
            series.smooth = False
            self._fill(series.marker.format.fill, index)
            series.marker.format.line.color.theme_color = self._accent(index)
        elif chart != "pie":
            self._fill(series.format.fill, index)

    def _accent(self, index: int) -> Any:
        colors = need("pptx.enum.dml", PACKAGE).MSO_THEME_COLOR
        return getattr(colors, f"ACCENT_{index % len(self.look.series) + 1}")

    def _fill(self, fill: Any, index: int) -> None:
        fill.solid()
        fill.fore_color.theme_color = self._accent(index)

    def _table(self, slide: Any, visual: Visual, box: Box, page: Page) -> Any:
        size = page.table_size
        widths = column_widths(visual, box.width, size) or []
        rows = (visual.head, *visual.rows)
        heights = [row_height(row, widths, size) for row in rows]
        at = box._replace(height=sum(heights))
        shape = slide.shapes.add_table(len(rows), len(widths), *(round(side * EMU) for side in at))
        table = shape.table
        shape.element.graphic.graphicData.tbl.tblPr.find(f"{{{NAMES}}}tableStyleId").text = NO_STYLE
        for column, width in zip(table.columns, widths):
            column.width = round(width * EMU)
        for y, (row, height) in enumerate(zip(rows, heights)):
            table.rows[y].height = round(height * EMU)
            for x, text in enumerate(row):
                self._cell(table.cell(y, x), text, size, head=y == 0, even=y % 2 == 0, right=visual.right[x])
        return shape

    def _cell(self, cell: Any, text: str, size: int, *, head: bool, even: bool, right: bool) -> None:
        colors = need("pptx.enum.dml", PACKAGE).MSO_THEME_COLOR
        points = need("pptx.util", PACKAGE).Pt
        cell.margin_left = cell.margin_right = points(CELL_X / 2)
        cell.margin_top = cell.margin_bottom = points(CELL_Y / 2)
        paragraph = cell.text_frame.paragraphs[0]
        self._runs(paragraph, parse_runs(text))
        paragraph.font.size, paragraph.font.bold = points(size), head
        paragraph.font.color.rgb = self._color(self.look.on_accent if head else self.look.text)
        if right:
            paragraph.alignment = need("pptx.enum.text", PACKAGE).PP_ALIGN.RIGHT
        cell.fill.solid()
        cell.fill.fore_color.theme_color = (
            colors.ACCENT_1 if head else colors.BACKGROUND_2 if even else colors.BACKGROUND_1
        )


def list_mark(properties: Any, item: Text, start: int) -> None:
    """Give a paragraph its bullet or number, or none."""
    if item.kind not in ("bullet", "number"):
        properties.set("marL", str(INDENT * EMU if item.kind == "quote" else 0))
        properties.set("indent", "0")
        properties.append(element("<a:buNone/>"))
        return
    properties.set("lvl", str(item.level - 1))
    properties.set("marL", str(INDENT * item.level * EMU))
    properties.set("indent", str(-INDENT * EMU))
    properties.append(element(f"<a:buClr>{scheme('accent1')}</a:buClr>"))
    properties.append(element('<a:buFont typeface="Arial"/>'))
    if item.kind == "number":
        properties.append(element(f'<a:buAutoNum type="arabicPeriod" startAt="{max(start, 1)}"/>'))
    else:
        properties.append(element(f'<a:buChar char="{"•" if item.level == 1 else "–"}"/>'))


def remove(shape: Any) -> None:
    shape.element.getparent().remove(shape.element)


def add_number(slide: Any, layout: Any) -> None:
    """Show the slide's number: copy the layout's placeholder, without its place."""
    for shape in layout.placeholders:
        if shape.placeholder_format.type.name == "SLIDE_NUMBER":
            slide.shapes.element.append(copy.deepcopy(shape.element))


def read_picture(path: Path, page: Page) -> tuple[bytes, tuple[int, int]]:
    """Return the bytes of a picture, upright, and its size in pixels. Raises Problem."""
    images, turning = need("PIL.Image", "pillow"), need("PIL.ImageOps", "pillow")
    images.MAX_IMAGE_PIXELS = None  # the limit below is ours
    slide = page.slide
    try:
        data = check_size(path, MAX_PICTURE_BYTES).read_bytes()
        image = images.open(io.BytesIO(data))
    except (Problem, need("PIL", "pillow").UnidentifiedImageError) as error:
        what = str(error) if isinstance(error, Problem) else f"{path.name} is not a picture that can be read."
        raise wrong(slide.number, slide.title, what) from None
    if image.format not in PICTURE_FORMATS or image.width * image.height > MAX_PIXELS:
        what = f"{path.name} is {image.format} of {image.width} × {image.height} pixels; make a PNG or JPEG of it."
        raise wrong(slide.number, slide.title, what)
    if image.getexif().get(ORIENTATION, 1) == 1:
        return data, image.size
    upright = turning.exif_transpose(image).convert("RGB")
    packed = io.BytesIO()
    upright.save(packed, "JPEG", quality=92)
    return packed.getvalue(), upright.size


def build(options: argparse.Namespace) -> dict[str, Any]:
    """Write a deck, and say what each slide holds."""
    need("pptx", PACKAGE)
    if bool(options.file) == bool(options.markdown):
        raise Problem("Name a file with Markdown, or give the Markdown itself by --markdown.")
    if options.out.suffix.lower() != ".pptx":
        raise Problem(f"{options.out.name} should end with .pptx.")
    folder = options.file.parent if options.file else Path()
    text = options.markdown or check_size(options.file, MAX_SOURCE_BYTES).read_text("utf-8-sig")
    slides = parse_deck(text, folder)
    pages = [page for slide in slides for page in pages_of(slide)]
    deck = Deck(make_look(options.theme, options.accent))
    for page in pages:
        deck.add(page)
    properties = deck.file.core_properties
    properties.title, properties.author = options.title or slides[0].title, options.author
    options.out.parent.mkdir(parents=True, exist_ok=True)
    deck.file.save(options.out)
    described = [
        {
            "slide": number,
            "title": page.title,
            "holds": [*(["text"] if page.texts else []), *(visual.kind for visual, _box in page.visuals)],
            **({"points": page.size} if page.texts else {}),
            **({"notes": True} if page.notes else {}),
        }
        for number, page in enumerate(pages, 1)
    ]
    split = sorted({page.slide.number for page in pages if page.title != page.slide.title})
    more = {"split": split} if split else {}
    return {"written": str(options.out), "bytes": options.out.stat().st_size, "slides": described, **more}


def draw(options: argparse.Namespace) -> dict[str, Any]:
    """Draw slides as PNG, and all of them on one overview."""
    program = shutil.which("soffice") or shutil.which("libreoffice")
    if not program:
        fail(
            "Drawing slides needs LibreOffice (soffice), which is not installed here. The deck does not need it.",
            EXIT_MISSING_PACKAGE, missing=["libreoffice-impress"], fix="apt-get install libreoffice-impress-nogui",
        )  # fmt: skip
    pdfium = need("pypdfium2", "pypdfium2")
    images = need("PIL.Image", "pillow")
    check_size(options.file, MAX_DECK_BYTES)
    if not 200 <= options.width <= 3840:
        raise Problem("--width is between 200 and 3840 pixels.")
    options.out.mkdir(parents=True, exist_ok=True)
    written, tiles = [], []
    with tempfile.TemporaryDirectory() as folder:
        document = pdfium.PdfDocument(printed(program, options.file, Path(folder)))
        for number, page in enumerate(document, 1):
            picture = page.render(scale=options.width / page.get_width()).to_pil()
            path = options.out / f"slide_{number:03d}.png"
            picture.save(path, optimize=True)
            written.append(str(path))
            tiles.append(picture.resize((480, round(480 * picture.height / picture.width)), images.Resampling.LANCZOS))
        document.close()
    overview = options.out / "overview.png"
    join(tiles, images).save(overview, optimize=True)
    return {"written": written, "overview": str(overview)}


def printed(program: str, file: Path, folder: Path) -> Path:
    """Let LibreOffice print a file as PDF. Raises Problem."""
    source = folder / f"deck{file.suffix.lower()}"
    shutil.copyfile(file, source)
    command = [program, f"-env:UserInstallation=file://{folder}/profile", "--headless", "--norestore"]
    try:
        subprocess.run(
            [*command, "--convert-to", "pdf", "--outdir", str(folder), str(source)],
            check=True, capture_output=True, timeout=LIBREOFFICE_SECONDS,
        )  # fmt: skip
    except subprocess.SubprocessError as error:
        raise Problem(f"LibreOffice could not draw {file.name} ({type(error).__name__}).") from error
    made = folder / "deck.pdf"
    if not made.is_file():
        raise Problem(f"LibreOffice cannot read {file.name}: it is damaged, or it has a password.")
    return made


def join(tiles: list[Any], images: Any) -> Any:
    """Return slides in two columns, on grey."""
    gap, columns = 10, min(2, len(tiles))
    high = max(tile.height for tile in tiles)
    rows = -(-len(tiles) // columns)
    plate = images.new("RGB", (columns * (480 + gap) + gap, rows * (high + gap) + gap), "#C8CDD4")
    for index, tile in enumerate(tiles):
        plate.paste(tile, (gap + index % columns * (480 + gap), gap + index // columns * (high + gap)))
    return plate


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="write a deck from Markdown")
    command.add_argument("file", type=Path, nargs="?", help="the Markdown; its pictures and data are relative to it")
    command.add_argument("--markdown", default="", metavar="TEXT", help="the Markdown itself, instead of a file")
    command.add_argument("--out", type=Path, required=True, help="the file to write: .pptx")
    command.add_argument("--theme", choices=("light", "dark"), default="light")
    command.add_argument("--accent", default="#2F6FDE", help="the one color of titles, charts and tables, as #rrggbb")
    command.add_argument("--title", default="", help="in the file's properties; default: that of the first slide")
    command.add_argument("--author", default="")
    command = commands.add_parser("pictures", help="draw the slides of a deck as PNG, by LibreOffice")
    command.add_argument("file", type=Path)
    command.add_argument("--out", type=Path, required=True, help="the folder to write into")
    command.add_argument("--width", type=int, default=1280, help="pixels")
    return parser


def unreadable() -> tuple[type[Exception], ...]:
    return ValueError, SyntaxError, EOFError, RecursionError


if __name__ == "__main__":
    run_program(make_parser(), {"build": build, "pictures": draw}, unreadable)
