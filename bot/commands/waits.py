"""Gather what waits for a person in any chat, and bring an answer from elsewhere to the question's own place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from agent.blocks import APPROVAL_OPTIONS, APPROVE, DENY, Approve, Ask, command_hint
from agent.messages import Kind, Message, Origin, Thread
from agent.permissions.invisible import show_line
from bot.base.display_names import display_name
from bot.base.plain_text import plain_line
from bot.database.database import Execute
from bot.database.rows import parse_row_id
from bot.journey.addressing import AnswerElsewhere
from bot.rights.approvals import may_answer
from bot.rights.current import Current
from bot.storage import account_links, conversations, inbox, people, sent_messages
from bot.storage.account_links import LinkedAccount
from bot.storage.jobs import enqueue_job
from bot.storage.questions import QuestionRow, number_of, open_approvals_at
from catalogue import N_, _, every_translation, format_duration, join_sentences, ngettext
from channels.shared.texts import shorten

PREFIX = "waiting:"  # begins the id of a question in the list, before its number
LIST_PREFIX = "waitlist:"  # begins the id of the button that shows the list
COMMAND = "waiting"
HOME_JOB = "home"
SHOW_LIST = N_("Show the list")
HOW = N_("Press a button, or write `{command}`.")
MAX_QUESTION_CHARS = 1500
DECISIONS: Mapping[str, str] = {"approve": APPROVE, "deny": DENY}  # command → the option that it chooses


@dataclass(frozen=True, slots=True)
class Waiting:
    """A question that waits for a person: a press on it would come from `place`, for the id `target`.

    `options` are as the question shows them, or untranslated. `call` is the exact call that needs approval. `who` asks,
    and `title` is what they asked for, or names the work; "" where nobody or nothing is known. `conversation` is that
    of a question of the agent, "" for one of the bot itself. `since` is 0 where it is unknown. `account` is that of the
    person for which it waits, if it is not the one that asks for the list; `is_direct` says that `place` is its direct
    chat. `chat_name` is the title of that group, where it is known.
    """

    place: Thread
    target: str
    question: str
    options: tuple[str, ...] = ()
    free_text: bool = False
    call: str = ""
    who: str = ""
    title: str = ""
    since: float = 0.0
    conversation: str = ""
    account: LinkedAccount | None = None
    is_direct: bool = False
    chat_name: str = ""

    @property
    def digest(self) -> str:
        """What names this very question: another call, or another wording, is another one. The bot's own questions are
        in the language of their reader."""
        asked = (self.question, self.call, *self.options) if self.conversation else ()
        parts = (str(self.place), self.conversation, self.target, *asked)
        return sha256("".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass")).hexdigest()

    def accept(self, words: str) -> str | None:
        """Return the answer that these words give: an option in any language, never by its place; None for none."""
        wanted = words.strip()
        same = {wanted.casefold()}
        for option in (*self.options, *APPROVAL_OPTIONS):
            names = {name.casefold() for name in (option, *every_translation(option))}
            if wanted.casefold() in names:
                same |= names
        found = next((option for option in self.options if option.casefold() in same), None)
        return found or (wanted or None if self.free_text or not self.options else None)


Waits = Callable[[Execute, Current, Message, float], Iterable[Waiting]]
"""Returns what waits for the author of a message, in a transaction. A feature that asks has one."""


class WaitTable:
    """What waits for people, of all features."""

    def __init__(self, waits: Sequence[Waits], current: Current) -> None:
        self._waits = waits
        self._current = current

    def listed(self, execute: Execute, viewer: Message, now: float) -> Sequence[tuple[int, Waiting]]:
        """Return what waits for the author of a private message, on all platforms, the oldest first, with its numbers.

        What waits for several of their accounts is listed once, for the one that asks if it is among them.
        """
        if not viewer.private or not viewer.is_by_author:
            return ()
        accounts = account_links.others_of(execute, viewer.thread.channel, viewer.author.id)
        found: dict[tuple[str, str], Waiting] = {}
        for each in self._listed_for(execute, viewer, now):
            found[each.conversation, each.target] = each
        for account in accounts:
            for each in self._listed_for_linked(execute, viewer, account, now):
                found.setdefault((each.conversation, each.target), each)
        ordered = sorted(found.values(), key=lambda each: each.since)
        return [(number_of(execute, each.digest, now), each) for each in ordered]

    def asked_in_private(
        self, execute: Execute, viewer: Message, now: float
    ) -> dict[tuple[str, str], tuple[Approve, Ask]]:
        """Return what `listed` returns as that chat asks it, with its exact call, by its conversation and its id."""
        found = self.listed(execute, viewer, now)
        return {(item.conversation, item.target): show_item(number, item, now) for number, item in found}

    def _listed_for(self, execute: Execute, viewer: Message, now: float) -> Iterator[Waiting]:
        home = viewer.thread.without_topic
        for waits in self._waits:
            for each in waits(execute, self._current, viewer, now):
                named = inbox.name_of_chat(execute, conversations.find_current(execute, each.place))
                yield replace(each, is_direct=each.place.without_topic == home, chat_name=named)

    def _listed_for_linked(
        self, execute: Execute, viewer: Message, account: LinkedAccount, now: float
    ) -> Iterator[Waiting]:
        """Yield what waits for another account of the viewer, with the rights of that one, as long as it may enter."""
        known = people.find_person(execute, account.channel, account.person)
        if known is None or (home := known.private_chat) is None:
            return
        there = replace(viewer, thread=home, author=account.author)
        if self._current.access.may_enter(execute, there):
            for each in self._listed_for(execute, there, now):
                yield replace(each, account=account)

    def redirect(self, execute: Execute, event: Message, now: float) -> AnswerElsewhere | None:
        """Return what a press in the list, its number with an answer, or `/approve` is at the question's own place.

        None for anything else, and for what does not wait for this person. What waits for a linked account is answered
        by that one: its rights decide, and its name stands there.
        """
        given = _given_answer(event)
        if given is None or not self._current.access.may_enter(execute, event):
            return None
        number, words = given
        if number is None:
            item = self._approval(execute, event, words, now)
        else:
            item = dict(self.listed(execute, event, now)).get(number)
        answer = item.accept(words) if item else None
        if item is None or answer is None:
            return None
        press = replace(
            event,
            thread=item.place,
            author=item.account.author if item.account else event.author,
            kind=Kind.CLICK,
            target=item.target,
            text=answer,
            id=sent_messages.message_of_question(execute, item.place, item.target),
            private=item.is_direct,
            attachments=(),
            quotes=(),
            reply_to="",
            native=False,
            follow_up=False,
        )
        return AnswerElsewhere(press, item.conversation)

    def _approval(self, execute: Execute, event: Message, option: str, now: float) -> Waiting | None:
        """Return the only approval of this chat that an author may decide so, or in their direct chat of all chats."""
        here = approvals_to_decide(execute, self._current, event, option, now)
        found = [
            Waiting(
                event.thread,
                each.id,
                each.text,
                each.options,
                call=each.call,
                conversation=each.conversation,
                is_direct=event.private,
            )
            for each in here
        ] or [each for _number, each in self.listed(execute, event, now) if each.call]
        return found[0] if len(found) == 1 else None


def approvals_to_decide(
    execute: Execute, current: Current, event: Message, option: str, now: float
) -> list[QuestionRow]:
    """Return the approvals that wait in the chat of an event and that its author, a person, may decide so."""
    if event.origin is not Origin.PERSON:
        return []
    place, person = event.thread, event.author.id
    return [
        each
        for each in open_approvals_at(execute, place)
        if may_answer(execute, current.access, each, place, person, at=now, answer=option)
    ]


def open_home(execute: Execute, event: Message) -> None:
    """Enqueue the job that shows what waits for a person on the bot's own page."""
    author = event.author
    who = {"person": author.id, "name": author.name, "guest": author.guest, "language": author.language}
    payload = {"thread": str(event.thread), **who}
    enqueue_job(execute, key=f"{HOME_JOB}:{event.thread}:{author.id}", kind=HOME_JOB, payload=payload)


def offer_list(count: int, words: str = "") -> Ask:
    """Return how much waits, after these words, as the question that has the button for the list."""
    waiting = ngettext("{n} question waits for you.", "{n} questions wait for you.", count)
    return Ask(LIST_PREFIX, join_sentences(words, waiting), (_(SHOW_LIST),), free_text=False)


def show_item(number: int, item: Waiting, now: float) -> tuple[Approve, Ask]:
    """Return an item with its exact call, and as a direct chat shows it, which says how to answer it in words."""
    options = tuple(_(option) for option in item.options)
    first = options[0] if options else _("ANSWER")
    answer = command_hint(f"{COMMAND} {number} {first}")
    origin = describe_origin(item, now)
    detail = join_sentences(origin, _(HOW, command=answer) if options else f"`{answer}`")
    words = f"**{number}.** {shorten(item.question, MAX_QUESTION_CHARS)}"
    approve = Approve(f"{PREFIX}{number}", words, detail, item.call, option_count=len(options))
    return approve, replace(approve.to_question(), options=options, approval=bool(item.call))


def describe_origin(item: Waiting, now: float) -> str:
    """Say where something was asked, for whose request, and for how long it has waited."""
    return " · ".join([describe_place(item), *describe_request(item, now)]) + "."


def describe_place(item: Waiting) -> str:
    """Name the chat in which something was asked."""
    if item.is_direct:
        on = display_name(item.account.channel) if item.account else ""
        return _("our direct chat on {channel}", channel=on) if on else _("our direct chat")
    if item.chat_name:
        return _("“{chat}” on {channel}", chat=plain_line(item.chat_name), channel=display_name(item.place.channel))
    return show_line("/".join(filter(None, (item.place.channel, item.place.workspace, item.place.chat))))


def describe_request(item: Waiting, now: float) -> list[str]:
    """Return what the work is, for whose request something was asked, and for how long it has waited."""
    parts = []
    parts += [f"“{title}”"] if (title := plain_line(item.title)) else []
    parts += [_("asked for {name}", name=plain_line(item.who))] if item.who else []
    since = format_duration(max(0.0, now - item.since))
    parts += [_("waits for {time}", time=since)] if item.since else []
    return parts


def _given_answer(event: Message) -> tuple[int | None, str] | None:
    """Return the number and the answer that an event gives; None as the number stands for the only approval."""
    before, listed, id = event.target.partition(PREFIX)
    if event.kind is Kind.CLICK and listed and not before:
        number, answer = parse_row_id(id), event.text
    elif event.kind is Kind.COMMAND:
        name, _space, words = event.text.partition(" ")
        if name in DECISIONS:
            number, rest = split_number(words)
            return None if rest or (words and number is None) else (number, DECISIONS[name])
        number, answer = split_number(words) if name == COMMAND else (None, "")
    else:
        return None
    return None if number is None or not answer.strip() else (number, answer)


def split_number(words: str) -> tuple[int | None, str]:
    """Return the number at the beginning of words, if there is one, and what follows."""
    first, *rest = words.split(maxsplit=1) or [""]
    return parse_row_id(first.lstrip("#")), "".join(rest)
