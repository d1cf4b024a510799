"""Embeddings of facts and requests from an OpenAI-compatible endpoint, and how similar they are."""

from __future__ import annotations

import asyncio
import logging
import math
import operator
from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

import aiohttp
import orjson

from agent.sections import EmbeddingsConfig
from catalogue import N_, LocalizedError

log = logging.getLogger(__name__)

MAX_BATCH_TEXTS = 64
BATCH_SECONDS = 60.0
MAX_TEXT_CHARS = 8000

Vector: TypeAlias = "array[float]"
"""Of the type "f", with the length 1."""


class EmbeddingsFailed(LocalizedError):
    """The endpoint does not answer as it should."""


async def embed_texts(config: EmbeddingsConfig, texts: Sequence[str], seconds: float) -> list[Vector]:
    """Return the vector of each text. Raises EmbeddingsFailed."""
    headers = {"Authorization": f"Bearer {config.api_key.reveal()}"} if config.api_key else {}
    body = {"model": config.model, "input": [text[:MAX_TEXT_CHARS] for text in texts], "encoding_format": "float"}
    try:
        async with (
            asyncio.timeout(seconds),
            aiohttp.ClientSession() as session,
            session.post(f"{config.base_url.rstrip('/')}/embeddings", json=body, headers=headers) as response,
        ):
            if response.status >= 400:
                raise EmbeddingsFailed(N_("it answers with status {status}"), status=response.status)
            rows = orjson.loads(await response.read())["data"]
            vectors = [_unit(row["embedding"]) for row in sorted(rows, key=lambda row: row["index"])]
    except TimeoutError as error:
        raise EmbeddingsFailed(N_("it did not answer in {n:g} s"), n=seconds) from error
    except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError, OverflowError) as error:
        raise EmbeddingsFailed(f"{type(error).__name__}: {error}") from error
    if len(vectors) != len(texts):
        raise EmbeddingsFailed(N_("it answers {n} vectors for {texts} texts"), n=len(vectors), texts=len(texts))
    return vectors


def _unit(values: Sequence[float]) -> Vector:
    length = math.sqrt(sum(value * value for value in values))
    if not length or not math.isfinite(length):
        raise ValueError("a vector without a direction")
    return array("f", [value / length for value in values])


def similarity(one: Vector, other: Vector) -> float:
    """Return the cosine; -1 for vectors of different models."""
    return sum(map(operator.mul, one, other)) if len(one) == len(other) else -1.0


def sign_bits(vector: Vector) -> bytes:
    """Return the signs of a vector: by how many of them two vectors differ is a quick estimate of their angle."""
    return int("".join("1" if value > 0 else "0" for value in vector), 2).to_bytes((len(vector) + 7) // 8)


class Embedder:
    """Embeds requests within the deadline of the configuration. A fault is logged once until the endpoint works."""

    def __init__(self, config: Callable[[], EmbeddingsConfig]) -> None:
        self._config = config
        self._failing = False

    async def embed(self, texts: Sequence[str], seconds: float = 0.0) -> list[Vector]:
        """Return the vectors, or none if the endpoint fails or none is configured."""
        config = self._config()
        if not config.base_url or not any(text.strip() for text in texts):
            return []
        try:
            vectors = await embed_texts(config, texts, seconds or config.seconds)
        except EmbeddingsFailed as error:
            if not self._failing:
                log.warning("memory.embeddings_failed reason=%s; memories are found by their words only", error)
            self._failing = True
            return []
        self._failing = False
        return vectors
