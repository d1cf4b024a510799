"""Pictures for models that see: scaled once, stored in the workspace, and named by the messages that show them."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.parsing.child import ParserFailed, ParserProcess, ReadData

MAX_BYTES = 20 << 20  # of the original
MAX_EDGE = 1568  # pixels of the longer side; providers scale larger pictures down themselves
FOLDER = ".pictures"  # in the workspace
SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".jp2"))
MIMES = ("image/png", "image/jpeg")  # of scaled pictures
PICTURES_KEY = "pictures"  # in `additional_kwargs` of a person's message, and in the artifact of a tool's


@dataclass(frozen=True, slots=True)
class ScaledPicture:
    """A picture in a format that every provider takes, without the original's metadata; the original's size."""

    data: bytes
    mime: str
    width: int
    height: int

    @property
    def name(self) -> str:
        """Its file in `FOLDER`."""
        suffix = "png" if self.mime == "image/png" else "jpg"
        return f"{hashlib.sha256(self.data).hexdigest()[:20]}.{suffix}"


_HEADS = {  # first bytes → suffix of the format
    b"\x89PNG\r\n\x1a\n": ".png",
    b"\xff\xd8\xff": ".jpg",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
    b"\0\0\0\x0cjP  \r\n\x87\n": ".jp2",
    b"\xff\x0a": ".jxl",
    b"\0\0\0\x0cJXL \r\n\x87\n": ".jxl",
    b"8BPS": ".psd",
    b"\0\0\x01\0": ".ico",
}
_HEIF = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_BMP_HEADERS = frozenset({12, 40, 52, 56, 64, 108, 124})  # bytes of the second header
HEAD_BYTES = 64
UNSHOWN = {".heic": "HEIC", ".jxl": "JPEG XL", ".psd": "Photoshop", ".ico": "ICO"}  # formats that nothing here reads


def picture_suffix(head: bytes) -> str:
    """Return the suffix of the format of a picture by its first bytes; "" for another file."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return ".webp"
    if head[4:8] == b"ftyp":  # brands of ISO/IEC 23008-12 and of AVIF
        brands = head[8 : min(int.from_bytes(head[:4]), HEAD_BYTES)]
        found = {brands[at : at + 4] for at in range(0, len(brands), 4)}
        is_avif = bool(found & {b"avif", b"avis"})
        return ".avif" if is_avif else ".heic" if found & _HEIF else ""
    if head[:2] == b"BM" and (len(head) < 18 or int.from_bytes(head[14:18], "little") not in _BMP_HEADERS):
        return ""
    return next((suffix for mark, suffix in _HEADS.items() if head.startswith(mark)), "")


def is_picture(name: str, head: bytes = b"") -> bool:
    """Return whether a file may be a picture that can be shown: its first bytes decide, or its name where they do not
    say."""
    found = picture_suffix(head)
    return found not in UNSHOWN if found else PurePosixPath(name).suffix.lower() in SUFFIXES


async def scale_picture(parser: ParserProcess, data: bytes | ReadData, *, owner: Hashable = "") -> ScaledPicture:
    """Scale a picture in the child process, for a conversation. Raises ParserFailed."""
    about, scaled = await parser.run("picture", data, owner=owner, edge=MAX_EDGE)
    if about["mime"] not in MIMES:
        raise ParserFailed("the picture is damaged")
    return ScaledPicture(scaled, about["mime"], about["width"], about["height"])
