"""The one spelling of addresses: `CHANNEL/WORKSPACE/CHAT` of a chat, `CHANNEL/ID` of a person, as `/whoami` shows them.

`CHANNEL:…` is taken as well, as it was written before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType

from agent.messages import Thread
from agent.near_misses import did_you_mean, suggest
from bot.config.document import Document
from bot.config.excerpt import Location
from catalogue import _
from channels.shared.ids import IdForms


def parse_chat(text: str) -> Thread:
    """Return the chat of `CHANNEL/WORKSPACE/CHAT`, with `/TOPIC` behind it or not. Raises ValueError."""
    channel, colon, rest = text.partition(":")
    address = f"{channel}/{rest}" if colon and "/" not in channel else text
    thread = Thread.parse(address if address.count("/") == 3 else f"{address}/")
    if not (thread.channel and thread.chat):
        raise ValueError(text)
    return thread


def chat_address(thread: Thread) -> str:
    """Return the address of a chat without its topic, as `parse_chat` takes it."""
    return str(thread.without_topic).removesuffix("/")


def parse_person(text: str) -> tuple[str, str]:
    """Return channel and id of `CHANNEL/ID`. Raises ValueError."""
    found = re.fullmatch(r"([\w-]+)[/:](.+)", text)
    if not found:
        raise ValueError(text)
    return found[1], found[2]


def person_address(channel: str, id: str) -> str:
    """Return the address of a person, as `parse_person` takes it."""
    return f"{channel}/{id}"


def person_names(channel: str, id: str) -> tuple[str, ...]:
    """Return how budgets and rate limits can name a person: the address, the bare id, and as it was written before."""
    return person_address(channel, id), id, f"{channel}:{id}"


def chat_names(thread: Thread) -> tuple[str, ...]:
    """Return how budgets and rate limits can name a chat, as `person_names` does; an address may be unquoted."""
    channel, place, chat = thread.channel, f"{thread.workspace}/{thread.chat}", thread.chat
    return chat_address(thread), f"{channel}/{place}", f"{channel}:{place}", chat, f"{channel}:{chat}"


def workspace_names(thread: Thread) -> tuple[str, ...]:
    """Return how budgets can name a workspace: `CHANNEL/WORKSPACE`, the bare id, and as it was written before."""
    quoted = chat_address(thread).rpartition("/")[0]
    return quoted, *person_names(thread.channel, thread.workspace)


def id_on(channel: str, text: str) -> str:
    """Return the id in what was written for this channel: `ID`, or the address with the channel before it."""
    return re.sub(rf"^{re.escape(channel)}[/:](?=.)", "", text)


def check_id(
    document: Document, at: Location, text: str, forms: Sequence[IdForms], test: Callable[[IdForms, str], bool]
) -> None:
    """Compare an id with the forms of these channels; none: it can be any. The fix of the first one is said."""
    if not forms or at in document.faulty or any(test(each, text) for each in forms):
        return
    bare = re.sub(r"^<?[@#]?([^|>]*)\|?[^>]*>?$", r"\1", text.strip())
    spellings = (
        (bare, bare.upper()) if re.search(r"\d", bare) and "/" not in bare else ()
    )  # a name in capitals is no id
    near = next((each for each in spellings if test(forms[0], each)), "")
    document.fault(at, _("is not an id of this platform"), did_you_mean(near) if near else _(forms[0].looks))


def check_chat(
    document: Document, at: Location, text: str, configured: Collection[str], modules: Mapping[str, ModuleType]
) -> None:
    """A chat has an address, on a channel that is configured, whose ids look like it."""
    try:
        chat = parse_chat(text)
    except ValueError:
        fix = _("write it as CHANNEL/WORKSPACE/CHAT; the command `whoami` shows it in that chat")
        document.fault(at, _("is not the address of a chat"), fix)
        return
    if chat.channel == "console":
        document.fault(at, _("the console has no chats"), _("name a chat of another channel"))
    elif chat.channel not in modules and document.has_accounts:
        document.fault(at, _("there is no such channel"), suggest(chat.channel, modules))
    elif chat.channel not in configured and document.has_accounts:
        fix = _("add it below `channels`, or name a chat of one that is there")
        document.fault(at, _("this channel is not configured"), fix)
    elif forms := getattr(modules.get(chat.channel), "IDS", None):
        check_id(document, at, chat.workspace, [forms], IdForms.is_place)
        check_id(document, at, chat.chat, [forms], IdForms.is_chat)
