"""Decode the text of strangers: by its byte order mark, what it declares, UTF-8, or else by its letters.

Tables and pages are often in the encoding of somebody's system, and do not say which. Nearly any bytes are valid in
several encodings, so each candidate is judged by how usual its letters are. Standard library only, Python 3.9+.
The skill data-analysis has a copy, because a skill must run where no module of Fawn is; a test compares both.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Callable

_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e "
    "iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
    "iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csiso88598i csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-8859-8-i iso-ir-138 "
    "iso8859-8 iso88598 iso_8859-8 iso_8859-8:1988 logical visual",
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac_roman": "csmacintosh mac macintosh x-mac-roman",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
    "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 "
    "windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "mac_cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb18030 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 "
    "windows-949",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
ALL_CODECS = ("utf-8", "iso2022_jp", *_MARKS.values(), *_LABELS)
HEAD_BYTES = 4096  # of a page, in which it declares its charset
SAMPLE_BYTES = 60_000  # that decide
MAX_BROKEN = 10  # one in so many characters may be broken in a text that is what it declares
MAX_CONTROLS = 50  # one byte in so many may be a control in a text
MIN_PAIRS = 4  # valid UTF-8 that is no chance in the bytes of another encoding with several bytes a character
MIN_MARKS, USUAL, MORE_USUAL = 8, 0.75, 0.35  # so many letters contradict, if they are so usual in another encoding
_WIDE = ("gb18030", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a]")
_UTF8_PAIR = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")
_DECLARED = re.compile(rb"""(?:charset|encoding)\s{0,9}=\s{0,9}["']?([\w:.-]{2,40})""", re.IGNORECASE)
_SYMBOLS = frozenset("\u00a0–—‘’‚“”„†‡•…‰‹›€™«»°±·×÷§¶©®£¥¢¡¿ªº¹²³¼½¾µ´¨¬№¤")

WESTERN = ("äöüß", "éèêëàâçîïôûùüœæ", "áéíóúñü", "áâãàçéêíóôõú", "àèéìòùí", "åäöæøé", "ëïéöüè", "áðéíóúýþæö")
CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýžľĺŕôä", "áéíóöőúüű", "ăâîşţ", "čćđšž")
TURKISH = ("çğıöşüâîİ",)
CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґў"
COMMON_CYRILLIC = frozenset("оеаинтсрвлк")
COMMON_GREEK = frozenset("αοιετσνηυρπκςάί")
GREEK = "αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώϊϋ"


def codec_of(charset: str) -> str:
    """Return Python's name for a charset of the web (encoding.spec.whatwg.org/#names-and-labels); "" for any other.

    Python's other codecs are not for pages: `unicode_escape` and `utf-7` make lone surrogates, `idna` takes quadratic
    time.
    """
    return _CODECS.get(charset.strip().lower(), "")


def decode_text(data: bytes, declared: str = "", markup: bool = False) -> tuple[str, str]:
    """Return the text, and Python's name of its encoding. `markup` may declare one in its head."""
    for mark, codec in _MARKS.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace"), codec
    codec = declared or (_declared_in(data[:HEAD_BYTES]) if markup else "")
    if not codec or not _is_believed(data, codec):
        if not _fits(data, "utf-8"):
            codec = _by_zeros(data[:SAMPLE_BYTES]) or _by_letters(data, codec or "cp1252")[0]
        else:
            codec = "iso2022_jp" if b"\x1b$" in data and _fits(data, "iso2022_jp") else "utf-8"
    return data.decode(codec, "replace"), codec


def find_codec(head: bytes) -> str:
    """Return Python's name of the encoding of a text that begins so; "" if it is no text.

    A few zeros or controls do not make a log a program: what has no words of any kind is binary.
    """
    if any(head.startswith(mark) for mark in _MARKS):
        return decode_text(head)[1]
    sample = head[:SAMPLE_BYTES]
    if b"\0" in sample and (codec := _by_zeros(sample)):
        text = sample[: len(sample) // 2 * 2].decode(codec, "replace")
        plain = sum(" " <= sign <= "~" or sign in "\t\r\n" for sign in text)
        return codec if plain * 2 > len(text) else ""  # only Latin text has so many zeros
    if len(_CONTROL.findall(sample)) * MAX_CONTROLS > len(sample):
        return ""
    return decode_text(head, markup=True)[1]


def _is_believed(data: bytes, codec: str) -> bool:
    """Return whether data can be what is declared: templates are copied, and servers declare one charset for all.

    Encodings that share an alphabet, such as those of Chinese and Korean, look alike: there, what is declared holds.
    """
    if codec.startswith("utf-16"):  # half of its bytes are small numbers, which no text of another encoding has
        return bool(_CONTROL.search(data)) or not (data.lstrip()[:1] == b"<" or _fits(data, "utf-8"))
    if codec != "utf-8" and _fits(data, "utf-8"):
        last = MIN_PAIRS - 1 if codec in _WIDE else 0
        return next(itertools.islice(_UTF8_PAIR.finditer(data), last, None), None) is None
    sample = _sample(data)
    text = codecs.getincrementaldecoder(codec)("replace").decode(sample)  # the last character may be cut off
    marks = sum(sign > "\x7f" for sign in text)
    if text.count("\ufffd") * MAX_BROKEN > marks:
        return False
    judge = CANDIDATES.get(codec)
    if marks < MIN_MARKS or judge is None:
        return True
    return _by_letters(data, codec)[1] < max(USUAL, judge(text) + MORE_USUAL)


def _declared_in(head: bytes) -> str:
    for found in _DECLARED.finditer(head):
        codec = codec_of(found[1].decode("ascii", "replace"))
        if codec:
            return "utf-8" if codec.startswith("utf-16") else codec  # or it could not be read here
    return ""


def _fits(data: bytes, codec: str) -> bool:
    """Return whether data is valid; its last character may be cut off."""
    try:
        codecs.getincrementaldecoder(codec)().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _by_zeros(sample: bytes) -> str:
    """Recognize UTF-16 without a mark: every second byte of Latin text is zero."""
    odd, even = sample[1::2].count(0), sample[::2].count(0)
    if max(odd, even) * 4 < len(sample) // 2:
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def _by_letters(data: bytes, otherwise: str) -> tuple[str, float]:
    """Return the encoding whose letters are the most usual, and how usual; `otherwise` where none are."""
    sample = _sample(data)
    best, best_score = otherwise, 0.45
    for codec, score in CANDIDATES.items():
        if _fits(data, codec) or codec.startswith("cp125") or codec == "koi8-r":
            share = score(sample.decode(codec, "replace"))
            if share > best_score:
                best, best_score = codec, share
    return best, best_score


def _sample(data: bytes) -> bytes:
    """Return the lines that decide: those with other bytes than ASCII, whole, so that no character is cut."""
    lines, size = [], 0
    for line in data[: 50 * SAMPLE_BYTES].split(b"\n"):
        if not line.isascii():
            lines.append(line[:SAMPLE_BYTES])
            size += len(line)
            if size > SAMPLE_BYTES:
                break
    return b"\n".join(lines)[:SAMPLE_BYTES]


# ---------------------------------------------------------------- how usual letters are


def _judge(text: str, usual: Callable[[str, str, str], float]) -> float:
    """Return the mean of `usual` (character, the one before, the one after) over all that are not ASCII."""
    marks = [at for at, sign in enumerate(text) if sign > "\x7f"]
    if not marks:
        return 0.0
    padded = f" {text} "
    return sum(usual(padded[at + 1], padded[at], padded[at + 2]) for at in marks) / len(marks)


def _symbol(sign: str, before: str, after: str) -> float:
    """Return how usual a sign is that is no letter: inside of a word, only an apostrophe is."""
    if sign not in _SYMBOLS or sign == "¤":
        return 0.0
    inside = before.isalpha() and after.isalpha()
    return 0.9 if sign == "’" or not inside else 0.1


def _latin(languages: tuple[str, ...]) -> Callable[[str], float]:
    every = frozenset("".join(languages))

    def score(text: str) -> float:
        def judge(letters: frozenset[str], weight: float) -> float:
            def usual(sign: str, before: str, after: str) -> float:
                if not sign.isalpha():
                    return _symbol(sign, before, after)
                if before > "\x7f" < after and before.isalpha() and after.isalpha():
                    return 0.0  # three in a row
                return weight if sign in letters or sign.lower() in letters or sign == "ß" else 0.0

            return _judge(text, usual)

        return max([judge(every, 0.8), *(judge(frozenset(language), 1.0) for language in languages)])

    return score


def _alphabet(letters: str, common: frozenset[str]) -> Callable[[str], float]:
    known = frozenset(letters)

    def usual(sign: str, before: str, after: str) -> float:
        if not sign.isalpha():
            return _symbol(sign, before, after)
        ascii_letter = (before.isascii() and before.isalpha()) or (after.isascii() and after.isalpha())
        if sign.lower() not in known or ascii_letter:
            return 0.0
        odd_case = sign.isupper() and before.islower()
        return (1.0 if not common or sign.lower() in common else 0.8) * (0.2 if odd_case else 1.0)

    return lambda text: _judge(text, usual)


def _pairs(codec: str, first: int, last: int, *marks: int) -> Callable[[str], float]:
    """Judge an East Asian encoding by its first bytes: those of the everyday characters, and of punctuation."""

    def usual(sign: str, before: str, after: str) -> float:
        code = sign.encode(codec, "replace")
        lead = code[0]
        everyday = first <= lead <= last and len(code) == 2 and (codec in ("cp932", "big5hkscs") or code[1] >= 0xA1)
        latin = before.isascii() and before.isalpha() and after.isascii() and after.isalpha()
        return 0.0 if latin else 1.0 if everyday or (lead in marks and len(code) == 2) else 0.0

    return lambda text: _judge(text, usual)


CANDIDATES: dict[str, Callable[[str], float]] = {  # of equal ones, the first
    "cp949": _pairs("cp949", 0xB0, 0xC8, 0xA1, 0xA3),
    "gb18030": _pairs("gb18030", 0xB0, 0xD7, 0xA1, 0xA3),
    "cp932": _pairs("cp932", 0x88, 0x97, 0x81, 0x82, 0x83),
    "euc_jp": _pairs("euc_jp", 0xB0, 0xCF, 0xA1, 0xA3, 0xA4, 0xA5),
    "big5hkscs": _pairs("big5hkscs", 0xA4, 0xC6, 0xA1, 0xA2),
    "cp1252": _latin(WESTERN),
    "cp1250": _latin(CENTRAL),
    "cp1254": _latin(TURKISH),
    "cp1251": _alphabet(CYRILLIC, COMMON_CYRILLIC),
    "koi8-r": _alphabet(CYRILLIC, COMMON_CYRILLIC),
    "cp1253": _alphabet(GREEK, COMMON_GREEK),
}
