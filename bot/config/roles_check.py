"""Check that the section `team:` and the assignments of roles name roles and chats that can exist."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agent.messages import Thread
from agent.near_misses import suggest
from bot.config.document import Document
from bot.config.excerpt import Location
from bot.config.schema import ChannelConfig, FileConfig
from bot.config.team import DEFAULT_AGENT, ApprovalRule, RoleConfig
from catalogue import _


def check_team(
    document: Document, config: FileConfig, entries: Sequence[ChannelConfig], channels: Collection[str]
) -> None:
    """Report each role, model and agent that does not exist, and each address of a chat that is none."""
    team, known = config.team, config.team.all_roles()
    for i, own in enumerate(team.roles):
        _check_choices(document, ("team", "roles", i), own, config)
    _check_role(document, ("team", "default_role"), team.default_role, known)
    for i, rule in enumerate(team.approvals):
        for role in rule.roles:
            _check_role(document, ("team", "approvals", i, "roles"), role, known)
        if rule.chat and (chat := chat_of(rule)) is None:
            fix = _("write it as CHANNEL/WORKSPACE/CHAT; the command `whoami` shows it in that chat")
            document.fault(("team", "approvals", i, "chat"), _("is not the address of a chat"), fix)
        elif rule.chat and chat and chat.channel not in channels:
            fix = suggest(chat.channel, channels)
            document.fault(("team", "approvals", i, "chat"), _("there is no such channel"), fix)
    for entry in entries:
        for i, assignment in enumerate(entry.access.roles):
            at = ("channels", entry.name, "access", "roles", i, "role")
            _check_role(document, at, assignment.role, known)


def _check_choices(document: Document, at: Location, role: RoleConfig, config: FileConfig) -> None:
    models = {model.name for model in config.models} or {"demo"}
    agents = {DEFAULT_AGENT, *(agent.name for agent in config.agents)}
    for name in filter(lambda name: name not in models, role.models if document.has_accounts else ()):
        document.fault((*at, "models"), _("no model has this name"), suggest(name, models))
    for name in filter(lambda name: name not in agents, role.agents):
        document.fault((*at, "agents"), _("no agent has this name"), suggest(name, agents))


def chat_of(rule: ApprovalRule) -> Thread | None:
    """Return the chat that is asked, too; None for none."""
    try:
        return Thread.parse(rule.chat if rule.chat.count("/") == 3 else f"{rule.chat}/")
    except ValueError:
        return None


def _check_role(document: Document, at: Location, role: str, known: Collection[str]) -> None:
    if role not in known:
        document.fault(at, _("no role has this name"), suggest(role, known))
