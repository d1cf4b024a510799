"""Say what keeps the service from answering messages: since when, and why."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


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
