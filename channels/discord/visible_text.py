"""Read what a person sees of a Discord message beside its text: embeds, components with text, and a poll.

discord.com/developers/docs/resources/message#embed-object, …/components/reference, …/resources/poll
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from channels.shared.visible_text import dict_of, dicts_in, labelled, linked, text_of

Event = Mapping[str, Any]

MAX_DEPTH = 5  # of components in components: a container has sections, which have texts
MAX_COMPONENTS = 100
MAX_EMBEDS, MAX_SNAPSHOTS = 10, 5  # Discord's own bounds are ten and one


def card_lines(event: Event) -> Iterator[str]:
    """Yield the text of its embeds and components, a line for each part."""
    for embed in islice(dicts_in(event.get("embeds")), MAX_EMBEDS):
        yield from embed_lines(embed)
    budget = [MAX_COMPONENTS]
    for component in dicts_in(event.get("components")):
        yield from _component_lines(component, budget, 0)


def embed_lines(embed: Event) -> Iterator[str]:
    """Yield the text of an embed."""
    author = dict_of(embed.get("author"))
    yield linked(author.get("name"), author.get("url"))
    yield linked(embed.get("title"), embed.get("url"))
    yield text_of(embed.get("description"))
    for field in dicts_in(embed.get("fields")):
        yield labelled(field.get("name"), field.get("value"))
    if address := text_of(dict_of(embed.get("image")).get("url")):
        yield linked("Image", address)
    yield text_of(dict_of(embed.get("footer")).get("text"))


def poll_lines(poll: Event) -> Iterator[str]:
    """Yield the question of a poll and its answers, with the votes that are counted."""
    yield text_of(dict_of(poll.get("question")).get("text"))
    results = dicts_in(dict_of(poll.get("results")).get("answer_counts"))
    counts = {str(each.get("id")): each.get("count") for each in results}
    for answer in dicts_in(poll.get("answers")):
        votes = counts.get(str(answer.get("answer_id")))
        text = text_of(dict_of(answer.get("poll_media")).get("text"))
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
        case 12:  # a gallery
            for item in dicts_in(component.get("items")):
                yield linked(item.get("description") or "Image", dict_of(item.get("media")).get("url"))
        case 13:  # a file
            yield linked(component.get("name") or "File", dict_of(component.get("file")).get("url"))
        case 11:  # a picture beside a text
            yield linked(component.get("description") or "Image", dict_of(component.get("media")).get("url"))
        case 2 | 3 | 4 | 5 | 6 | 7 | 8:  # what only its own bot understands
            return
        case _:  # a row, a section, a container, and kinds not known yet
            yield text_of(component.get("content"))
            for each in dicts_in(component.get("components")):
                yield from _component_lines(each, budget, depth + 1)
            for name in ("accessory", "component"):
                if inner := dict_of(component.get(name)):
                    yield from _component_lines(inner, budget, depth + 1)
