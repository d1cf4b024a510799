"""Memories found by their meaning: with a scripted endpoint for embeddings."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiohttp import web

from agent.memory.embeddings import NEUTRAL_TEXTS, Embedder, EmbeddingsFailed, embed_texts, sign_bits, similarity
from agent.memory.ranking import MIN_SHARE, fuse_matches
from agent.memory.visibility import Memory, MemoryKind, Place
from agent.messages import Author
from agent.setting import Secret
from agent.settings.models import ModelSettings
from agent.settings.sections import EmbeddingsConfig
from agent.spending import Meter
from bot.config.schema import Config, MemoryConfig
from bot.database.database import Database
from bot.memory.service import EMBED_JOB, MemoryService
from bot.rights.current import Current
from bot.rights.reservations import Budgets
from bot.storage import memory as stored
from bot.storage.jobs import BackgroundJob
from bot.storage.memory_search import nearest_memories
from tests.support.web_server import WebSite, serve_site
from tests.unit.agent.test_memory import BOB, JANE
from tests.unit.bot.test_memory import CHANNEL, DIRECT, learn, store

__all__ = ["store"]

TOPICS = (("skoda", "car", "tyres", "auto"), ("coffee", "espresso"), ("flight", "plane"), ("salary", "pay"))


def vector_of(text: str) -> list[float]:
    """Return a direction for each topic that the text touches, and a little of everything."""
    return [float(any(word in text.lower() for word in topic)) + 0.01 for topic in TOPICS]


@dataclass
class Endpoint:
    """A service for embeddings. It answers while `answers` is set."""

    config: EmbeddingsConfig
    site: WebSite
    texts: list[str] = field(default_factory=list)
    status: int = 200
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def embed(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert (request.headers["Authorization"], body["model"]) == ("Bearer k", "tiny")
        self.texts += body["input"]
        await self.answers.wait()
        rows = [{"index": number, "embedding": vector_of(text)} for number, text in enumerate(body["input"])]
        return web.json_response({"data": rows[::-1]}, status=self.status)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with serve_site() as site:
        made = Endpoint(EmbeddingsConfig(f"http://127.0.0.1:{site.port}/v1", "tiny", Secret("k"), 20.0), site)
        site.pages["/v1/embeddings"] = made.embed
        made.answers.set()
        yield made
        made.answers.set()


async def embed_all(store: Database, endpoint: Endpoint, tmp_path: Path) -> None:
    """Do the recurring job."""
    models = (ModelSettings("main", model="main"),)
    current = Current(Config(models=models, memory=MemoryConfig(embeddings=endpoint.config), data_dir=tmp_path))
    await MemoryService(store, current, Budgets(store, current)).embed_facts(
        BackgroundJob(EMBED_JOB, EMBED_JOB, 0.0, b"{}", 1, "", "")
    )


async def near(store: Database, endpoint: Endpoint, text: str, place: Place, person: Author) -> list[str]:
    embedded = await Embedder(lambda: endpoint.config).embed_request(text, Meter())
    assert embedded
    found = await store.run(lambda execute: nearest_memories(execute, place, person, "tiny", embedded, 0.35))
    return [memory.text for memory in found if memory.share >= MIN_SHARE]


async def test_facts_are_found_without_a_common_word_by_those_who_may_see_them(
    store: Database, endpoint: Endpoint, tmp_path: Path
) -> None:
    await learn(store, "the Skoda needs winter tyres", CHANNEL, kind=MemoryKind.CONTEXT)
    await learn(store, "her salary is 5000", DIRECT, kind=MemoryKind.CONTEXT)
    await learn(store, "drinks espresso only", DIRECT, kind=MemoryKind.PREFERENCE)
    await embed_all(store, endpoint, tmp_path)
    assert len(endpoint.texts) == 3
    assert await near(store, endpoint, "When do I take my car to the garage?", CHANNEL, JANE) == [
        "the Skoda needs winter tyres"
    ]
    assert await near(store, endpoint, "pay", DIRECT, JANE) == ["her salary is 5000"]
    assert await near(store, endpoint, "pay", CHANNEL, JANE) == []
    assert await near(store, endpoint, "car", CHANNEL, BOB) == []
    assert await near(store, endpoint, "plane", DIRECT, JANE) == []


async def test_vectors_go_with_their_memory_and_are_made_once(
    store: Database, endpoint: Endpoint, tmp_path: Path
) -> None:
    await learn(store, "the flight is on Monday", subject="flight", at=1.0)
    await embed_all(store, endpoint, tmp_path)
    newer = await learn(store, "the flight is on Friday", subject="flight", at=2.0)
    await embed_all(store, endpoint, tmp_path)
    await embed_all(store, endpoint, tmp_path)
    assert endpoint.texts == ["flight: the flight is on Monday", "flight: the flight is on Friday"]
    assert await near(store, endpoint, "plane", DIRECT, JANE) == ["the flight is on Friday"]
    await store.run(lambda execute: stored.forget_memory(execute, newer))
    rows = await store.run(lambda execute: execute("SELECT 1 FROM memory_vectors", {}))
    assert list(rows) == []


@pytest.mark.parametrize("fault", ["status", "silence", "gone", "nonsense"])
async def test_a_failing_endpoint_is_left_out_and_logged_once(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    config = endpoint.config
    if fault == "status":
        endpoint.status = 503
    elif fault == "silence":
        endpoint.answers.clear()
        config = replace(config, seconds=0.1)
    elif fault == "nonsense":
        endpoint.site.pages["/v1/embeddings"] = web_text("<html>")
    else:
        config = EmbeddingsConfig("http://127.0.0.1:9/v1", "tiny")
    embedder = Embedder(lambda: config)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert await embedder.embed_request("a car", Meter()) is None
    assert len([each for each in caplog.records if "memory.embeddings_failed" in each.getMessage()]) == 1
    with pytest.raises(EmbeddingsFailed):
        await embed_texts(config, ["a car"], 0.1 if fault == "silence" else 20, Meter())


def web_text(text: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    return answer


async def test_without_an_endpoint_nothing_is_asked() -> None:
    assert await Embedder(EmbeddingsConfig).embed_request("a car", Meter()) is None


def memory(number: int, share: float = 0.0) -> Memory:
    text = f"{number}"
    found = Memory(number, "a", "o", "a/o/direct/o", MemoryKind.CONTEXT, "", text, 0.5, 0.0, 0.0, 0, "", "", "")
    return replace(found, share=share)


@pytest.mark.parametrize(("hit", "order"), [(0.2, [1, 2, 3, 4]), (0.05, [4, 1, 2, 3])])
def test_the_order_of_the_words_holds_where_they_hit(hit: float, order: list[int]) -> None:
    by_words: Sequence[Memory] = [memory(1, hit), memory(2), memory(3)]
    fused = fuse_matches(by_words, [memory(4, 0.5), memory(2, 0.5)])
    assert [each.id for each in fused] == order
    assert {each.id: each.share for each in fused} == {1: hit, 2: 0.5, 3: 0.0, 4: 0.5}
    assert [each.score for each in fused] == sorted((each.score for each in fused), reverse=True)
    assert fuse_matches(by_words, []) == by_words


async def test_prefixes_go_before_requests_and_facts_which_are_embedded_anew_with_another(
    store: Database, endpoint: Endpoint, tmp_path: Path
) -> None:
    await learn(store, "the flight is on Monday")
    for prefix in ("", "passage: "):
        endpoint.config = replace(endpoint.config, query_prefix="query: ", passage_prefix=prefix)
        await embed_all(store, endpoint, tmp_path)
    assert endpoint.texts == ["the flight is on Monday", "passage: the flight is on Monday"]
    await Embedder(lambda: endpoint.config).embed_request("plane", Meter())
    assert endpoint.texts[2:4] == ["query: plane", f"passage: {NEUTRAL_TEXTS[0]}"]


async def test_what_is_usual_for_a_model_is_asked_once(endpoint: Endpoint) -> None:
    embedder = Embedder(lambda: endpoint.config)
    first, second = [await embedder.embed_request(text, Meter()) for text in ("a car", "a plane")]
    assert first
    assert second
    assert len(endpoint.texts) == 2 + len(NEUTRAL_TEXTS)
    assert 0 < first.usual == pytest.approx(second.usual)
    assert (first.meaning_of(first.usual), first.meaning_of(1.0)) == (0.0, 1.0)


def test_vectors_of_different_models_do_not_match() -> None:
    one, other = array("f", [1.0, 0.0]), array("f", [1.0, 0.0, 0.0])
    assert (similarity(one, one), similarity(one, other)) == (1, -1)
    assert sign_bits(one) == b"\x02"
