"""The role of a person in a direct chat that belongs to no workspace: it comes from their roles in all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from bot.config.team import Right, RoleConfig

T = TypeVar("T")

DIRECT_WORKSPACES = {"discord": "@me"}  # the workspace of direct chats, on platforms where these belong to none


def combine_roles(roles: Sequence[RoleConfig], default: RoleConfig) -> RoleConfig:
    """Return the role of a person who has these roles, one or more, in different workspaces.

    If one of them may less than the default role, what all of them may; otherwise what any of them may.
    """
    if any(not role.covers(default) for role in roles):
        least = next((role for role in roles if all(other.covers(role) for other in roles)), None)
        return least or _intersect(roles)
    most = next((role for role in roles if all(role.covers(other) for other in roles)), None)
    return most or _unite(roles)


def _intersect(roles: Sequence[RoleConfig]) -> RoleConfig:
    choices = [_common(each) for each in zip(*((r.models, r.agents, r.skills) for r in roles), strict=True)]
    rights = tuple(right for right in Right if all(right in role.rights for role in roles))
    if None in choices:  # nothing may answer
        rights = tuple(right for right in rights if right is not Right.TALK)
    models, agents, skills = (each or () for each in choices)
    return RoleConfig(
        _joined(roles),
        rights,
        deny=_any(role.deny for role in roles),
        ask=_any(role.ask for role in roles),
        allow=tuple(rule for rule in roles[0].allow if all(rule in role.allow for role in roles)),
        models=models,
        agents=agents,
        skills=skills,
    )


def _unite(roles: Sequence[RoleConfig]) -> RoleConfig:
    """Return what any of the roles may. Rules that let calls run without a question are not united."""
    return RoleConfig(
        _joined(roles),
        tuple(right for right in Right if any(right in role.rights for role in roles)),
        deny=tuple(rule for rule in roles[0].deny if all(rule in role.deny for role in roles)),
        ask=tuple(
            rule for rule in _any(role.ask for role in roles) if all(rule in (*role.ask, *role.deny) for role in roles)
        ),
        allow=tuple(rule for rule in roles[0].allow if all(rule in role.allow for role in roles)),
        models=_all_or_any([role.models for role in roles]),
        agents=_all_or_any([role.agents for role in roles]),
        skills=_all_or_any([role.skills for role in roles]),
    )


def _joined(roles: Sequence[RoleConfig]) -> str:
    return " + ".join(dict.fromkeys(role.name for role in roles))


def _any(rules: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(rule for each in rules for rule in each))


def _common(choices: Collection[tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return what all choices allow (empty: everything); None for nothing."""
    limited = [each for each in choices if each]
    if not limited:
        return ()
    return tuple(name for name in limited[0] if all(name in each for each in limited)) or None


def _all_or_any(choices: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    return _any(choices) if all(choices) else ()
