"""Gather what a run begins with: pieces that count as one message, and posts beside its conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.messages import Kind, Message
from agent.turn.checkpoint_rows import ReadState, read_checkpoint
from bot.database.database import Execute
from bot.database.states import QuestionKind
from bot.journey.addressing import is_own, quote_waiting
from bot.journey.exposure import inherit_exposure
from bot.storage import inbox, quoted
from bot.storage import questions as stored_questions
from bot.storage.conversations import ConversationRow
from bot.storage.inbox import InboxRow
from bot.storage.overheard import has_side_posts, is_beside, take_side_posts, to_quote


def read_state(execute: Execute, key: str, *, fresh: bool) -> ReadState:
    """Return the state of a conversation; a `fresh` run has no tasks of its own there."""
    return ReadState(read_checkpoint(execute, {"thread": key, "ns": ""}, has_tasks=not fresh))


def bundle_key(row: InboxRow) -> str:
    """Return what the pieces of one bundle have in common."""
    return row.bundle or row.key


def merge_bundles(rows: Sequence[InboxRow]) -> dict[str, Message]:
    """Merge the pieces of each bundle: texts joined, files together, under the key of the first piece."""
    merged: dict[str, Message] = {}
    for row in rows:
        message, name = row.message, bundle_key(row)
        if name not in merged:
            merged[name] = message
            continue
        whole = merged[name]
        between = "" if len(whole.text.encode("utf-16-le")) // 2 % 4096 == 0 else "\n"  # cut at the platform's limit
        merged[name] = replace(
            whole,
            text=between.join(part for part in (whole.text, message.text) if part),
            attachments=whole.attachments + message.attachments,
            quotes=whole.quotes + message.quotes,
        )
    return merged


def bring_side_posts(execute: Execute, row: ConversationRow, taken: Sequence[InboxRow]) -> Sequence[InboxRow]:
    """Let the first message of a run bring what was posted beside its conversation: the row keeps it, and the state.

    An approval takes no words, so what answers one brings nothing.
    """
    has_owner = is_own(row.key)
    if not has_owner and (is_beside(row.key) or not has_side_posts(execute, row.thread, row.key)):
        return taken
    approved = {
        question.answer_key
        for question in stored_questions.unresolved_questions(execute, row.key)
        if question.kind == QuestionKind.APPROVE
    }
    first = next((each for each in taken if each.kind == Kind.CHAT and each.key not in approved), None)
    if first is None:
        return taken
    posts = () if is_beside(row.key) else take_side_posts(execute, row.thread, row.key)
    message = replace(first.message, quotes=(*map(to_quote, posts), *first.message.quotes))
    message = quote_waiting(execute, row, message) if has_owner else message
    inbox.replace_message(execute, first.id, message)
    quoted.record_quotes(execute, message, row.key)
    for source in dict.fromkeys(post.conversation for post in posts):
        inherit_exposure(execute, source, row.key)
    return [replace(each, payload=message.dump()) if each is first else each for each in taken]
