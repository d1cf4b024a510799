"""What a reader sees of a Discord message beside its text: embeds, components with text, and a poll.

discord.com/developers/docs/resources/message#embed-object, …/components/reference, …/resources/poll
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from channels.shared.visible_text import dicts_in, labelled, linked, text_of

Event = Mapping[str, Any]

MAX_DEPTH = 5  # of components in components: a container has sections, which have texts
MAX_COMPONENTS = 100


def card_lines(event: Event) -> Iterator[str]:
    """Yield the text of its embeds and components, a line for each part."""
    for embed in dicts_in(event.get("embeds")):
        yield from embed_lines(embed)
    budget = [MAX_COMPONENTS]
    for component in dicts_in(event.get("components")):
        yield from _component_lines(component, budget, 0)


def embed_lines(embed: Event) -> Iterator[str]:
    """Yield the text of an embed."""
    author = embed.get("author") or {}
    yield linked(author.get("name"), author.get("url"))
    yield linked(embed.get("title"), embed.get("url"))
    yield text_of(embed.get("description"))
    for field in dicts_in(embed.get("fields")):
        yield labelled(field.get("name"), field.get("value"))
    yield text_of((embed.get("footer") or {}).get("text"))


def poll_lines(poll: Event) -> Iterator[str]:
    """Yield the question of a poll and its answers, with the votes that are counted."""
    yield text_of((poll.get("question") or {}).get("text"))
    counts = {each.get("id"): each.get("count") for each in dicts_in((poll.get("results") or {}).get("answer_counts"))}
    for answer in dicts_in(poll.get("answers")):
        votes = counts.get(answer.get("answer_id"))
        text = text_of((answer.get("poll_media") or {}).get("text"))
        yield f"• {text}" + (f" ({votes})" if isinstance(votes, int) else "")


def _component_lines(component: Event, budget: list[int], depth: int) -> Iterator[str]:
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        return
    match component.get("type"):
        case 10:  # a text display
            yield text_of(component.get("content"))
        case 2 if component.get("url"):
            yield linked(component.get("label"), component.get("url"))
        case 1 | 9 | 17:  # a row, a section, a container
            for each in dicts_in(component.get("components")):
                yield from _component_lines(each, budget, depth + 1)
            if isinstance(accessory := component.get("accessory"), dict):
                yield from _component_lines(accessory, budget, depth + 1)
