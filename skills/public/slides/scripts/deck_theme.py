"""The look of a deck: one accent color, light or dark, 16:9, in the theme, master and layouts of the file."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from deck_layout import BODY, COVER_SIZE, HEIGHT, TITLE_SIZE, WIDTH, Box
from skill_program import Problem, need

DARK, LIGHT, DARK_SOFT, LIGHT_SOFT = "14181F", "FFFFFF", "232B37", "EEF1F5"
FONT, MONO = "Arial", "Courier New"
LEAST_CONTRAST = 3.0  # of the accent, by the WCAG's formula
EMU = 12700  # a point
COVER, CONTENT, SECTION, ONLY_TITLE = 0, 1, 2, 5  # layouts of python-pptx's template
NAMES = "http://schemas.openxmlformats.org/drawingml/2006/main"
PARTS = "http://schemas.openxmlformats.org/presentationml/2006/main"


class Look(NamedTuple):
    """Colors as RRGGBB. `series` are those of a chart, from the accent to greys."""

    dark: bool
    accent: str
    ground: str
    text: str
    soft: str  # the fill of every second row
    muted: str
    on_accent: str
    series: tuple[str, ...]


def parts_of(color: str) -> list[int]:
    return [int(color[place : place + 2], 16) for place in (0, 2, 4)]


def mix(one: str, other: str, share: float) -> str:
    """Return a color with so much of the other one."""
    return "".join(f"{round(a + (b - a) * share):02X}" for a, b in zip(parts_of(one), parts_of(other)))


def contrast(one: str, other: str) -> float:
    def light(color: str) -> float:
        parts = [part / 255 for part in parts_of(color)]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def make_look(theme: str, accent: str) -> Look:
    """Return the colors of a theme. Raises Problem for an accent that cannot be seen."""
    if not re.fullmatch(r"#?[0-9a-fA-F]{6}", accent):
        raise Problem(f"{accent!r} is not a color such as #2F6FDE.")
    color, dark = accent.lstrip("#").upper(), theme == "dark"
    ground, text = (DARK, LIGHT) if dark else (LIGHT, DARK)
    if contrast(color, ground) < LEAST_CONTRAST:
        found = f"its contrast is {contrast(color, ground):.1f}, less than {LEAST_CONTRAST:.0f}"
        raise Problem(f"The accent #{color} can hardly be seen on the {theme} theme ({found}); choose another one.")
    grey = mix(ground, text, 0.5)
    pale, strong = mix(grey, ground, 0.5), mix(grey, text, 0.5)
    series = (color, grey, mix(color, text, 0.45), pale, mix(color, ground, 0.5), strong)
    white = contrast(color, LIGHT) >= contrast(color, DARK) - 1
    soft = DARK_SOFT if dark else LIGHT_SOFT
    return Look(dark, color, ground, text, soft, mix(text, ground, 0.35), LIGHT if white else DARK, series)


def element(text: str) -> Any:
    """Return an element of XML; `a:` and `p:` are known."""
    start = text.index(" ") if " " in text.split(">")[0] else text.index(">")
    if text[start - 1] == "/":
        start -= 1
    spaces = f' xmlns:a="{NAMES}" xmlns:p="{PARTS}"'
    return need("pptx.oxml", "python-pptx").parse_xml(f"{text[:start]}{spaces}{text[start:]}")


def place(shape: Any, box: Box) -> None:
    shape.left, shape.top, shape.width, shape.height = (round(side * EMU) for side in box)


def level_style(size: int, color: str, bold: bool = False) -> Any:
    """Return the style of all levels of a placeholder, without bullets."""
    levels = "".join(
        f'<a:lvl{level}pPr marL="0" indent="0" algn="l"><a:buNone/><a:defRPr sz="{size * 100}" b="{int(bold)}">'
        f"<a:solidFill>{color}</a:solidFill></a:defRPr></a:lvl{level}pPr>"
        for level in range(1, 4)
    )
    return element(f"<a:lstStyle>{levels}</a:lstStyle>")


def restyle(shape: Any, style: Any, anchor: str) -> None:
    """Replace what a placeholder of a layout says about its letters."""
    body = shape.element.txBody
    body.replace(body.find(f"{{{NAMES}}}lstStyle"), style)
    properties = body.find(f"{{{NAMES}}}bodyPr")
    for child in list(properties):
        properties.remove(child)
    for name, value in (("anchor", anchor), ("lIns", "0"), ("rIns", "0"), ("tIns", "0"), ("bIns", "0")):
        properties.set(name, value)
    properties.append(element("<a:normAutofit/>"))


def bar(box: Box, color: str) -> Any:
    """Return a plain rectangle for a layout."""
    x, y, width, height = (round(side * EMU) for side in box)
    return element(
        '<p:sp><p:nvSpPr><p:cNvPr id="90" name="Accent"/><p:cNvSpPr/><p:nvPr userDrawn="1"/></p:nvSpPr><p:spPr><a:xfrm>'
        f'<a:off x="{x}" y="{y}"/><a:ext cx="{width}" cy="{height}"/></a:xfrm><a:prstGeom prst="rect"><a:avLst/>'
        f"</a:prstGeom><a:solidFill>{color}</a:solidFill><a:ln><a:noFill/></a:ln></p:spPr></p:sp>"
    )


def scheme(name: str) -> str:
    return f'<a:schemeClr val="{name}"/>'


def rgb(color: str) -> str:
    return f'<a:srgbClr val="{color}"/>'


def write_theme(master: Any, look: Look) -> None:
    """Write colors and fonts into the theme."""
    kind = need("pptx.opc.constants", "python-pptx").RELATIONSHIP_TYPE.THEME
    part = master.part.part_related_by(kind)
    colors = {"dk1": DARK, "lt1": LIGHT, "dk2": DARK_SOFT, "lt2": LIGHT_SOFT, "hlink": look.accent}
    colors.update({f"accent{index}": color for index, color in enumerate(look.series, 1)}, folHlink=look.muted)
    text = part.blob.decode("utf-8")
    for name, color in colors.items():
        text = re.sub(rf"<a:{name}>.*?</a:{name}>", f"<a:{name}>{rgb(color)}</a:{name}>", text, count=1)
    part.blob = text.replace('<a:latin typeface="Calibri"/>', f'<a:latin typeface="{FONT}"/>').encode()
    if look.dark:
        mapped = master.element.find(f"{{{PARTS}}}clrMap")
        for name, value in (("bg1", "dk1"), ("tx1", "lt1"), ("bg2", "dk2"), ("tx2", "lt2")):
            mapped.set(name, value)


def style_layouts(deck: Any, look: Look) -> None:
    """Scale master and layouts to 16:9, and give titles, covers and numbers their looks."""
    old_width = deck.slide_width
    deck.slide_width, deck.slide_height = round(WIDTH * EMU), round(HEIGHT * EMU)
    for layout in [each for index, each in enumerate(deck.slide_layouts) if index not in (0, 1, 2, 5)]:
        deck.slide_layouts.remove(layout)
    cover, content, section, only_title = deck.slide_layouts
    for sheet in (deck.slide_master, cover, content, section, only_title):
        for shape in sheet.placeholders:
            kind = shape.placeholder_format.type
            if kind.name == "SLIDE_NUMBER":
                place(shape, Box(WIDTH - 154, HEIGHT - 40, 100, 24))
                restyle(shape, element(number_style(look)), "ctr")
            elif shape.element.spPr.find(f"{{{NAMES}}}xfrm") is not None:
                box = Box(*(side / EMU for side in (shape.left, shape.top, shape.width, shape.height)))
                ratio = deck.slide_width / old_width
                place(shape, Box(box.left * ratio, box.top, box.width * ratio, box.height))
    for sheet in (deck.slide_master, content, only_title):
        for shape in sheet.placeholders:
            if shape.placeholder_format.type.name == "TITLE":
                place(shape, Box(BODY.left, 34, BODY.width, 68))
                restyle(shape, level_style(TITLE_SIZE, scheme("tx1"), bold=True), "ctr")
            elif shape.placeholder_format.idx == 1:
                place(shape, BODY)
                restyle(shape, level_style(20, scheme("tx1")), "t")
        if sheet is not deck.slide_master:
            sheet.shapes.element.append(bar(Box(0, 46, 14, 44), scheme("accent1")))
    style_cover(cover, scheme("tx1"), rgb(look.muted))
    cover.shapes.element.append(bar(Box(0, 0, 26, HEIGHT), scheme("accent1")))
    style_cover(section, rgb(look.on_accent), rgb(look.on_accent))
    ground = f"<a:solidFill>{scheme('accent1')}</a:solidFill><a:effectLst/>"
    section.element.cSld.insert(0, element(f"<p:bg><p:bgPr>{ground}</p:bgPr></p:bg>"))


def number_style(look: Look) -> str:
    color = f"<a:solidFill>{rgb(look.muted)}</a:solidFill>"
    return f'<a:lstStyle><a:lvl1pPr algn="r"><a:defRPr sz="1200">{color}</a:defRPr></a:lvl1pPr></a:lstStyle>'


def style_cover(layout: Any, title: str, below: str) -> None:
    for shape in layout.placeholders:
        if shape.placeholder_format.idx == 0:
            place(shape, Box(96, 130, 760, 160))
            restyle(shape, level_style(COVER_SIZE, title, bold=True), "b")
        elif shape.placeholder_format.idx == 1:
            place(shape, Box(96, 310, 760, 130))
            restyle(shape, level_style(22, below), "t")
