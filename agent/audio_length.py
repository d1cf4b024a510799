"""Tell how long an audio file plays, so that a budget can reserve its price before a server has heard it."""

from __future__ import annotations

from pathlib import PurePosixPath

LEAST_BYTES_PER_SECOND = {".amr": 600}  # of the thinnest mode
OTHER_LEAST_BYTES_PER_SECOND = 2000  # 16 kbit/s, which speech has at least in every other format but Opus
OPUS_BYTES_PER_SECOND = 600  # of its thinnest mode
MOST_BYTES_PER_SECOND = 600_000  # more than two channels of 96 kHz and 24 bits
OPUS_HERTZ = 48_000  # of its positions, whatever was recorded


def audio_seconds(name: str, data: bytes) -> float:
    """Return the length that an Ogg, WAV or MP4 file states, otherwise the most that so many bytes may play.

    A stated length counts as far as so many bytes can have it.
    """
    suffix = PurePosixPath(name).suffix.lower()
    least = LEAST_BYTES_PER_SECOND.get(suffix, OTHER_LEAST_BYTES_PER_SECOND)
    stated = _stated_seconds(data)
    if stated is None:
        return len(data) / least
    return min(max(stated, len(data) / MOST_BYTES_PER_SECOND), len(data) / OPUS_BYTES_PER_SECOND)


def _stated_seconds(data: bytes) -> float | None:
    if data[:4] == b"OggS":
        return _ogg_seconds(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _ratio(len(data) - 44, int.from_bytes(data[28:32], "little"))
    if (header := data.find(b"mvhd")) >= 0:  # MP4: version 1 has times of 8 bytes
        wide = data[header + 4 : header + 5] == b"\1"
        at, size = (header + 24, 8) if wide else (header + 16, 4)
        scale, length = data[at : at + 4], data[at + 4 : at + 4 + size]
        return _ratio(int.from_bytes(length, "big"), int.from_bytes(scale, "big"))
    return None


def _ogg_seconds(data: bytes) -> float | None:
    """Divide the position of the last page by the rate, which the first page has for Vorbis."""
    last = data.rfind(b"OggS")
    position = int.from_bytes(data[last + 6 : last + 14], "little")
    vorbis = data.find(b"\1vorbis", 0, 200)
    rate = OPUS_HERTZ if vorbis < 0 else int.from_bytes(data[vorbis + 12 : vorbis + 16], "little")
    return _ratio(position, rate)


def _ratio(count: int, each_second: int) -> float | None:
    return count / each_second if count > 0 and each_second > 0 else None
