"""Choose the skills that an agent may use for a person."""

from __future__ import annotations

from bot.config.schema import Config
from bot.config.team import RoleConfig


def allowed_skills(config: Config, agent: str, role: RoleConfig) -> tuple[str, ...]:
    """Return the names of the skills that this named agent may use for a person of this role; empty: all."""
    allow = next((each.skills for each in config.agents if each.name == agent), ()) or config.skills.allow
    if role.skills:
        return tuple(name for name in role.skills if not allow or name in allow) or ("",)  # no skill has this name
    return allow
