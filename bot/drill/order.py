"""Define what the process of a drill is told."""

from __future__ import annotations

import sys
from dataclasses import dataclass

PROGRAM = (sys.executable, "-m", "bot.drill.child")
KILLS = 20
ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DrillOrder:
    """A drill: on what `config` is read from ("": the usual file), in the empty `folder`, with `program` as Fawn."""

    folder: str = ""
    config: str = ""
    kills: int = KILLS
    answer_seconds: float = ANSWER_SECONDS  # after which a message counts as lost
    program: tuple[str, ...] = PROGRAM
