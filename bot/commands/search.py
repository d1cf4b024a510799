"""`/search`: find what was said in a chat."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from agent.blocks import command_hint
from bot.base.plain_text import without_formatting
from bot.commands.call import CommandCall
from bot.storage import transcripts
from catalogue import N_, _, list_items

MAX_FOUND, SNIPPET_CHARS = 10, 160


def search_command(call: CommandCall) -> str:
    """Search this chat only: everybody who reads the answer may read what it quotes."""
    words = call.words.split()[: transcripts.MAX_WORDS]
    if not words:
        return _(
            "`{command}` finds what was said in this chat, such as `{example}`.",
            command=command_hint("search WORDS"),
            example=command_hint("search budget 2026"),
        )
    channel = call.service.channel(call.thread.channel)
    topics = channel is not None and not channel.limits.private_topics
    found = transcripts.search_chat(call.execute, call.thread, words, MAX_FOUND + 1, topics=topics)
    if not found:
        nothing = N_("I found nothing in this chat with {words}.")
        nothing = nothing if topics else N_("I found nothing in this thread with {words}.")
        return _(nothing, words=list_items(f"“{word}”" for word in words))
    time_zone = call.current.config.time_zone
    zone = ZoneInfo(time_zone) if time_zone else None
    lines = []
    for entry in found[:MAX_FOUND]:
        name, at = entry.name or _("I"), datetime.fromtimestamp(entry.at, zone)
        lines.append(f"- {at:%Y-%m-%d %H:%M} · {name}: {_snippet(entry.text, words[0])}")
    if len(found) > MAX_FOUND:
        lines += ["", _("These are the newest {n}; add words to find less.", n=MAX_FOUND)]
    heading = _("Found in this chat, newest first:") if topics else _("Found in this thread, newest first:")
    return "\n".join([heading, *lines])


def _snippet(text: str, word: str) -> str:
    """Return the text around a word on one line, without characters that would format it."""
    line = without_formatting(text)
    begin = max(0, line.lower().find(word.lower()) - SNIPPET_CHARS // 3)
    cut = line[begin : begin + SNIPPET_CHARS]
    return f"{'…' * (begin > 0)}{cut}{'…' * (begin + len(cut) < len(line))}"
