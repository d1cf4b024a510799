"""Count how models, tools and skills did: sums for each day, without a person and without a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import orjson

from agent.outcomes import CallError, Used
from bot.database.database import Execute

DAY_SECONDS = 86400
OUTCOME_DAYS = 30
_SUMMED = ("requests", "calls", "failed", "seconds", "cost", "squares", "unpriced", "up", "down")
_ADD = ", ".join(f"{name}=outcomes.{name}+excluded.{name}" for name in _SUMMED)
_COLUMNS = ", ".join(("day", "used", "name", "role", *_SUMMED))
_VALUES = ", ".join(f":{name}" for name in ("day", "used", "name", "role", *_SUMMED))
_SINCE = "WHERE day>=:since AND used=:used"
_SUMS = ", ".join(f"sum({name}) AS {name}" for name in _SUMMED)


@dataclass(frozen=True, slots=True)
class OutcomeKey:
    """What the sums are of. `role` is the agent that called a model, or the kind of its calls; "" for all others."""

    used: Used
    name: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class OutcomeSums:
    """How often something was used and how that ended.

    `cost` in micro-dollars is that of all `requests`, `squares` the sum of their squares, for an interval; `unpriced`
    requests have a call whose price is unknown. `seconds` are those of all `calls`.
    """

    requests: int = 0
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    cost: int = 0
    squares: float = 0.0
    unpriced: int = 0
    up: int = 0
    down: int = 0
    errors: Mapping[CallError, int] = field(default_factory=dict)

    def __add__(self, other: OutcomeSums) -> OutcomeSums:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        return OutcomeSums(**sums, errors=Counter(self.errors) + Counter(other.errors))


def day_of(now: float) -> int:
    """Return the number of a day."""
    return int(now // DAY_SECONDS)


def add_outcomes(execute: Execute, day: int, sums: Iterable[tuple[OutcomeKey, OutcomeSums]]) -> None:
    """Add to the sums of a day."""
    for key, each in sums:
        values = {"day": day, **asdict(key), **{name: getattr(each, name) for name in _SUMMED}}
        execute(
            f"INSERT INTO outcomes({_COLUMNS}) VALUES ({_VALUES})"
            f" ON CONFLICT(day, used, name, role) DO UPDATE SET {_ADD}",
            values,
        )
        for error, count in each.errors.items():
            execute(
                "INSERT INTO outcome_errors(day, used, name, role, error, count)"
                " VALUES (:day, :used, :name, :role, :error, :count)"
                " ON CONFLICT(day, used, name, role, error) DO UPDATE SET count=outcome_errors.count+excluded.count",
                {"day": day, **asdict(key), "error": error, "count": count},
            )


def read_outcomes(execute: Execute, used: Used, now: float) -> dict[OutcomeKey, OutcomeSums]:
    """Return the sums of the last days, those with the most calls first."""
    values = {"used": used, "since": day_of(now) - OUTCOME_DAYS + 1}
    sql = f"SELECT name, role, error, sum(count) AS n FROM outcome_errors {_SINCE} GROUP BY name, role, error"
    sql += " ORDER BY sum(count) DESC, error"
    errors: dict[OutcomeKey, dict[CallError, int]] = {}
    for row in execute(sql, values):
        errors.setdefault(OutcomeKey(used, row["name"], row["role"]), {})[CallError(row["error"])] = int(row["n"])
    sql = f"SELECT name, role, {_SUMS} FROM outcomes {_SINCE} GROUP BY name, role ORDER BY sum(calls) DESC, name, role"
    found = {}
    for row in execute(sql, values):
        key = OutcomeKey(used, row["name"], row["role"])
        found[key] = OutcomeSums(**{name: row[name] for name in _SUMMED}, errors=errors.get(key, {}))
    return found


def keep_parts(execute: Execute, run: int, keys: Sequence[OutcomeKey]) -> None:
    """Keep with a run what was used in it, for the thumbs that come later."""
    parts = orjson.dumps([[key.used, key.name, key.role] for key in keys]).decode()
    execute("UPDATE runs SET parts=:parts WHERE id=:run", {"run": run, "parts": parts})


def count_thumbs(execute: Execute, run: int, up: int, down: int) -> None:
    """Count a thumb (or -1: one that was taken back) for what was used in a run, on the day of its end."""
    for row in execute("SELECT parts, finished FROM runs WHERE id=:run AND finished IS NOT NULL", {"run": run}):
        for used, name, role in orjson.loads(row["parts"] or "[]"):
            execute(
                "UPDATE outcomes SET up=up+:up, down=down+:down"
                " WHERE day=:day AND used=:used AND name=:name AND role=:role",
                {"up": up, "down": down, "day": day_of(row["finished"]), "used": used, "name": name, "role": role},
            )
