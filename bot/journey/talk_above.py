"""The talk above a message: what others said there since the conversation last heard of it.

It is context for the message that was addressed to the bot: quotes, which carry no authority, are never remembered, and
begin no turn. The platform's history has it; where there is none, the bot has kept it (`storage/overheard.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.messages import Kind, Message, Quote, omitted
from agent.spending import text_tokens
from bot.config.schema import ServiceLimits
from bot.database.database import Execute
from bot.storage import conversations, inbox, overheard


@dataclass(frozen=True, slots=True)
class TalkAbove:
    """Which messages to look up: at most `most`, and `tokens` of them, later than `since` (unix time).

    `known` are the ids of messages that the conversation gets anyway, `kept` the talk that the bot itself has kept.
    """

    most: int = 0
    tokens: int = 0
    since: float = 0.0
    known: frozenset[str] = frozenset()
    kept: tuple[Quote, ...] = ()

    def bound(self, message: Message) -> Message:
        """Return the message with the root of its thread and the latest of its earlier messages, but no known one.

        What is left out in a thread is said between them.
        """
        earlier = [each for each in message.quotes if each.kind == "earlier" and each.id not in self.known]
        others = [each for each in message.quotes if each.kind not in ("earlier", "omitted")]
        if not self.most:
            return replace(message, quotes=tuple(others))
        topic = message.thread.topic
        root = [shorten_root(each, self.tokens // 2) for each in earlier[:1] if each.id == topic]
        rest, latest = earlier[len(root) :], list[Quote]()
        left = self.tokens - sum(text_tokens(each.text) for each in root)
        for quote in reversed(rest[-self.most :]):
            left -= text_tokens(quote.text)
            if left < 0:
                break
            latest.insert(0, quote)
        gaps = [each.text for each in message.quotes if each.kind == "omitted"]
        missing, is_counted = sum(int(gap or 0) for gap in gaps) + len(rest) - len(latest), all(gaps)
        is_thread = topic not in ("", message.id)
        gap = [omitted(missing if is_counted else None)] if gaps or (missing and is_thread) else []
        return replace(message, quotes=(*root, *gap, *latest, *others))


def shorten_root(root: Quote, tokens: int) -> Quote:
    """Return the first message of a thread with at most about so many tokens of its text: it says what it is about."""
    text = root.text
    while text and text_tokens(text) > tokens:
        text = text[: min(len(text) - 1, len(text) * tokens // text_tokens(text))]
    return root if text == root.text else replace(root, text=f"{text}…")


NO_TALK = TalkAbove()


def has_talk_above(message: Message, limits: ServiceLimits) -> bool:
    """Return whether a message of this kind brings talk."""
    return not message.private and message.kind is Kind.CHAT and message.is_by_author and limits.earlier_messages > 0


def talk_above(execute: Execute, conversation: str, messages: Sequence[Message], limits: ServiceLimits) -> TalkAbove:
    """Return which talk the last of some messages brings: since the one before them that a turn there has taken.

    A conversation that `/new` began hears nothing that was said before it.
    """
    row = conversations.find_conversation(execute, conversation)
    if not row:
        return NO_TALK
    begun = 0.0 if conversations.is_first_conversation(conversation) else row.created
    since = max(begun, inbox.last_taken(execute, row.thread, messages[0].key))
    known = frozenset(each.id for each in messages)
    oldest = max(since, messages[-1].time - limits.talk_hours * 3600)
    kept = overheard.kept_talk(execute, row.thread, oldest, limits.earlier_messages)
    return TalkAbove(limits.earlier_messages, limits.earlier_tokens, since, known, kept)
