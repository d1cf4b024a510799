"""Read what a person sees of a Slack message: its text, its blocks, and its attachments, which alerts are made of.

docs.slack.dev/reference/block-kit/blocks, docs.slack.dev/legacy/legacy-messaging/legacy-secondary-message-attachments
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from channels.shared.visible_text import dicts_in, labelled, linked, text_of

Json = dict[str, Any]

MAX_DEPTH = 8  # of elements in elements; Slack's own blocks have at most five
MAX_FORWARDS, MAX_SHARED = 4, 40  # of a message: forwards in forwards, and all of them
MAX_BLOCKS = 100  # Slack's own bound
MAX_PIECES = 400  # of one message: 50 blocks of 8 elements
KNOWN_BLOCKS = frozenset({"rich_text", "section", "header", "markdown", "context", "actions", "image", "video"})
KNOWN_BLOCKS |= {"table", "data_table"}
SHOWN_TEXTS = frozenset({"title", "subtitle", "text", "body", "description", "caption", "details", "alt_text"})


def block_lines(blocks: Any) -> Iterator[str]:
    """Yield the text of blocks, a line for each part of one, in Slack's mrkdwn."""
    budget = [MAX_PIECES]
    for block in islice(dicts_in(blocks), MAX_BLOCKS):
        yield from _lines_of(block, budget)


def attachment_lines(attachment: Json) -> Iterator[str]:
    """Yield the text of an attachment: of an integration, or of a link that Slack has looked at."""
    yield _text(attachment.get("pretext"))
    yield linked(attachment.get("author_name"), attachment.get("author_link"))
    yield linked(attachment.get("title"), attachment.get("title_link"))
    yield _text(attachment.get("text"))
    for field in islice(dicts_in(attachment.get("fields")), MAX_BLOCKS):
        yield labelled(field.get("title"), field.get("value"))
    yield from block_lines(blocks_of_attachment(attachment))
    for button in dicts_in(attachment.get("actions")):
        if button.get("url"):
            yield linked(_text(button.get("text")), button.get("url"))
    yield linked("Image", attachment.get("image_url")) if attachment.get("image_url") else ""
    yield _text(attachment.get("footer"))
    if not any(attachment.get(name) for name in ("pretext", "title", "text", "fields", "blocks", "message_blocks")):
        yield _text(attachment.get("fallback"))


def blocks_of_attachment(attachment: Json) -> list[Json]:
    """Return the blocks of an attachment, and of the messages that it shows."""
    shown = (each.get("message") or {} for each in dicts_in(attachment.get("message_blocks")))
    return [*dicts_in(attachment.get("blocks")), *(block for each in shown for block in dicts_in(each.get("blocks")))]


def is_shared_message(attachment: Json) -> bool:
    """Return whether an attachment is another message, forwarded or linked."""
    return bool(attachment.get("is_share") or attachment.get("is_msg_unfurl"))


def shared_messages(raw: Json) -> list[Json]:
    """Return the messages that one forwards or links to, and those that these forward in turn, the outer ones first."""
    found: list[Json] = []
    level = [raw]
    for _ in range(MAX_FORWARDS):
        level = [each for outer in level for each in dicts_in(outer.get("attachments")) if is_shared_message(each)]
        found += level
    return found[:MAX_SHARED]


def _lines_of(block: Json, budget: list[int]) -> Iterator[str]:
    match block.get("type"):
        case "rich_text":
            for part in dicts_in(block.get("elements")):
                yield from _rich_lines(part, budget, 0)
        case "section":
            yield _text(block.get("text"))
            for field in dicts_in(block.get("fields")):
                yield _text(field)
            yield from _element_lines(block.get("accessory"), budget)
        case "header" | "markdown":
            yield _text(block.get("text"))
        case "context" | "actions":
            yield " ".join(line for each in dicts_in(block.get("elements")) for line in _element_lines(each, budget))
        case "image":
            yield linked(_text(block.get("title")) or _text(block.get("alt_text")), block.get("image_url"))
        case "video":
            yield linked(_text(block.get("title")), block.get("title_url") or block.get("video_url"))
            yield _text(block.get("description"))
        case "table" | "data_table":
            yield _text(block.get("caption"))
            rows = block.get("rows")
            for row in rows if isinstance(rows, list) else ():
                yield " | ".join(" ".join(_cell_lines(cell, budget)) for cell in dicts_in(row))
        case _:
            yield from _other_lines(block, budget, 0)


def _cell_lines(cell: Json, budget: list[int]) -> Iterator[str]:
    """Yield the text of a cell: `raw_number` has it beside its value, or its value alone."""
    if cell.get("type") == "raw_number":
        yield _text(cell.get("text")) or str(cell.get("value", ""))
    else:
        yield from _rich_lines(cell, budget, 0)


def _other_lines(part: Json, budget: list[int], depth: int) -> Iterator[str]:
    """Yield the texts of a block of many parts (a card, a carousel, a container, a task), or of a kind not known yet.

    What has a text is read under any name, in the order in which the block has it; ids and styles have none.
    """
    if depth > MAX_DEPTH or not _spend(budget):
        return
    for name, value in part.items():
        if name in SHOWN_TEXTS and isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from _part_lines(value, budget, depth)
        elif isinstance(value, list):
            for each in dicts_in(value):
                yield from _part_lines(each, budget, depth)


def _part_lines(part: Json, budget: list[int], depth: int) -> Iterator[str]:
    match part.get("type"):
        case "mrkdwn" | "plain_text":
            yield _text(part)
        case "button" | "url_source" | "overflow":
            yield from _element_lines(part, budget)
        case str() as kind if kind in KNOWN_BLOCKS:
            yield from _lines_of(part, budget)
        case _:
            yield from _other_lines(part, budget, depth + 1)


def _element_lines(element: Any, budget: list[int]) -> Iterator[str]:
    """Yield what an element of a block shows: buttons only with an address, for others lead nowhere outside."""
    if not isinstance(element, dict) or not _spend(budget):
        return
    match element.get("type"):
        case "mrkdwn" | "plain_text":
            yield _text(element)
        case "button" | "url_source" if element.get("url"):
            yield linked(_text(element.get("text")), element.get("url"))
        case "overflow":
            for option in dicts_in(element.get("options")):
                if option.get("url"):
                    yield linked(_text(option.get("text")), option.get("url"))
        case "image":
            yield linked(element.get("alt_text"), element.get("image_url"))


def _rich_lines(part: Json, budget: list[int], depth: int) -> Iterator[str]:
    """Yield the lines of a part of rich text: a section is one, a list has several."""
    if depth > MAX_DEPTH or not _spend(budget):
        return
    inside = list(dicts_in(part.get("elements")))
    match part.get("type"):
        case "rich_text":
            for each in inside:
                yield from _rich_lines(each, budget, depth + 1)
        case "rich_text_list":
            for each in inside:
                for line in _rich_lines(each, budget, depth + 1):
                    yield f"• {line}"
        case "rich_text_section" | "rich_text_quote" | "rich_text_preformatted":
            yield "".join(_rich_text(each) for each in inside)
        case "raw_text":
            yield _text(part.get("text"))


def _rich_text(element: Json) -> str:
    match element.get("type"):
        case "text":
            return _text(element.get("text"))
        case "link":
            return linked(element.get("text"), element.get("url"))
        case "user":
            return f"<@{element.get('user_id')}>"
        case "channel":
            return f"<#{element.get('channel_id')}>"
        case "usergroup":
            return "@" + str(element.get("usergroup_id"))
        case "broadcast":
            return "@" + str(element.get("range"))
        case "emoji":
            return f":{element.get('name')}:"
        case "date":
            return _text(element.get("fallback")) or str(element.get("timestamp"))
        case "color":
            return _text(element.get("value"))
    return ""


def _text(value: Any) -> str:
    """Return a text, or that of a text object."""
    return text_of(value.get("text") if isinstance(value, dict) else value)


def _spend(budget: list[int]) -> bool:
    budget[0] -= 1
    return budget[0] >= 0
