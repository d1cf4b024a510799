"""Skills as a feature."""

from __future__ import annotations

from functools import partial

from agent.core.context import TurnContext
from bot.base.background import JobKind
from bot.base.skill_library import clone_bounds
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.commands.table import Press
from bot.journey.running_turn import Account
from bot.journey.turn_part import TurnPart
from bot.rights import deeds
from bot.rights.claimed_run import ClaimedRun
from bot.skills import decisions
from bot.skills.commands import SKILLS_WORDS, SkillCommands, answer_press, skills_command
from bot.skills.decisions import add_skills
from bot.skills.jobs import SKILL_JOB, SkillJobs
from bot.skills.listing import LIST_JOB, SkillReadiness, list_checks, list_skills
from bot.skills.sharing import SharedSkills
from catalogue import N_


def _start(service: Service) -> Parts:
    store, current, library = service.store, service.current, service.current.skills
    if library is None:
        return Parts()
    shared = SharedSkills(store, library)

    def open_turn(job: ClaimedRun, _account: Account) -> TurnPart:
        async def prepare(context: TurnContext) -> None:
            await add_skills(context, current, store, shared, job)

        return TurnPart(prepare)

    readiness = SkillReadiness(service.provider, library, current.config)
    listing = partial(list_skills, readiness, library, service.provider.name)
    jobs = SkillJobs(store, library, shared, lambda: clone_bounds(current.config), service.channel)
    return Parts(
        {SKILL_JOB: JobKind(jobs.run), LIST_JOB: JobKind(listing)},
        {"skills of others": shared.follow},
        open_turn,
        operations={"skills.share": shared.answer_look},
    )


FEATURE = Feature(
    "skills",
    commands=(Command("skills", N_("list my skills; operators change them"), skills_command, SKILLS_WORDS, rank=200),),
    named=SkillCommands(),
    presses={
        decisions.PREFIX: Press(
            "skills", decisions.OPTIONS, decisions.check_press, answer_press, deeds.CHANGE_SKILLS, has_names=True
        )
    },
    waits=decisions.waiting_changes,
    checks=list_checks,
    start=_start,
)
