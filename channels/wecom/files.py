"""Files of people, which WeCom encrypts, each under a key of its own, and keeps for five minutes.

AES-256-CBC, the first 16 bytes of the key as the vector, padded to 32 bytes
(developer.work.weixin.qq.com/document/path/100719).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterator

import orjson
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from agent.messages import Attachment
from channels.base import Refused, TryLater
from channels.shared import files
from channels.shared.caches import LatestDict
from channels.shared.encrypted_files import decrypted
from channels.shared.http_client import HttpClient

BLOCK = 32  # bytes, to which a file is padded: twice a block of AES
MAX_NAMES = 1_000


class EncryptedFiles:
    """Downloads files. Their names come with them, and are kept for a while."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self.names: LatestDict[str, str] = LatestDict(MAX_NAMES)  # by the `ref` of what was fetched

    async def download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Yield the plain bytes of a file. Raises ChannelError."""
        ref = orjson.loads(attachment.ref)
        async with self._http.request("GET", ref["url"], allow_redirects=False) as answer:
            if 400 <= answer.status < 500:
                raise files.no_longer_available("WeCom")
            if answer.status != 200:
                raise TryLater(f"WeCom's file server answered {answer.status}")
            head = answer.content_disposition
            self.names[attachment.ref] = (head.filename if head else "") or attachment.name
            chunks = answer.content.iter_chunked(files.CHUNK)
            async for chunk in decrypt(chunks, ref["key"]) if ref["key"] else chunks:
                yield chunk


async def decrypt(chunks: AsyncIterator[bytes], key: str) -> AsyncGenerator[bytes, None]:
    """Yield the plain bytes of an encrypted file. Raises Refused if it is damaged."""
    try:
        raw = base64.b64decode(key + "=" * (-len(key) % 4), validate=True)
        cipher = Cipher(algorithms.AES256(raw), modes.CBC(raw[:16])).decryptor()
    except (binascii.Error, ValueError):
        raise Refused("came with a key that cannot be used") from None
    async for plain in decrypted(chunks, cipher, BLOCK):
        yield plain
