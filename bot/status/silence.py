"""Say why a message has no answer, for `fawn why`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bot.database.states import InboxState, RunState
from bot.journey.bot_turns import ONLY_BOTS
from bot.journey.ignored import DECLINED, MAY_NOT_TALK, NO_ACCESS, NOT_ADDRESSED, WAITS_FOR_PAIRING
from bot.rights.work_rights import NOT_ALLOWED
from bot.storage.uses import RATE_LIMIT
from catalogue import N_, _

STRANGER = N_("its author has no access there: see `fawn pair list`, or `access.allow` of that channel")
REASONS: Mapping[str, str] = {  # as the inbox, the audit and the log name them
    NOT_ADDRESSED: N_("it was not addressed to the bot: mention it, or write to it directly"),
    NO_ACCESS: STRANGER,
    NOT_ALLOWED: STRANGER,  # when its turn came
    DECLINED: N_("an operator declined its author: `fawn pair revoke` takes that back"),
    WAITS_FOR_PAIRING: N_("its author waits to be let in: `fawn pair list`"),
    MAY_NOT_TALK: N_("its author's role there may not have the agent work (docs/team.md)"),
    ONLY_BOTS: N_("only bots have written there lately (`limits.bot_turns`): a person has to write again"),
    RATE_LIMIT: N_("it was above a rate limit (`rate_limits`)"),
}
RUNS: Mapping[str, str] = {
    RunState.QUEUED: N_("it waits for its turn to begin"),
    RunState.RUNNING: N_("a turn works on it now"),
    RunState.WAITING: N_("its turn waits for an answer to a question"),
    RunState.DONE: N_("it was answered"),
    RunState.FAILED: N_("its turn failed; the log says why"),
    RunState.STOPPED: N_("its turn was stopped"),
}
UNKNOWN = N_(
    "I know no message and no thread {what}. What is not addressed to the bot is not stored: the log has it as"
    " `inbox.ignored` with the reason. Otherwise, the platform did not deliver it, or `keep_days` has passed."
)


def describe_silence(answer: Mapping[str, Any]) -> str:
    """Return a line for each message, and for each one that was refused in that thread."""
    if not answer["known"]:
        return _(UNKNOWN, what=answer["what"])
    lines = [f"{_at(row['at'])} {row['key']}: {_describe(row)}" for row in answer["messages"]]
    lines += [
        f"{_at(row['at'])} {row['person']}: {_(REASONS.get(row['reason'], STRANGER))}" for row in answer["refused"]
    ]
    return "\n".join(lines) or _("Nothing was written there lately.")


def _describe(row: Mapping[str, Any]) -> str:
    if row["state"] == InboxState.DEAD:
        return _("it could not be read: `fawn dead list`")
    if known := REASONS.get(row["reason"]) or RUNS.get(row["run"]):
        return _(known)
    if row["state"] == InboxState.WITHDRAWN:
        return _("its author withdrew it")
    return _("it waits for its turn to begin") if row["state"] == InboxState.NEW else _("it was handled")


def _at(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
