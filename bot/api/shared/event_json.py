"""Events as typed JSON: a name, and what it says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from agent.blocks import (
    Approve,
    Ask,
    Block,
    Done,
    Failed,
    File,
    Notice,
    Plan,
    Step,
    Text,
    View,
    spell_commands,
)
from bot.database.rows import parse_row_id

Json = dict[str, Any]


def block_event(block: Block) -> tuple[str, Json] | None:
    """Return name and content of the event of a block. None: the end of the run tells it."""
    match block:
        case Text():
            return "text", {"part": block.part, "delta": spell(block.delta), "replace": block.replace}
        case Step():
            return "step", asdict(block)
        case Plan():
            return "plan", {"items": [asdict(item) for item in block.items]}
        case Ask() | Approve():
            return "question", question_json(block)
        case File():
            return "file", {"path": block.path, "caption": block.caption}
        case Notice():
            return "notice", {"kind": block.kind, "text": spell(block.text), "kept": block.kept}
        case Failed():
            return "failed", {"what": spell(block.what), "what_to_do": spell(block.what_to_do)}
        case Done():
            return None


def view_json(view: View) -> Json:
    """Return all that a run shows at the moment. It replaces what was shown of the run before."""
    return {
        "texts": [{"part": part, "text": spell(text)} for part, text in view.texts.items()],
        "steps": [asdict(step) for step in (*view.steps.values(), *view.inner.values())],
        "plan": [asdict(item) for item in view.plan.items] if view.plan else [],
        "questions": [question_json(ask) for ask in view.asks],
        "files": [{"path": file.path, "caption": file.caption} for file in view.files],
        "notice": spell(view.notice.text) if view.notice else "",
        "kept": [spell(text) for text in view.kept],
    }


def question_json(block: Ask | Approve) -> Json:
    """Return a question as the stream shows it."""
    ask = block.to_question()
    kind = "approve" if isinstance(block, Approve) else "ask"
    shown = {"id": ask.id, "kind": kind, "text": spell(block.question), "options": ask.options}
    call, detail = (block.call, spell(block.detail)) if isinstance(block, Approve) else ("", "")
    return {**shown, "free_text": ask.free_text, "call": call, "detail": detail, "until": ask.until or None}


def spell(text: str) -> str:
    """Return a text with its commands as a person writes them."""
    return spell_commands(text, lambda command: f"/{command}")


@dataclass(frozen=True, slots=True)
class RunPosition:
    """How far a reader of a run is: the number of a block in the feed that began then (`RunFeed.began`)."""

    began: int
    number: int

    @classmethod
    def parse(cls, text: str) -> RunPosition | None:
        """Return what `str` wrote; None for anything else."""
        numbers = [parse_row_id(each) if each.isascii() else None for each in text.split(".")]
        return cls(*numbers) if len(numbers) == 2 and None not in numbers else None  # type: ignore[arg-type]  # none is

    def __str__(self) -> str:
        return f"{self.began}.{self.number}"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a reader of threads is: the id of the latest entry, and the place in the latest run that it followed."""

    entry: int
    run: int = 0
    at: RunPosition | None = None

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Return what `str` wrote; None for anything else."""
        first, dash, rest = text.partition("-")
        run, dot, place = rest.partition(".")
        entry, number, at = parse_row_id(first), parse_row_id(run or "0"), RunPosition.parse(place)
        if not text.isascii() or entry is None or number is None or bool(dash) != bool(at and dot):
            return None
        return cls(entry, number, at)

    def __str__(self) -> str:
        return f"{self.entry}-{self.run}.{self.at}" if self.at else f"{self.entry}"
