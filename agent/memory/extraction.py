"""Extract lasting facts from what a person wrote, with a model, and keep only those that the person really wrote."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from agent.memory.secrets import looks_secret
from agent.memory.visibility import HABITS, Memory, MemoryKind, MemoryScope
from agent.memory.words import is_grounded
from agent.spending import Meter

if TYPE_CHECKING:  # the bot imports this module before the agent stack is loaded
    from agent.models.loader import LoadedModel

log = logging.getLogger(__name__)

MAX_FACT_CHARS, MAX_SUBJECT_CHARS = 300, 60
MAX_FACTS = 10  # of one answer
DEFAULT_CONFIDENCE = 0.6
EXTRACTION_PROMPT = """You keep the memory of an assistant. Below are messages that {name} wrote to it, what became of
each request, and the facts that are known. Extract the facts about {name} and their work that will still help in other
conversations weeks from now: preferences, corrections of the assistant, writing style, context, outcomes of tasks, who
is who, approvals given. Leave out what concerns this request only, passwords and keys, guesses, general knowledge, and
texts that {name} only pastes or quotes. Most messages contain nothing: then answer [].

Answer with a JSON list and nothing else. Each fact is an object:
- "text": one short sentence in the language of the message and as far as possible in its words; complete without it
- "subject": two to four words, what the fact is about, so specific that a later fact about it replaces this one; the
  words of a known fact if it is about the same; "" if several facts about it can be true at once
- "kind": preference, correction, style, context, outcome, relation or approval
- "message": the number of the message that says it
- "quote": the words of that message that say it, exactly
- "confidence": 0 to 1
- "scope": "person", or "chat" for a fact about the group's common work
- "replaces": the ids of known facts that this one takes back, changes or makes untrue
- "related": the ids of known facts that belong to it

Known facts:
{known}

Messages:
{messages}"""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a person wrote in one message, without quotes, files and the words of others. `key` identifies the message.

    `outcome` is what became of the request.
    """

    text: str
    key: str
    at: float
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that a statement grounds: its place among the statements, and the ids of memories that it concerns."""

    text: str
    subject: str
    kind: MemoryKind
    statement: int
    confidence: float
    scope: MemoryScope
    replaces: tuple[int, ...] = ()
    related: tuple[int, ...] = ()

    @property
    def line(self) -> str:
        """The fact with its subject."""
        return f"{self.subject}: {self.text}" if self.subject else self.text


class FactExtractor:
    """Extracts facts with a model: the one of the role `memory`, or the first that may work for the person."""

    def __init__(self, models: Sequence[LoadedModel]) -> None:
        self._models = models

    async def extract_facts(
        self,
        name: str,
        statements: Sequence[Statement],
        known: Sequence[Memory],
        meter: Meter,
        may_use_model: Callable[[str], bool] = lambda model: True,
    ) -> list[Fact]:
        """Return the facts in what a person wrote; none if no model or budget allows it. Raises what a model raises."""
        from agent.models.answers import ask_model  # it imports the agent stack
        from agent.models.errors import BudgetExceeded

        model = next((each for each in self._models if may_use_model(each.settings.name)), None)
        if model is None:
            log.info("memory.skipped — no model may work for this person")
            return []
        prompt = EXTRACTION_PROMPT.format(
            name=name or "the person",
            known="\n".join(f"#{memory.id} {memory.line}" for memory in known) or "(none)",
            messages="\n".join(_format_statement(number, each) for number, each in enumerate(statements, 1)),
        )
        try:
            answer = await ask_model(model, prompt, meter, "memory", background=True)
        except BudgetExceeded as error:
            log.info("memory.skipped reason=%s", error)
            return []
        allowed = {memory.id for memory in known}
        return parse_facts(answer, statements, allowed)


def _format_statement(number: int, statement: Statement) -> str:
    said = datetime.fromtimestamp(statement.at, UTC)
    outcome = f"\n    (then: {statement.outcome})" if statement.outcome else ""
    return f"[{number}] {said:%Y-%m-%d}: {statement.text}{outcome}"


def parse_facts(answer: str, statements: Sequence[Statement], known: set[int]) -> list[Fact]:
    """Return the facts of a model's answer that their statements ground. Everything else is left out."""
    try:
        raw = orjson.loads(answer[answer.index("[") : answer.rindex("]") + 1])
    except ValueError:
        log.info("memory.unreadable_answer chars=%d", len(answer))
        return []
    facts = [
        fact for each in raw[:MAX_FACTS] if isinstance(each, dict) and (fact := _make_fact(each, statements, known))
    ]
    if len(facts) < len(raw):
        log.info("memory.left_out facts=%d of=%d", len(raw) - len(facts), len(raw))
    return facts


def _make_fact(raw: dict[str, Any], statements: Sequence[Statement], known: set[int]) -> Fact | None:
    text, subject = (" ".join(str(raw.get(name) or "").split()) for name in ("text", "subject"))
    number = raw.get("message")
    try:
        kind = MemoryKind(str(raw.get("kind")))
    except ValueError:
        return None
    if not isinstance(number, int) or not 0 < number <= len(statements) or is_unfit(text):
        return None
    if looks_secret(f"{subject}: {text}") or not is_grounded(
        text, str(raw.get("quote") or ""), statements[number - 1].text
    ):
        return None
    confidence = raw.get("confidence")
    return Fact(
        text=text,
        subject=subject[:MAX_SUBJECT_CHARS],
        kind=kind,
        statement=number - 1,
        confidence=min(max(float(confidence), 0.0), 1.0) if isinstance(confidence, int | float) else DEFAULT_CONFIDENCE,
        scope=MemoryScope.CHAT if raw.get("scope") == "chat" and kind not in HABITS else MemoryScope.PERSON,
        replaces=_known_ids(raw.get("replaces"), known),
        related=_known_ids(raw.get("related"), known),
    )


def is_unfit(text: str) -> bool:
    """Return whether a text is empty, too long for a fact, or contains a secret."""
    return not text or len(text) > MAX_FACT_CHARS or looks_secret(text)


def _known_ids(raw: object, known: set[int]) -> tuple[int, ...]:
    return tuple(each for each in raw if isinstance(each, int) and each in known) if isinstance(raw, list) else ()
