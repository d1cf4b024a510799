"""Edit pictures: crop, resize, turn, blur or cover parts, annotate, convert, join. Needs pillow.

A photo is turned upright first. Metadata (place, camera, time) is left out of what is written, unless asked for.
Without arguments, the program reads the same as JSON from stdin.
"""

from __future__ import annotations

import argparse
import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skill_program import Problem, check_size, need, run_program

MAX_FILE_BYTES = 100 << 20
MAX_PIXELS = 80_000_000
MAX_SIDE = 20_000
MAX_STEPS = 100
MAX_TILES = 60
FORMATS = {
    ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP",
    ".gif": "GIF", ".bmp": "BMP", ".tif": "TIFF", ".tiff": "TIFF",
}  # fmt: skip
RED = "#D7263D"
CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]")
FONTS = ("dejavu/DejaVuSans.ttf", "liberation2/LiberationSans-Regular.ttf", "liberation/LiberationSans-Regular.ttf")
CJK_FONTS = ("opentype/noto/NotoSansCJK-Regular.ttc", "truetype/wqy/wqy-zenhei.ttc")
ORIENTATION, GPS = 0x0112, 0x8825


def open_picture(path: Path) -> Any:
    """Open a picture within the limits, without decoding it. Raises Problem."""
    image_module = need("PIL.Image", "pillow")
    check_size(path, MAX_FILE_BYTES)
    image_module.MAX_IMAGE_PIXELS = None  # the limit below is ours
    try:
        image = image_module.open(path)
    except need("PIL", "pillow").UnidentifiedImageError:
        raise Problem(f"{path.name} is not a picture that Pillow reads (HEIC and SVG are not).") from None
    if image.width * image.height > MAX_PIXELS:
        raise Problem(f"{path.name} has {image.width} × {image.height} pixels; at most {MAX_PIXELS:,} are edited.")
    return image


def upright(image: Any) -> Any:
    """Return the first frame, turned as its metadata says, as RGB or RGBA."""
    turned = need("PIL.ImageOps", "pillow").exif_transpose(image)
    clear = turned.mode in ("RGBA", "LA", "PA") or "transparency" in turned.info
    return turned.convert("RGBA" if clear else "RGB")


def info(options: argparse.Namespace) -> dict[str, Any]:
    """Describe a picture and what its metadata gives away."""
    image = open_picture(options.file)
    exif = image.getexif()
    tags = need("PIL.ExifTags", "pillow").TAGS
    return {
        "format": image.format,
        "size": list(upright_size(image)),
        "mode": image.mode,
        "frames": getattr(image, "n_frames", 1),
        "bytes": options.file.stat().st_size,
        "turned_by_metadata": exif.get(ORIENTATION, 1) != 1,
        "place_in_metadata": bool(exif.get_ifd(GPS)),
        "metadata": {tags.get(key, str(key)): str(value)[:200] for key, value in exif.items()},
    }


def upright_size(image: Any) -> tuple[int, int]:
    width, height = image.size
    return (height, width) if image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8) else (width, height)


def length(text: str, whole: int) -> int:
    """Return pixels of `120` or `50%`. Raises Problem."""
    match = re.fullmatch(r"\s*(-?\d{1,6}(?:\.\d{1,6})?)(%?)\s*", text)
    if not match:
        raise Problem(f"{text!r} is neither pixels nor a percentage.")
    return round(float(match[1]) * (whole / 100 if match[2] else 1))


def area(image: Any, words: list[str]) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of X,Y,WIDTH,HEIGHT, cut at the picture's edge. Raises Problem."""
    if len(words) < 4:
        raise Problem(f"{','.join(words)!r} should be X,Y,WIDTH,HEIGHT in pixels or percent.")
    x, y = length(words[0], image.width), length(words[1], image.height)
    right, bottom = x + length(words[2], image.width), y + length(words[3], image.height)
    box = max(x, 0), max(y, 0), min(right, image.width), min(bottom, image.height)
    if box[0] >= box[2] or box[1] >= box[3]:
        raise Problem(f"The area {','.join(words[:4])} is outside of the picture of {image.width} × {image.height}.")
    return box


def color(words: list[str], index: int, otherwise: str) -> Any:
    text = words[index].strip() if len(words) > index else otherwise
    try:
        return need("PIL.ImageColor", "pillow").getrgb(text)
    except ValueError:
        raise Problem(f"{text!r} is not a color; use a name or #rrggbb.") from None


def crop(image: Any, words: list[str]) -> Any:
    return image.crop(area(image, words))


def resize(image: Any, words: list[str]) -> Any:
    """Fit into WIDTHxHEIGHT, WIDTHx, xHEIGHT or PERCENT% with the same proportions."""
    text = words[0].strip().lower()
    if match := re.fullmatch(r"(\d{1,5})?x(\d{1,5})?", text):
        factors = [int(side) / whole for side, whole in zip(match.groups(), image.size) if side]
    elif match := re.fullmatch(r"(\d{1,4}(?:\.\d{1,3})?)%", text):
        factors = [float(match[1]) / 100]
    else:
        factors = []
    if not factors or min(factors) <= 0:
        raise Problem(f"{words[0]!r} is not a size; use 800x600, 800x, x600 or 50%.")
    width, height = (max(1, round(side * min(factors))) for side in image.size)
    if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        raise Problem(f"{width} × {height} is too large; a side has at most {MAX_SIDE:,} pixels.")
    return image.resize((width, height), need("PIL.Image", "pillow").Resampling.LANCZOS)


def rotate(image: Any, words: list[str]) -> Any:
    """Turn clockwise; what appears at the corners is clear, or white without transparency."""
    try:
        degrees = float(words[0]) % 360
    except ValueError:
        raise Problem(f"{words[0]!r} is not a number of degrees.") from None
    transpose = need("PIL.Image", "pillow").Transpose
    exact = {0.0: None, 90.0: transpose.ROTATE_270, 180.0: transpose.ROTATE_180, 270.0: transpose.ROTATE_90}
    if degrees in exact:
        return image if exact[degrees] is None else image.transpose(exact[degrees])
    fill = (255, 255, 255, 0) if image.mode == "RGBA" else (255, 255, 255)
    return image.rotate(-degrees, expand=True, resample=need("PIL.Image", "pillow").Resampling.BICUBIC, fillcolor=fill)


def flip(image: Any, words: list[str]) -> Any:
    ways = {"horizontal": "FLIP_LEFT_RIGHT", "vertical": "FLIP_TOP_BOTTOM"}
    if words[0].strip() not in ways:
        raise Problem("A picture is flipped horizontal or vertical.")
    return image.transpose(getattr(need("PIL.Image", "pillow").Transpose, ways[words[0].strip()]))


def blur(image: Any, words: list[str]) -> Any:
    """Blur an area so strongly that neither faces nor words are left in it."""
    box = area(image, words)
    part = image.crop(box)
    small = max(1, part.width // max(8, min(part.size) // 4)), max(1, part.height // max(8, min(part.size) // 4))
    smooth = need("PIL.Image", "pillow").Resampling
    image.paste(part.resize(small, smooth.BOX).resize(part.size, smooth.BICUBIC), box)
    return image


def cover(image: Any, words: list[str]) -> Any:
    """Paint over an area: nothing of it is left."""
    image.paste(color(words, 4, "black"), area(image, words))
    return image


def line_width(image: Any) -> int:
    longest: int = max(image.size)
    return max(2, round(longest / 250))


def box(image: Any, words: list[str]) -> Any:
    left, top, right, bottom = area(image, words)
    corners = (left, top, right - 1, bottom - 1)
    need("PIL.ImageDraw", "pillow").Draw(image).rectangle(
        corners, outline=color(words, 4, RED), width=line_width(image)
    )
    return image


def arrow(image: Any, words: list[str]) -> Any:
    """Draw from X1,Y1 to a head at X2,Y2."""
    if len(words) < 4:
        raise Problem("An arrow is X1,Y1,X2,Y2; its head is at the second point.")
    x1, x2 = length(words[0], image.width), length(words[2], image.width)
    y1, y2 = length(words[1], image.height), length(words[3], image.height)
    paint, width = color(words, 4, RED), line_width(image)
    angle, size = math.atan2(y2 - y1, x2 - x1), width * 5
    draw = need("PIL.ImageDraw", "pillow").Draw(image)
    draw.line((x1, y1, x2 - size / 2 * math.cos(angle), y2 - size / 2 * math.sin(angle)), fill=paint, width=width)
    sides = [(x2 - size * math.cos(angle + turn), y2 - size * math.sin(angle + turn)) for turn in (0.45, -0.45)]
    draw.polygon([(x2, y2), *sides], fill=paint)
    return image


def font(text: str, size: int) -> Any:
    """Return a font that has the characters. Raises Problem if none is installed."""
    module = need("PIL.ImageFont", "pillow")
    if CJK.search(text):
        paths = [Path("/usr/share/fonts", name) for name in CJK_FONTS]
    else:
        paths = [Path("/usr/share/fonts/truetype", name) for name in FONTS]
    if found := next((path for path in paths if path.is_file()), None):
        return module.truetype(str(found), size)
    if CJK.search(text):
        raise Problem("No font for Chinese, Japanese or Korean is installed; write the label in English.")
    return module.load_default(size)


def label(image: Any, words: list[str]) -> Any:
    """Write X,Y,SIZE,TEXT on a light plate, so that it can be read on any picture."""
    if len(words) < 4:
        raise Problem("A label is X,Y,SIZE,TEXT.")
    x, y = length(words[0], image.width), length(words[1], image.height)
    text = ",".join(words[3:]).strip()[:500]
    size = min(max(length(words[2], image.height), 6), 1000)
    draw, letters = need("PIL.ImageDraw", "pillow").Draw(image), font(text, size)
    left, top, right, bottom = draw.textbbox((x, y), text, font=letters)
    edge = max(2, size // 4)
    draw.rectangle((left - edge, top - edge, right + edge, bottom + edge), fill="white", outline=RED, width=2)
    draw.text((x, y), text, fill="#111111", font=letters)
    return image


def change(kind: str) -> Callable[[Any, list[str]], Any]:
    def apply(image: Any, words: list[str]) -> Any:
        try:
            factor = float(words[0])
        except ValueError:
            raise Problem(f"{words[0]!r} is not a number; 1 changes nothing, 1.2 is a fifth more.") from None
        if not 0 <= factor <= 10:
            raise Problem("The factor is between 0 and 10.")
        return getattr(need("PIL.ImageEnhance", "pillow"), kind)(image).enhance(factor)

    return apply


def grayscale(image: Any, _words: list[str]) -> Any:
    return need("PIL.ImageOps", "pillow").grayscale(image.convert("RGB")).convert("RGB")


STEPS: dict[str, Callable[[Any, list[str]], Any]] = {
    "crop": crop, "resize": resize, "rotate": rotate, "flip": flip, "blur": blur, "cover": cover, "box": box,
    "arrow": arrow, "text": label, "grayscale": grayscale, "brightness": change("Brightness"),
    "contrast": change("Contrast"), "sharpness": change("Sharpness"),
}  # fmt: skip


def save(image: Any, out: Path, options: argparse.Namespace, kept: dict[str, Any]) -> dict[str, Any]:
    """Write a picture, in steps of quality until it is small enough. Raises Problem."""
    kind = FORMATS.get(out.suffix.lower())
    if not kind:
        raise Problem(f"{out.suffix or 'A name without suffix'} is not written; use {' '.join(FORMATS)}.")
    if kind in ("JPEG", "BMP") and image.mode == "RGBA":
        plate = need("PIL.Image", "pillow").new("RGB", image.size, "white")
        plate.paste(image, mask=image.getchannel("A"))
        image = plate
    out.parent.mkdir(parents=True, exist_ok=True)
    limit, quality = options.max_kb * 1024, options.quality
    lossy = kind in ("JPEG", "WEBP")
    while True:
        packed = io.BytesIO()
        more: dict[str, Any] = {"quality": quality} if lossy else {"optimize": True} if kind == "PNG" else {}
        image.save(packed, kind, **more, **kept)
        if not limit or packed.tell() <= limit:
            break
        if not lossy or quality <= 30:
            raise Problem(f"It has {packed.tell() >> 10} KB, more than {options.max_kb}; resize it, or write a .jpg.")
        quality -= 10
    out.write_bytes(packed.getvalue())
    return {"written": str(out), "size": list(image.size), "bytes": packed.tell()}


def edit(options: argparse.Namespace) -> dict[str, Any]:
    """Apply the steps in their order."""
    source = open_picture(options.file)
    if len(options.step) > MAX_STEPS:
        raise Problem(f"At most {MAX_STEPS} steps are applied at once.")
    image = upright(source)
    for step in options.step:
        name, _, rest = step.partition("=")
        if name not in STEPS:
            raise Problem(f"There is no step {name!r}; there are {', '.join(STEPS)}.")
        image = STEPS[name](image, rest.split(","))
    notes = []
    if getattr(source, "n_frames", 1) > 1:
        notes.append(f"only the first of {source.n_frames} frames is written")
    kept = {"icc_profile": source.info["icc_profile"]} if source.info.get("icc_profile") else {}
    if options.keep_metadata:
        exif = source.getexif()
        exif.pop(ORIENTATION, None)  # it is upright now
        kept["exif"] = exif.tobytes()
    elif len(source.getexif()):
        notes.append("metadata was removed")
    return {**save(image, options.out, options, kept), "notes": notes}


def collage(options: argparse.Namespace) -> dict[str, Any]:
    """Put pictures side by side into cells of one size, with a label below each."""
    if not 2 <= len(options.files) <= MAX_TILES:
        raise Problem(f"A collage has 2 to {MAX_TILES} pictures.")
    if options.label and len(options.label) != len(options.files):
        raise Problem(f"There are {len(options.files)} pictures and {len(options.label)} labels.")
    columns = min(options.columns or math.ceil(math.sqrt(len(options.files))), len(options.files))
    rows, gap, cell = math.ceil(len(options.files) / columns), options.gap, options.cell
    text = max(12, cell // 18) if options.label else 0
    high = cell + (text * 2 if text else 0)
    size = columns * cell + (columns + 1) * gap, rows * high + (rows + 1) * gap
    if max(size) > MAX_SIDE or size[0] * size[1] > MAX_PIXELS:
        raise Problem(f"The collage would have {size[0]} × {size[1]} pixels; use a smaller --cell.")
    plate = need("PIL.Image", "pillow").new("RGB", size, color([options.background], 0, "white"))
    draw = need("PIL.ImageDraw", "pillow").Draw(plate)
    for index, path in enumerate(options.files):
        left, top = gap + index % columns * (cell + gap), gap + index // columns * (high + gap)
        tile = upright(open_picture(path))
        tile = resize(tile, [f"{cell}x{cell}"])
        place = left + (cell - tile.width) // 2, top + (cell - tile.height) // 2
        plate.paste(tile, place, tile if tile.mode == "RGBA" else None)
        if text:
            words = options.label[index][:200]
            draw.text((left + cell // 2, top + cell + text), words, fill="#222222", font=font(words, text), anchor="mm")
    return {**save(plate, options.out, options, {}), "columns": columns, "rows": rows}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("info", help="format, size, and what the metadata gives away")
    command.add_argument("file", type=Path)
    command = commands.add_parser("edit", help="apply steps in order, and write it without metadata")
    command.add_argument("file", type=Path)
    command.add_argument(
        "--step", action="append", default=[], metavar="NAME=VALUE",
        help="crop, blur, cover, box: X,Y,WIDTH,HEIGHT (pixels or percent; for the last two also COLOR); resize=800x; "
        "rotate=90 (clockwise); flip=horizontal; arrow=X1,Y1,X2,Y2; text=X,Y,SIZE,TEXT; grayscale; brightness=1.2; "
        "contrast=1.2; sharpness=2",
    )  # fmt: skip
    command.add_argument("--keep-metadata", action="store_true")
    add_output(command)
    command = commands.add_parser("collage", help="several pictures in one, in a grid")
    command.add_argument("files", type=Path, nargs="+")
    command.add_argument("--columns", type=int, default=0)
    command.add_argument("--cell", type=int, default=480, help="pixels of a cell's side")
    command.add_argument("--gap", type=int, default=16, help="pixels between them")
    command.add_argument("--label", action="append", default=[], help="below a picture; repeat it for each")
    command.add_argument("--background", default="white")
    add_output(command)
    return parser


def add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument("--out", type=Path, required=True, help=f"the file to write: {' '.join(FORMATS)}")
    command.add_argument("--quality", type=int, default=90, help="of JPEG and WebP, 1 to 100")
    command.add_argument("--max-kb", type=int, default=0, help="lower the quality until it fits")


def unreadable() -> tuple[type[Exception], ...]:
    return (ValueError, SyntaxError, EOFError, need("PIL.Image", "pillow").DecompressionBombError)


if __name__ == "__main__":
    run_program(make_parser(), {"info": info, "edit": edit, "collage": collage}, unreadable)
