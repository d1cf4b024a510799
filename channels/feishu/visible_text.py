"""Read what a person sees of a Feishu message that is no text: cards, polls, places, tasks, events, contacts.

open.feishu.cn/document/uAjLw4CM/ukTMukTMukTM/im-v1/message/events/message_content, and of cards as their senders wrote
them …/feishu-cards/card-json-v2-structure; that those come with `user_card_content` only, and otherwise as "upgrade
your client": github.com/openclaw/openclaw/issues/78289, github.com/riba2534/feishu-cli/pull/127.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from channels.shared.visible_text import dict_of, dicts_in, labelled, linked, text_of

CONTACT = "Contact: "  # before the id of a person, whom `enrich` names
ENTRIES = frozenset(
    {"share_calendar_event", "calendar", "general_calendar", "share_chat", "share_user", "location", "video_chat"}
    | {"todo", "vote"}
)
MAX_DEPTH = 10  # of elements in elements
MAX_ELEMENTS = 400  # of a card, which has at most 200

Json = dict[str, Any]


def entry_lines(kind: str, raw: Json) -> Iterator[str]:
    """Yield the text of one of `ENTRIES`, a line for each part."""
    match kind:
        case "location":
            place = ", ".join(filter(None, (text_of(raw.get("name")), _coordinates(raw))))
            yield labelled("Place", place or "unknown")
        case "share_user":
            yield f"{CONTACT}{raw.get('user_id', 'somebody')}"
        case "share_chat":
            yield labelled("Group", raw.get("chat_id"))
        case "vote":
            yield labelled("Poll", raw.get("topic"))
            options = raw.get("options")
            yield from (f"• {each}" for each in (options if isinstance(options, list) else ()))
        case "todo":
            summary = dict_of(raw.get("summary"))
            rows = summary.get("content")
            parts = (part for row in (rows if isinstance(rows, list) else ()) for part in dicts_in(row))
            said = "".join(text_of(part.get("text")) for part in parts)
            yield labelled("Task", " ".join(filter(None, (text_of(summary.get("title")), said))) or "without a name")
            yield _dated("Due", raw.get("due_time"))
        case "video_chat":
            yield labelled("Call", raw.get("topic"))
            yield _dated("Begins", raw.get("start_time"))
        case _:
            yield labelled("Calendar", raw.get("summary"))
            yield _dated("Begins", raw.get("start_time"))
            yield _dated("Ends", raw.get("end_time"))


def is_written_card(card: Json) -> bool:
    """Return whether a card is as its sender wrote it, and not the rows of text that Feishu makes of one."""
    elements = card.get("elements")
    rows = isinstance(elements, list) and any(isinstance(each, list) for each in elements)
    return not rows and any(name in card for name in ("schema", "header", "body", "elements", "i18n_elements"))


def unwrapped_card(raw: Json) -> Json:
    """Return the card of an event, which may come as JSON in JSON (github.com/larksuite/cli/pull/1480)."""
    written = raw.get("user_dsl")
    return dict_of(orjson.loads(written)) if isinstance(written, str) else raw


def card_lines(card: Json) -> Iterator[str]:
    """Yield the text of a card as its sender wrote it."""
    budget = [MAX_ELEMENTS]
    header = dict_of(card.get("header")) or _first_language(card.get("i18n_header"))
    for name in ("title", "subtitle"):
        yield _content(header.get(name))
    body = dict_of(card.get("body"))
    elements = body.get("elements") or card.get("elements")
    if not elements and isinstance(languages := card.get("i18n_elements"), dict):
        elements = next(iter(languages.values()), ())
    for element in dicts_in(elements):
        yield from _element_lines(element, budget, 0)


def _element_lines(element: Json, budget: list[int], depth: int) -> Iterator[str]:
    """Yield the text of an element: its own, and that of the elements, columns and fields in it."""
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        return
    match element.get("tag"):
        case "markdown" | "plain_text" | "lark_md":
            yield _content(element)
        case "button" | "overflow":
            address = _address(element)
            yield linked(_content(element.get("text")), address) if address else ""
        case "img":
            yield _content(element.get("alt")) or _content(element.get("title"))
        case "table":
            yield from _table_lines(element)
        case _:
            yield _content(element.get("text")) or text_of(element.get("content"))
            yield _content(dict_of(element.get("header")).get("title"))
            for name in ("fields", "elements", "columns", "actions"):
                for inner in dicts_in(element.get(name)):
                    yield from _element_lines(inner, budget, depth + 1)
            if extra := dict_of(element.get("extra")):
                yield from _element_lines(extra, budget, depth + 1)


def _table_lines(table: Json) -> Iterator[str]:
    columns = [(str(each.get("name")), _content(each.get("display_name"))) for each in dicts_in(table.get("columns"))]
    yield " | ".join(shown or name for name, shown in columns)
    for row in dicts_in(table.get("rows")):
        yield " | ".join(str(row.get(name, "")) for name, _shown in columns)


def _address(button: Json) -> str:
    opens = [each.get("default_url") for each in dicts_in(button.get("behaviors"))]
    every = (button.get("url"), dict_of(button.get("multi_url")).get("url"), *opens)
    return next((each for each in every if isinstance(each, str) and each), "")


def _content(value: object) -> str:
    """Return a text, or that of a text element."""
    return text_of(value.get("content") if isinstance(value, dict) else value)


def _first_language(value: object) -> Json:
    return next((each for each in value.values() if isinstance(each, dict)), {}) if isinstance(value, dict) else {}


def _coordinates(raw: Json) -> str:
    latitude, longitude = raw.get("latitude"), raw.get("longitude")
    return f"({latitude}, {longitude})" if latitude and longitude else ""


def _dated(label: str, value: object) -> str:
    """Return a time of milliseconds with its label; "" for none, and 0 stands for none."""
    try:
        seconds = int(str(value)) / 1000
        return f"{label}: {datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC" if seconds else ""
    except (ValueError, OverflowError, OSError):
        return ""
