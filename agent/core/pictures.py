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
SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"))
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


def is_picture(name: str) -> bool:
    """Return whether a file is a picture that can be shown, by its name."""
    return PurePosixPath(name).suffix.lower() in SUFFIXES


async def scale_picture(parser: ParserProcess, data: bytes | ReadData, *, owner: Hashable = "") -> ScaledPicture:
    """Scale a picture in the child process, for a conversation. Raises ParserFailed."""
    about, scaled = await parser.run("picture", data, owner=owner, edge=MAX_EDGE)
    if about["mime"] not in MIMES:
        raise ParserFailed("the picture is damaged")
    return ScaledPicture(scaled, about["mime"], about["width"], about["height"])
