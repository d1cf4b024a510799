"""End what a person left behind who is gone: work, grants, roles and access. Schedules may go to another person.

People whose accounts the platforms may have deactivated, or who may have left, and since when they say so.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.rows import insert_row
from bot.database.states import ScheduleState
from bot.storage import account_links, api_access, forgetting, hand_overs, people, schedules, tasks
from bot.storage.forgetting import PersonKey
from bot.storage.schedules import ScheduleRow

_WITH_RIGHTS = f"""SELECT channel, owner AS person FROM schedules WHERE state='{ScheduleState.ACTIVE}'
    UNION SELECT channel, person FROM permission_grants WHERE person<>''
    UNION SELECT channel, person FROM people WHERE allowed>0
    UNION SELECT channel, person FROM account_links"""


def people_with_rights(execute: Execute) -> list[PersonKey]:
    """Return who has an active schedule, a grant, a role by `/access`, a pairing or a linked account, in order."""
    found = {PersonKey(row["channel"], row["person"]) for row in execute(_WITH_RIGHTS, {})}
    found |= {PersonKey(row.channel, row.person) for row in people.list_roles(execute) if row.person}
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


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Runs and commands that were stopped, and how many grants, which roles and whether a pairing ended, and how many
    keys of the API, sessions of the page and links of accounts there were. What they handed over, and what was handed
    over to them, ended, too."""

    runs: tuple[int, ...] = ()
    tasks: tuple[int, ...] = ()
    grants: int = 0
    roles: tuple[str, ...] = ()
    pairing: bool = False
    keys: int = 0
    sessions: int = 0
    links: int = 0  # with other accounts


def all_schedules(execute: Execute, person: PersonKey) -> list[ScheduleRow]:
    """Return the schedules of a person that have not ended, and the changes that they have not decided about."""
    return schedules.list_unended(execute, person.channel, person.id)


def end_schedule(execute: Execute, row: ScheduleRow) -> None:
    """End a schedule; its history stays until retention deletes it. A proposal is deleted."""
    if row.changes or row.state == ScheduleState.PROPOSED:
        schedules.delete_schedule(execute, row.id)
    else:
        schedules.set_schedule_state(execute, row.id, ScheduleState.ENDED)
    execute("DELETE FROM jobs WHERE key=:key AND owner IS NULL", {"key": row.watch_job})


def end_account(execute: Execute, person: PersonKey, now: float) -> LeftBehind:
    """Stop the work of a person, and end their grants, the roles by `/access` and what pairing allowed."""
    values = {"channel": person.channel, "person": person.id}
    stopped = [run for each in (person, person.on_web) for run in forgetting.stop_runs(execute, each)]
    sql = "DELETE FROM permission_grants WHERE channel=:channel AND person=:person RETURNING 1"
    grants = len(execute(sql, values))
    hand_overs.end_hand_overs_of(execute, person.channel, person.id, now)
    links = len(account_links.unlink(execute, person.channel, person.id))
    execute("DELETE FROM held_pings WHERE channel=:channel AND person=:person", values)
    roles = people.roles_of_person(execute, person.channel, person.id)
    for row in roles:
        people.delete_role(execute, person.channel, row.subject)
    return LeftBehind(
        tuple(stopped),
        tuple(tasks.cancel_all(execute, person.channel, person.id, now)),
        grants,
        tuple(row.role for row in roles),
        people.revoke_pairing(execute, person.channel, person.id),
        api_access.revoke_keys_of(execute, person.channel, person.id),
        api_access.end_sessions_of(execute, person.channel, person.id),
        links,
    )
