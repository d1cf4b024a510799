"""People whose accounts the platforms may have deactivated, or who may have left, and since when they say so."""

from __future__ import annotations

from bot.database.database import Execute
from bot.database.rows import insert_row
from bot.database.states import ScheduleState
from bot.storage import person_roles
from bot.storage.forgetting import PersonKey

_WITH_RIGHTS = f"""SELECT channel, owner AS person FROM schedules WHERE state='{ScheduleState.ACTIVE}'
    UNION SELECT channel, person FROM permission_grants WHERE person<>''
    UNION SELECT channel, person FROM people WHERE allowed>0
    UNION SELECT channel, person FROM account_links"""


def people_with_rights(execute: Execute) -> list[PersonKey]:
    """Return who has an active schedule, a grant, a role by `/access`, a pairing or a linked account, in order."""
    found = {PersonKey(row["channel"], row["person"]) for row in execute(_WITH_RIGHTS, {})}
    found |= {PersonKey(row.channel, row.person) for row in person_roles.list_roles(execute) if row.person}
    return sorted(found, key=lambda person: (person.channel, person.id))


def note_gone(execute: Execute, person: PersonKey, now: float) -> float:
    """Note that the platform says that the account is deactivated; return since when it says so."""
    values = {"channel": person.channel, "person": person.id, "since": now}
    insert_row(execute, "departures", "channel, person", values)
    sql = "SELECT since FROM departures WHERE channel=:channel AND person=:person"
    return float(execute(sql, values)[0]["since"])


def note_present(execute: Execute, person: PersonKey) -> None:
    """Note that the account is no longer said to be deactivated, or was offboarded."""
    values = {"channel": person.channel, "person": person.id}
    execute("DELETE FROM departures WHERE channel=:channel AND person=:person", values)
