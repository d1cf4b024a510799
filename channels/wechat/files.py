"""Files of WeChat: AES-128-ECB under a key of each file (openclaw-weixin 2.4.9, src/cdn)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import AsyncGenerator
from typing import Any, BinaryIO
from urllib.parse import quote

import orjson
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from agent.messages import Attachment
from catalogue import N_, _
from channels.base import OutcomeUnknown, Refused, TryLater
from channels.shared.encrypted_files import decrypted
from channels.shared.files import CHUNK, no_longer_available
from channels.wechat.api import WeChatApi

BLOCK = 16  # bytes
NOT_TAKEN = N_("WeChat's file server refused it: {said}")
KINDS = {"image": 1, "video": 2, "file": 3}


def sealed_size(size: int) -> int:
    """Return how many bytes a file has when it is encrypted."""
    return (size // BLOCK + 1) * BLOCK


class WeChatFiles:
    """Uploads and downloads."""

    def __init__(self, api: WeChatApi, url: str) -> None:
        self._api = api
        self._url = url.rstrip("/")

    async def upload(self, person: str, kind: str, content: BinaryIO, size: int) -> dict[str, Any]:
        """Encrypt and upload a file, which shows nothing; return how a message names it. Raises ChannelError."""
        key, name = secrets.token_bytes(16), secrets.token_hex(16)
        plain = content.read()
        asked = {
            "filekey": name,
            "media_type": KINDS[kind],
            "to_user_id": person,
            "rawsize": size,
            "rawfilemd5": hashlib.md5(plain, usedforsecurity=False).hexdigest(),
            "filesize": sealed_size(size),
            "no_need_thumb": True,
            "aeskey": key.hex(),
        }
        found = await self._api("getuploadurl", asked, repeatable=True)
        url = found.get("upload_full_url") or (
            f"{self._url}/upload?encrypted_query_param={quote(str(found['upload_param']))}&filekey={name}"
        )
        padding, cipher = PKCS7(8 * BLOCK).padder(), Cipher(algorithms.AES128(key), modes.ECB()).encryptor()  # noqa: S305 — WeChat's
        sealed = cipher.update(padding.update(plain) + padding.finalize()) + cipher.finalize()
        headers = {"Content-Type": "application/octet-stream"}
        async with self._api.request("POST", str(url), data=sealed, headers=headers, repeatable=True) as answer:
            param = answer.headers.get("x-encrypted-param", "")
            if 400 <= answer.status < 500:  # asking again changes nothing (src/cdn/cdn-upload.ts)
                said = answer.headers.get("x-error-message", "")[:300]
                raise Refused(_(NOT_TAKEN, said=f"{said} ({answer.status})".strip()))
            if answer.status != 200 or not param:
                raise TryLater(f"WeChat's file server answered {answer.status}")
        return {
            "encrypt_query_param": param,
            "aes_key": base64.b64encode(key.hex().encode()).decode(),
            "encrypt_type": 1,
        }

    async def download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Yield the plain bytes of a file. Raises ChannelError."""
        media = orjson.loads(attachment.ref)
        url = str(media.get("full_url") or "") or (
            f"{self._url}/download?encrypted_query_param={quote(str(media.get('encrypt_query_param', '')))}"
        )
        cipher = Cipher(algorithms.AES128(_key_of(media)), modes.ECB()).decryptor()  # noqa: S305 — WeChat's choice
        async with self._api.request("GET", url, allow_redirects=False) as answer:
            if 400 <= answer.status < 500:
                raise no_longer_available("WeChat")
            if answer.status != 200:
                raise OutcomeUnknown(f"WeChat's file server answered {answer.status}")
            async for plain in decrypted(answer.content.iter_chunked(CHUNK), cipher, BLOCK):
                yield plain


def _key_of(media: dict[str, Any]) -> bytes:
    """Return the key of a file: Base64 of its bytes, or of their hexadecimal text, or that of a picture, which stands
    beside it in the message. Raises Refused."""
    try:
        if beside := media.get("aeskey"):
            key = bytes.fromhex(str(beside))
        else:
            raw = base64.b64decode(str(media["aes_key"]), validate=True)
            key = raw if len(raw) == BLOCK else bytes.fromhex(raw.decode())
    except (KeyError, ValueError, binascii.Error):
        key = b""
    if len(key) != BLOCK:
        raise Refused("came with a key that cannot be used")
    return key
