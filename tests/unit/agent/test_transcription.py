"""Voice messages: how long they play, what a server reports of them, and what they cost."""

from __future__ import annotations

import io
import wave
from typing import Any

import pytest
from aiohttp import web

from agent.models.prices import price_call
from agent.settings.sections import EmbeddingsConfig, VoiceConfig
from agent.spending import Meter, ModelCall
from agent.turn.transcription import audio_seconds, transcribe
from tests.support.web_server import serve_site

OPENAI = "https://api.openai.com/v1"


def ogg(seconds: float, size: int = 0) -> bytes:
    """Return the pages of an Opus file that matter, with `size` bytes of sound."""

    def page(position: int) -> bytes:
        return b"OggS\0\0" + position.to_bytes(8, "little") + bytes(13)

    return page(0) + b"OpusHead" + bytes(size or round(seconds * 4000)) + page(round(seconds * 48_000))


def wav(seconds: float) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as audio:
        audio.setparams((1, 2, 16_000, 0, "NONE", ""))
        audio.writeframes(bytes(round(32_000 * seconds)))
    return file.getvalue()


def mp4(seconds: int, version: int) -> bytes:
    wide = 8 if version else 4
    times = bytes(2 * wide) + (1000).to_bytes(4, "big") + (1000 * seconds).to_bytes(wide, "big")
    return bytes(20) + b"ftypM4A " + bytes(4000 * seconds) + b"mvhd" + bytes([version, 0, 0, 0]) + times


@pytest.mark.parametrize(
    ("name", "data", "seconds"),
    [
        ("voice.oga", ogg(30), 30),
        ("voice.wav", wav(2), 2),
        ("clip.m4a", mp4(5, 0), 5),
        ("clip.m4a", mp4(5, 1), 5),
        ("voice.amr", bytes(6000), 10),
        ("song.mp3", bytes(6000), 3),
        ("voice.ogg", b"OggS", 0.002),
        ("lies.ogg", ogg(100_000, 600), 1.1),
        ("lies.ogg", ogg(0.001, 1_200_000), 2),
        ("voice.mp3", b"", 0),
    ],
)
def test_the_length_is_stated_or_bounded_by_the_bytes(name: str, data: bytes, seconds: float) -> None:
    assert audio_seconds(name, data) == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"usage": {"type": "duration", "seconds": 9}}, (90, 2, 9.0)),
        ({"usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 45}}, (14, 45, 30.0)),
        ({"usage": {"prompt_audio_seconds": 3, "prompt_tokens": 4, "completion_tokens": 6}}, (4, 6, 3.0)),
        ({"duration": 8.47}, (85, 2, 8.47)),
        ({}, (300, 2, 30.0)),
        ({"usage": "?"}, (300, 2, 30.0)),
    ],
)
async def test_the_call_has_what_the_server_reports(reply: dict[str, Any], expected: tuple[int, int, float]) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"text": "Hello.", **reply})

    meter = Meter()
    async with serve_site() as site:
        site.pages["/v1/audio/transcriptions"] = answer
        config = VoiceConfig(f"http://127.0.0.1:{site.port}/v1")
        assert await transcribe(config, "voice.oga", ogg(30), meter) == "Hello."
    [call] = meter.take_unrecorded()
    assert (call.input, call.output, call.audio_seconds) == expected
    assert (call.kind, call.model) == ("voice", "whisper-1")


def voice(seconds: float = 60.0, input: int = 600, output: int = 100) -> ModelCall:
    return ModelCall("lead", "m", "voice", input, output, 0, 0, 1.0, 0.0, audio_seconds=seconds)


def embedding(tokens: int) -> ModelCall:
    return ModelCall("lead", "m", "embedding", tokens, 0, 0, 0, 0.1, 0.0)


def test_voice_and_embeddings_have_their_own_price_or_the_list_price() -> None:
    assert price_call(VoiceConfig(OPENAI, "whisper-1"), voice())[0] == 6000, "by the minute"
    assert price_call(VoiceConfig(OPENAI, "gpt-4o-transcribe"), voice())[0] == 3600 + 1000, "by tokens"
    assert price_call(VoiceConfig("http://10.0.0.1/v1"), voice()) == (None, "")
    assert price_call(VoiceConfig(OPENAI, "unheard-of"), voice()) == (None, "")
    assert price_call(VoiceConfig(OPENAI, price_per_minute=0.1), voice(30)) == (50_000, "config")
    assert price_call(VoiceConfig("http://10.0.0.1/v1", price_per_minute=0), voice()) == (0, "config")
    assert price_call(EmbeddingsConfig(OPENAI), embedding(1_000_000))[0] == 20_000
    assert price_call(EmbeddingsConfig(OPENAI), embedding(3))[0] == 1, "not free"
    own = EmbeddingsConfig("http://10.0.0.1/v1", price_per_million_tokens=0.5)
    assert price_call(own, embedding(1000)) == (500, "config")
    assert price_call(EmbeddingsConfig("http://10.0.0.1/v1"), embedding(9)) == (None, "")
