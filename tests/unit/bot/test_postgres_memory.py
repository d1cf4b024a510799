"""Memory search on PostgreSQL: what it finds, and how much it asks the server for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from agent.settings.sections import EmbeddingsConfig
from bench.memory import (
    OWN_SET,
    Said,
    filler,
    find_both,
    measure_search,
    place_of_person,
    read_dialogue,
    read_pairs,
    store_said,
)
from bot.database.database import Database, Execute

WAITING = "SELECT gin_clean_pending_list('memory_words') AS pages"  # of words that the index has not taken in


def opened(url: str) -> Database:
    from bot.database.postgres import DatabaseServer, PostgresDatabase

    return PostgresDatabase(DatabaseServer(url))


def counted(execute: Execute, asked: list[str]) -> Execute:
    """Return `execute`, which also notes its statements."""

    def run(sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
        asked.append(sql)
        return execute(sql, values)

    return run


async def test_a_search_finds_what_it_finds_on_sqlite(url: str) -> None:
    own = json.loads(OWN_SET.read_text("utf-8"))
    said, asked = read_dialogue("p0", own)
    cjk_said, cjk_asked = read_pairs(own["cjk"])
    facts = [*said, *cjk_said, *filler("p0", 700), *filler("cjk", 700)]
    async with opened(url) as store:
        await store.run(partial(store_said, place=place_of_person(""), said=facts))
        assert await measure_search(store, "dialogues", asked) >= 0.9
        assert await measure_search(store, "Chinese and Japanese", cjk_asked) == 1


@pytest.mark.parametrize("text", ["dentist", "which dentist did the team choose for the appointment on Monday in Bern"])
async def test_a_search_asks_for_all_its_words_at_once(url: str, text: str) -> None:
    facts = [*read_dialogue("p0", json.loads(OWN_SET.read_text("utf-8")))[0], Said("p0", "d", f"the {text}")]
    asked: list[str] = []
    async with opened(url) as store:
        await store.run(partial(store_said, place=place_of_person(""), said=facts))
        found = await store.run(lambda run: find_both(counted(run, asked), "p0", text, None, EmbeddingsConfig()))
    assert found[0].text == f"the {text}"
    assert len(asked) == 3  # how many memories there are, how many have each word, and the best of them


async def test_no_search_reads_the_words_of_what_was_stored_lately(url: str) -> None:
    async with opened(url) as store:
        await store.run(partial(store_said, place=place_of_person(""), said=filler("p0", 300)))
        assert [row["pages"] for row in await store.run(lambda execute: execute(WAITING, {}))] == [0]
