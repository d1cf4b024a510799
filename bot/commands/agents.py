"""The command /agents: show the named agents and choose one."""

from __future__ import annotations

from agent.blocks import command_hint
from agent.near_misses import closest_name, split_name
from bot.commands.call import CommandCall
from bot.database.audit import AuditKind
from bot.rights.deeds import CHOOSE_FOR_CHAT
from bot.storage import agents
from bot.storage.languages import CHAT
from catalogue import _, join_sentences

FOR_ME, FOR_CHAT = "me", "here"  # after the name: for whom it is the default


def run_agents_command(call: CommandCall) -> str:
    """Show the agents, or choose one for this conversation, for this person or for this chat."""
    known = call.current.agents
    if not known:
        return _("There is one agent here. An operator can configure more.")
    if not call.words:
        return _list_agents(call)
    wanted, rest = split_name(call.words.split(), (*known, agents.DEFAULT))
    place = " ".join(rest).lower()
    if wanted not in (*known, agents.DEFAULT) or place not in ("", FOR_ME, FOR_CHAT):
        unknown = _("I have no agent `{name}`.", name=call.words)
        if close := closest_name(wanted, known):
            unknown = join_sentences(unknown, _("Did you mean `{name}`?", name=close))
        return f"{unknown}\n\n{_list_agents(call)}"
    if not call.role.may_use_agent(wanted):
        return _("Your role here, **{role}**, may not use the agent `{name}`.", role=call.role.name, name=wanted)
    if place == FOR_CHAT and not (call.message.private or call.may(CHOOSE_FOR_CHAT)):
        return _("Only an operator can choose the agent of a group.")
    if place:
        person = CHAT if place == FOR_CHAT else call.message.author.id
        agents.choose_default_agent(call.execute, call.thread, person, wanted)
    else:
        agents.choose_agent(call.execute, call.conversation, wanted)
    call.record(AuditKind.CHOICE, {"agent": wanted, "for": place or "conversation"})
    match place:
        case "me":
            return _("From your next message on, the agent `{name}` answers you by default.", name=wanted)
        case "here":
            return _("From the next message on, the agent `{name}` answers in this chat by default.", name=wanted)
        case _here:
            return _("From your next message on, the agent `{name}` answers in this conversation.", name=wanted)


def _list_agents(call: CommandCall) -> str:
    chosen = agents.agent_of(call.execute, call.here.agent, call.thread, call.message.author.id)
    used = call.role.choose_agent(chosen) or agents.DEFAULT
    known = {agents.DEFAULT: _("the default agent"), **call.current.agents}
    all_ = {name: text for name, text in known.items() if call.role.may_use_agent(name)}
    lines = [
        _("- `{name}` (in use here): {description}", name=name, description=text)
        if name == used
        else _("- `{name}`: {description}", name=name, description=text)
        for name, text in all_.items()
    ]
    hint = _(
        "`{command}` chooses one for this conversation. Add `me` to choose your default, or `here` for this chat.",
        command=command_hint("agents NAME"),
    )
    return "\n".join([_("Agents:"), *lines, "", hint])
