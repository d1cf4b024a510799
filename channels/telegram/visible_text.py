"""What a reader sees of a Telegram message that is no text: a poll, a contact, a place, a checklist, a dice.

core.telegram.org/bots/api#message
"""

from __future__ import annotations

from collections.abc import Iterator

import telegram

from channels.shared.visible_text import labelled


def card_lines(message: telegram.Message) -> Iterator[str]:
    """Yield its text, a line for each part."""
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


def _coordinates(place: telegram.Location) -> str:
    return f"{place.latitude:.6f}, {place.longitude:.6f}"
