"""Notify the people whom a request names and its answer calls: "ping Kim when it is done" → "@Kim it is done".

A text of a model notifies nobody by itself, on no platform. Two texts have to agree: the words of who asked must name
the person, so that no page, alert or stranger calls anybody, and the answer must have "@NAME". The person must be known
to the chat: they wrote there, or the platform says that the request mentions them
(docs/decisions/0137-two-texts-call-a-person.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from agent.blocks import Final
from bot.config.schema import Config
from bot.database.database import Execute
from bot.database.states import OutboxKind, RunState
from bot.journey.turn_part import EndedTurn, OutboxRow
from bot.service.pings import Ping, route_ping
from bot.storage import transcripts
from catalogue import N_, _

MAX_CALLED = 5  # people of one answer
MAX_CHARS = 40_000  # of an answer and a request that are looked through
MAX_KNOWN = 200  # names that are looked for
CALLED = N_("My answer above is for you, too.")
_CODE = re.compile(r"^(?P<fence>```|~~~).*?^(?P=fence)|`[^`\n]*+`", re.DOTALL | re.MULTILINE)
_ID = re.compile(r"<@!?([^\s|<>]+)(?:\|[^<>]*)?>")


def call_people(execute: Execute, config: Config, ended: EndedTurn) -> Sequence[OutboxRow]:
    """Return the notifications of those whom the answer of a turn calls, each a message of its own."""
    job = ended.job
    asked = [each for each in job.messages if each.is_by_person and each.author.id == job.requester]
    if ended.state is not RunState.DONE or job.is_unattended or any(each.private for each in job.messages):
        return ()
    if "@" not in ended.text or not asked or (ended.channel and not ended.channel.limits.mentions):
        return ()
    words = "\n".join(each.text for each in asked)
    known = [(person.id, person.name) for each in asked for person in each.named]
    known += [(quote.author_id, quote.author) for each in asked for quote in each.quotes if quote.kind == "earlier"]
    chat = str(job.thread.without_topic)
    known += [(id, name) for at, id, name in transcripts.recent_authors(execute, job.thread.channel) if at == chat]
    mentioned = {person.id for each in asked for person in each.named} | set(_ID.findall(words))
    rows: list[OutboxRow] = []
    for id in called_ids(ended.text, words, mentioned, known):
        ping = Ping(id, job.thread, _(CALLED), f"run:{job.run}:call:{id}", "done")
        if id != job.requester and len(rows) < MAX_CALLED and route_ping(execute, config, ping, ended.now):
            rows.append((OutboxKind.PING, ping.key, Final(ping.text, mention=id).dump()))
    return rows


def called_ids(answer: str, words: str, mentioned: set[str], known: Iterable[tuple[str, str]]) -> list[str]:
    """Return the ids of people whom an answer calls by "@NAME", and whom the `words` of the request name or mention.

    A name that several people have calls none of them, and code calls nobody.
    """
    answer = _CODE.sub(" ", answer[:MAX_CHARS])
    by_id, answer, words = set(_ID.findall(answer)), answer.casefold(), words[:MAX_CHARS].casefold()
    people = list(dict.fromkeys((id, name.strip().casefold()) for id, name in known if id))[:MAX_KNOWN]
    bearers = Counter(name for _id, name in people)
    called: list[str] = []
    for id, name in people:
        is_clear = bool(name) and bearers[name] == 1
        calls = id in by_id or (is_clear and _has(answer, f"@{name}"))
        if calls and (id in mentioned or (is_clear and _has(words, name))):
            called.append(id)
    return list(dict.fromkeys(called))


def _has(text: str, name: str) -> bool:
    """Return whether a text has a name as a whole word."""
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(name) : at + len(name) + 1]
        if not _joins(before, name[:1]) and not _joins(name[-1:], after):
            return True
        at = text.find(name, at + 1)
    return False


def _joins(left: str, right: str) -> bool:
    """Return whether two characters are within one word. Scripts without blanks between words have no such bounds."""
    return left.isalnum() and left.isascii() and right.isascii() and (right.isalnum() or right == "@")
