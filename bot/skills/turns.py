"""The skills of a turn, and what the agent proposes in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from agent.core.brief import join_parts
from agent.core.context import TurnContext
from agent.messages import Author
from agent.skills.changes import SkillChange, stage_files
from agent.skills.library import TurnSkills
from bot.database.database import Database, Execute
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.rights.deeds import CHANGE_SKILLS
from bot.rights.skill_choice import allowed_skills
from bot.skills.decisions import enqueue_question
from bot.skills.sharing import SharedSkills
from bot.storage import languages, outbox
from catalogue import N_, _

PROPOSED = N_("I propose the skill `{name}`. An operator decides whether I may use it.")


async def add_skills(
    context: TurnContext, current: Current, store: Database, shared: SharedSkills, job: ClaimedRun
) -> None:
    """Give a turn the present skills: their list in its brief, and the right to propose others."""
    library, config = shared.library, current.config.skills
    await shared.wait_for_first_look()

    async def propose(name: str, files: Mapping[str, str]) -> None:
        """See `ProposeSkill`."""
        source = f"proposed in {job.thread} for {job.requester}"
        change = await shared.change(stage_files, name, files, source)
        await store.run(partial(_show_proposal, change=change, current=current, job=job))

    allow = allowed_skills(current.config, job.agent, job.role)
    since = None if job.resumed else job.started
    skills = TurnSkills(await library.refresh(since), allow, propose if config.evolution else None)
    context.skills = skills
    context.brief = join_parts(context.brief, skills.brief())


def _show_proposal(execute: Execute, change: SkillChange, current: Current, job: ClaimedRun) -> None:
    """Ask in the chat if its requester is an operator, else the operators in their private chats."""
    access, now, key = current.access, job.started, f"skill:{change.hash[:32]}:{job.run}"
    if access.may_do(execute, job.thread, job.requester, CHANGE_SKILLS):
        enqueue_question(execute, change, job.thread, Author(job.requester, ""), key, now)
        return
    with languages.speak_to(execute, job.thread, Author(job.requester, "")):
        outbox.enqueue_notice(execute, job.thread, _(PROPOSED, name=change.name), key=key, now=now)
    for person in access.reachable_operators(execute, console=True):
        if (place := person.private_chat) is None:
            continue
        each = f"{key}:{person.channel}:{person.person}"
        enqueue_question(execute, change, place, Author(person.person, person.name), each, now)
