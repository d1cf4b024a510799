"""Memory: recall it for a turn, save what the turn's tool saves, and extract facts afterwards as a background job."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from agent.context import Meter
from agent.memory.extraction import Fact, Statement, is_unfit
from agent.memory.ranking import choose_notes, format_notes, rank_memories
from agent.memory.visibility import Memory, MemoryKind, MemoryScope, Place, audience_of
from agent.memory.words import are_similar, content_words, find_grounds, own_words, plain_subject
from agent.messages import Author, Kind, Message, Thread
from agent.stored_json import Damaged
from bot import claims
from bot.claims import ClaimedRun
from bot.config.schema import Config
from bot.current import Current
from bot.jobs import Effect
from bot.storage import inbox, people, transcripts, usage
from bot.storage import memory as stored
from bot.storage.database import Database, Execute, StorageError
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.memory import QueuedRun
from bot.storage.states import InboxState

log = logging.getLogger(__name__)

MEMORY_JOB, FORGET_JOB = "memory", "forget memories"
FORGET_SECONDS = 86400.0
MAX_RUNS_PER_CALL = 20
MAX_KNOWN_FACTS = 30  # that the extraction gets
MAX_SEARCHED = 10  # in an answer of the tool
MAX_EARLIER_MESSAGES = 50  # of the requester in the conversation, whose words may be saved
MIN_WORDS = 2  # in the messages of a call; fewer ("ok, thanks") contain no fact
WEAK_SHARE = 0.25  # of unused_days, after which an uncertain memory is deleted
AROUND_CHARS = 200
TOOL_CONFIDENCE = 0.9  # of what a person asks to remember
BATCH_ROWS = 200


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact to store, with its source. `before` and `after` are the words of the same person around it."""

    fact: Fact
    source: Statement
    confidence: float
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one call of the extraction reads: runs of one conversation, for one person."""

    queued: Sequence[QueuedRun]
    statements: Sequence[Statement]
    known: Sequence[Memory]
    place: Place
    person: Author


class TurnMemory:
    """`agent.context.MemoryNotes` of one turn. It acts for the requester and in their place only."""

    def __init__(self, store: Database, current: Current, job: ClaimedRun, place: Place, person: Author) -> None:
        self._store = store
        self._current = current
        self._job = job
        self._place = place
        self._person = person
        self._recalled: list[Memory] = []
        self.notes = ""

    @property
    def recalled(self) -> list[int]:
        """The ids of the memories that match the request."""
        return [memory.id for memory in self._recalled if memory.score > 0]

    def recall(self, execute: Execute) -> None:
        """Choose the notes for the request."""
        said = [own_words(each.text) for each in self._job.messages if each.author.id == self._person.id]
        found = stored.search_memories(execute, self._place, self._person, "\n".join(said))
        linked = stored.find_memories(execute, _linked_ids(found[:3]), self._place, self._person)
        habits = stored.habits_of(execute, self._place, self._person)
        tokens = self._current.config.memory.tokens
        self._recalled = choose_notes(found, [*habits, *linked], time.time(), tokens)
        self._write_notes()

    def _write_notes(self) -> None:
        self.notes = format_notes(self._recalled, self._person.name)

    async def save(self, text: str, quote: str, kind: MemoryKind, scope: MemoryScope, replaces: int) -> str:
        """Store a fact that the requester wrote in this conversation."""
        text = " ".join(text.split())
        if is_unfit(text):
            return "Not saved: a note is one short sentence, without passwords and keys."

        def work(execute: Execute) -> str:
            channel = self._place.thread.channel
            if scope is MemoryScope.WORKSPACE and (
                self._place.private or not self._current.access.is_operator(execute, channel, self._person.id)
            ):
                return "Not saved: only an operator can save a note for the whole workspace, in a shared chat."
            statements = {each.text: each for each in self._statements(execute)}
            ground = find_grounds(text, quote, statements)
            if ground is None:
                return (
                    f"Not saved: `quote` must be the exact words of {self._person.name} in this conversation, and the"
                    " note must say what they say. What files, pages, tools and other people say is not saved."
                )
            fact = Fact(text, "", MemoryKind(kind), 0, TOOL_CONFIDENCE, MemoryScope(scope), (replaces,))
            number = store_fact(execute, self._place, self._person, NewFact(fact, statements[ground], TOOL_CONFIDENCE))
            return f"Saved as note #{number}."

        return await self._store.run(work)

    async def search(self, text: str) -> str:
        """Return the memories that match any word."""
        found = await self._store.run(
            partial(stored.search_memories, place=self._place, person=self._person, text=text)
        )
        return format_notes(rank_memories(found, time.time())[:MAX_SEARCHED], self._person.name) or "Nothing found."

    async def forget(self, number: int, quote: str) -> str:
        """Delete a memory of the requester, who asked for it in this conversation."""

        def work(execute: Execute) -> str:
            found = stored.find_memories(execute, [number], self._place, self._person)
            if not found or found[0].owner != self._person.id:
                return f"There is no note #{number} of {self._person.name}."
            if not any(_asks_to_forget(found[0], quote, each.text) for each in self._statements(execute)):
                return (
                    f"Not deleted: `quote` must be the exact words of {self._person.name} in this conversation that ask"
                    " to forget this note."
                )
            stored.forget_memory(execute, number)
            return f"Note #{number} is deleted."

        answer = await self._store.run(work)
        self._recalled = [memory for memory in self._recalled if memory.id != number or not answer.endswith("deleted.")]
        self._write_notes()
        return answer

    def _statements(self, execute: Execute) -> list[Statement]:
        """Return what the requester wrote: in this run, then earlier in this conversation."""
        messages = [*self._job.messages, *claims.steered_messages(execute, self._job)]
        earlier = transcripts.said_by(execute, self._job.conversation, self._person.id, MAX_EARLIER_MESSAGES)
        return [
            *(_statement(each) for each in messages if each.author.id == self._person.id),
            *(Statement(own_words(each.text), each.item.removeprefix("message:"), each.at) for each in earlier),
        ]


class MemoryService:
    """Recalls memories for turns, and runs the jobs that extract and forget them."""

    def __init__(self, store: Database, current: Current) -> None:
        self._store = store
        self._current = current

    @property
    def enabled(self) -> bool:
        """Whether memory is on."""
        return is_enabled(self._current.config)

    async def recall(self, job: ClaimedRun) -> TurnMemory | None:
        """Return the memory of a turn; None where it is off. A fault of the memory does not fail the turn."""
        person = next((each.author for each in job.messages if each.author.id == job.requester), None)
        if not self.enabled or person is None or person.bot:
            return None
        turn_memory = TurnMemory(self._store, self._current, job, place_of(job.messages[0]), person)

        def work(execute: Execute) -> bool:
            allowed = people.allows_memory(execute, job.thread.channel, job.requester)
            if allowed:
                turn_memory.recall(execute)
            return allowed

        try:
            return turn_memory if await self._store.run(work, durable=False) else None
        except StorageError as error:
            log.warning("memory.not_recalled reason=%s", error)
            return None

    def record_turn(self, execute: Execute, job: ClaimedRun, used: TurnMemory | None, now: float) -> None:
        """In the transaction that ends a run: count what it used, and have its messages read for memories."""
        if not self.enabled:
            return
        if used:
            stored.record_uses(execute, used.recalled, now)
        messages = [*job.messages, *claims.steered_messages(execute, job)]
        for author in {each.author.id: each.author for each in messages}.values():
            if not author.bot and people.allows_memory(execute, job.thread.channel, author.id):
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
        facts, meter = [], Meter()
        words = content_words("\n".join(each.text for each in reading.statements))
        if self.enabled and len(words) >= MIN_WORDS:
            async with self._current.use_agent() as agent:
                facts = await agent.facts.extract_facts(reading.person.name, reading.statements, reading.known, meter)

        def record(execute: Execute) -> None:
            still_queued = [stored.remove_queued(execute, each) for each in reading.queued]
            last = reading.queued[-1]
            usage.record_calls(execute, last.run, last.conversation, meter.take_unrecorded())
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


def is_enabled(config: Config) -> bool:
    """Return whether memory is on in a configuration; the built-in demo model has none."""
    return config.memory.enabled and bool(config.models)


def place_of(message: Message) -> Place:
    """Return where a message was written."""
    return Place(message.thread, message.private)


def _statement(message: Message, outcome: str = "") -> Statement:
    return Statement(own_words(message.text), message.key, message.time, outcome)


def _linked_ids(memories: Sequence[Memory]) -> list[int]:
    return [int(number) for memory in memories for number in memory.links.split()]


def _asks_to_forget(memory: Memory, quote: str, said: str) -> bool:
    """Return whether a person wrote these words, and they name the memory by its number or a word of it."""
    named = {f"{memory.id}", *content_words(memory.line)}
    return bool(quote.strip()) and quote.strip() in said and bool(named & {*content_words(quote)})


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
        statements += [_statement(message, outcome) for message in own if own_words(message.text)]
    if messages:
        place, person = place_of(messages[-1]), messages[-1].author
    else:  # they were deleted meanwhile
        place, person = Place(Thread.parse(f"{account}//"), private=False), Author(owner, "")
    known = stored.search_memories(execute, place, person, "\n".join(each.text for each in statements), MAX_KNOWN_FACTS)
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
        if row.kind == Kind.CHAT and row.state == InboxState.DONE and message.author.id == queued.owner:
            messages.append(message)
    return messages


def store_facts(execute: Execute, reading: Reading, facts: Sequence[Fact]) -> list[int]:
    """Store the facts of a reading with the words around them; return their ids."""
    statements = reading.statements
    ids = []
    for fact in facts:
        at = fact.statement
        before = statements[at - 1].text[-AROUND_CHARS:] if at else ""
        after = statements[at + 1].text[:AROUND_CHARS] if at + 1 < len(statements) else ""
        new = NewFact(fact, statements[at], fact.confidence, before, after)
        ids.append(store_fact(execute, reading.place, reading.person, new))
    return ids


def store_fact(execute: Execute, place: Place, person: Author, new: NewFact) -> int:
    """Store a fact and return its id. A repeated fact is confirmed; one that contradicts older ones replaces them."""
    fact, source = new.fact, new.source
    audience = audience_of(fact.scope, fact.kind, place, person.id)
    visible = stored.search_memories(execute, place, person, fact.line)
    own = [memory for memory in visible if memory.owner == person.id]
    replaced = [each for each in stored.find_memories(execute, fact.replaces, place, person) if each.owner == person.id]
    subject = fact.subject or next((memory.subject for memory in replaced if memory.subject), "")
    if same := next((m for m in own if m.audience == audience and are_similar(m.line, fact.line)), None):
        stored.confirm_memory(execute, same.id, new.confidence, source.at)
        return same.id
    replaced += [each for each in own if subject and plain_subject(each.subject) == plain_subject(subject)]
    number = stored.add_memory(
        execute,
        Memory(
            id=0,
            account=place.account,
            owner=person.id,
            audience=audience,
            kind=fact.kind,
            subject=subject,
            text=fact.text,
            confidence=new.confidence,
            said=source.at,
            used=source.at,
            uses=0,
            name=person.name,
            thread=str(place.thread),
            message=source.key,
            links=" ".join(map(str, fact.related)),
        ),
        new.before,
        new.after,
    )
    for old in {each.id: each for each in replaced if each.said <= source.at}.values():
        if old.audience == audience or not place.private:  # a shared chat keeps what it knew
            stored.supersede_memory(execute, old.id, number)
    return number
