"""Embeddings of facts and requests from an OpenAI-compatible endpoint, and how similar they are."""

from __future__ import annotations

import asyncio
import logging
import math
import operator
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp
import orjson

from agent.settings.network import choose_proxy, describe_failure, make_trust
from agent.settings.sections import EmbeddingsConfig
from agent.spending import (
    EMBEDDING,
    LEAD,
    Meter,
    ModelCall,
    PlannedCall,
    Refusal,
    count_call,
    cut_off_charge,
    reserve_call,
    text_tokens,
)
from catalogue import N_, LocalizedError

log = logging.getLogger(__name__)

MAX_BATCH_TEXTS = 64
BATCH_SECONDS = 60.0
MAX_TEXT_CHARS = 8000
NEUTRAL_TEXTS = (  # about different things, in languages of memories
    "The printer on the second floor is out of paper.",
    "My brother plays the guitar on Sundays.",
    "The contract with the supplier ends in March.",
    "She prefers short answers without tables.",
    "The deployment failed because a certificate had expired.",
    "Der Zug nach Hamburg fährt um acht Uhr ab.",
    "Unsere Kantine hat freitags geschlossen.",
    "我的同事下个月搬到成都。",
    "这份报告要用表格写。",
    "昨天的会议讨论了预算。",
    "弟は来週から大阪で働きます。",
    "この書類は来月までに提出してください。",
)

Vector: TypeAlias = "array[float]"
"""Of the type "f", with the length 1."""


class EmbeddingsFailed(LocalizedError):
    """The endpoint does not answer as it should."""


class EmbeddingsRefused(Exception):
    """A budget or an unknown price does not allow the call, which was not made."""


async def embed_texts(config: EmbeddingsConfig, texts: Sequence[str], seconds: float, meter: Meter) -> list[Vector]:
    """Return the vector of each text, at the latest after `seconds`. Raises EmbeddingsFailed and EmbeddingsRefused."""
    texts = [text[:MAX_TEXT_CHARS] for text in texts]
    try:
        async with asyncio.timeout(seconds):
            return await _embed_and_count(config, texts, meter)
    except TimeoutError as error:
        raise EmbeddingsFailed(N_("it did not answer in {n:g} s"), n=seconds) from error
    except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError, OverflowError) as error:
        raise EmbeddingsFailed(_explain(error)) from error


def _explain(error: Exception) -> str:
    return describe_failure(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


async def _embed_and_count(config: EmbeddingsConfig, texts: Sequence[str], meter: Meter) -> list[Vector]:
    estimate = sum(map(text_tokens, texts)) + len(texts)
    planned = PlannedCall(LEAD, config.model, EMBEDDING, estimate, 0)
    held = await reserve_call(meter, planned)
    if isinstance(held, Refusal):
        raise EmbeddingsRefused(held.what)
    began = time.monotonic()

    async def ask() -> tuple[list[Vector], ModelCall]:
        reply = await _post(config, texts)
        rows = sorted(reply["data"], key=lambda row: row["index"])
        vectors = [_unit(row["embedding"]) for row in rows]
        if len(vectors) != len(texts):
            raise EmbeddingsFailed(N_("it answers {n} vectors for {texts} texts"), n=len(vectors), texts=len(texts))
        tokens = int((reply.get("usage") or {}).get("prompt_tokens") or estimate)
        took = time.monotonic() - began
        return vectors, ModelCall(LEAD, config.model, EMBEDDING, tokens, 0, 0, 0, took, time.time())

    return await count_call(meter, planned, held, ask, cut_off_charge(planned, _is_charged))


async def _post(config: EmbeddingsConfig, texts: Sequence[str]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {config.api_key.reveal()}"} if config.api_key else {}
    body = {"model": config.model, "input": texts, "encoding_format": "float"}
    url = f"{config.base_url.rstrip('/')}/embeddings"
    proxy, trust = choose_proxy(url), make_trust()
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, headers=headers, proxy=proxy, ssl=trust) as response,
    ):
        if response.status >= 400:
            raise EmbeddingsFailed(N_("it answers with status {status}"), status=response.status)
        reply: dict[str, Any] = orjson.loads(await response.read())
        return reply


def _is_charged(error: BaseException) -> bool:
    return not isinstance(error, (EmbeddingsFailed, aiohttp.ClientConnectorError))


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


@dataclass(frozen=True, slots=True)
class EmbeddedRequest:
    """The vector of a request, and its mean similarity to sentences that have nothing to do with it."""

    vector: Vector
    usual: float

    def meaning_of(self, cosine: float) -> float:
        """Return how similar something is: 0 for any sentence, 1 for the same. Models differ in what is usual."""
        return (cosine - self.usual) / (1 - self.usual) if self.usual < 1 else 0.0


def vector_key(config: EmbeddingsConfig) -> str:
    """Return under which name vectors of facts are stored: others are made anew."""
    return f"{config.passage_prefix}{config.model}"


class Embedder:
    """Embeds requests within the deadline of the configuration. A fault is logged once until the endpoint works."""

    def __init__(self, config: Callable[[], EmbeddingsConfig]) -> None:
        self._config = config
        self._failing = False
        self._neutral: tuple[str, list[Vector]] = ("", [])  # the vectors of NEUTRAL_TEXTS, by this model

    async def embed_request(self, text: str, meter: Meter) -> EmbeddedRequest | None:
        """Return a request, or None if the endpoint fails or none is configured. Raises EmbeddingsRefused."""
        config = self._config()
        known = self._neutral[1] if self._neutral[0] == vector_key(config) else []
        missing = [] if known else [f"{config.passage_prefix}{each}" for each in NEUTRAL_TEXTS]
        if not text.strip():
            return None
        vectors = await self._embed([f"{config.query_prefix}{text}", *missing], meter, config.seconds)
        if not vectors:
            return None
        self._neutral = (vector_key(config), known or vectors[1:])
        usual = [similarity(vectors[0], each) for each in self._neutral[1]]
        return EmbeddedRequest(vectors[0], sum(usual) / len(usual))

    async def embed_facts(self, facts: Sequence[str], meter: Meter) -> list[Vector]:
        """Return the vectors, or none if the endpoint fails or none is configured. Raises EmbeddingsRefused."""
        prefix = self._config().passage_prefix
        return await self._embed([f"{prefix}{fact}" for fact in facts], meter, BATCH_SECONDS)

    async def _embed(self, texts: Sequence[str], meter: Meter, seconds: float) -> list[Vector]:
        config = self._config()
        if not config.base_url:
            return []
        try:
            vectors = await embed_texts(config, texts, seconds, meter)
        except EmbeddingsFailed as error:
            if not self._failing:
                log.warning("memory.embeddings_failed reason=%s — memories are found by their words only", error)
            self._failing = True
            return []
        self._failing = False
        return vectors
