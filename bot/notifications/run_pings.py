"""The notification at the end of a run: an edit of the reply does not notify its requester.

Notify the people whom a request names and its answer calls: "ping Kim when it is done" → "@Kim it is done".

A text of a model notifies nobody by itself, on no platform. Two texts have to agree: the words of who asked must name
the person, so that no page, alert or stranger calls anybody, and the answer must have "@NAME". The person must be known
to the chat: they wrote there, or the platform says that the request mentions them
(docs/decisions/0137-two-texts-call-a-person.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.blocks import Final, command_hint
from agent.messages import Author
from bot.base.plain_text import plain_line
from bot.commands.waits import COMMAND
from bot.config.operations import PushEvent
from bot.config.schema import Config
from bot.database.database import Execute
from bot.database.states import OutboxKind, QuestionState, RunState
from bot.journey.turn_part import EndedTurn, OutboxRow
from bot.rights import access
from bot.rights.approvals import find_hand_over
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.service.pings import Ping, route_ping
from bot.storage import hand_overs, languages, outbox, people, questions, transcripts
from catalogue import N_, _, format_duration, list_items

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


PING_TEXTS: dict[RunState, tuple[str, PushEvent]] = {
    RunState.DONE: (N_("Done after {time}."), "done"),
    RunState.WAITING: (N_("I need your answer to continue, after {time}."), "waiting"),
    RunState.FAILED: (N_("This failed after {time}."), "failed"),
}
FOR_GIVER = N_("A question waits for {giver}, for whom you stand in. `{command}` lists it here.")


class RunPings:
    """The part of notifications in the end of each turn."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def present(self, execute: Execute, ended: EndedTurn, final: Final) -> Final:
        """Mention the person in the result of a run that nobody waited for, unless they want that elsewhere."""
        job = ended.job
        if not job.is_unattended or ended.state is RunState.STOPPED:
            return final
        if job.is_of_hook and ended.state is not RunState.WAITING:  # it is for the chat
            return final
        ping = _notification(execute, self._current, ended)
        is_here = ping is not None and route_ping(execute, self._current.config, ping, ended.now)
        return replace(final, mention=job.requester) if is_here else final

    def end(self, execute: Execute, ended: EndedTurn) -> Sequence[OutboxRow]:
        """Remember where the requester can be reached, and return the ping of a run whose reply is posted."""
        remember_private_chat(execute, ended.job)
        if ended.state is RunState.WAITING:
            tell_deputies(execute, self._current, ended)
        ping = make_ping(execute, self._current, ended) if ended.answers else None
        own = [(OutboxKind.PING, f"run:{ended.job.run}:ping", ping.dump())] if ping else []
        return [*own, *(call_people(execute, self._current.config, ended) if ended.answers else ())]


def make_ping(execute: Execute, current: Current, ended: EndedTurn) -> Final | None:
    """After a long run, make a short new message for the requester, unless they want it elsewhere: then send it there.

    The result of a run that nobody waited for is a new message itself.
    """
    job, channel = ended.job, ended.channel
    ping = None if job.is_unattended else _notification(execute, current, ended)
    if not ping or not route_ping(execute, current.config, ping, ended.now):
        return None
    if channel and channel.limits.edits_notify:
        return None
    return Final(_words_of(ended), mention=job.requester)


def _words_of(ended: EndedTurn, *, with_files: bool = True) -> str:
    took, files = format_duration(ended.now - ended.job.started), ended.collected.files
    if files and with_files:
        took = _("{time} ({files})", time=took, files=list_items(file.name for file in files))
    return _(PING_TEXTS[ended.state][0], time=took)


def _notification(execute: Execute, current: Current, ended: EndedTurn) -> Ping | None:
    """Return the notification of a run that was long, or for which nobody waited."""
    job, state = ended.job, ended.state
    after = access.notify_after(execute, job.thread.channel, job.requester, current.limits.notify_seconds)
    if state is RunState.STOPPED or after is None or (ended.now - job.started < after and not job.is_unattended):
        return None
    without_words = _words_of(ended, with_files=False) if any(message.private for message in job.messages) else ""
    words = _words_of(ended)
    elsewhere = _("“{title}”: {text}", title=job.title, text=words) if job.title else words
    event: PushEvent = "schedule" if job.is_unattended else PING_TEXTS[state][1]
    return Ping(job.requester, job.thread, elsewhere, f"run:{job.run}", event, without_words)


def tell_deputies(execute: Execute, current: Current, ended: EndedTurn) -> None:
    """Tell those who stand in for the requester, in their direct chats, that a question waits; of one of its own that
    they do not answer, nothing."""
    job, now = ended.job, ended.now
    asked = questions.unresolved_questions(execute, job.conversation)
    for row in hand_overs.of_giver(execute, job.thread.channel, job.requester, now):
        known = people.find_person(execute, row.channel, row.deputy)
        home = known.private_chat if known else None
        is_theirs = any(
            each.state == QuestionState.OPEN
            and find_hand_over(execute, current.access, each, job.thread, row.deputy, now) is not None
            for each in asked
        )
        if home is None or not is_theirs:
            continue
        with languages.speak_to(execute, home, Author(row.deputy, row.deputy_name)):
            text = _(FOR_GIVER, giver=plain_line(row.giver_name) or row.giver, command=command_hint(COMMAND))
        ping = Ping(row.deputy, home, text, f"run:{job.run}:deputy:{row.deputy}", "waiting")
        if route_ping(execute, current.config, ping, now):
            outbox.enqueue_notice(execute, home, text, key=ping.key, now=now)


def remember_private_chat(execute: Execute, job: ClaimedRun) -> None:
    """Store the private chat of a requester, where notifications and answers find them later."""
    for message in job.messages:
        if message.private and message.author.id == job.requester and message.is_by_person:
            known = people.find_person(execute, job.thread.channel, job.requester)
            if known is None or known.private_chat != job.thread.without_topic:
                people.store_address(execute, message)
            return
