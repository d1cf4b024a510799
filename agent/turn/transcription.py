"""Transcribe voice messages with an OpenAI-compatible endpoint, within the budgets.

Tell how long an audio file plays, so that a budget can reserve its price before a server has heard it.
"""

from __future__ import annotations

import math
import time
from pathlib import PurePosixPath
from typing import Any

import aiohttp
import orjson

from agent.settings.network import choose_proxy, describe_failure, make_trust
from agent.settings.sections import VoiceConfig
from agent.spending import (
    LEAD,
    VOICE,
    Meter,
    ModelCall,
    PlannedCall,
    Refusal,
    count_call,
    cut_off_charge,
    reserve_call,
    text_tokens,
)
from catalogue import _, join_sentences

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


MAX_BYTES = 25 << 20  # of OpenAI and Groq
TIMEOUT_SECONDS = 120.0
TOKENS_PER_SECOND = 10  # of audio, as OpenAI counts them; also where a server counts only seconds
WORDS_TOKENS_PER_SECOND = 10  # of an answer: nobody speaks faster
SUFFIXES = frozenset((".oga", ".ogg", ".opus", ".mp3", ".m4a", ".mp4a", ".aac", ".wav", ".webm", ".flac", ".amr"))
# Telegram and WhatsApp say .oga, which gpt-4o-transcribe and Groq refuse by its name.
RENAMED = {".oga": ".ogg", ".opus": ".ogg"}


class NotTranscribed(Exception):
    """The text tells a person why, and what to do; `reason` is for the operator."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text


def is_audio(name: str) -> bool:
    """Return whether a file is audio, by its name."""
    return PurePosixPath(name).suffix.lower() in SUFFIXES


async def transcribe(config: VoiceConfig, name: str, data: bytes, meter: Meter) -> str:
    """Return the words of an audio file, "" for silence. Raises NotTranscribed, also where a budget refuses."""
    if len(data) > MAX_BYTES:
        raise NotTranscribed(
            _("{name} is longer than I can transcribe: the limit is {limit} MB.", name=name, limit=MAX_BYTES >> 20)
        )
    length = audio_seconds(name, data)
    if not data or not length:
        return ""
    tokens = math.ceil(length * TOKENS_PER_SECOND), math.ceil(length * WORDS_TOKENS_PER_SECOND)
    planned = PlannedCall(LEAD, config.model, VOICE, *tokens, audio_seconds=length)
    held = await reserve_call(meter, planned)
    if isinstance(held, Refusal):
        refused = _("I didn't transcribe {name}.", name=name)
        raise NotTranscribed(join_sentences(refused, held.what, held.what_to_do))
    began = time.monotonic()

    async def ask() -> tuple[str, ModelCall]:
        reply = await _post(config, name, data)
        words = str(reply["text"]).strip()
        return words, _read_usage(config.model, reply, words, length, time.monotonic() - began)

    try:
        return await count_call(meter, planned, held, ask, cut_off_charge(planned, _is_charged))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
        raise NotTranscribed(
            _(
                "I couldn't transcribe {name}: the service doesn't answer as it should. Send it as text.",
                name=name,
            ),
            describe_failure(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}",
        ) from error


async def _post(config: VoiceConfig, name: str, data: bytes) -> dict[str, Any]:
    suffix = PurePosixPath(name).suffix.lower()
    form = aiohttp.FormData({"model": config.model, "response_format": "json"})
    if config.language:
        form.add_field("language", config.language)
    form.add_field("file", data, filename=f"voice{RENAMED.get(suffix, suffix)}")
    headers = {"Authorization": f"Bearer {config.api_key.reveal()}"} if config.api_key else {}
    url = f"{config.base_url.rstrip('/')}/audio/transcriptions"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
        session.post(url, data=form, headers=headers, proxy=choose_proxy(url), ssl=make_trust()) as response,
    ):
        if response.status >= 400:
            raise NotTranscribed(
                _(
                    "I couldn't transcribe {name}: the service answers with status {status}. Send it as text.",
                    name=name,
                    status=response.status,
                ),
                f"it answers with status {response.status}",
            )
        reply = orjson.loads(await response.read())
    if not isinstance(reply, dict):
        raise TypeError("the answer is not an object")
    return reply


def _is_charged(error: BaseException) -> bool:
    return not isinstance(error, (NotTranscribed, aiohttp.ClientConnectorError))


def _read_usage(model: str, reply: dict[str, Any], words: str, length: float, seconds: float) -> ModelCall:
    """Return the call with what the server reports of it: tokens (OpenAI, Mistral) or seconds of audio, or estimates.

    Of whisper-1, OpenAI reports the seconds that it charges; `length` are those of the file.
    """
    used = reply.get("usage")
    used = used if isinstance(used, dict) else {}
    heard = _number(used, "seconds") or _number(used, "prompt_audio_seconds") or _number(reply, "duration") or length
    input = _number(used, "input_tokens") or _number(used, "prompt_tokens") or heard * TOKENS_PER_SECOND
    output = _number(used, "output_tokens") or _number(used, "completion_tokens") or text_tokens(words)
    return ModelCall(
        agent=LEAD,
        model=model,
        kind=VOICE,
        input=math.ceil(input),
        output=math.ceil(output),
        cached=0,
        reasoning=0,
        seconds=seconds,
        at=time.time(),
        audio_seconds=heard,
    )


def _number(values: dict[str, Any], name: str) -> float:
    """Return a count; 0.0 where there is none."""
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and 0 < value < math.inf else 0.0
