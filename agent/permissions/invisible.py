"""Show text that a model or a stranger wrote to a person who decides about it: exactly as it is. Imports nothing heavy.

What draws nothing is escaped as in JSON. Letters outside ASCII in the host of an address are shown as `xn--…`, because
they may look like others; in any word, Cyrillic and Greek ones beside those of ASCII are escaped. The whole is code, so
that no Markdown in it hides or changes anything.
"""

from __future__ import annotations

import re
import unicodedata

LINE = ""  # visible in text of one line
LINES = "\n"
PROSE = "\n\t\u3000"
MAX_MARKS = 3  # combining marks of one letter; more of them draw over other lines

# https://www.unicode.org/Public/UCD/latest/ucd/DerivedCoreProperties.txt, Default_Ignorable_Code_Point
_IGNORABLE = (
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
_BLANK = frozenset("\u2800\u2d7f\ufffc\U00013441\U00013442\U00016fe4\U0001d159")  # fonts draw nothing for them
_HOST = re.compile(r"(:[/\\]{2}(?:[^\s/?#@\\\"'<>]*@)?|(?<=\w)@)([\w.\-\u3002\uff0e\uff61]+)")
_DOT = re.compile(r"[.\u3002\uff0e\uff61]")  # what ends a label of a host
_LOOKALIKES = "аеорсухіјѕһԁԛԝѵАВЕКМНОРСТУХІЈЅԌЅοανρικυχτηΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"  # Cyrillic and Greek letters
_MIXED = re.compile(f"(?<=[A-Za-z])[{_LOOKALIKES}]++|(?<![{_LOOKALIKES}])[{_LOOKALIKES}]++(?=[A-Za-z])")


def is_seen(char: str) -> bool:
    """Return whether a reader sees a character, at least where it has a letter to combine with."""
    code = ord(char)
    return char.isprintable() and char not in _BLANK and not any(low <= code <= high for low, high in _IGNORABLE)


class _Shown(dict[int, str]):
    """How each character is shown, by its number; found out when it occurs first."""

    def __missing__(self, code: int) -> str:
        self[code] = shown = chr(code) if is_seen(chr(code)) else escape(chr(code))
        return shown


_SHOWN = {visible: _Shown({ord(each): each for each in visible}) for visible in (LINE, LINES, PROSE)}


def escape(text: str) -> str:
    """Return each character as JSON escapes it."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def show_invisible(text: str, visible: str = LINES) -> str:
    """Return the text with an escape for each character that a reader cannot see, but those in `visible`."""
    if text.isascii() and text.isprintable():
        return text
    shown = text.translate(_SHOWN[visible])
    if marks := "".join(sorted(each for each in set(shown) if unicodedata.category(each)[0] == "M")):
        many = f"[{marks}]" * MAX_MARKS
        loose = re.compile(f"(?:(?<!\\S)|(?<={many}))[{marks}]+")
        shown = loose.sub(lambda found: escape(found[0]), shown)
    if shown.isascii():
        return shown
    shown = _HOST.sub(lambda found: found[1] + ascii_host(found[2]), shown)
    return _MIXED.sub(lambda found: escape(found[0]), shown)


def ascii_host(host: str) -> str:
    """Return a host with letters outside ASCII as `xn--…`: others look like those of another host."""
    labels = (each if each.isascii() else f"xn--{each.encode('punycode').decode()}" for each in _DOT.split(host))
    return ".".join(labels)


def show_literally(text: str, visible: str = PROSE, language: str = "") -> str:
    """Return lines as a block of code in Markdown, which nothing in them ends and hides nothing."""
    shown = show_invisible(text, visible)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", shown))])
    return f"{fence}{language}\n{shown}\n{fence}"


def show_line(text: str) -> str:
    """Return text on one line as code in Markdown, which nothing in it ends; "" for none."""
    shown = show_invisible(" ".join(text.split()), LINE)
    if not shown:
        return ""
    marks = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{marks}{space}{shown}{space}{marks}"
