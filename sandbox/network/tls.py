"""Parse the server name of a TLS ClientHello, which says what a tunnel is for."""

from __future__ import annotations

import asyncio

HANDSHAKE_TYPE = b"\x16"
CLIENT_HELLO = b"\x01"
UNRECOGNIZED_NAME = b"\x15\x03\x03\x00\x02\x02\x70"  # fatal alert (RFC 8446 §6)
CHUNK_BYTES = 1 << 16


class NoServerName(Exception):
    """The record is not a ClientHello with exactly one server name."""


async def read_first_record(reader: asyncio.StreamReader, data: bytes) -> bytes:
    """Read the rest of the client's first TLS record after `data`, or other first bytes as they come."""
    while not data or (data[:1] == HANDSHAKE_TYPE and len(data) < 5 + int.from_bytes(data[3:5])):
        if not (more := await reader.read(CHUNK_BYTES)):
            break
        data += more
    return data


def parse_server_name(record: bytes) -> str:
    """Return the host in a client's first record (RFC 8446 §4.1.2, RFC 6066 §3). Raises NoServerName."""
    content = _ByteReader(record[3:]).vector(2)
    message = _ByteReader(content)
    if record[:1] != HANDSHAKE_TYPE or message.take(1) != CLIENT_HELLO:
        raise NoServerName
    hello = _ByteReader(message.vector(3))
    hello.take(2 + 32)  # version and random
    for width in (1, 2, 1):  # session, cipher suites, compression
        hello.vector(width)
    extensions = _ByteReader(hello.vector(2))
    found = []
    while extensions.data:
        kind, body = extensions.take(2), extensions.vector(2)
        if kind == b"\0\0":
            names = _ByteReader(_ByteReader(body).vector(2))
            if names.take(1) != b"\0":
                raise NoServerName
            found.append(names.vector(2))
            if names.data:
                raise NoServerName
    if len(found) != 1 or not found[0].isascii():
        raise NoServerName
    return found[0].decode()


class _ByteReader:
    """Reads bytes from the front. Raises NoServerName at the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        if len(self.data) < size:
            raise NoServerName
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def vector(self, width: int) -> bytes:
        """Read bytes behind their length of `width` bytes."""
        return self.take(int.from_bytes(self.take(width)))
