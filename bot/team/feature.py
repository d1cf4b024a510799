"""The team as a feature: pairing, roles, departures and the audit."""

from __future__ import annotations

from functools import partial

from bot.base.background import JobKind
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.commands.table import Press
from bot.rights import deeds
from bot.service.audit_upkeep import AUDIT_JOB, AUDIT_SECONDS, keep_audit
from bot.storage import personal
from bot.team import pairing
from bot.team.offboarding import DAY_SECONDS, DEPARTURES_JOB, STOP_WORK_JOB, DepartureJobs, StopWorkJobs
from bot.team.oversight import AUDIT_WORDS, audit_command, permissions_command
from bot.team.roles_commands import ACCESS_WORDS, access_command, whoami_command
from catalogue import N_


def _start(service: Service) -> Parts:
    store, current = service.store, service.current
    return Parts(
        {
            DEPARTURES_JOB: JobKind(DepartureJobs(store, current, service.channel).check, DAY_SECONDS),
            AUDIT_JOB: JobKind(partial(keep_audit, store, current), AUDIT_SECONDS),
            STOP_WORK_JOB: JobKind(StopWorkJobs(service.stop_run).stop),
        }
    )


FEATURE = Feature(
    "team",
    personal=personal.TEAM,
    commands=(
        Command(
            "permissions", N_("what I may do, and what I ask first"), permissions_command, "revoke NUMBER", rank=170
        ),
        Command("whoami", N_("who you are to me, and what you may do"), whoami_command, rank=210),
        Command(
            "access", N_("show, give and take roles"), access_command, ACCESS_WORDS, deeds.GIVE_ROLE_HERE, rank=220
        ),
        Command("audit", N_("show who did what"), audit_command, AUDIT_WORDS, deeds.READ_AUDIT, rank=230),
    ),
    presses={pairing.PREFIX: Press("pair", pairing.OPTIONS, pairing.decide, deed=deeds.DECIDE_PAIRING)},
    waits=pairing.waiting_strangers,
    meet=pairing.ask_pairing,
    start=_start,
)
