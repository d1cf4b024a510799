"""Render replies for Slack: Markdown that cannot ping, tasks, buttons."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.blocks import Ask, Plan, Step
from channels.shared import texts
from channels.shared.markdown_split import split_markdown
from channels.slack.events import QUESTION_PREFIX

MAX_MARKDOWN_CHARS = (
    12_000  # characters of Markdown in a message (docs.slack.dev/reference/block-kit/blocks/markdown-block)
)
CHUNK_CHARS = 11_800  # …that we use, so that marks fit in
MAX_FALLBACK_CHARS = 3000  # characters of the plain text that notifications show
MAX_NOTE_CHARS = 2000  # characters of a plain text above or below
MAX_LABEL_CHARS = 75  # characters of a button or an option (…/block-elements/button-element)
MAX_VALUE_CHARS = 150  # characters of an option's value; a button's may have 2,000
BUTTONS_PER_ROW = 5  # more become a list to choose from
MAX_LIST_OPTIONS = 100  # options of a list
MAX_SHOWN_STEPS = 8  # the latest are shown in a message
MAX_STREAM_TASKS = 40  # …in a stream, where none can be taken away: what comes later shares a line

Status = Literal["pending", "in_progress", "complete", "error"]
_STEP: dict[str, Status] = {"running": "in_progress", "done": "complete", "failed": "error", "stopped": "error"}
_ITEM: dict[str, Status] = {"pending": "pending", "running": "in_progress", "done": "complete"}
_MARK = {"pending": "☐", "in_progress": "▸", "complete": "✓", "error": "✗"}


@dataclass(frozen=True, slots=True)
class SlackTask:
    """A step of the work, an item of the plan."""

    id: str
    title: str
    status: Status
    details: str = ""

    @property
    def line(self) -> str:
        return f"{_MARK[self.status]} {self.title}" + (f": {texts.shorten(self.details, 80)}" if self.details else "")

    def chunk(self) -> dict[str, str]:
        made = {"type": "task_update", "id": self.id, "title": self.title, "status": self.status}
        return made | ({"details": self.details} if self.details else {})


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """One message. `live`: it goes on, so a call for it is not urgent; else `session` is the status in which it leaves
    its thread, where that is ours to say."""

    text: str = ""
    tasks: tuple[SlackTask, ...] = ()
    notice: str = ""
    mark: str = ""
    ask: Ask | None = None
    mention: str = ""
    session: str = ""
    live: bool = field(default=False, compare=False)

    @property
    def markdown(self) -> str:
        """As Slack is given it; the mention is ours and counts, whatever else looks like one does not."""
        return (f"<@{self.mention}> " if self.mention else "") + without_mentions(self.text)


def without_mentions(text: str) -> str:
    """Markdown in which nothing is a token of Slack's: `<@U1>`, `<!here>` and `<#C1>` show as they are written.

    Slack reads tokens in Markdown too, shows entities as their characters and does not read those again. Other angle
    brackets, quotes and entities stay, because code shows them as they are.
    """
    return re.sub(r"<(?=[@#!])", "&lt;", re.sub(r"&(?=(?:lt|gt|amp|#\w+);)", "&amp;", text))


def split_for_slack(text: str) -> list[str]:
    """Markdown in as many pieces as it takes messages."""
    return split_markdown(text, CHUNK_CHARS, lambda piece: len(without_mentions(piece)))


def stable_prefix(text: str) -> str:
    """A defused text without an end that would change if it went on."""
    return re.sub(r"(?:<|&[#\w]{0,8})$", "", text)


def notification_text(text: str) -> str:
    """For the text that notifications show (docs.slack.dev/messaging/formatting-message-text#escaping)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def progress_tasks(plan: Plan | None, steps: list[Step], *, most: int) -> tuple[SlackTask, ...]:
    """Plan and steps; of many steps the earlier ones as one line, or in a stream the later ones."""
    made = [
        SlackTask(f"plan{i}", texts.shorten(p.title, 100) or "…", _ITEM[p.state])
        for i, p in enumerate(plan.items if plan else ())
    ]
    shown = [
        SlackTask(s.id, texts.shorten(s.title, 100) or "…", _STEP[s.state], texts.shorten(s.detail, 200)) for s in steps
    ]
    if len(shown) > most and most == MAX_STREAM_TASKS:
        last = shown[-1]
        shown = [*shown[: most - 1], SlackTask("more", f"{len(shown) - most + 1} more, now: {last.title}", last.status)]
    elif len(shown) > most:
        shown = [SlackTask("earlier", f"{len(shown) - most} earlier", "complete"), *shown[-most:]]
    return (*made[:20], *shown)


def message_arguments(part: SlackMessage) -> dict[str, Any]:
    """The arguments of a post or a change that show a part."""
    head = "\n".join(task.line for task in part.tasks)
    blocks = [
        context_block(part.mark),
        context_block(head),
        *_markdown_block(part),
        context_block(f"⏳ {part.notice}" if part.notice else ""),
    ]
    text = " ".join(piece for piece in (part.mark, head, part.notice) if piece)
    fallback = notification_text(texts.shorten(part.text or text or "…", MAX_FALLBACK_CHARS))
    if part.mention:
        fallback = f"<@{part.mention}> {fallback}"
    return {"blocks": [b for b in blocks if b] + question_controls(part.ask), "text": fallback}


def context_block(text: str) -> dict[str, Any]:
    """Small grey text, taken literally."""
    if not text:
        return {}
    return {"type": "context", "elements": [{"type": "plain_text", "text": text[:MAX_NOTE_CHARS], "emoji": False}]}


def _markdown_block(part: SlackMessage) -> list[dict[str, Any]]:
    return [{"type": "markdown", "text": part.markdown}] if part.markdown.strip() else []


def question_controls(ask: Ask | None) -> list[dict[str, Any]]:
    """The options of a question as buttons, or a list where they are many. A value is the option in full."""
    if not ask or not ask.options or not fits_controls(ask):
        return []
    options = [{"text": _option_label(option), "value": option} for option in ask.options]
    if len(options) <= BUTTONS_PER_ROW or any(len(option) > MAX_VALUE_CHARS for option in ask.options):
        elements: list[dict[str, Any]] = [
            {"type": "button", "action_id": f"choice:{index}", **option} for index, option in enumerate(options)
        ]
    else:
        hint = {"type": "plain_text", "text": "Choose", "emoji": False}
        elements = [{"type": "static_select", "action_id": "choice", "placeholder": hint, "options": options}]
    return [{"type": "actions", "block_id": f"{QUESTION_PREFIX}{ask.id}", "elements": elements}]


def fits_controls(ask: Ask) -> bool:
    """Whether the options fit into buttons (25 in a row of them) or a list."""
    longest = max((len(option) for option in ask.options), default=0)
    distinct = len(set(ask.options)) == len(ask.options) and all(option.strip() for option in ask.options)
    return (
        distinct and (len(ask.options) <= (25 if longest > MAX_VALUE_CHARS else MAX_LIST_OPTIONS)) and longest <= 2000
    )


def question_hint_for(ask: Ask | None) -> str:
    """What has to be said in words besides the buttons."""
    if not ask or not ask.options:
        return ""
    return texts.question_hint(ask, fits=fits_controls(ask), label=MAX_LABEL_CHARS)


def _option_label(option: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": texts.shorten(option, MAX_LABEL_CHARS), "emoji": False}
