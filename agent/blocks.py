"""Outbound types: a turn yields `Block`s, a `View` collects them, and a `Final` stays in the chat."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal

import orjson

from agent.permissions.invisible import LINES, show_literally
from agent.permissions.rules import Grant, ToolUse
from agent.stored_json import build_dataclass, raise_damaged
from catalogue import N_, _, join_sentences

APPROVE, DENY = N_("Approve"), N_("Deny")
ALLOW_HERE, ALWAYS_ALLOW = N_("Allow in this conversation"), N_("Always allow")
APPROVAL_OPTIONS = (APPROVE, DENY, ALLOW_HERE, ALWAYS_ALLOW)  # of which a question offers the first ones
MAX_SHOWN_CALL_CHARS = 1500
CALL_FILE_NAME = "call.txt"
FIRST_KEPT_STEPS, LATEST_KEPT_STEPS = 12, 28  # of a final
MAX_PLAN_ITEMS = 20


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the model message `part`. `replace` sets its text to `delta`, or retracts it if `delta` is empty."""

    delta: str
    part: str = ""
    replace: bool = False


StepState = Literal["running", "done", "failed", "denied", "stopped"]


@dataclass(frozen=True, slots=True)
class Step:
    """A tool call as shown to people, from when it may run; a later block with the same id updates it.

    `title` says in words what it does, `detail` is the raw call, and `progress` how far a running one has come. With
    `thinking`, it is the reasoning of an answer, and `detail` its text. `parent` is the id of the step that began it:
    a task whose sub-agent does this one. `output` is the end of what an ended call returned: people read it on
    request, and no reply shows it.
    """

    id: str
    title: str
    state: StepState = "running"
    detail: str = ""
    progress: str = ""
    thinking: bool = False
    parent: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class PlanItem:
    title: str
    state: Literal["pending", "running", "done"] = "pending"


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole plan; a later block replaces it."""

    items: tuple[PlanItem, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the person. A click or an answer refers to its `id`. Channels show when it expires."""

    id: str
    question: str
    options: tuple[str, ...] = ()
    free_text: bool = True
    hours: float = 0.0  # after which it expires; 0: never
    until: float = 0.0  # the Unix time when it expires; 0: never
    approval: bool = False  # the options are the first of APPROVAL_OPTIONS
    personal: bool = False  # only the requester may answer
    context: bool = False  # the answer comes with the quotes and files of its message; else it is the typed words alone

    def match_option(self, text: str) -> str | None:
        """Return the option with this text or number."""
        wanted = text.strip().casefold()
        numbered = {str(number): option for number, option in enumerate(self.options, 1)}
        return next((option for option in self.options if option.casefold() == wanted), numbered.get(wanted))

    def to_question(self) -> Ask:
        """Return the question as shown."""
        return self


@dataclass(frozen=True, slots=True)
class Approve:
    """A tool call that needs approval: the `question` in a few words, what to know about it, and the exact `call`.

    The `id` contains a part of `call_hash`: another call is another question, which an old answer does not approve.
    `grant` is what a person may allow for the future, and `option_count` how many of APPROVAL_OPTIONS they have.
    """

    id: str
    question: str
    detail: str = ""
    call: str = ""
    hours: float = 0.0  # after which it expires; 0: never
    until: float = 0.0  # the Unix time when it expires; 0: never
    grant: Grant | None = None
    option_count: int = 2
    use: ToolUse | None = None  # the call as rules see it, where the permission policy asked

    @property
    def call_hash(self) -> str:
        """The SHA-256 of the call."""
        return sha256(self.call.encode()).hexdigest()

    def to_question(self) -> Ask:
        """Return the question as shown: with the call as a block of code, of which a long one shows the beginning."""
        call, rest = show_literally(self.shown_call, LINES) if self.call else "", ""
        if self.has_long_call:
            rest = _(
                "**The call continues.** The whole call has {n} characters; it is in the file {file}: read it first.",
                n=len(self.call),
                file=CALL_FILE_NAME,
            )
        text = "\n\n".join(part for part in (self.question, self.detail, call, rest) if part)
        return Ask(
            self.id,
            text,
            tuple(map(_, APPROVAL_OPTIONS[: self.option_count])),
            False,
            self.hours,
            self.until,
            approval=True,
        )

    @property
    def shown_call(self) -> str:
        """The beginning of the call, as far as a message shows it."""
        return self.call[:MAX_SHOWN_CALL_CHARS]

    @property
    def has_long_call(self) -> bool:
        """Whether the question does not show the whole call, so that a file must."""
        return len(self.call) > MAX_SHOWN_CALL_CHARS


@dataclass(frozen=True, slots=True)
class File:
    """A file to send: `path` is the agent's path, below /mnt/user-data/outputs."""

    path: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Information for a waiting person: a retry, a fallback, a queue, a limit. If `kept`, the final reply has it."""

    kind: str
    text: str
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn failed: what happened, and what the person can do."""

    what: str
    what_to_do: str = ""

    def __str__(self) -> str:
        return join_sentences(self.what, self.what_to_do)


def internal_fault() -> Failed:
    """Return the failure for a fault of ours."""
    return Failed(_("Something broke on my side."), _("It's logged; {retry} tries again.", retry=command_hint("retry")))


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of all model calls of a turn."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a turn. `waiting`: an Ask or Approve is open; `stopped`: a person stopped it."""

    state: Literal["done", "waiting", "stopped", "failed"] = "done"
    usage: Usage = field(default_factory=Usage)


THINKING_STEP = "thinking:"  # begins the id of a step that is no tool call: the reasoning of the answer behind it
NOTED_STEP = "heard:"  # begins the id of a step that is no tool call: it shows that a message arrived
ANSWERED_PART = "answered"  # of a Text that lists the answers while other questions stay open
HINT_MARK = "\ufdd0"  # a noncharacter, which no text of a person or model contains
_COMMAND_HINT = re.compile("\ufdd0([^\ufdd0]+)\ufdd0")


def command_hint(command: str) -> str:
    """Return a placeholder for a command such as "notify off" in a text to people: each channel spells it its way."""
    return f"{HINT_MARK}{command}{HINT_MARK}"


def spell_commands(text: str, spell: Callable[[str], str]) -> str:
    """Replace each placeholder of `command_hint` by what `spell` returns for its command."""
    return _COMMAND_HINT.sub(lambda found: spell(found[1]), text)


Block = Text | Step | Plan | Ask | Approve | File | Notice | Failed | Done


@dataclass(frozen=True, slots=True)
class Final:
    """The final reply of a turn: Markdown `text`, which includes a single question, and the open questions.

    `mention` is the platform's id of a user to notify by a native mention before the text; direct chats ignore it.
    `steps` are the first and the latest of `step_count` steps, which channels fold away together with the plan.
    `seconds` and `tokens` are those of the turn. `reader` is the only person whom it concerns: channels show it to them
    alone where the platform can. A `careful` one is posted once, when the platform answers again: it is about posts
    whose outcome is unknown. A failed one has `retry` if its request can be repeated.
    """

    text: str
    asks: tuple[Ask, ...] = ()
    mention: str = ""
    state: Literal["done", "waiting", "stopped", "failed"] = "done"
    steps: tuple[Step, ...] = ()
    step_count: int = 0
    plan: tuple[PlanItem, ...] = ()
    seconds: float = 0.0
    tokens: int = 0
    reader: str = ""
    careful: bool = False
    retry: bool = True

    def messages(self) -> list[tuple[str, Ask | None]]:
        """Return Markdown and question of each message; several questions get a message with buttons each."""
        if len(self.asks) <= 1:
            return [(self.text, self.asks[0] if self.asks else None)]
        return [(self.text, None), *((f"**{n}.** {ask.question}", ask) for n, ask in enumerate(self.asks, 1))]

    def settle(self, id: str, outcome: str) -> Final:
        """Return it with what became of a question in place of its options; "" leaves it open."""
        if not outcome:
            return self
        asks = tuple(Ask(id, f"{ask.question}\n\n{outcome}") if ask.id == id else ask for ask in self.asks)
        return replace(self, asks=asks, text=self.text if len(asks) > 1 else f"{self.text}\n\n{outcome}")

    @property
    def words(self) -> str:
        """The text without its questions, in the current language as before."""
        asked = self.asks[0].question if len(self.asks) == 1 else _several_questions(self.asks) if self.asks else ""
        parts = self.text.split(asked, 1) if asked else [self.text]
        return "\n\n".join(filter(None, map(str.strip, parts)))

    def dump(self) -> bytes:
        """Return JSON for the outbox."""
        return orjson.dumps(self)

    @classmethod
    def load(cls, data: bytes | str) -> Final:
        """Load what `dump` returned, even in a newer version. Raises Damaged."""
        with raise_damaged():
            raw: dict[str, Any] = orjson.loads(data)
            kinds: dict[str, Any] = {"asks": Ask, "steps": Step, "plan": PlanItem}
            lists = {
                name: tuple(build_dataclass(kind, each) for each in raw.get(name, ())) for name, kind in kinds.items()
            }
            return build_dataclass(cls, raw, **lists)


SEVERAL_QUESTIONS_TEXT = N_(
    "_I have {n} questions. Press a button under each, or answer by number, such as `{example}`._"
)


def _several_questions(asks: Sequence[Ask]) -> str:
    return _(SEVERAL_QUESTIONS_TEXT, n=len(asks), example=f"2: {next(iter(asks[1].options), '…')}")


@dataclass(slots=True)
class View:
    """The current state of a reply, built from its blocks."""

    texts: dict[str, str] = field(default_factory=dict)  # by part, in order of appearance
    steps: dict[str, Step] = field(default_factory=dict)
    inner: dict[str, Step] = field(default_factory=dict)  # those of sub-agents: chats show the steps that began them
    order: dict[tuple[str, bool], None] = field(default_factory=dict)  # parts and steps (True), as they appeared
    plan: Plan | None = None
    notice: Notice | None = None  # the latest; removed when the work continues
    kept: list[str] = field(default_factory=list)  # the texts of the notices that stay
    asks: list[Ask | Approve] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    failed: Failed | None = None
    done: Done | None = None

    def add(self, block: Block) -> None:
        """Apply one block."""
        match block:
            case Text():
                before = "" if block.replace else self.texts.get(block.part, "")
                self.texts[block.part] = before + block.delta
                self.order[block.part, False] = None
                if block.delta:
                    self.notice = None
            case Step() if block.parent:
                self.inner[block.id] = block
            case Step():
                self.steps[block.id] = block
                self.order[block.id, True] = None
                self.notice = None
            case Plan():
                self.plan = block
            case Ask() | Approve():
                self.asks.append(block)
            case File():
                if block not in self.files:  # a resumed turn repeats its files
                    self.files.append(block)
            case Notice():
                self.notice = block
                self.kept += [block.text] if block.kept else []
            case Failed():
                self.failed = block
            case Done():
                self.done = block

    def copy(self) -> View:
        """Return the present state, for a thread."""
        return replace(
            self,
            texts=dict(self.texts),
            steps=dict(self.steps),
            inner=dict(self.inner),
            order=dict(self.order),
            kept=list(self.kept),
            asks=list(self.asks),
            files=list(self.files),
        )

    def add_all(self, blocks: Iterable[Block]) -> None:
        """Apply blocks in their order."""
        for block in blocks:
            self.add(block)

    def blocks(self) -> list[Block]:
        """Return blocks that build the same view."""
        work = [self.steps[name] if is_step else Text(self.texts[name], name) for name, is_step in self.order]
        latest = [block for block in (self.plan, self.notice, self.failed) if block]
        return [*work, *self.inner.values(), *self.asks, *self.files, *latest]

    @property
    def text(self) -> str:
        """The latest text that is not blank."""
        return next((t for t in reversed(self.texts.values()) if t.strip()), "")

    @property
    def empty(self) -> bool:
        """True if the reply shows nothing."""
        return not (self.text or self.steps or self.plan or self.notice or self.asks or self.failed)

    def final(self) -> Final:
        """Return the final reply: answer, questions and failure; steps and plan for channels to fold away."""
        asks = tuple(block.to_question() for block in self.asks)
        parts = [
            self.text.strip(),
            _("Still open:") if asks and self.text and self.text == self.texts.get(ANSWERED_PART) else "",
            _several_questions(asks) if len(asks) > 1 else asks[0].question if asks else "",
        ]
        parts += [f"_{text}_" for text in self.kept]
        if self.done and self.done.state == "stopped":
            parts.append(_("_Stopped._"))
        if self.failed:
            parts.append(f"⚠️ {self.failed}")
        text = "\n\n".join(part for part in parts if part)
        if not text:
            text = "" if self.files else _("I got no answer from my model. Please rephrase, or ask again.")
        state = "failed" if self.failed else self.done.state if self.done else "done"
        return Final(
            text,
            asks,
            state=state,
            steps=self._kept_steps(state),
            step_count=len(self._worked_steps(state)),
            plan=self.plan.items[:MAX_PLAN_ITEMS] if self.plan else (),
        )

    def _worked_steps(self, state: str) -> list[Step]:
        """Return the steps but those that only show that a message arrived, and the calls that wait for an answer: the
        question shows these, and they do not run."""
        steps = [step for step in self.steps.values() if not step.id.startswith(NOTED_STEP)]
        return [step for step in steps if state != "waiting" or step.state != "running"]

    def _kept_steps(self, state: str) -> tuple[Step, ...]:
        """Return the first and the latest of the steps. What still runs was stopped."""
        steps = self._worked_steps(state)
        if len(steps) > FIRST_KEPT_STEPS + LATEST_KEPT_STEPS:
            steps = [*steps[:FIRST_KEPT_STEPS], *steps[-LATEST_KEPT_STEPS:]]
        ended = [replace(step, state="stopped") if step.state == "running" else step for step in steps]
        return tuple(replace(step, progress="", output="") for step in ended)
