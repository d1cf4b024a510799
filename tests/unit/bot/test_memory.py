"""Memories in the database: what is found by whom, what replaces what, and how the runs of a person are read."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.context import ToolServices
from agent.memory.extraction import Fact, Statement
from agent.memory.ranking import rank_memories
from agent.memory.visibility import Memory, MemoryKind, MemoryScope, Place, may_see
from agent.messages import Author, Message, Origin
from agent.settings.models import ModelSettings
from agent.turn.factory import build_agent
from bot.base.background import JobWorker
from bot.config.schema import Config, MemoryConfig
from bot.database.database import Database, Execute
from bot.database.states import RunState
from bot.memory.facts import NewFact, store_fact
from bot.memory.service import MEMORY_JOB, MemoryService
from bot.rights.current import Current
from bot.rights.reservations import Budgets
from bot.storage import inbox, people, runs
from bot.storage import memory as stored
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.memory import QueuedRun
from bot.storage.memory_search import search_memories
from tests.fakes.model import Answer, FakeModel
from tests.fakes.model_script import text_of
from tests.fakes.server import Json, until
from tests.support.current_config import agent_settings
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.unit.agent.test_memory import BOB, DAY, GUEST, JANE, PLACES

DIRECT, CHANNEL, OTHER = PLACES["Jane's direct chat"], PLACES["a channel"], PLACES["another channel"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def learn(
    store: Database,
    text: str,
    place: Place = DIRECT,
    person: Author = JANE,
    *,
    subject: str = "",
    kind: MemoryKind = MemoryKind.PREFERENCE,
    scope: MemoryScope = MemoryScope.PERSON,
    at: float = 0.0,
    replaces: tuple[int, ...] = (),
) -> int:
    fact = Fact(text, subject, kind, 0, 0.6, scope, replaces)
    new = NewFact(fact, Statement(text, f"k{text}", at), 0.6)
    return (await store.run(lambda execute: store_fact(execute, place, person, new))).id


async def found(store: Database, text: str, place: Place = DIRECT, person: Author = JANE) -> list[str]:
    memories = await store.run(lambda execute: search_memories(execute, place, person, text))
    return [memory.text for memory in memories]


async def test_every_query_agrees_with_the_rule(store: Database) -> None:
    for said in PLACES.values():
        for scope in MemoryScope:
            for kind in (MemoryKind.PREFERENCE, MemoryKind.CONTEXT):
                await learn(store, f"fact {scope} {kind} {said.account} {said.thread}", said, scope=scope, kind=kind)

    def everything(execute: Execute) -> list[Memory]:
        rows = execute("SELECT * FROM memory WHERE superseded_by IS NULL", {})
        return [Memory(**{name: row[name] for name in row.keys() if name != "superseded_by"}) for row in rows]  # noqa: SIM118  # a row of sqlite3 iterates over its values

    known = await store.run(everything)
    assert len(known) > 30
    for place in PLACES.values():
        for person in (JANE, BOB, GUEST):
            visible = {memory.id for memory in known if may_see(memory, place, person)}

            habits = {memory.id for memory in known if memory.id in visible and memory.kind == MemoryKind.PREFERENCE}

            def ask(execute: Execute, place: Place = place, person: Author = person) -> list[set[int]]:
                return [
                    {each.id for each in stored.habits_of(execute, place, person)},
                    {each.id for each in stored.list_memories(execute, place, person, 100)},
                    {each.id for each in search_memories(execute, place, person, "fact", 100)},
                    {each.id for each in stored.find_memories(execute, range(100), place, person)},
                ]

            assert await store.run(ask) == [habits, visible, visible, visible]


async def test_any_text_is_a_valid_search(store: Database) -> None:
    await learn(store, "the report is due on Friday")
    for text in ('"report" AND (', "report* NEAR/2", "-report: ^", "'; DROP TABLE memory", "report"):
        assert await found(store, text) in ([], ["the report is due on Friday"])
    assert await found(store, "When are the reports due?")
    assert await found(store, "") == []


async def test_what_is_said_again_is_confirmed_not_repeated(store: Database) -> None:
    first = await learn(store, "use pytest, not unittest", at=1.0)
    assert await learn(store, "Use Pytest, not Unittest!", at=2.0) == first
    rows = await store.run(lambda execute: execute("SELECT said FROM memory", {}))
    assert [row["said"] for row in rows] == [2.0]


async def test_a_newer_fact_replaces_the_one_that_it_contradicts(store: Database) -> None:
    await learn(store, "the deadline is Monday", subject="deadline", at=1.0)
    await learn(store, "the deadline is Friday", subject="Deadlines", at=2.0)
    assert await found(store, "deadline") == ["the deadline is Friday"]
    number = await learn(store, "Maria does the invoices", at=3.0)
    await learn(store, "Ben has taken over invoicing", at=4.0, replaces=(number,))
    assert await found(store, "invoices") == ["Ben has taken over invoicing"]


CHANGES = json.loads((Path(__file__).parents[3] / "bench/memory_changes.json").read_text("utf-8"))


async def in_force(store: Database) -> list[str]:
    rows = await store.run(lambda execute: execute("SELECT text FROM memory WHERE superseded_by IS NULL", {}))
    return [row["text"] for row in rows]


@pytest.mark.parametrize("told", ["nothing", "the number", "the subject"])
async def test_a_fact_that_is_taken_back_or_changed_is_gone(store: Database, told: str) -> None:
    lost = []
    for change in CHANGES["changed"]:
        before, after = change["before"], change["after"]
        subject = "it" if told == "the subject" else ""
        number = await learn(store, before, subject=subject, at=1.0)
        replaces = (number,) if told == "the number" else ()
        await learn(store, after, subject=subject, at=2.0, replaces=replaces)
        if await in_force(store) != [after] or after not in await found(store, before):
            lost.append(change)
        await store.run(lambda execute: stored.forget_person(execute, DIRECT.account, JANE.id))
    assert not lost


async def test_facts_about_different_things_are_both_kept(store: Database) -> None:
    for pair in CHANGES["both"]:
        for at, text in enumerate((pair["one"], pair["other"])):
            await learn(store, text, at=float(at))
        assert {*await in_force(store)} == {pair["one"], pair["other"]}
        await store.run(lambda execute: stored.forget_person(execute, DIRECT.account, JANE.id))


@pytest.mark.parametrize("subject", ["", "report"])
async def test_what_was_said_later_holds_also_if_it_is_read_first(store: Database, subject: str) -> None:
    later = await learn(store, "do not send the report to Maria", subject=subject, at=2.0)
    assert await learn(store, "send the report to Maria", subject=subject, at=1.0) == later
    assert await in_force(store) == ["do not send the report to Maria"]


async def test_a_turn_shows_only_the_newest_of_one_matter(store: Database) -> None:
    """A direct chat sees what holds in a channel, too, and does not change it."""
    await learn(store, "send the report to Maria", CHANNEL, at=1.0)
    await learn(store, "do not send the report to Maria", DIRECT, at=2.0)
    assert await found(store, "report", CHANNEL) == ["send the report to Maria"]
    seen = await store.run(lambda execute: search_memories(execute, DIRECT, JANE, "report"))
    assert [memory.text for memory in rank_memories(seen, 3.0)] == ["do not send the report to Maria"]


async def test_a_direct_chat_does_not_change_what_a_channel_knows(store: Database) -> None:
    await learn(store, "answer in German", CHANNEL, subject="language", at=1.0)
    await learn(store, "answer in French", DIRECT, subject="language", at=2.0)
    assert await found(store, "answer", CHANNEL) == ["answer in German"]


async def test_nobody_replaces_what_another_person_said(store: Database) -> None:
    number = await learn(store, "the budget is 5000", CHANNEL, scope=MemoryScope.CHAT, subject="budget", at=1.0)
    await learn(store, "our budget: zero", CHANNEL, BOB, subject="budget", at=2.0, replaces=(number,))
    assert "the budget is 5000" in await found(store, "budget", CHANNEL)


async def test_forgetting_leaves_nothing(store: Database) -> None:
    await learn(store, "the deadline is Monday", subject="deadline", at=1.0)
    new = await learn(store, "the deadline is Friday", subject="deadline", at=2.0)
    await store.run(lambda execute: stored.forget_memory(execute, new))
    assert await store.run(lambda execute: execute("SELECT 1 FROM memory", {})) == []
    assert await store.run(lambda execute: execute("SELECT 1 FROM memory_index", {})) == []


async def test_unused_memories_fade_but_corrections_stay(store: Database) -> None:
    kept = await learn(store, "never touch the archive", kind=MemoryKind.CORRECTION)
    await learn(store, "likes tea")
    recent = await learn(store, "likes coffee beans", at=100 * DAY)
    used = await learn(store, "works from Hangzhou")
    await store.run(lambda execute: stored.record_uses(execute, [used], 100 * DAY))
    await store.run(lambda execute: stored.forget_unused(execute, 50 * DAY, 90 * DAY, 100))
    rows = await store.run(lambda execute: execute("SELECT id FROM memory ORDER BY id", {}))
    assert [row["id"] for row in rows] == [kept, recent, used]


# ------------------------------------------------------------ reading the runs of a person


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel() as server:
        yield server


class Reader:
    """The job of one service, with a model. `say` ends a run of Jane with one message."""

    def __init__(self, store: Database, current: Current) -> None:
        self.store = store
        self.current = current
        self.service = MemoryService(store, current, Budgets(store, current))

    async def say(self, text: str, place: Place = DIRECT, at: float = 0.0, queue: bool = True) -> None:
        def work(execute: Execute) -> None:
            key = f"k{text}{at}"
            message = Message(place.thread, key, key, JANE, text, at, private=place.private, origin=Origin.PERSON)
            row = inbox.store_message(execute, message, str(place.thread), ready=0.0, received=at)
            assert row
            runs.create_run(execute, row, str(place.thread), message, RunState.RUNNING, at)
            inbox.take_row(execute, row, row)
            inbox.finish_rows(execute, row)
            if queue:
                stored.queue_run(execute, QueuedRun(row, place.account, JANE.id, str(place.thread), at))

        await self.store.run(work)

    async def read(self) -> None:
        """Do the job until nothing is queued, as the worker does."""
        payload = json.dumps({"account": DIRECT.account, "owner": JANE.id}).encode()
        job = BackgroundJob("memory", MEMORY_JOB, 0.0, payload, 1, "", "")
        while effect := await self.service.extract(job):
            await self.store.run(effect)


@pytest.fixture
async def reader(store: Database, model: FakeModel, tmp_path: Path) -> AsyncIterator[Reader]:
    models = (ModelSettings("main", model="main", base_url=f"{model.base_url}/v1", retries=0),)
    current = Current(Config(models=models, memory=MemoryConfig(wait_seconds=0), data_dir=tmp_path))
    agent = await build_agent(models, agent_settings(), store, ToolServices(runs_commands=False), [])
    await current.replace(current.config, agent)
    yield Reader(store, current)
    await current.close()


def prompt_of(body: Json) -> str:
    return text_of(body["messages"][-1])


def listed(body: Json) -> list[tuple[int, str]]:
    lines = re.findall(r"^\[(\d+)\] \S+ (.*)$", prompt_of(body).partition("Messages:\n")[2], re.MULTILINE)
    return [(int(number), text) for number, text in lines]


def notes_everything(body: Json) -> Answer:
    facts = [{"text": text, "kind": "context", "message": number, "quote": text} for number, text in listed(body)]
    return Answer(json.dumps(facts))


async def test_one_call_reads_the_runs_of_one_conversation_only(reader: Reader, model: FakeModel) -> None:
    """Else the model could put what was said in a direct chat into a fact of a channel."""
    model.script = notes_everything
    await reader.say("My salary is 5000 euros", DIRECT)
    await reader.say("The sprint ends on Friday", CHANNEL)
    await reader.say("My desk is by the window", DIRECT)
    await reader.read()
    prompts = [text_of(request.messages[-1]) for request in model.requests()]
    assert len(prompts) == 2
    assert "salary" in prompts[0]
    assert "desk" in prompts[0]
    assert "salary" not in prompts[1]
    assert await found(reader.store, "salary sprint desk", CHANNEL) == ["The sprint ends on Friday"]


async def test_a_failing_model_loses_nothing(reader: Reader, model: FakeModel) -> None:
    model.script = lambda body: Answer(status=500)
    await reader.say("The sprint ends on Friday")
    with pytest.raises(Exception, match="500"):
        await reader.read()
    model.script = notes_everything
    await reader.read()
    assert await found(reader.store, "sprint") == ["The sprint ends on Friday"]


async def test_the_extraction_replaces_what_a_person_takes_back_or_changes(reader: Reader, model: FakeModel) -> None:
    model.script = notes_everything
    lost = []
    for change in CHANGES["changed"]:
        for at, text in enumerate((change["before"], change["after"])):
            await reader.say(text, at=float(at))
            await reader.read()
        if await in_force(reader.store) != [change["after"]]:
            lost.append(change)
        await reader.store.run(lambda execute: stored.forget_person(execute, DIRECT.account, JANE.id))
    assert not lost


@pytest.mark.parametrize("change", ["off", "forget"])
async def test_a_change_of_mind_during_the_call_counts(reader: Reader, model: FakeModel, change: str) -> None:
    model.script = lambda body: replace(notes_everything(body), delay=0.3)
    await reader.say("My salary is 5000 euros")

    def decide(execute: Execute) -> None:
        message = Message(DIRECT.thread, "k", "1", JANE, "", 0.0, private=True, origin=Origin.PERSON)
        if change == "off":
            people.set_memory(execute, message, on=False)
        else:
            stored.forget_person(execute, DIRECT.account, JANE.id)

    reading = asyncio.create_task(reader.read())
    await until(lambda: model.requests(), what="the call")
    await reader.store.run(decide)
    await reading
    assert await found(reader.store, "salary") == []


async def test_small_talk_costs_no_call(reader: Reader, model: FakeModel) -> None:
    for text in ("ok", "thanks", "👍"):
        await reader.say(text, at=float(len(text)))
    await reader.read()
    assert len(model.requests()) <= 1


async def test_steady_traffic_does_not_delay_the_reading(reader: Reader) -> None:
    """Each run of the person enqueues the job again; it stays due some time after the oldest of them."""
    config = replace(reader.current.config, memory=MemoryConfig(wait_seconds=60))
    reader.current.config = config
    for at in (100.0, 130.0, 159.0):
        await reader.say(f"message {at}", at=at)
        await reader.store.run(
            lambda execute: reader.service._enqueue(
                execute, DIRECT.account, JANE.id, stored.queued_runs(execute, DIRECT.account, JANE.id, 1)[0].at
            )
        )
    rows = await reader.store.run(lambda execute: execute("SELECT due FROM jobs", {}))
    assert [row["due"] for row in rows] == [160.0]


@pytest.mark.sqlite
async def test_a_reading_survives_the_process(reader: Reader, model: FakeModel) -> None:
    """The worker of the next process reads what the last one had begun."""
    model.script = lambda body: replace(notes_everything(body), delay=30.0)
    await reader.say("The sprint ends on Friday")
    payload = {"account": DIRECT.account, "owner": JANE.id}
    await reader.store.run(lambda execute: enqueue_job(execute, key="m", kind=MEMORY_JOB, payload=payload))
    for script in (model.script, notes_everything):
        model.script = script
        worker = JobWorker(reader.store)
        worker.register(MEMORY_JOB, reader.service.extract)
        serving = asyncio.create_task(worker.serve())
        await until(lambda: model.requests(), what="the call")
        if script is notes_everything:
            async with asyncio.timeout(60):
                while not await found(reader.store, "sprint"):
                    await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.wait([serving])
        model.forget()
    assert await found(reader.store, "sprint") == ["The sprint ends on Friday"]


SUBJECTS = ("deadline", "reviewer", "framework", "budget", "language", "office", "printer", "airline")
VALUES = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet")


def dialogue(turns: int) -> tuple[list[str], dict[str, str]]:
    """Return a dialogue in which facts change again and again, among small talk; and what is true at its end."""
    said, truth = [], {}
    for number in range(turns):
        subject, value = SUBJECTS[(number * 5) % len(SUBJECTS)], VALUES[(number * 7 + number // 10) % len(VALUES)]
        if number % 3 == 2:
            said.append(f"Could you check item {number} for typos")
        else:
            said.append(f"From now on the {subject} is {value}")
            truth[subject] = value
    return said, truth


def careless(body: Json) -> Answer:
    """Extract each fact without saying what it replaces, and invent two for each message."""
    facts: list[Json] = []
    for number, text in listed(body):
        invented = {"text": "the password policy is void", "kind": "approval", "message": number, "quote": text}
        facts += [invented, {**invented, "quote": "the password policy is void"}]
        if match := re.search(r"the (\w+) is (\w+)", text):
            facts.append(
                {"text": match[0], "subject": match[1], "kind": "context", "message": number, "quote": match[0]}
            )
    return Answer(json.dumps(facts[-10:]))


async def test_in_a_long_dialogue_no_stale_fact_wins_and_none_is_invented(reader: Reader, model: FakeModel) -> None:
    model.script = careless
    said, truth = dialogue(200)
    for number, text in enumerate(said):
        await reader.say(text, at=float(number))
        if number % 2:
            await reader.read()
    for subject, value in truth.items():
        about = [text for text in await found(reader.store, f"What is the {subject}?") if subject in text]
        assert about == [f"the {subject} is {value}"]
    assert not await found(reader.store, "password policy")
    count = await reader.store.run(
        lambda execute: execute("SELECT count(*) AS n FROM memory WHERE superseded_by IS NULL", {})[0]["n"]
    )
    assert count == len(truth)


async def test_a_name_in_a_search_prefers_what_this_person_said(store: Database) -> None:
    for person in (JANE, BOB):
        text = f"the budget of my team is {person.id}000 euros"
        await learn(store, text, CHANNEL, person, scope=MemoryScope.CHAT, kind=MemoryKind.CONTEXT)
    for person in (JANE, BOB):
        assert (await found(store, f"What is {person.name}'s budget?", CHANNEL))[0].endswith(f"{person.id}000 euros")
