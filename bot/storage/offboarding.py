"""End what a person left behind who is gone: work, grants, roles and access. Schedules may go to another person."""

from __future__ import annotations

from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.states import ScheduleState
from bot.storage import (
    account_links,
    api_keys,
    forgetting,
    hand_overs,
    page_sessions,
    people,
    person_roles,
    schedules,
    tasks,
)
from bot.storage.forgetting import PersonKey
from bot.storage.schedules import ScheduleRow


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
    roles = person_roles.roles_of_person(execute, person.channel, person.id)
    for row in roles:
        person_roles.delete_role(execute, person.channel, row.subject)
    return LeftBehind(
        tuple(stopped),
        tuple(tasks.cancel_all(execute, person.channel, person.id, now)),
        grants,
        tuple(row.role for row in roles),
        people.revoke_pairing(execute, person.channel, person.id),
        api_keys.revoke_keys_of(execute, person.channel, person.id),
        page_sessions.end_sessions_of(execute, person.channel, person.id),
        links,
    )
