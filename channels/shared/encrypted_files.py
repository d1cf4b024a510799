"""Decrypt a file while it is downloaded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from cryptography.hazmat.primitives.ciphers import CipherContext
from cryptography.hazmat.primitives.padding import PKCS7

from channels.base import Refused


async def decrypted(chunks: AsyncIterator[bytes], decryptor: CipherContext, block: int) -> AsyncGenerator[bytes, None]:
    """Yield the plain bytes of a file that is padded to blocks of so many bytes. Raises Refused if it is damaged."""
    padding = PKCS7(8 * block).unpadder()
    async for chunk in chunks:
        if plain := padding.update(decryptor.update(chunk)):
            yield plain
    try:
        plain = padding.update(decryptor.finalize()) + padding.finalize()
    except ValueError:
        raise Refused("arrived damaged") from None
    if plain:
        yield plain
