"""Memory: recall it for a turn, and extract facts after the turn as a background job of each person."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from agent.core.context import TurnContext
from agent.memory.embeddings import MAX_BATCH_TEXTS, Embedder, EmbeddingsRefused, vector_key
from agent.memory.extraction import Fact, Statement
from agent.memory.secrets import looks_secret
from agent.memory.visibility import Memory, Place
from agent.memory.words import content_words, own_words
from agent.messages import Author, Kind, Message, Thread
from agent.spending import Meter
from agent.stored_json import Damaged
from bot.base.background import Effect
from bot.database.database import Database, Execute, StorageError
from bot.database.states import InboxState
from bot.journey import claims
from bot.journey.running_turn import Account
from bot.journey.turn_part import EndedTurn, OutboxRow, TurnPart
from bot.memory.facts import NewFact, place_of, statement_of, store_fact
from bot.memory.turn import TurnMemory
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.rights.reservations import Budgets
from bot.service.outcome_records import job_recorder
from bot.storage import inbox, people, transcripts
from bot.storage import memory as stored
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.memory import QueuedRun
from bot.storage.memory_search import UnembeddedMemory, memories_without_vector, search_memories, store_vectors
from bot.storage.usage import Payer

log = logging.getLogger(__name__)

MEMORY_JOB, FORGET_JOB, EMBED_JOB = "memory", "forget memories", "embed memories"
FORGET_SECONDS, EMBED_SECONDS = 86400.0, 300.0
REFUSED_SECONDS = 3600.0  # how long the facts of a person wait whose budget refused: each refusal is in the audit
MAX_ID = 2**63 - 1
MAX_RUNS_PER_CALL = 20
MAX_KNOWN_FACTS = 30  # that the extraction gets
MIN_WORDS = 2  # in the messages of a call; fewer ("ok, thanks") contain no fact
WEAK_SHARE = 0.25  # of unused_days, after which an uncertain memory is deleted
AROUND_CHARS = 200
BATCH_ROWS = 200


@dataclass(frozen=True, slots=True)
class Reading:
    """What one call of the extraction reads: runs of one conversation, for one person."""

    queued: Sequence[QueuedRun]
    statements: Sequence[Statement]
    known: Sequence[Memory]
    place: Place
    person: Author


class MemoryService:
    """Recalls memories for turns, and runs the jobs that extract and forget them."""

    def __init__(self, store: Database, current: Current, budgets: Budgets) -> None:
        self._store = store
        self._current = current
        self._embedder = Embedder(lambda: current.config.memory.embeddings)
        self._budgets = budgets
        self._refused_until: dict[tuple[str, str], float] = {}  # of owners of facts, in monotonic time

    @property
    def enabled(self) -> bool:
        """Whether memory is on."""
        return self._current.config.has_memory

    async def recall(self, job: ClaimedRun, meter: Meter) -> TurnMemory | None:
        """Return the memory of a turn; None where it is off. A fault of the memory does not fail the turn."""
        person = next((each.author for each in job.messages if each.author.id == job.requester), None)
        if not self.enabled or person is None or person.bot:
            return None
        embed = partial(self._embedder.embed_request, meter=meter)
        turn_memory = TurnMemory(self._store, self._current, embed, job, place_of(job.messages[0]), person)
        await turn_memory.embed_request()

        def work(execute: Execute) -> list[Memory] | None:
            allowed = people.allows_memory(execute, job.thread.channel, job.requester)
            return turn_memory.choose_memories(execute) if allowed else None

        try:
            chosen = await self._store.run(work, durable=False)
        except StorageError as error:
            log.warning("memory.not_recalled reason=%s", error)
            return None
        if chosen is None:
            return None
        turn_memory.take_memories(chosen)
        return turn_memory

    def open_turn(self, job: ClaimedRun, account: Account) -> TurnPart:
        """Return the part of the memory in a turn."""
        recalled: list[TurnMemory] = []

        async def prepare(context: TurnContext) -> None:
            if found := await self.recall(job, account.meter):
                recalled.append(found)
                context.memory = found

        def end(execute: Execute, ended: EndedTurn) -> Sequence[OutboxRow]:
            self.record_turn(execute, job, next(iter(recalled), None), ended.text, ended.now)
            return ()

        return TurnPart(prepare, end)

    def record_turn(self, execute: Execute, job: ClaimedRun, used: TurnMemory | None, answer: str, now: float) -> None:
        """In the transaction that ends a run: count what its answer used, and have its messages read for memories."""
        if not self.enabled:
            return
        if used:
            stored.record_uses(execute, used.used_by(answer), now)
        messages = [*job.messages, *claims.steered_messages(execute, job)]
        for author in {each.author.id: each.author for each in messages if each.is_by_person}.values():
            if people.allows_memory(execute, job.thread.channel, author.id):
                account = place_of(job.messages[0]).account
                oldest = stored.queue_run(execute, QueuedRun(job.run, account, author.id, job.conversation, now))
                self._enqueue(execute, account, author.id, oldest)

    def _enqueue(self, execute: Execute, account: str, owner: str, oldest: float) -> None:
        """Have the queue of a person read: some time after its `oldest` run, so that steady traffic never delays it."""
        enqueue_job(
            execute,
            key=f"{MEMORY_JOB}:{account}:{owner}",
            kind=MEMORY_JOB,
            payload={"account": account, "owner": owner},
            due=oldest + self._current.config.memory.wait_seconds,
        )

    async def extract(self, job: BackgroundJob) -> Effect | None:
        """Handle the job of one person: read the runs of one conversation, and return what stores the facts."""
        account, owner = job.arguments["account"], job.arguments["owner"]
        reading = await self._store.run(partial(_load_reading, account=account, owner=owner))
        if reading is None:
            return None
        facts, last = [], reading.queued[-1]
        payer = Payer(last.run, last.conversation, reading.place.thread, owner)
        meter = self._budgets.meter(payer)
        words = content_words("\n".join(each.text for each in reading.statements))
        if self.enabled and len(words) >= MIN_WORDS:
            role = await self._budgets.role_of(payer)
            async with self._current.use_agent() as agent:
                facts = await agent.facts.extract_facts(
                    reading.person.name, reading.statements, reading.known, meter, role.may_use_model
                )

        record_calls = job_recorder(self._budgets, payer, meter)

        def record(execute: Execute) -> None:
            still_queued = [stored.remove_queued(execute, each) for each in reading.queued]
            record_calls(execute)
            if all(still_queued) and people.allows_memory(execute, reading.place.thread.channel, owner):
                store_facts(execute, reading, facts)
            if rest := stored.queued_runs(execute, account, owner, 1):
                self._enqueue(execute, account, owner, rest[0].at)

        return record

    async def forget_unused(self, _: BackgroundJob) -> None:
        """Handle the recurring job: delete what was not used for long."""
        now, seconds = time.time(), self._current.config.memory.unused_days * 86400
        delete = partial(
            stored.forget_unused, before=now - seconds, weak_before=now - seconds * WEAK_SHARE, limit=BATCH_ROWS
        )
        while await self._store.run(delete) == BATCH_ROWS:
            pass

    async def embed_facts(self, _: BackgroundJob) -> None:
        """Handle the recurring job: embed the facts that have no vector of the configured model.

        Who said a fact pays for it, so each call has the facts of one person.
        """
        before = MAX_ID
        while (config := self._current.config.memory.embeddings).base_url and self.enabled:
            model = vector_key(config)
            missing = partial(memories_without_vector, model=model, before=before, limit=MAX_BATCH_TEXTS)
            facts = await self._store.run(missing, durable=False)
            for owner in dict.fromkeys((fact.account, fact.owner) for fact in facts):
                own = [fact for fact in facts if (fact.account, fact.owner) == owner]
                if not await self._embed_facts_of(owner, own, model):
                    return
            if not facts:
                return
            before = facts[-1].id

    async def _embed_facts_of(self, owner: tuple[str, str], facts: Sequence[UnembeddedMemory], model: str) -> bool:
        """Embed facts of one person, unless their budget refuses. Return whether the endpoint works."""
        if self._refused_until.get(owner, 0.0) > time.monotonic():
            return True
        thread = Thread.parse(facts[0].thread)
        payer = Payer(0, "", thread, owner[1])
        meter = self._budgets.meter(payer)
        try:
            vectors = await self._embedder.embed_facts([fact.line for fact in facts], meter)
        except EmbeddingsRefused as error:
            log.info("memory.not_embedded person=%s reason=%s", payer.person, error)
            self._refused_until[owner] = time.monotonic() + REFUSED_SECONDS
            return True
        if not vectors:
            return False
        await self._budgets.load_prices(meter.unrecorded)
        record_calls = job_recorder(self._budgets, payer, meter)
        rows = [(fact.id, vector) for fact, vector in zip(facts, vectors, strict=True)]

        def record(execute: Execute) -> None:
            record_calls(execute)
            store_vectors(execute, model, rows)

        await self._store.run(record)
        return True


def _load_reading(execute: Execute, account: str, owner: str) -> Reading | None:
    """Return the oldest runs of one conversation that wait to be read for a person; None if there are none."""
    waiting = stored.queued_runs(execute, account, owner, MAX_RUNS_PER_CALL)
    if not waiting:
        return None
    queued = [each for each in waiting if each.conversation == waiting[0].conversation]
    messages: list[Message] = []
    statements: list[Statement] = []
    for each in queued:
        own = _messages_of(execute, each)
        messages += own
        files = transcripts.delivered_files(execute, each.conversation, each.run)
        outcome = f"files delivered: {', '.join(files)}" if files else ""
        statements += [statement_of(message, outcome) for message in own if own_words(message.text)]
    if messages:
        place, person = place_of(messages[-1]), messages[-1].author
    else:  # they were deleted meanwhile
        place, person = Place(Thread.parse(f"{account}//"), private=False), Author(owner, "")
    known = search_memories(execute, place, person, "\n".join(each.text for each in statements), MAX_KNOWN_FACTS)
    own_facts = [memory for memory in known if memory.owner == owner]
    return Reading(queued, statements, own_facts, place, person)


def _messages_of(execute: Execute, queued: QueuedRun) -> list[Message]:
    """Return what a person wrote in a run, without what they deleted or what cannot be read."""
    messages = []
    for row in inbox.rows_of_run(execute, queued.run):
        try:
            message = row.message
        except Damaged:  # the chat was notified when the run took it
            continue
        is_own = message.is_by_person and message.author.id == queued.owner
        if row.kind == Kind.CHAT and row.state == InboxState.DONE and is_own:
            messages.append(message)
    return messages


def _around(text: str, part: slice) -> str:
    """Return what the index has of a text near a fact: nothing of one with a secret."""
    return "" if looks_secret(text) else text[part]


def store_facts(execute: Execute, reading: Reading, facts: Sequence[Fact]) -> list[int]:
    """Store the facts of a reading with the words around them; return the ids of the memories that say them."""
    statements = reading.statements
    ids = []
    for fact in facts:
        at = fact.statement
        before = _around(statements[at - 1].text, slice(-AROUND_CHARS, None)) if at else ""
        after = _around(statements[at + 1].text, slice(AROUND_CHARS)) if at + 1 < len(statements) else ""
        new = NewFact(fact, statements[at], fact.confidence, before, after)
        ids.append(store_fact(execute, reading.place, reading.person, new).id)
    return ids
