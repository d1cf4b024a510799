"""Render replies for Slack: Markdown that cannot ping, tasks, buttons.

Draw the Home tab: what waits for its reader, with the buttons of each question.

docs.slack.dev/reference/views/home-tab-views; a markdown block is not for views, so that all texts are plain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent.blocks import Ask, Final, PlanItem, Step, View
from catalogue import _
from channels.base import Home, HomeItem
from channels.shared import texts
from channels.shared.markdown import split_markdown
from channels.shared.reply_layout import button_label, step_title
from channels.slack.events import QUESTION_PREFIX, Json

# Of all blocks of a message: Slack refuses more than about 13,200 (github.com/slackapi/bolt-js/issues/2509); of these,
# 12,000 in markdown (docs.slack.dev/reference/block-kit/blocks/markdown-block). The rest is for buttons and marks.
MESSAGE_CHARS = 12_600
MAX_TEXT_CHARS, LEAST_TEXT_CHARS = 11_800, 5000  # of them: alone, and beside the 29 rows of the longest plan and steps
# A streamed message holds about 10,600 bytes of text, titles and twice the details of its tasks (measured in
# github.com/openclaw/openclaw/pull/143882). These and the tasks below come to 9,000.
STREAM_TEXT_BYTES = 5500
MAX_FALLBACK_BYTES = 1000  # of the plain text that notifications show; chat.update takes 4,000
MAX_CONTEXT_CHARS = 2000  # of a context block
MAX_LABEL_CHARS = 75  # of a button or an option (…/block-elements/button-element)
MAX_BUTTON_VALUE_CHARS, MAX_OPTION_VALUE_CHARS = 2000, 150
MAX_BUTTONS, MAX_LIST_OPTIONS = 25, 100
BUTTONS_PER_ROW = 5  # more options become a list
MAX_SHOWN_STEPS = 8  # in a message: earlier ones share a line
MAX_PLAN_ITEMS = 20
MAX_STREAM_STEPS, MAX_STREAM_ITEMS = 12, 6  # in a stream, which cannot remove one: later ones share the last
MAX_TITLE_BYTES = 110  # of a task
MAX_DETAIL_BYTES = 60  # of a task
APPROVAL_STYLES = ("primary", "danger", "", "")
DATE_FORMAT = "{date_short_pretty}, {time}"  # docs.slack.dev/messaging/formatting-message-text#date-formatting

Status = Literal["pending", "in_progress", "complete", "error"]
_STEP: dict[str, Status] = {"running": "in_progress", "done": "complete"}  # others have an "error"
_ITEM: dict[str, Status] = {"pending": "pending", "running": "in_progress", "done": "complete"}
_MARK = {"pending": "☐", "in_progress": "▸", "complete": "✓", "error": "✗"}


@dataclass(frozen=True, slots=True)
class SlackTask:
    """A step of the turn, or an item of the plan. Slack appends new details to the old."""

    id: str
    title: str
    status: Status
    details: str = ""

    @property
    def line(self) -> str:
        return f"{_MARK[self.status]} {self.title}"

    def chunk(self) -> dict[str, str]:
        details = {"details": self.details} if self.details else {}
        return {"type": "task_update", "id": self.id, "title": self.title, "status": self.status, **details}

    def card(self) -> dict[str, Any]:
        card: dict[str, Any] = {"type": "task_card", "task_id": self.id, "title": self.title, "status": self.status}
        if self.details:
            section = {"type": "rich_text_section", "elements": [{"type": "text", "text": self.details}]}
            card["details"] = {"type": "rich_text", "elements": [section]}
        return card


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """One message. The calls of a `live` one yield to others, because it only shows progress."""

    text: str = ""
    tasks: tuple[SlackTask, ...] = ()
    plan: str = ""  # title above the tasks, or the summary of a turn without any
    notice: str = ""
    mark: str = ""
    ask: Ask | None = None
    command: str = ""  # the data of a button that sends one
    mention: str = ""
    session: str = ""  # status of its thread's session after it; "" leaves it unchanged
    live: bool = field(default=False, compare=False)
    plain: bool = False  # text without blocks
    reader: str = ""  # the only person who sees it

    @property
    def markdown(self) -> str:
        """The Markdown to send, in which only our own mention notifies a person."""
        return (f"<@{self.mention}> " if self.mention else "") + without_mentions(self.text)


_LINK = re.compile(r"https?://[^\s`]+", re.IGNORECASE)


def without_mentions(text: str) -> str:
    """Escape Slack's tokens, so that `<@U1>`, `<!here>` and `<#C1>` appear as written.

    Slack resolves tokens in Markdown too, and unescapes entities afterwards. Other angle brackets and entities stay,
    because code shows them as they are.
    """
    return re.sub(r"<(?=[@#!])", "&lt;", re.sub(r"&(?=(?:lt|gt|amp|#\w+);)", "&amp;", text))


def byte_size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def cut_bytes(text: str, max_bytes: int) -> str:
    """Cut a text to at most `max_bytes` of UTF-8."""
    if byte_size(text) <= max_bytes:
        return text
    return text.encode("utf-8", "surrogatepass")[: max_bytes - 3].decode("utf-8", "ignore") + "…"


def split_for_slack(text: str, tasks: Sequence[SlackTask] = (), *, streamed: bool) -> list[str]:
    """Split Markdown into messages with room for these tasks. A stream limits them more."""
    if streamed:
        return split_markdown(text, STREAM_TEXT_BYTES, lambda piece: byte_size(without_mentions(piece)))
    used = sum(len(task.line) + len(task.details) for task in tasks)
    room = max(LEAST_TEXT_CHARS, min(MAX_TEXT_CHARS, MESSAGE_CHARS - used))
    return split_markdown(text, room, lambda piece: len(without_mentions(piece)))


def stable_prefix(text: str) -> str:
    """Return an escaped text without the end that more text could change."""
    return re.sub(r"(?:<|&[#\w]{0,8})$", "", text)


def notification_text(text: str) -> str:
    """Escape a text for notifications (docs.slack.dev/messaging/formatting-message-text#escaping)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def caption_text(text: str) -> str:
    """Return the text below files, in which each link is code: Slack would fetch it for a preview, and cannot be told
    not to there."""
    plain = text.replace("`", "'") if _LINK.search(text) else text
    return notification_text(_LINK.sub(lambda found: f"`{found[0]}`", plain))


def cut_fallback(escaped: str) -> str:
    """Cut an escaped text to the length of a notification, and not within an entity."""
    cut = cut_bytes(escaped, MAX_FALLBACK_BYTES)
    return cut if cut == escaped else re.sub(r"&\w{0,4}…$", "…", cut)


def live_tasks(view: View, *, streamed: bool) -> tuple[SlackTask, ...]:
    steps = [*view.steps.values()]
    return _progress_tasks(view.plan.items if view.plan else (), steps, len(steps), streamed=streamed)


def folded_tasks(final: Final, *, streamed: bool) -> tuple[SlackTask, ...]:
    """Return plan and steps of an ended turn, none of which is in progress any more."""
    tasks = _progress_tasks(final.plan, final.steps, final.step_count, streamed=streamed)
    return tuple(replace(task, status="pending") if task.status == "in_progress" else task for task in tasks)


def _progress_tasks(
    plan: Sequence[PlanItem], steps: Sequence[Step], count: int, *, streamed: bool
) -> tuple[SlackTask, ...]:
    items = [SlackTask(f"plan{i}", _task_title(p.title), _ITEM[p.state]) for i, p in enumerate(plan)]
    rows = [
        SlackTask(
            s.id,
            _task_title(step_title(s), s.progress),
            _STEP.get(s.state, "error"),
            cut_bytes(s.detail, MAX_DETAIL_BYTES),
        )
        for s in steps
    ]
    if streamed:
        shared = _share_last_row(rows, MAX_STREAM_STEPS, count - len(steps))
        return (*_share_last_row(items, MAX_STREAM_ITEMS), *shared)
    if count > MAX_SHOWN_STEPS:
        earlier = SlackTask("earlier", f"{count - MAX_SHOWN_STEPS} earlier", "complete")
        rows = [earlier, *rows[-MAX_SHOWN_STEPS:]]
    return (*items[:MAX_PLAN_ITEMS], *rows)


def _task_title(title: str, detail: str = "") -> str:
    detail = f" · {texts.shorten(detail, 40)}" if detail else ""
    return (cut_bytes(texts.shorten(title, 100), MAX_TITLE_BYTES - byte_size(detail)) or "…") + detail


def _share_last_row(rows: list[SlackTask], max_rows: int, omitted: int = 0) -> list[SlackTask]:
    """Return at most `max_rows`, the last of which shows the latest of those without a row."""
    if len(rows) <= max_rows:
        return rows
    rest = rows[max_rows - 1 :]
    current = next((row for row in reversed(rest) if row.status != "pending"), rest[0])
    title = cut_bytes(f"{len(rest) + omitted} more: {current.title}", MAX_TITLE_BYTES)
    return [*rows[: max_rows - 1], SlackTask(rest[0].id, title, current.status, rest[0].details)]


def message_arguments(part: SlackMessage) -> dict[str, Any]:
    """Return the arguments of a call that posts or edits a message. The tasks of a final one fold into a plan."""
    if part.plain:
        return {"blocks": [], "text": notification_text(part.text)}
    head = "\n".join(task.line for task in part.tasks) if part.live else ""
    blocks = [
        context_block(part.mark),
        context_block(head),
        _plan_block(part),
        *_markdown_block(part),
        context_block(f"⏳ {part.notice}" if part.notice else ""),
        *controls(part),
    ]
    text = " ".join(piece for piece in (part.mark, head, part.notice) if piece)
    fallback = cut_fallback(notification_text(" ".join((part.text or text or "…").split())))
    if part.mention:
        fallback = f"<@{part.mention}> {fallback}"
    return {"blocks": [block for block in blocks if block], "text": fallback}


def _plan_block(part: SlackMessage) -> dict[str, Any]:
    if part.live or not part.tasks:
        return context_block("" if part.live else part.plan)
    return {"type": "plan", "title": part.plan, "tasks": [task.card() for task in part.tasks]}


def context_block(text: str) -> dict[str, Any]:
    """Return small grey text without formatting, or nothing for an empty text."""
    if not text:
        return {}
    return {"type": "context", "elements": [{"type": "plain_text", "text": text[:MAX_CONTEXT_CHARS], "emoji": False}]}


def _markdown_block(part: SlackMessage) -> list[dict[str, Any]]:
    return [{"type": "markdown", "text": part.markdown}] if part.markdown.strip() else []


def controls(part: SlackMessage) -> list[dict[str, Any]]:
    """Return the blocks below a message: the options of its question and when it expires, or its button."""
    if part.ask:
        return [*question_controls(part.ask), *_expiry_block(part.ask)]
    if not part.command:
        return []
    name = part.command.split("|")[1]
    button = {"type": "button", "action_id": name, "text": _option_label(button_label(part.command)), "value": name}
    return [{"type": "actions", "block_id": part.command, "elements": [button]}]


def _expiry_block(ask: Ask) -> list[dict[str, Any]]:
    """Return when a question expires, in the time zone of each reader. Markdown blocks do not know such a date."""
    fallback = texts.expiry_in_hours(ask)
    when = f"<!date^{ask.until:.0f}^{DATE_FORMAT}|{fallback}>" if ask.until else ""
    note = texts.expiry_note(ask, when)
    element = {"type": "mrkdwn", "text": note}
    return [{"type": "context", "block_id": f"{QUESTION_PREFIX}{ask.id}:expiry", "elements": [element]}] if note else []


def question_controls(ask: Ask) -> list[dict[str, Any]]:
    """Return the options of a question as buttons, or many as a list. A value is the option in full."""
    if not ask.options or not fits_controls(ask):
        return []
    options = [{"text": _option_label(option), "value": option} for option in ask.options]
    if len(options) <= BUTTONS_PER_ROW or any(len(option) > MAX_OPTION_VALUE_CHARS for option in ask.options):
        elements: list[dict[str, Any]] = [
            {"type": "button", "action_id": f"choice:{index}", **option, **_style(ask, index)}
            for index, option in enumerate(options)
        ]
    else:
        hint = {"type": "plain_text", "text": "Choose", "emoji": False}
        elements = [{"type": "static_select", "action_id": "choice", "placeholder": hint, "options": options}]
    return [{"type": "actions", "block_id": f"{QUESTION_PREFIX}{ask.id}", "elements": elements}]


def feedback_buttons() -> list[dict[str, Any]]:
    """Return the block with 👍 and 👎 (docs.slack.dev/reference/block-kit/blocks/context-actions-block)."""
    up = {"text": _plain("👍"), "accessibility_label": _("Good answer"), "value": "up"}
    down = {"text": _plain("👎"), "accessibility_label": _("Bad answer"), "value": "down"}
    buttons = {"type": "feedback_buttons", "action_id": "feedback", "positive_button": up, "negative_button": down}
    return [{"type": "context_actions", "elements": [buttons]}]


def _style(ask: Ask, index: int) -> dict[str, str]:
    return {"style": style} if ask.approval and (style := APPROVAL_STYLES[index]) else {}


def fits_controls(ask: Ask) -> bool:
    """Return whether buttons or a list can show the options."""
    longest = max((len(option) for option in ask.options), default=0)
    distinct = len(set(ask.options)) == len(ask.options) and all(option.strip() for option in ask.options)
    max_options = MAX_BUTTONS if longest > MAX_OPTION_VALUE_CHARS else MAX_LIST_OPTIONS
    return distinct and len(ask.options) <= max_options and longest <= MAX_BUTTON_VALUE_CHARS


def question_hint_for(ask: Ask | None) -> str:
    if not ask or not ask.options:
        return ""
    bare = replace(ask, hours=0.0)  # a block of its own shows the time
    return texts.question_hint(bare, has_buttons=fits_controls(ask), max_label_chars=MAX_LABEL_CHARS)


def _option_label(option: str) -> dict[str, Any]:
    return _plain(texts.shorten(option, MAX_LABEL_CHARS))


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


MAX_HEADER_CHARS = 150  # docs.slack.dev/reference/block-kit/blocks/header-block


def home_view(home: Home, chat: str) -> Json:
    """Return the view. Slack hands `chat`, the direct messages with its reader, back with each press."""
    blocks = [{"type": "header", "text": {"type": "plain_text", "text": home.heading[:MAX_HEADER_CHARS]}}]
    for item in home.items:
        blocks += [{"type": "divider"}, *_item_blocks(item)]
    blocks += [context_block(home.foot)] if home.foot else []
    return {"type": "home", "private_metadata": chat, "blocks": blocks}


def _item_blocks(item: HomeItem) -> list[Json]:
    question = {"type": "rich_text_section", "elements": [{"type": "text", "text": item.question}]}
    call = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": item.call}]}
    text = {"type": "rich_text", "elements": [question, *([call] if item.call else [])]}
    ask = Ask(item.id, item.question, item.options, approval=bool(item.call))
    return [text, *_origin(item), *question_controls(ask)]


def _origin(item: HomeItem) -> list[Json]:
    """Return where it was asked, as a link to the channel, and the rest in small text."""
    place = f"<#{item.place.chat}>" if item.place and not item.place.chat.startswith("D") else ""
    words = " · ".join(filter(None, (place, notification_text(item.detail))))
    return [{"type": "context", "elements": [{"type": "mrkdwn", "text": words[:MAX_CONTEXT_CHARS]}]}] if words else []
