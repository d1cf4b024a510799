"""The command /reload: read the configuration again, and say what has changed."""

from __future__ import annotations

import time
from functools import partial

from agent.messages import Message
from bot.commands.call import CommandCall
from bot.database.database import Database, Execute
from bot.fleet.reload import ReloadOutcome
from bot.storage import languages, outbox
from catalogue import _, join_sentences, list_items


def reload_command(call: CommandCall) -> str:
    """Request a reload, whose outcome follows as a notice."""
    call.after.append(lambda: call.service.reload(call.message))
    return _("I'm reading the configuration again.")


async def answer_reload(store: Database, message: Message, outcome: ReloadOutcome | None) -> None:
    """Answer the command `message` when the reload has ended. Without an outcome, it has failed."""
    await store.run(partial(enqueue_outcome, message=message, outcome=outcome))


def enqueue_outcome(execute: Execute, message: Message, outcome: ReloadOutcome | None) -> None:
    """Enqueue the answer to the command `message`. Without an outcome, the reload has failed."""
    with languages.speak_to(execute, message.thread, message.author):
        text, now = _describe_outcome(outcome), time.time()
        key = f"reload:{message.key}"
        outbox.enqueue_notice(execute, message.thread, text, key=key, now=now, reply_to=message.id)


def _describe_outcome(outcome: ReloadOutcome | None) -> str:
    if outcome is None:
        return _("Reloading failed on my side. The configuration before stays in force. It's logged.")
    if outcome.faults:  # without the lines of the file, which others in this chat need not see
        head = _("The new configuration has faults. The one before stays in force.")
        return "\n".join([head, "", *(f"- {fault}" for fault in outcome.faults)])
    changed = (
        _("The configuration is reloaded. Changed: {sections}.", sections=list_items(outcome.changed))
        if outcome.changed
        else _("The configuration is reloaded. No section has changed.")
    )
    restart = (
        _("A restart is needed for: {sections}.", sections=list_items(outcome.not_applied))
        if outcome.not_applied
        else ""
    )
    return "\n".join([join_sentences(changed, restart), *(f"- {line}" for line in outcome.others)])
