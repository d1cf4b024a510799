"""Say what keeps the service from answering: its troubles, models out of reach, why a message has no answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from bot.base.plain_text import plain_line
from bot.config.schema import Config
from bot.database.states import InboxState, RunState
from bot.journey.ignored import DECLINED, MAY_NOT_TALK, NO_ACCESS, NOT_ADDRESSED, ONLY_BOTS, WAITS_FOR_PAIRING
from bot.rights.work_rights import NOT_ALLOWED
from bot.status.egress import list_destinations
from bot.storage.uses import RATE_LIMIT
from catalogue import N_, _, list_items


@dataclass(frozen=True, slots=True)
class Trouble:
    """A part of the service that does not work. `since` is a unix time, `why` a sentence."""

    part: str  # agent, database, disk, models, queue, or the name of a channel
    since: float
    why: str

    def as_json(self) -> dict[str, Any]:
        """Return it for machines, with the time as ISO 8601 in UTC."""
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return {"part": self.part, "since": since, "why": self.why}


@dataclass(slots=True)
class TroubleTimes:
    """Remember since when each part is in trouble, for parts that do not know it themselves."""

    _since: dict[str, float] = field(default_factory=dict)

    def date(self, reasons: dict[str, str]) -> list[Trouble]:
        """Return the troubles of this moment; a part that works again is forgotten."""
        now = time.time()
        self._since = {part: self._since.get(part, now) for part in reasons}
        return [Trouble(part, self._since[part], why) for part, why in reasons.items()]


log = logging.getLogger(__name__)

CHECK_SECONDS = 10.0  # between two looks, however often the probes ask
CONNECT_SECONDS = 5.0
Address = tuple[str, int]


@dataclass(slots=True)
class ModelReach:
    """Connects to the servers of models, or to their proxies, and sends nothing."""

    _addresses: tuple[Config, Sequence[Address]] | None = None
    _checked: float = float("-inf")
    _trouble: str | None = None
    _checking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find_trouble(self, config: Config) -> str | None:
        """Return the sentence that no server can be reached, None where one can, or where it is not known which."""
        async with self._checking:
            if self._addresses is None or self._addresses[0] is not config:
                self._addresses, self._checked = (config, await asyncio.to_thread(_addresses_of, config)), float("-inf")
            if time.monotonic() - self._checked > CHECK_SECONDS:
                self._trouble = await _connect_to_any(self._addresses[1])
                self._checked = time.monotonic()
            return self._trouble


def _addresses_of(config: Config) -> list[Address]:
    """Return where the models are reached; none if that of any model is not known."""
    found = {each.what.partition("]")[0]: each for each in list_destinations(config)[0] if _is_of_model(each.what)}
    if any(f"models[{model.name}" not in found for model in config.models):
        return []
    ways = [urlsplit(each.through or f"tcp://{each.host}:{each.port}") for each in found.values()]
    return sorted({(way.hostname or "", way.port or 80) for way in ways})


def _is_of_model(what: str) -> bool:
    return what.startswith("models[")


async def _connect_to_any(addresses: Sequence[Address]) -> str | None:
    reasons = await asyncio.gather(*(_connect(*address) for address in addresses))
    found = [reason for reason in reasons if reason]
    if len(found) < len(reasons) or not found:
        return None
    log.warning("models.unreachable reasons=%s", "; ".join(found))
    return _("No server of a model can be reached: {reasons}.", reasons=list_items(found))


async def _connect(host: str, port: int) -> str | None:
    """Return why there is no connection; None for one."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _reader, writer = await asyncio.open_connection(host, port)
    except (OSError, UnicodeError) as error:  # a TimeoutError is an OSError
        return f"{host}:{port} ({getattr(error, 'strerror', '') or type(error).__name__})"
    writer.transport.abort()
    return None


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
OTHER_IGNORED = N_("it was ignored ({reason}): docs/operations.md says what that means")
RUNS: Mapping[str, str] = {
    RunState.QUEUED: N_("it waits for its turn to begin"),
    RunState.RUNNING: N_("a turn works on it now"),
    RunState.WAITING: N_("its turn waits for an answer to a question"),
    RunState.DONE: N_("it was answered"),
    RunState.FAILED: N_("its turn failed; the log says why"),
    RunState.STOPPED: N_("its turn was stopped"),
}
UNKNOWN = N_(
    "No record of {what}. Fawn keeps what it ignored for a day, until it restarts. Either the platform did not deliver"
    " the message, or it is older than that or than `keep_days`."
)


def describe_silence(answer: Mapping[str, Any]) -> str:
    """Return a line for each message, and for each one that was refused in that thread."""
    if not answer["known"]:
        return _(UNKNOWN, what=answer["what"])
    lines = [f"{_at(row['at'])} {row['key']}: {_describe(row)}" for row in answer["messages"]]
    lines += [_describe_ignored(row) for row in answer["ignored"]]
    lines += [
        f"{_at(row['at'])} {row['person']}: {_(REASONS.get(row['reason'], STRANGER))}" for row in answer["refused"]
    ]
    return "\n".join(lines) or _("Nothing was written there lately.")


def _describe_ignored(row: Mapping[str, Any]) -> str:
    who = plain_line(row.get("name", "")) or row["person"]
    reason = _(REASONS.get(row["reason"], OTHER_IGNORED), reason=row["reason"])
    return f"{_at(row['at'])} {row['key']} ({who}): {reason}"


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
