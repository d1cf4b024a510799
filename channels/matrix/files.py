"""Encrypt files for encrypted rooms, and open those of people: AES-256-CTR, with the hash of what the server has.

spec.matrix.org/latest/client-server-api/#sending-encrypted-attachments.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, BinaryIO

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from channels.base import Refused
from channels.shared.files import CHUNK
from channels.shared.visible_text import dict_of, text_of

Json = dict[str, Any]
KEY_BYTES, COUNTER_BYTES, HELD_BYTES = 32, 16, 32


class SealedFile:
    """A file that is encrypted while it is read. `description` is what readers need, once all was read."""

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        self._key = os.urandom(KEY_BYTES)
        self._counter = os.urandom(COUNTER_BYTES // 2) + bytes(COUNTER_BYTES // 2)
        self._hash = hashlib.sha256()

    def pieces(self) -> Iterator[bytes]:
        """Read the file, and yield it encrypted."""
        sealing = Cipher(algorithms.AES(self._key), modes.CTR(self._counter)).encryptor()
        while chunk := self._content.read(CHUNK):
            sealed = sealing.update(chunk)
            self._hash.update(sealed)
            yield sealed

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield it encrypted, read off the loop."""
        pieces = self.pieces()
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece

    def description(self, address: str) -> Json:
        """Return the `file` of a message."""
        key = to_base64(self._key).replace("+", "-").replace("/", "_")
        return {
            "url": address,
            "v": "v2",
            "key": {"kty": "oct", "alg": "A256CTR", "ext": True, "k": key, "key_ops": ["encrypt", "decrypt"]},
            "iv": to_base64(self._counter),
            "hashes": {"sha256": to_base64(self._hash.digest())},
        }


async def open_file(file: Json, sealed: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of an encrypted file. The last ones come only if the hash is right. Raises Refused."""
    try:
        key, counter = from_base64(dict_of(file.get("key")).get("k")), from_base64(file.get("iv"))
        wanted = from_base64(dict_of(file.get("hashes")).get("sha256"))
        opening = Cipher(algorithms.AES(key), modes.CTR(counter)).decryptor()
    except (ValueError, TypeError):
        raise Refused("cannot be decrypted: its key is malformed") from None
    digest, held = hashlib.sha256(), b""
    async with aclosing(sealed) as chunks:
        async for chunk in chunks:
            digest.update(chunk)
            plain = held + opening.update(chunk)
            held = plain[-HELD_BYTES:]
            if len(plain) > HELD_BYTES:
                yield plain[:-HELD_BYTES]
    if digest.digest() != wanted:
        raise Refused("was changed on the way")
    if held:
        yield held


def to_base64(data: bytes) -> str:
    """Return bytes as Matrix writes them: without padding."""
    return base64.b64encode(data).rstrip(b"=").decode()


def from_base64(value: object) -> bytes:
    """Return what was written so, or for addresses. Raises ValueError."""
    text = text_of(value).replace("-", "+").replace("_", "/")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
