"""Hand-overs: until some time, a deputy may answer what waits for the person who gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from bot.database.database import Execute
from bot.database.rows import insert_row, read_row, read_rows
from bot.storage import account_links

EVERYTHING = ""  # the subject of one that hands over all questions
_IN_FORCE = "channel=:channel AND ended IS NULL AND since<=:at AND until>:at"

_OF_SIDE = {
    "giver": f"SELECT * FROM hand_overs WHERE {_IN_FORCE} AND giver=:person",
    "deputy": f"SELECT * FROM hand_overs WHERE {_IN_FORCE} AND deputy=:person",
}
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


def add_hand_over(execute: Execute, row: HandOverRow) -> HandOverRow:
    """Store a hand-over in place of the one of the same subject to the same deputy; return it with its id."""
    values = asdict(row)
    del values["id"]
    execute(f"UPDATE hand_overs SET ended=:since WHERE {_SAME}", values)
    [stored] = insert_row(execute, "hand_overs", "id", values)
    return replace(row, id=int(stored["id"]))


def of_deputy(execute: Execute, channel: str, deputy: str, at: float) -> list[HandOverRow]:
    """Return what others have handed over to a person and is in force on a channel, the oldest first.

    Who has linked accounts, as both have, hands everything over on each platform: such rows name the accounts there.
    """
    return _in_force_on(execute, channel, account_links.accounts_of(execute, channel, deputy), "deputy", at)


def of_giver(execute: Execute, channel: str, giver: str, at: float) -> list[HandOverRow]:
    """Return what a person has handed over and is in force on a channel, in the same way."""
    return _in_force_on(execute, channel, account_links.accounts_of(execute, channel, giver), "giver", at)


def _in_force_on(
    execute: Execute, channel: str, accounts: Sequence[tuple[str, str]], side: str, at: float
) -> list[HandOverRow]:
    found = [_on_channel(execute, row, channel) for row in _in_force(execute, accounts, side, at)]
    return sorted(filter(None, found), key=lambda row: row.id)


def _in_force(execute: Execute, accounts: Sequence[tuple[str, str]], side: str, at: float) -> list[HandOverRow]:
    """Return the rows of one side, the giver or the deputy, of all these accounts (channel and id)."""
    rows = (read_rows(execute, HandOverRow, _OF_SIDE[side], channel=each, person=id, at=at) for each, id in accounts)
    return [row for found in rows for row in found]


def _on_channel(execute: Execute, row: HandOverRow, channel: str) -> HandOverRow | None:
    """Return a row as it counts on a channel: a single question only on its own."""
    if row.channel == channel:
        return row
    giver = account_links.account_on(execute, row.channel, row.giver, channel)
    deputy = account_links.account_on(execute, row.channel, row.deputy, channel)
    return replace(row, channel=channel, giver=giver, deputy=deputy) if giver and deputy and not row.subject else None


def of_person(execute: Execute, channel: str, person: str, at: float) -> list[HandOverRow]:
    """Return what is in force and concerns a person with any account: what they gave, then what they were given."""
    accounts = account_links.accounts_of(execute, channel, person)
    return [*_in_force(execute, accounts, "giver", at), *_in_force(execute, accounts, "deputy", at)]


def find_in_force(execute: Execute, id: int, at: float) -> HandOverRow | None:
    """Return a hand-over that is in force."""
    sql = "SELECT * FROM hand_overs WHERE id=:id AND ended IS NULL AND since<=:at AND until>:at"
    return read_row(execute, HandOverRow, sql, id=id, at=at)


def latest_deputies(execute: Execute, channel: str, giver: str, limit: int) -> dict[str, str]:
    """Return id → name of those to whom a person handed over last, the latest first."""
    sql = """SELECT deputy, max(deputy_name) AS name FROM hand_overs WHERE channel=:channel AND giver=:giver
        GROUP BY deputy ORDER BY max(id) DESC LIMIT :limit"""
    rows = execute(sql, {"channel": channel, "giver": giver, "limit": limit})
    return {str(row["deputy"]): str(row["name"]) for row in rows}


def end_hand_over(execute: Execute, id: int, now: float) -> HandOverRow | None:
    """End one that is in force, and return it; None for another one."""
    sql = """UPDATE hand_overs SET ended=:at WHERE id=:id AND ended IS NULL AND since<=:at AND until>:at RETURNING *"""
    return read_row(execute, HandOverRow, sql, id=id, at=now)


def expire(execute: Execute, id: int, now: float) -> HandOverRow | None:
    """End one whose time is over, and return it; None for one that was ended before, or goes on."""
    sql = "UPDATE hand_overs SET ended=until WHERE id=:id AND ended IS NULL AND until<=:now RETURNING *"
    return read_row(execute, HandOverRow, sql, id=id, now=now)


def end_hand_overs_of(execute: Execute, channel: str, person: str, now: float) -> int:
    """End what a person has handed over and what was handed over to them; return how many."""
    sql = f"UPDATE hand_overs SET ended=:at WHERE {_IN_FORCE} AND (giver=:person OR deputy=:person) RETURNING 1"
    return len(execute(sql, {"channel": channel, "person": person, "at": now}))
