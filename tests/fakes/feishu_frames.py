"""The frames of the long connection: nine fields of protobuf, written and read by hand.

1 SeqID, 2 LogID, 3 service, 4 method (0 control, 1 data), 5 repeated {1 key, 2 value}, 8 payload
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Frame:
    """One frame; only what both sides use."""

    method: int
    headers: dict[str, str] = field(default_factory=dict)
    payload: bytes = b""
    service: int = 33554678
    sequence: int = 1
    log: int = 1

    def encode(self) -> bytes:
        numbers = ((1, self.sequence), (2, self.log), (3, self.service), (4, self.method))
        made = b"".join(_varint(number << 3) + _varint(value) for number, value in numbers)
        for key, value in self.headers.items():
            made += _bytes(5, _bytes(1, key.encode()) + _bytes(2, value.encode()))
        return made + _bytes(8, self.payload)

    @classmethod
    def decode(cls, data: bytes) -> Frame:
        frame = cls(0)
        for number, value in _fields(data):
            match number, value:
                case 1, int():
                    frame.sequence = value
                case 2, int():
                    frame.log = value
                case 3, int():
                    frame.service = value
                case 4, int():
                    frame.method = value
                case 5, bytes():
                    pair = dict(_fields(value))
                    key, text = pair[1], pair[2]
                    assert isinstance(key, bytes)
                    assert isinstance(text, bytes)
                    frame.headers[key.decode()] = text.decode()
                case 8, bytes():
                    frame.payload = value
        return frame


def _varint(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:
            length = varint()
            yield tag >> 3, data[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {tag & 7}")
