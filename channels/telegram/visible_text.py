"""Read what a person sees of a Telegram message that is no text: polls, contacts, places, checklists, dice, buttons.

core.telegram.org/bots/api#message, …#externalreplyinfo and …#richmessage
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import telegram

from channels.shared.visible_text import dict_of, dicts_in, labelled, linked, text_of

MAX_DEPTH = 16  # of blocks in blocks: Telegram's own bound
MAX_PIECES = 2000  # of a rich message, which has at most 500 blocks


def card_lines(message: telegram.Message | telegram.ExternalReplyInfo) -> Iterator[str]:
    """Yield its text, a line for each part: of a message, or of what is known of one in another chat."""
    yield from rich_lines(message)
    if poll := message.poll:
        yield labelled("Poll", poll.question)
        yield from (f"• {each.text} ({each.voter_count})" for each in poll.options)
    if contact := message.contact:
        name = " ".join(part for part in (contact.first_name, contact.last_name) if part)
        yield labelled("Contact", f"{name}, {contact.phone_number}")
    if venue := message.venue:
        yield labelled("Place", f"{venue.title}, {venue.address} ({_coordinates(venue.location)})")
    elif message.location:
        yield labelled("Place", _coordinates(message.location))
    if dice := message.dice:
        yield f"{dice.emoji} {dice.value}"
    if checklist := message.checklist:
        yield labelled("Checklist", checklist.title)
        yield from (f"{'☑' if each.completion_date else '☐'} {each.text}" for each in checklist.tasks)
    if isinstance(message, telegram.Message) and message.reply_markup:
        for button in (each for row in message.reply_markup.inline_keyboard for each in row):
            if button.url:
                yield linked(button.text, button.url)


def rich_lines(message: telegram.Message | telegram.ExternalReplyInfo) -> Iterator[str]:
    """Yield the text of a rich message, which the SDK does not know yet, a line for each of its blocks."""
    budget = [MAX_PIECES]
    for block in dicts_in(dict_of(message.api_kwargs.get("rich_message")).get("blocks")):
        yield from _block_lines(block, budget, 0)


def _block_lines(block: dict[str, Any], budget: list[int], depth: int) -> Iterator[str]:
    """Yield the text of a block: its own, that of its cells, and of the blocks and items in it."""
    if depth > MAX_DEPTH:
        return
    for name in ("label", "summary", "text", "expression"):
        yield _rich_text(block.get(name), budget, 0)
    cells = block.get("cells")
    for row in cells if isinstance(cells, list) else ():
        yield " | ".join(_rich_text(cell.get("text"), budget, 0) for cell in dicts_in(row))
    caption = block.get("caption")
    yield _rich_text(caption.get("text") if isinstance(caption, dict) and "type" not in caption else caption, budget, 0)
    for button in (each for row in block.get("buttons") or () for each in (dicts_in(row) or ())):
        yield linked(_rich_text(button.get("text"), budget, 0), button.get("url"))
    for name in ("blocks", "items"):
        for inner in dicts_in(block.get(name)):
            yield from _block_lines(inner, budget, depth + 1)


def _rich_text(text: object, budget: list[int], depth: int) -> str:
    """Return a text of parts in parts as one, with the addresses of its links."""
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        return ""
    if isinstance(text, list):
        return "".join(_rich_text(each, budget, depth + 1) for each in text)
    if isinstance(text, dict):
        inner = _rich_text(text.get("text") or text.get("expression"), budget, depth + 1)
        return linked(inner, text.get("url")) if text.get("url") else inner
    return text_of(text)


def _coordinates(place: telegram.Location) -> str:
    return f"{place.latitude:.6f}, {place.longitude:.6f}"
