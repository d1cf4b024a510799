"""Encrypt what is stored, under keys that the operator keeps elsewhere: texts, and files that are read at any place.

AES-256-GCM. A text is sealed for a purpose, so that it cannot be put in another's place. A file is sealed in chunks by
the construction STREAM (https://eprint.iacr.org/2015/189, as in age): what was cut, swapped or changed does not open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from catalogue import N_, LocalizedError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MIN_KEY_CHARS = 32
TEXT_MARK, FILE_MARK = "sealed:1:", b"FAWN-SEALED-1\n"
CHUNK_BYTES, TAG_BYTES, SALT_BYTES, NONCE_BYTES, ID_BYTES = 1 << 20, 16, 16, 12, 4
HEADER_BYTES = len(FILE_MARK) + ID_BYTES + SALT_BYTES
SEALED_BYTES = CHUNK_BYTES + TAG_BYTES


class NotOpened(LocalizedError):
    """Something sealed cannot be read; the text says why and what to do."""


NO_KEY = N_("it is encrypted under another key: add that to `encryption.old_keys`")
CHANGED = N_("it is encrypted, and was changed or cut")


class Sealer:
    """Seals with the first of the keys and opens with all of them. Without a key it leaves texts as they are."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        secrets = [hashlib.sha256(b"fawn:" + key.encode()).digest() for key in keys]
        self._keys = {hashlib.sha256(b"id:" + secret).digest()[:ID_BYTES]: secret for secret in secrets}

    @property
    def seals(self) -> bool:
        """Whether there is a key."""
        return bool(self._keys)

    def seal(self, text: str, purpose: str) -> str:
        """Return a text as it is to be stored."""
        if not self._keys or not text:
            return text
        key_id, nonce = next(iter(self._keys)), os.urandom(NONCE_BYTES)
        sealed = _cipher(self._keys[key_id], b"text").encrypt(nonce, text.encode(), purpose.encode())
        return TEXT_MARK + base64.urlsafe_b64encode(key_id + nonce + sealed).decode()

    def open(self, text: str, purpose: str) -> str:
        """Return a stored text; one that is not sealed is as it is. Raises NotOpened."""
        if not text.startswith(TEXT_MARK):
            return text
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.urlsafe_b64decode(text.removeprefix(TEXT_MARK).encode())
        except (binascii.Error, UnicodeEncodeError) as error:
            raise NotOpened(CHANGED) from error
        secret = self._keys.get(raw[:ID_BYTES])
        if secret is None:
            raise NotOpened(NO_KEY)
        nonce, sealed = raw[ID_BYTES : ID_BYTES + NONCE_BYTES], raw[ID_BYTES + NONCE_BYTES :]
        try:
            return _cipher(secret, b"text").decrypt(nonce, sealed, purpose.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise NotOpened(CHANGED) from error

    def is_current(self, text: str) -> bool:
        """Return whether a text is stored as `seal` would store it now: under the first key, or open without one."""
        if not self._keys or not text:
            return not text.startswith(TEXT_MARK)
        id = base64.urlsafe_b64encode(next(iter(self._keys)) + bytes(2)).decode()
        return text.startswith(TEXT_MARK + id[:5])  # its whole characters

    def writer(self, file: BinaryIO) -> BinaryIO:
        """Return a file that seals what is written into `file`; it is whole when closed, which leaves `file` open."""
        if not self._keys:
            return file
        return _SealingFile(file, *next(iter(self._keys.items())))  # type: ignore[return-value]  # a raw binary file

    def reader(self, file: BinaryIO) -> BinaryIO:
        """Return a file with what was sealed into `file`; one that is not sealed is as it is. Raises NotOpened."""
        head = file.read(HEADER_BYTES)
        if not head.startswith(FILE_MARK):
            file.seek(0)
            return file
        secret = self._keys.get(head[len(FILE_MARK) : len(FILE_MARK) + ID_BYTES])
        if secret is None:
            raise NotOpened(NO_KEY)
        return io.BufferedReader(_OpenedFile(file, _cipher(secret, head[-SALT_BYTES:])), CHUNK_BYTES)


NO_SEAL = Sealer()


def _cipher(secret: bytes, salt: bytes) -> AESGCM:
    """Return a cipher of its own key: HKDF-SHA256 with one block (RFC 5869)."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hmac.digest(hmac.digest(salt, secret, "sha256"), b"fawn sealing\x01", "sha256"))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(NONCE_BYTES - 1, "big") + bytes([last])


class _SealingFile(io.RawIOBase):
    def __init__(self, file: BinaryIO, key_id: bytes, secret: bytes) -> None:
        salt = os.urandom(SALT_BYTES)
        file.write(FILE_MARK + key_id + salt)
        self._file, self._cipher, self._held, self._number = file, _cipher(secret, salt), bytearray(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        given = bytes(data)  # type: ignore[call-overload]  # a buffer
        self._held += given
        while len(self._held) > CHUNK_BYTES:  # the last one waits for `close`
            self._put(bytes(self._held[:CHUNK_BYTES]), last=False)
            del self._held[:CHUNK_BYTES]
        return len(given)

    def close(self) -> None:
        if not self.closed:
            self._put(bytes(self._held), last=True)
        super().close()

    def _put(self, data: bytes, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._number, last=last), data, None))
        self._number += 1


class _OpenedFile(io.RawIOBase):
    def __init__(self, file: BinaryIO, cipher: AESGCM) -> None:
        self._file, self._cipher, self._at = file, cipher, 0
        self._chunks = -(-(file.seek(0, os.SEEK_END) - HEADER_BYTES) // SEALED_BYTES)
        self._number, self._chunk = -1, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            raise OSError("the end is not known")
        self._at = offset if whence == os.SEEK_SET else self._at + offset
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # a writable buffer
        number, begin = divmod(self._at, CHUNK_BYTES)
        data = self._load(number)[begin : begin + len(view)]
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _load(self, number: int) -> bytes:
        from cryptography.exceptions import InvalidTag

        if self._chunks < 1:
            raise NotOpened(CHANGED)
        if number >= self._chunks:
            return b""
        if number != self._number:
            self._file.seek(HEADER_BYTES + number * SEALED_BYTES)
            sealed = self._file.read(SEALED_BYTES)
            try:
                self._chunk = self._cipher.decrypt(_nonce(number, last=number == self._chunks - 1), sealed, None)
            except InvalidTag as error:
                raise NotOpened(CHANGED) from error
            self._number = number
        return self._chunk
