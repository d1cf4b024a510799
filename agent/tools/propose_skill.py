"""Propose a new or changed skill, which an operator accepts or declines."""

from __future__ import annotations

from typing import Annotated

from langchain_core.tools import ToolException
from pydantic import BaseModel, Field

from agent.core.context import ToolServices
from agent.core.tool import AgentTool, Runtime, ToolTraits, describe_as, make_tool
from agent.settings.sections import AgentSettings
from agent.skills.skill import SkillError
from catalogue import N_


class ProposedFile(BaseModel):
    """A text file of a skill."""

    path: str = Field(description="Path in the skill's folder, such as SKILL.md or scripts/convert.py.")
    content: str = Field(description="The whole text; empty: the file is removed.")


@make_tool(ToolTraits(describe=describe_as(N_("Proposing the skill {name}")), permission="allow"))
async def propose_skill(
    name: Annotated[str, "Lower-case words with hyphens."],
    files: Annotated[list[ProposedFile], "New and changed files. Others of an installed skill stay as they are."],
    runtime: Runtime,
) -> str:
    """Propose a skill, or a better version of one, if the person asks you to remember how to do something, or if
    instructions proved wrong. An operator sees the difference and decides. SKILL.md begins with the lines `---`,
    `name: NAME`, `description: what it does and when to use it`, `---`."""
    propose = runtime.context.skills and runtime.context.skills.propose
    if not propose:
        raise ToolException("Proposals of skills are off.")
    try:
        await propose(name, {file.path: file.content for file in files})
    except SkillError as error:
        raise ToolException(f"The skill cannot be proposed: {error}.") from error
    return (
        f"Proposed. An operator sees the difference and decides; until then the skill {name} is not installed or"
        " changed. Tell the person so, and do not wait."
    )


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it unless the operator switched proposals off."""
    return propose_skill if services.skills and services.propose_skills else None
