"""Hand-overs: until some time, a deputy may answer what waits for the person who gave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.storage.database import Execute
from bot.storage.rows import insert_row, read_row, read_rows

EVERYTHING = ""  # the subject of one that hands over all questions
_IN_FORCE = "channel=:channel AND ended IS NULL AND since<=:at AND until>:at"

_SAME = "channel=:channel AND giver=:giver AND deputy=:deputy AND subject=:subject AND ended IS NULL"


@dataclass(frozen=True, slots=True)
class HandOverRow:
    """What `giver` has handed over to `deputy` on a channel, from `since` to before `until`, unless it was `ended`.

    `subject` is the digest of one question, which is in the list of its giver under `number`.
    """

    id: int
    channel: str
    giver: str
    giver_name: str
    deputy: str
    deputy_name: str
    subject: str
    number: int
    since: float
    until: float
    ended: float | None


def add_hand_over(execute: Execute, values: Mapping[str, object]) -> int:
    """Store a hand-over in place of the one of the same subject to the same deputy; return its number."""
    execute(f"UPDATE hand_overs SET ended=:since WHERE {_SAME}", values)
    [row] = insert_row(execute, "hand_overs", "id", values)
    return int(row["id"])


def of_deputy(execute: Execute, channel: str, deputy: str, at: float) -> list[HandOverRow]:
    """Return what others have handed over to a person and is in force, the oldest first."""
    sql = f"SELECT * FROM hand_overs WHERE {_IN_FORCE} AND deputy=:deputy ORDER BY id"
    return read_rows(execute, HandOverRow, sql, channel=channel, deputy=deputy, at=at)


def of_giver(execute: Execute, channel: str, giver: str, at: float) -> list[HandOverRow]:
    """Return what a person has handed over and is in force, the oldest first."""
    sql = f"SELECT * FROM hand_overs WHERE {_IN_FORCE} AND giver=:giver ORDER BY id"
    return read_rows(execute, HandOverRow, sql, channel=channel, giver=giver, at=at)


def of_person(execute: Execute, channel: str, person: str, at: float) -> list[HandOverRow]:
    """Return what is in force and concerns a person: what they gave, then what they were given."""
    return [*of_giver(execute, channel, person, at), *of_deputy(execute, channel, person, at)]


def find_in_force(execute: Execute, id: int, channel: str, at: float) -> HandOverRow | None:
    """Return a hand-over that is in force."""
    sql = f"SELECT * FROM hand_overs WHERE id=:id AND {_IN_FORCE}"
    return read_row(execute, HandOverRow, sql, id=id, channel=channel, at=at)


def latest_deputies(execute: Execute, channel: str, giver: str, limit: int) -> dict[str, str]:
    """Return id → name of those to whom a person handed over last, the latest first."""
    sql = """SELECT deputy, max(deputy_name) AS name FROM hand_overs WHERE channel=:channel AND giver=:giver
        GROUP BY deputy ORDER BY max(id) DESC LIMIT :limit"""
    rows = execute(sql, {"channel": channel, "giver": giver, "limit": limit})
    return {str(row["deputy"]): str(row["name"]) for row in rows}


def end_hand_over(execute: Execute, id: int, channel: str, person: str, now: float) -> HandOverRow | None:
    """End one that is in force, of its giver or its deputy, and return it; None for another one."""
    sql = f"""UPDATE hand_overs SET ended=:at WHERE id=:id AND {_IN_FORCE} AND (giver=:person OR deputy=:person)
        RETURNING *"""
    return read_row(execute, HandOverRow, sql, id=id, channel=channel, person=person, at=now)


def end_hand_overs_of(execute: Execute, channel: str, person: str, now: float) -> int:
    """End what a person has handed over and what was handed over to them; return how many."""
    sql = f"UPDATE hand_overs SET ended=:at WHERE {_IN_FORCE} AND (giver=:person OR deputy=:person) RETURNING 1"
    return len(execute(sql, {"channel": channel, "person": person, "at": now}))
