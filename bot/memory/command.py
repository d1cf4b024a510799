"""`/memory`: show what the agent remembers, forget it, export it, switch it off and on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import orjson

from agent.blocks import command_hint
from agent.memory.visibility import LinkKind, Memory, MemoryKind, is_of_workspace
from agent.messages import Thread
from agent.stored_json import Damaged
from bot.base.plain_text import without_formatting
from bot.base.stored_files import command_folder
from bot.commands.call import CommandCall
from bot.database.rows import parse_row_id
from bot.journey.outbox import files_payload
from bot.memory.facts import place_of
from bot.rights import deeds
from bot.storage import inbox, outbox, people
from bot.storage import memory as stored
from catalogue import N_, _, list_items, ngettext
from channels.base import MessageLinker, OutgoingFile
from channels.shared.texts import shorten

MAX_SHOWN = 15
MAX_EXPORTED = 100_000
MAX_SHOWN_CHARS = 200
EXPORT_NAME = "memory.json"
NOTHING = N_("I don't remember anything about you here yet.")
KIND_NAMES = {
    MemoryKind.PREFERENCE: N_("preference"),
    MemoryKind.CORRECTION: N_("correction"),
    MemoryKind.STYLE: N_("style"),
    MemoryKind.CONTEXT: N_("context"),
    MemoryKind.OUTCOME: N_("outcome"),
    MemoryKind.RELATION: N_("relation"),
    MemoryKind.APPROVAL: N_("approval given"),
}


LINKS = {
    LinkKind.ABOUT: N_("about {number}"),
    LinkKind.DECIDED_BY: N_("decided by {number}"),
    LinkKind.REPLACES: N_("replaces {number}"),
    LinkKind.PART_OF: N_("part of {number}"),
}


def memory_command(call: CommandCall) -> str:
    """Show or change what the agent remembers of this person, as far as this place may show it."""
    if not call.current.config.has_memory:
        return _("Memory is disabled here. Whoever runs me can enable it in the configuration.")
    word, _space, rest = call.words.lower().partition(" ")
    match word:
        case "":
            return _show(call)
        case "forget" if rest.strip(" #"):
            return _forget(call, rest.strip(" #"))
        case "export":
            return _export(call)
        case "on" | "off":
            people.set_memory(call.execute, call.message, on=word == "on")
            return _state(call)
    return _usage()


def _usage() -> str:
    return _(
        "Use `{show}`, `{forget}`, `{all}`, `{export}`, `{off}` or `{on}`.",
        show=command_hint("memory"),
        forget=command_hint("memory forget 12"),
        all=command_hint("memory forget all"),
        export=command_hint("memory export"),
        off=command_hint("memory off"),
        on=command_hint("memory on"),
    )


def _is_on(call: CommandCall) -> bool:
    return people.allows_memory(call.execute, call.thread.channel, call.message.author.id)


def _state(call: CommandCall) -> str:
    if _is_on(call):
        return _(
            "I remember lasting facts from what you write to me. `{off}` stops that.", off=command_hint("memory off")
        )
    return _(
        "Your memory is off: I don't remember anything new, and I don't use what I know. `{on}` switches it on,"
        " `{forget}` deletes it.",
        on=command_hint("memory on"),
        forget=command_hint("memory forget all"),
    )


def _listed(call: CommandCall, limit: int) -> list[Memory]:
    return stored.list_memories(call.execute, place_of(call.message), call.message.author, limit)


def _show(call: CommandCall) -> str:
    memories = _listed(call, MAX_EXPORTED)
    if not memories:
        return f"{_(NOTHING)} {_state(call)}"
    if call.message.private:
        heading = _("What I remember of you, newest first:")
    else:
        heading = _("What I remember of you and may show here, newest first:")
    shown = {memory.id for memory in memories} | {old for each in memories for old in _replaced(each)}
    lines = [_line(call, memory, shown) for memory in memories[:MAX_SHOWN]]
    if more := memories[MAX_SHOWN:]:
        lines.append(ngettext("…and {n} more.", "…and {n} more.", len(more)))
    hint = _(
        "`{forget}` deletes one, `{export}` sends all of them as a file.",
        forget=command_hint(f"memory forget {memories[0].id}"),
        export=command_hint("memory export"),
    )
    return "\n".join([heading, *lines, "", f"{hint} {_state(call)}"])


def _replaced(memory: Memory) -> Iterator[int]:
    """Yield the memories that this one has replaced: they are of the same person."""
    return (number for kind, number in memory.linked if kind is LinkKind.REPLACES)


def _line(call: CommandCall, memory: Memory, shown: Collection[int]) -> str:
    """Return one memory with its links to those that are `shown`, and its source: when it was said and, where the
    platform has links, the message."""
    zone = call.current.config.time_zone
    said = f"{datetime.fromtimestamp(memory.said, ZoneInfo(zone) if zone else None):%Y-%m-%d %H:%M}"
    link = _link(call, memory)
    fact = shorten(without_formatting(memory.line), MAX_SHOWN_CHARS)
    links = [_(LINKS[kind], number=number) for kind, number in memory.linked if kind in LINKS and number in shown]
    fact = _("{fact}; {links}", fact=fact, links=list_items(links)) if links else fact
    time = f"[{said}]({link})" if link else said
    values = {"number": memory.id, "fact": fact, "kind": _(KIND_NAMES[memory.kind]), "time": time}
    if memory.owner != call.message.author.id:
        return _("- {number}: {fact} ({kind}, said by {name}, {time})", name=memory.name, **values)
    return _("- {number}: {fact} ({kind}, {time})", **values)


def _link(call: CommandCall, memory: Memory) -> str:
    channel: object = call.service.channel(call.thread.channel)
    row = inbox.find_message(call.execute, memory.message)
    if row is None or not isinstance(channel, MessageLinker):
        return ""
    try:
        return channel.message_link(Thread.parse(memory.thread), row.message.id)
    except Damaged:  # the message cannot be read any more
        return ""


def _forget(call: CommandCall, which: str) -> str:
    """Forget all that this person said, everywhere, or one memory that they see here."""
    person = call.message.author
    if which == "all":
        count = stored.forget_person(call.execute, place_of(call.message).account, person.id)
        return ngettext("Forgotten: {n} memory.", "Forgotten: {n} memories.", count)
    if (number := parse_row_id(which)) is None:
        return _usage()
    found = stored.find_memories(call.execute, [number], place_of(call.message), person)
    if not found:
        return _("I don't remember anything with the number {number} here.", number=which)
    [memory] = found
    deed = deeds.CHANGE_WORKSPACE_NOTE if is_of_workspace(memory) else deeds.FORGET_NOTE
    if memory.owner != person.id and not call.may(deed):
        if deed.is_beyond_chat:
            return call.refuse(f"memory forget {number}", deed)
        return _("Only the person who said it, or an operator, can delete this.")
    stored.forget_memory(call.execute, memory.id)
    return _("Forgotten: {fact}", fact=shorten(without_formatting(memory.line), MAX_SHOWN_CHARS))


def _export(call: CommandCall) -> str:
    """Send what this place may show as a file. The outbox deletes the copy."""
    memories = _listed(call, MAX_EXPORTED)
    if not memories:
        return _(NOTHING)
    path = command_folder(call.current.config.data_dir, "memory", call.message.key) / EXPORT_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    size = path.write_bytes(orjson.dumps([_exported(each) for each in memories], option=orjson.OPT_INDENT_2))
    payload = files_payload([OutgoingFile(path, EXPORT_NAME, size)])
    outbox.enqueue_files(call.execute, call.thread, payload, key=f"memory:{call.message.key}", now=call.now)
    return ngettext("{n} memory is in the file.", "{n} memories are in the file.", len(memories))


def _exported(memory: Memory) -> dict[str, object]:
    said = datetime.fromtimestamp(memory.said, UTC).isoformat(timespec="seconds")
    names = ("id", "kind", "subject", "text", "confidence", "uses", "thread", "message")
    return {**{name: value for name, value in asdict(memory).items() if name in names}, "said": said, "by": memory.name}
