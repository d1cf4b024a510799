"""`/model` and `/models`: show the models, and choose the one and its effort that answer in a conversation."""

from __future__ import annotations

from collections.abc import Iterable

from agent.blocks import command_hint
from agent.models.presets import effort_names
from agent.near_misses import closest_name, split_name
from bot.commands.call import CommandCall
from bot.commands.outcome_texts import describe_models
from bot.database.audit import AuditKind
from bot.storage import agents, conversations
from catalogue import _, join_sentences, list_items

DEFAULT = "default"  # the model, or the effort, of the configuration


def model_command(call: CommandCall) -> str:
    """Show which model answers here, or choose it: `NAME`, `NAME EFFORT`, `EFFORT` or `default`."""
    words, models = call.words.split(), call.current.models
    if not words:
        return f"{_describe_choice(call)}\n\n{_list_models(call)}"
    if words == [DEFAULT] and DEFAULT not in models:
        conversations.choose_model(call.execute, call.conversation, "", "")
        call.record(AuditKind.CHOICE, {"model": DEFAULT})
        used = _model_here(call)
        return _(
            "From your next message on, `{name}` ({label}) answers here, as configured.", name=used, label=models[used]
        )
    name, rest = split_name(words, models)
    if name not in models and not rest and name.lower() in _efforts_of(call, _model_here(call)):
        name, rest = _model_here(call), [name]
    if name not in models:
        return _unknown_model(call, name)
    if not call.role.may_use_model(name):
        return _("Your role here, **{role}**, may not use the model `{name}`.", role=call.role.name, name=name)
    effort = rest[0].lower() if rest else DEFAULT
    if len(rest) > 1 or effort not in (DEFAULT, *_efforts_of(call, name)):
        return _unknown_effort(call, name, " ".join(rest))
    conversations.choose_model(call.execute, call.conversation, name, "" if effort == DEFAULT else effort)
    call.record(AuditKind.CHOICE, {"model": name, "effort": effort})
    label = models[name]
    if effort == DEFAULT:
        return _("From your next message on, `{name}` ({label}) answers here.", name=name, label=label)
    return _(
        "From your next message on, `{name}` ({label}) answers here with the effort `{effort}`.",
        name=name,
        label=label,
        effort=effort,
    )


def models_command(call: CommandCall) -> str:
    """List the models and their efforts, and say how they did."""
    return "\n\n".join(filter(None, [_list_models(call), describe_models(call)]))


def _list_models(call: CommandCall) -> str:
    chosen = _model_here(call)
    lines = [
        _("`{name}` ({label}, in use here)", name=name, label=label) if name == chosen else f"`{name}` ({label})"
        for name, label in call.current.models.items()
        if call.role.may_use_model(name)
    ]
    by_efforts: dict[tuple[str, ...], list[str]] = {}
    for name in filter(call.role.may_use_model, call.current.models):
        by_efforts.setdefault(_efforts_of(call, name), []).append(name)
    lines += [
        _("Efforts of {models}: {efforts}", models=_quoted(names), efforts=_quoted(efforts))
        for efforts, names in by_efforts.items()
        if efforts
    ]
    hint = _(
        "`{name}` chooses one for this conversation, and `{effort}` also how long it thinks. `{default}` chooses the"
        " configured one again.",
        name=command_hint("model NAME"),
        effort=command_hint("model NAME EFFORT"),
        default=command_hint(f"model {DEFAULT}"),
    )
    return "\n".join([_("Models:"), *lines, hint])


def _describe_choice(call: CommandCall) -> str:
    name, effort = _model_here(call), call.here.effort
    label = call.current.models.get(name) or _("not configured any more")
    if effort in _efforts_of(call, name):
        return _("`{name}` ({label}) answers here with the effort `{effort}`.", name=name, label=label, effort=effort)
    return _("`{name}` ({label}) answers here.", name=name, label=label)


def _unknown_model(call: CommandCall, name: str) -> str:
    unknown = _("I have no model `{name}`.", name=name)
    if close := closest_name(name, call.current.models):
        unknown = join_sentences(unknown, _("Did you mean `{name}`?", name=close))
    return f"{unknown}\n\n{_list_models(call)}"


def _unknown_effort(call: CommandCall, name: str, effort: str) -> str:
    efforts = _efforts_of(call, name)
    if not efforts:
        return _("I can't set an effort for `{name}`. `{command}` chooses it.", name=name, command=_command(name))
    unknown = _("`{name}` has no effort `{effort}`.", name=name, effort=effort)
    if close := closest_name(effort, efforts):
        return join_sentences(unknown, _("Did you mean `{name}`?", name=close))
    return join_sentences(unknown, _("It has {efforts}.", efforts=_quoted(efforts)))


def _model_here(call: CommandCall) -> str:
    """Return the model that people chose, or else that of the agent that answers here."""
    here = call.here
    agent = agents.agent_of(call.execute, here.agent, call.thread, call.message.author.id)
    own = next((entry.model for entry in call.current.config.agents if entry.name == agent), "")
    return call.role.choose_model(here.model) or own or next(iter(call.current.models))


def _efforts_of(call: CommandCall, name: str) -> tuple[str, ...]:
    entries = call.current.config.models
    return next((effort_names(entry.preset, entry.use) for entry in entries if entry.name == name), ())


def _command(name: str) -> str:
    return command_hint(f"model {name}")


def _quoted(names: Iterable[str]) -> str:
    return list_items(f"`{name}`" for name in names)
