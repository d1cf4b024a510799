"""Fill forms, merge, split, turn and stamp pdf files; take text, tables and pictures of pages out of them.

Needs pypdf; text and pictures pypdfium2, tables pdfplumber, stamps reportlab. Page numbers begin at 1.
Without arguments, the program reads the same as JSON from stdin.
"""

from __future__ import annotations

import argparse
import csv
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skill_program import MissingPackage, Problem, check_size, need, read_json, run_program

MAX_FILE_BYTES = 200 << 20
MAX_PAGES = 5000
MAX_FILES = 200
MAX_PICTURES = 50
MAX_TABLE_PAGES = 200
MAX_PICTURE_PIXELS = 50_000_000
CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]")
KINDS = {"/Tx": "text", "/Ch": "choice", "/Sig": "signature"}
RADIO, PUSH, READ_ONLY, REQUIRED = 1 << 15, 1 << 16, 1, 2  # flags of a field
PLACES = {
    "center": (0.5, 0.5), "top-left": (0.0, 1.0), "top": (0.5, 1.0), "top-right": (1.0, 1.0),
    "bottom-left": (0.0, 0.0), "bottom": (0.5, 0.0), "bottom-right": (1.0, 0.0),
}  # fmt: skip


def open_pdf(path: Path, password: str = "") -> Any:
    """Open a file within the limits. Raises Problem."""
    pypdf = need("pypdf", "pypdf")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it repairs what it can; its remarks are not ours
    check_size(path, MAX_FILE_BYTES)
    reader = pypdf.PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(password):
        raise Problem(f"{path.name} has a password; ask for it, and give it with --password.")
    if len(reader.pages) > MAX_PAGES:
        raise Problem(f"{path.name} has {len(reader.pages)} pages; at most {MAX_PAGES} are changed at once.")
    return reader


def page_numbers(text: str, count: int) -> list[int]:
    """Return the pages of "1-3,7,9-": from 1, in this order. "" are all. Raises Problem."""
    found: list[int] = []
    for part in text.split(",") if text.strip() else ["1-"]:
        match = re.fullmatch(r"\s*(\d{1,5})?\s*(-)?\s*(\d{1,5})?\s*", part)
        if not match or not (match[1] or match[3]):
            raise Problem(f"{part!r} are not pages; use numbers and ranges, such as 1-3,7,9-.")
        first = int(match[1] or 1)
        last = int(match[3] or count) if match[2] else first
        if not 1 <= first <= count or not 1 <= last <= count:
            raise Problem(f"There is no page {part.strip()}; the file has {count} pages.")
        found += range(first, last + 1) if first <= last else range(first, last - 1, -1)
        if len(found) > MAX_PAGES:
            raise Problem(f"These are more than {MAX_PAGES} pages.")
    return found


def save(writer: Any, out: Path) -> dict[str, Any]:
    out.parent.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO()
    writer.write(packed)
    out.write_bytes(packed.getvalue())
    return {"written": str(out), "pages": len(writer.pages), "bytes": packed.tell()}


def info(options: argparse.Namespace) -> dict[str, Any]:
    """Describe a file: pages, sizes in millimeters, fields, properties."""
    reader = open_pdf(options.file, options.password)
    sizes: dict[str, int] = {}
    for page in reader.pages:
        width, height = (round(float(side) * 25.4 / 72) for side in (page.mediabox.width, page.mediabox.height))
        name = f"{height} x {width}" if page.rotation % 180 else f"{width} x {height}"
        sizes[name] = sizes.get(name, 0) + 1
    return {
        "pages": len(reader.pages),
        "sizes_mm": sizes,
        "encrypted": reader.is_encrypted,
        "fields": sum(1 for _ in field_widgets(reader)),
        "properties": {key.lstrip("/"): str(value)[:300] for key, value in (reader.metadata or {}).items()},
    }


def inherited(widget: Any, key: str) -> Any:
    """Return a value of a field, which a parent may have."""
    for _ in range(20):
        if key in widget:
            return widget[key]
        if "/Parent" not in widget:
            return None
        widget = widget["/Parent"].get_object()
    return None


def full_name(widget: Any) -> str:
    names: list[str] = []
    for _ in range(20):
        if "/T" in widget:
            names.insert(0, str(widget["/T"]))
        if "/Parent" not in widget:
            break
        widget = widget["/Parent"].get_object()
    return ".".join(names)


def field_widgets(document: Any) -> Iterator[tuple[int, Any]]:
    """Return what is filled in on the pages: the number of the page, and the widget."""
    for number, page in enumerate(document.pages, 1):
        for reference in page.get("/Annots") or []:
            widget = reference.get_object()
            if widget.get("/Subtype") == "/Widget" and inherited(widget, "/FT"):
                yield number, widget


def on_states(widget: Any) -> list[str]:
    """Return the states of a box besides off."""
    shown = (widget.get("/AP") or {}).get("/N") or {}
    return [str(state)[1:] for state in shown if state != "/Off"]


def describe_fields(document: Any) -> dict[str, dict[str, Any]]:
    """Return the fields by name, with their values and what they may be."""
    found: dict[str, dict[str, Any]] = {}
    for number, widget in field_widgets(document):
        kind, flags = inherited(widget, "/FT"), int(inherited(widget, "/Ff") or 0)
        if kind == "/Btn" and flags & PUSH:
            continue
        box = "radio" if flags & RADIO else "checkbox"
        name, value = full_name(widget), inherited(widget, "/V")
        field = found.setdefault(name, {
            "type": KINDS.get(str(kind), box), "page": number,
            "value": "" if value is None else str(value).lstrip("/") if kind == "/Btn" else str(value),
        })  # fmt: skip
        if kind == "/Btn":
            field["options"] = field.get("options", []) + on_states(widget)
        elif kind == "/Ch":
            choices = [each.get_object() for each in inherited(widget, "/Opt") or []]
            field["options"] = [str(each[0] if isinstance(each, list) else each) for each in choices]
        if kind == "/Tx" and inherited(widget, "/MaxLen"):
            field["max_length"] = int(inherited(widget, "/MaxLen"))
        field.update({key: True for key, flag in (("read_only", READ_ONLY), ("required", REQUIRED)) if flags & flag})
        if inherited(widget, "/TU"):
            field["label"] = str(inherited(widget, "/TU"))
    return found


def list_fields(options: argparse.Namespace) -> dict[str, Any]:
    fields = describe_fields(open_pdf(options.file, options.password))
    note = "" if fields else "The file has no form fields; write on it with `stamp`, or ask for the form as a pdf form."
    return {"fields": fields, **({"note": note} if note else {})}


def field_value(name: str, field: dict[str, Any], value: Any) -> str:
    """Return what a field is set to. Raises Problem for a value that it cannot have."""
    if field["type"] == "signature":
        raise Problem(f"{name} is a signature; a person signs it.")
    if field["type"] in ("checkbox", "radio"):
        options = field["options"]
        if value is True and len(set(options)) == 1:
            return f"/{options[0]}"
        if value is False or value in ("", "Off"):
            return "/Off"
        if str(value) not in options:
            raise Problem(f"{name} is one of {', '.join(options)}, or false; not {value!r}.")
        return f"/{value}"
    if isinstance(value, (dict, list, bool)):
        raise Problem(f"{name} takes a text, not {value!r}.")
    text = "" if value is None else str(value)
    if len(text) > field.get("max_length", 100_000):
        raise Problem(f"{name} takes at most {field.get('max_length', 100_000)} characters; the text has {len(text)}.")
    if field["type"] == "choice" and field.get("options") and text and text not in field["options"]:
        raise Problem(f"{name} is one of {', '.join(field['options'])}; not {text!r}.")
    return text


def fill(options: argparse.Namespace) -> dict[str, Any]:
    """Fill in a form. If one value is wrong, nothing is written."""
    values = read_json(options.values)
    reader = open_pdf(options.file, options.password)
    fields = describe_fields(reader)
    if not isinstance(values, dict) or not values:
        raise Problem('The values are a JSON object: {"name of a field": "value"}; `fields` lists the names.')
    if unknown := sorted(set(values) - set(fields)):
        raise Problem(f"There is no field {unknown[0]!r}; there are: {', '.join(list(fields)[:50]) or 'none'}.")
    made = {name: field_value(name, fields[name], value) for name, value in values.items()}
    writer = need("pypdf", "pypdf").PdfWriter(clone_from=reader)
    writer.set_need_appearances_writer(True)
    writer.update_page_form_field_values(list(writer.pages), made, auto_regenerate=False)
    for _, widget in field_widgets(writer):
        name = full_name(widget)
        if name in made and fields[name]["type"] == "radio":
            press_radio(widget, made[name])
    notes = []
    if any(not text.isascii() and CJK.search(text) for text in made.values()):
        notes.append("the form's font may lack these characters; look at the page, and open it in another viewer")
    empty = [name for name, field in fields.items() if field.get("required") and not (made.get(name) or field["value"])]
    written = save(writer, options.out)
    if options.flatten:
        written["bytes"] = flatten(options.out)
    return {**written, "filled": len(made), "required_and_empty": empty, "notes": notes}


def press_radio(widget: Any, value: str) -> None:
    """Set a button of a group: the group has the value, each button only whether it is pressed."""
    generic = need("pypdf.generic", "pypdf")
    if "/Parent" in widget:
        widget.pop("/V", None)
        widget["/Parent"].get_object()[generic.NameObject("/V")] = generic.NameObject(value)
    pressed = value if value[1:] in on_states(widget) else "/Off"
    widget[generic.NameObject("/AS")] = generic.NameObject(pressed)


def flatten(path: Path) -> int:
    """Turn the fields of a file into drawn text. Returns its new size."""
    pdfium = need("pypdfium2", "pypdfium2")
    document = pdfium.PdfDocument(path.read_bytes())
    document.init_forms()
    for page in document:
        page.flatten()
    packed = io.BytesIO()
    document.save(packed)
    writer = need("pypdf", "pypdf").PdfWriter(clone_from=io.BytesIO(packed.getvalue()))
    writer.remove_annotations(subtypes="/Widget")
    writer.root_object.pop("/AcroForm", None)
    with path.open("wb") as file:
        writer.write(file)
        return file.tell()


def merge(options: argparse.Namespace) -> dict[str, Any]:
    """Append files, or pages of them: a.pdf b.pdf#2-4."""
    if len(options.files) > MAX_FILES:
        raise Problem(f"At most {MAX_FILES} files are merged at once.")
    writer = need("pypdf", "pypdf").PdfWriter()
    for given in options.files:
        name, _, pages = given.partition("#") if not Path(given).is_file() else (given, "", "")
        reader = open_pdf(Path(name), options.password)
        numbers = page_numbers(pages, len(reader.pages))
        if len(writer.pages) + len(numbers) > MAX_PAGES:
            raise Problem(f"Together they have more than {MAX_PAGES} pages.")
        writer.append(reader, outline_item=Path(name).stem, pages=[number - 1 for number in numbers])
    return save(writer, options.out)


def pick(reader: Any, numbers: list[int]) -> Any:
    writer = need("pypdf", "pypdf").PdfWriter()
    writer.append(reader, pages=[number - 1 for number in numbers])
    return writer


def choose_pages(options: argparse.Namespace) -> dict[str, Any]:
    """Write chosen pages, in the order in which they are named."""
    reader = open_pdf(options.file, options.password)
    return save(pick(reader, page_numbers(options.pages, len(reader.pages))), options.out)


def split(options: argparse.Namespace) -> dict[str, Any]:
    """Write one file for each range, or for each N pages."""
    reader = open_pdf(options.file, options.password)
    count = len(reader.pages)
    groups = [page_numbers(each, count) for each in options.pages]
    if not groups:
        every = max(options.every, 1)
        groups = [list(range(first, min(first + every, count + 1))) for first in range(1, count + 1, every)]
    if len(groups) > MAX_FILES:
        raise Problem(f"These would be {len(groups)} files; at most {MAX_FILES} are written: use a larger --every.")
    written = []
    for group in groups:
        name = f"{options.file.stem}_{group[0]:03d}" + (f"-{group[-1]:03d}" if len(group) > 1 else "")
        written.append(save(pick(reader, group), options.out / f"{name}.pdf"))
    return {"written": [each["written"] for each in written], "pages": [each["pages"] for each in written]}


def rotate(options: argparse.Namespace) -> dict[str, Any]:
    """Turn pages clockwise."""
    if options.degrees % 90:
        raise Problem("Pages are turned by 90, 180 or 270 degrees.")
    reader = open_pdf(options.file, options.password)
    writer = need("pypdf", "pypdf").PdfWriter(clone_from=reader)
    for number in set(page_numbers(options.pages, len(reader.pages))):
        writer.pages[number - 1].rotate(options.degrees)
    return save(writer, options.out)


def stamp_font(text: str) -> str:
    metrics = need("reportlab.pdfbase.pdfmetrics", "reportlab")
    if CJK.search(text):
        metrics.registerFont(need("reportlab.pdfbase.cidfonts", "reportlab").UnicodeCIDFont("STSong-Light"))
        return "STSong-Light"
    path = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf")
    if path.is_file() and not text.isascii():
        metrics.registerFont(need("reportlab.pdfbase.ttfonts", "reportlab").TTFont("DejaVu", str(path)))
        return "DejaVu"
    return "Helvetica-Bold"


def stamp_page(options: argparse.Namespace, width: float, height: float) -> Any:
    """Return a page of this size with the text or the picture of a stamp on it."""
    units = need("reportlab.lib.utils", "reportlab")
    packed = io.BytesIO()
    canvas = need("reportlab.pdfgen.canvas", "reportlab").Canvas(packed, pagesize=(width, height))
    if options.image:
        picture = units.ImageReader(str(check_size(options.image, 20 << 20)))
        across, down = picture.getSize()
        wide = width * options.size / 100
        high = wide * down / across
    else:
        name = stamp_font(options.text)
        metrics = need("reportlab.pdfbase.pdfmetrics", "reportlab")
        size = options.points or 100 * width * options.size / 100 / metrics.stringWidth(options.text, name, 100)
        wide, high = metrics.stringWidth(options.text, name, size), size * 0.72
    margin, (x, y) = min(width, height) * 0.04, PLACES[options.place]
    canvas.translate(
        margin + wide / 2 + x * (width - 2 * margin - wide), margin + high / 2 + y * (height - 2 * margin - high)
    )
    canvas.rotate(options.angle)
    if options.image:
        canvas.setFillAlpha(options.opacity)
        canvas.drawImage(picture, -wide / 2, -high / 2, wide, high, mask="auto")
    else:
        canvas.setFillColor(need("reportlab.lib.colors", "reportlab").toColor(options.color))
        canvas.setFillAlpha(options.opacity)  # a color sets it, too
        canvas.setFont(name, size)
        canvas.drawCentredString(0, -high / 2, options.text)
    canvas.save()
    return need("pypdf", "pypdf").PdfReader(io.BytesIO(packed.getvalue())).pages[0]


def stamp(options: argparse.Namespace) -> dict[str, Any]:
    """Write a text or a picture on pages: a watermark, a date, page numbers with {page} and {pages}."""
    if bool(options.text) == bool(options.image):
        raise Problem("A stamp is either --text or --image.")
    if not 0 < options.opacity <= 1 or not 0 < options.size <= 100 or len(options.text) > 300:
        raise Problem("The opacity is above 0 and at most 1, the size at most 100 percent, the text 300 characters.")
    reader = open_pdf(options.file, options.password)
    writer = need("pypdf", "pypdf").PdfWriter(clone_from=reader)
    made: dict[Any, Any] = {}
    text = options.text
    for number in sorted(set(page_numbers(options.pages, len(reader.pages)))):
        page = writer.pages[number - 1]
        if page.rotation:
            page.transfer_rotation_to_content()
        options.text = text.replace("{page}", str(number)).replace("{pages}", str(len(reader.pages)))
        width, height = float(page.mediabox.width), float(page.mediabox.height)
        key = (options.text, width, height)
        if key not in made:
            made[key] = stamp_page(options, width, height)
        move = need("pypdf", "pypdf").Transformation().translate(float(page.mediabox.left), float(page.mediabox.bottom))
        page.merge_transformed_page(made[key], move, over=not options.behind)
    return save(writer, options.out)


def open_pages(options: argparse.Namespace) -> tuple[Any, list[int]]:
    """Open a file for reading, and return the chosen pages."""
    pdfium = need("pypdfium2", "pypdfium2")
    check_size(options.file, MAX_FILE_BYTES)
    document = pdfium.PdfDocument(options.file, password=options.password or None)
    return document, page_numbers(options.pages, len(document))


def text(options: argparse.Namespace) -> dict[str, Any]:
    """Return the text of pages; an empty one is a scan."""
    document, numbers = open_pages(options)
    found = []
    for number in numbers:
        words = document[number - 1].get_textpage().get_text_bounded().replace("\r\n", "\n").strip()
        if not options.find or options.find.lower() in words.lower():
            found.append({"page": number, "text": words})
    return {"pages": found, "without_text": [each["page"] for each in found if not each["text"]]}


def pictures(options: argparse.Namespace) -> dict[str, Any]:
    """Draw pages as PNG, with the values of form fields."""
    document, numbers = open_pages(options)
    if len(numbers) > MAX_PICTURES:
        raise Problem(f"At most {MAX_PICTURES} pages are drawn at once; choose them with --pages.")
    if not 10 <= options.dpi <= 600:
        raise Problem("--dpi is between 10 and 600.")
    need("PIL.Image", "pillow")
    document.init_forms()
    options.out.mkdir(parents=True, exist_ok=True)
    written = []
    for number in numbers:
        page = document[number - 1]
        width, height = (side * options.dpi / 72 for side in page.get_size())
        if width * height > MAX_PICTURE_PIXELS:
            raise Problem(f"Page {number} would have {width * height / 1e6:.0f} million pixels; use a smaller --dpi.")
        path = options.out / f"{options.file.stem}_{number:03d}.png"
        page.render(scale=options.dpi / 72, may_draw_forms=True).to_pil().save(path, optimize=True)
        written.append(str(path))
    return {"written": written}


def tables(options: argparse.Namespace) -> dict[str, Any]:
    """Return the tables of pages as rows of texts, and write them as CSV if asked for."""
    plumber = need("pdfplumber", "pdfplumber")
    check_size(options.file, MAX_FILE_BYTES)
    settings = {"vertical_strategy": "text", "horizontal_strategy": "text"} if options.without_lines else {}
    found: list[dict[str, Any]] = []
    with plumber.open(options.file, password=options.password or None) as document:
        numbers = page_numbers(options.pages, len(document.pages))
        if len(numbers) > MAX_TABLE_PAGES:
            raise Problem(f"At most {MAX_TABLE_PAGES} pages are searched at once; choose them with --pages.")
        for number in numbers:
            page = document.pages[number - 1]
            for rows in page.extract_tables(settings):
                cells = [["" if cell is None else cell.strip() for cell in row] for row in rows]
                found.append({"page": number, "rows": cells})
            page.close()
    if options.csv:
        options.csv.mkdir(parents=True, exist_ok=True)
        for index, table in enumerate(found, 1):
            path = options.csv / f"{options.file.stem}_{table['page']:03d}_{index:02d}.csv"
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(table.pop("rows"))
            table["written"] = str(path)
    note = "No table with lines was found; try --without-lines, or `text`." if not found else ""
    return {"tables": found, **({"note": note} if note else {})}


def add_command(commands: Any, name: str, help_text: str, out: str = "", pages: bool = True) -> Any:
    command = commands.add_parser(name, help=help_text)
    if name == "merge":
        command.add_argument("files", nargs="+", help="a.pdf, or pages of it: a.pdf#1-3,7")
    else:
        command.add_argument("file", type=Path)
    command.add_argument("--password", default="")
    if pages:
        command.add_argument("--pages", default="", help="such as 1-3,7,9-; default: all")
    if out:
        command.add_argument("--out", type=Path, required=True, help=out)
    return command


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    add_command(commands, "info", "pages, sizes, fields, properties", pages=False)
    add_command(commands, "fields", "the fields of a form, with what they may be", pages=False)
    command = add_command(commands, "fill", "fill in a form", "the file to write", pages=False)
    command.add_argument("--values", required=True, metavar="JSON", help="{field: value}, or a file with it")
    command.add_argument("--flatten", action="store_true", help="what was filled in cannot be changed any more")
    add_command(commands, "merge", "append files", "the file to write", pages=False)
    add_command(commands, "pages", "write chosen pages, in this order", "the file to write")
    command = add_command(commands, "split", "write several files", "the folder to write into", pages=False)
    command.add_argument("--every", type=int, default=1, help="pages for each file")
    command.add_argument("--pages", action="append", default=[], help="of one file; repeat it for more files")
    command = add_command(commands, "rotate", "turn pages", "the file to write")
    command.add_argument("--degrees", type=int, default=90, help="clockwise")
    command = add_command(commands, "stamp", "write a text or picture on pages", "the file to write")
    command.add_argument("--text", default="", help="{page} and {pages} become numbers")
    command.add_argument("--image", type=Path, help="a picture instead")
    command.add_argument("--place", choices=PLACES, default="center")
    command.add_argument("--size", type=float, default=60, help="percent of the page's width")
    command.add_argument("--points", type=float, default=0, help="the size of the letters instead")
    command.add_argument("--angle", type=float, default=0, help="degrees to the left; 45 for a watermark")
    command.add_argument("--opacity", type=float, default=1, help="0.15 for a watermark")
    command.add_argument("--color", default="#B00020")
    command.add_argument("--behind", action="store_true", help="behind what is on the page")
    command = add_command(commands, "text", "the text of pages")
    command.add_argument("--find", default="", help="only pages with this text")
    command = add_command(commands, "tables", "the tables of pages")
    command.add_argument("--csv", type=Path, metavar="FOLDER", help="write each as CSV")
    command.add_argument("--without-lines", action="store_true", help="columns are only aligned, without lines")
    command = add_command(commands, "pictures", "draw pages as PNG", "the folder to write into")
    command.add_argument("--dpi", type=int, default=100)
    return parser


def unreadable() -> tuple[type[Exception], ...]:
    found: list[type[Exception]] = [ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError]
    for module, name in (("pypdf.errors", "PyPdfError"), ("pypdfium2", "PdfiumError")):
        try:
            found.append(getattr(need(module, name), name))
        except MissingPackage:
            continue  # a reader that is not installed raises nothing either
    return tuple(found)


ACTIONS = {
    "info": info, "fields": list_fields, "fill": fill, "merge": merge, "pages": choose_pages, "split": split,
    "rotate": rotate, "stamp": stamp, "text": text, "tables": tables, "pictures": pictures,
}  # fmt: skip

if __name__ == "__main__":
    run_program(make_parser(), ACTIONS, unreadable)
