"""Transcribe voice messages with an OpenAI-compatible endpoint."""

from __future__ import annotations

from pathlib import PurePosixPath

import aiohttp
import orjson

from agent.sections import VoiceConfig
from catalogue import _

MAX_BYTES = 25 << 20  # of OpenAI and Groq
TIMEOUT_SECONDS = 120.0
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


async def transcribe(config: VoiceConfig, name: str, data: bytes) -> str:
    """Return the words of an audio file, "" for silence. Raises NotTranscribed."""
    if len(data) > MAX_BYTES:
        raise NotTranscribed(
            _("{name} is longer than I can transcribe: the limit is {limit} MB.", name=name, limit=MAX_BYTES >> 20)
        )
    path = PurePosixPath(name)
    form = aiohttp.FormData({"model": config.model, "response_format": "json"})
    if config.language:
        form.add_field("language", config.language)
    form.add_field("file", data, filename=f"voice{RENAMED.get(path.suffix.lower(), path.suffix.lower())}")
    headers = {"Authorization": f"Bearer {config.api_key.reveal()}"} if config.api_key else {}
    url = f"{config.base_url.rstrip('/')}/audio/transcriptions"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
            session.post(url, data=form, headers=headers) as response,
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
            return str(orjson.loads(await response.read())["text"]).strip()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
        raise NotTranscribed(
            _(
                "I couldn't transcribe {name}: the service doesn't answer as it should. Send it as text.",
                name=name,
            ),
            f"{type(error).__name__}: {error}",
        ) from error
