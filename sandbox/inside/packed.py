"""Unpack what one of gzip, bzip2, xz and Zstandard has packed, as a stream: its reader bounds the bytes.

Standard library only, Python 3.9+; Zstandard needs Python 3.14 or the package `zstandard`.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any, BinaryIO

MARKS = {b"\x1f\x8b\x08": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "Zstandard"}
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".tgz", ".tbz2", ".txz")
NO_ZSTANDARD = "it is packed with Zstandard, which cannot be unpacked here: ask for it packed with gzip, or not at all"
MAX_WINDOW_BYTES = 1 << 27  # that a file may have its reader remember
PIECE_BYTES = 1 << 20


class CannotUnpack(Exception):
    """The text says why, and what to do."""


def packing_of(head: bytes) -> str:
    """Return the name of the program that has packed what begins so; "" for none."""
    name = next((name for mark, name in MARKS.items() if head.startswith(mark)), "")
    return "" if name == "bzip2" and head[4:10] not in (b"1AY&SY", b"\x17rE8P\x90") else name


class Unpacked:
    """The content of a packed file. `is_damaged` says that it was not read to its end."""

    def __init__(self, file: BinaryIO, packing: str) -> None:
        """Raises CannotUnpack."""
        self._source = _open_source(file, packing)
        self.is_damaged = False

    def read(self, size: int) -> bytes:
        """Return so many bytes, or fewer at the end, which is also where the file is damaged."""
        pieces: list[bytes] = []
        while size > 0 and not self.is_damaged:
            try:
                piece = self._source.read1(min(size, PIECE_BYTES))  # `read` would lose what is whole
            except MemoryError:
                raise
            except Exception:  # noqa: BLE001  each library raises its own
                self.is_damaged = True
                break
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def _open_source(file: BinaryIO, packing: str) -> Any:
    if packing != "Zstandard":
        module, name = {"gzip": ("gzip", "GzipFile"), "bzip2": ("bz2", "BZ2File"), "xz": ("lzma", "LZMAFile")}[packing]
        opener = getattr(importlib.import_module(module), name)
        return opener(fileobj=file) if packing == "gzip" else opener(file)
    with suppress(ImportError):
        return importlib.import_module("compression.zstd").ZstdFile(file)
    try:
        library = importlib.import_module("zstandard")
    except ImportError:
        raise CannotUnpack(NO_ZSTANDARD) from None
    return library.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).stream_reader(file, read_across_frames=True)
