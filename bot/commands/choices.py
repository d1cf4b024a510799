"""The commands by which people choose: `/agents`, `/language`, `/model` and `/models`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agent.blocks import command_hint
from agent.messages import Message, Thread
from agent.models.presets import effort_names
from agent.near_misses import closest_name, split_name
from bot.commands.call import CommandCall
from bot.commands.outcome_texts import describe_models
from bot.database.audit import AuditKind
from bot.database.database import Execute
from bot.rights.deeds import CHOOSE_FOR_CHAT
from bot.storage import agents, conversations, languages
from bot.storage.agents import Choices, ChosenModel
from bot.storage.languages import CHAT
from catalogue import LANGUAGES, _, current_language, join_sentences, list_items, match_language

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
    chosen = _choices_here(call).agent
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


AUTO, HERE = "auto", "here"
CHOICES = " | ".join([*LANGUAGES, AUTO])


def change_language(
    execute: Execute,
    message: Message,
    words: str,
    note: Callable[[Thread, str, str], None],
    *,
    may_choose_for_all: bool,
) -> str:
    """Store the language that `words` name ("zh", "auto", "en here"), `note` it, and return the answer in it."""
    wanted, _space, place = words.lower().partition(" ")
    names = {name.lower(): code for code, name in LANGUAGES.items()}
    code = "" if wanted == AUTO else names.get(wanted) or match_language(wanted)
    if not (code or wanted == AUTO) or place.strip() not in ("", HERE):
        return _describe_choices()
    if place and not may_choose_for_all:
        return _("Only an operator can choose the language of a group.")
    chosen = (message.thread, languages.CHAT if place else message.author.id, code)
    languages.choose_language(execute, *chosen)
    note(*chosen)
    with languages.speak_to(execute, message.thread, message.author):
        if place:
            name = LANGUAGES[code or current_language()]
            return _("From now on I speak {language} in this chat, unless somebody chose another one.", language=name)
        return _("From now on I speak {language} with you.", language=LANGUAGES[current_language()])


def _describe_choices() -> str:
    choices = [f"`{command_hint(f'language {code}')}` ({name})" for code, name in LANGUAGES.items()]
    return _(
        "I'm speaking {language}. Choose another language for yourself with {choices}, or let me choose with `{auto}`."
        " Add `here` to choose for everyone in this chat.",
        language=LANGUAGES[current_language()],
        choices=list_items(choices),
        auto=command_hint(f"language {AUTO}"),
    )


DEFAULT = "default"  # the model, or the effort, of the configuration


def model_command(call: CommandCall) -> str:
    """Show which model answers here, or choose it: `NAME`, `NAME EFFORT`, `EFFORT` or `default`, with `me` for all
    conversations of the person."""
    words, models = call.words.split(), call.current.models
    if not words:
        return f"{_describe_choice(call)}\n\n{_list_models(call)}"
    for_me = len(words) > 1 and words[-1].lower() == FOR_ME
    words = words[:-1] if for_me else words
    if words == [DEFAULT] and DEFAULT not in models:
        _choose_model(call, "", "", for_me=for_me)
        return join_sentences(_("That choice has ended."), _describe_choice(call))
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
    _choose_model(call, name, "" if effort == DEFAULT else effort, for_me=for_me)
    values = {"name": name, "label": models[name], "effort": effort}
    if for_me and effort == DEFAULT:
        chosen = _("From your next message on, `{name}` ({label}) answers you by default.", **values)
    elif for_me:
        chosen = _(
            "From your next message on, `{name}` ({label}) answers you by default with the effort `{effort}`.", **values
        )
    elif effort == DEFAULT:
        chosen = _("From your next message on, `{name}` ({label}) answers here.", **values)
    else:
        chosen = _("From your next message on, `{name}` ({label}) answers here with the effort `{effort}`.", **values)
    if for_me and call.here.model:
        end = command_hint(f"model {DEFAULT}")
        kept = _("In this conversation, `{name}` was chosen; `{command}` ends that.", name=call.here.model, command=end)
        return join_sentences(chosen, kept)
    return chosen


def _choose_model(call: CommandCall, model: str, effort: str, *, for_me: bool) -> None:
    """Store a model, or with "" that none is chosen any more."""
    if for_me:
        agents.choose_default_model(call.execute, call.thread, call.message.author.id, model, effort)
    else:
        conversations.choose_model(call.execute, call.conversation, model, effort)
    what = {"model": model or DEFAULT, **({"effort": effort or DEFAULT} if model else {})}
    call.record(AuditKind.CHOICE, {**what, "for": FOR_ME if for_me else "conversation"})


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
        "`{name}` chooses one for this conversation, and `{effort}` also how long it thinks. `{default}` ends that"
        " choice. Add `me` to choose for all your conversations.",
        name=command_hint("model NAME"),
        effort=command_hint("model NAME EFFORT"),
        default=command_hint(f"model {DEFAULT}"),
    )
    return "\n".join([_("Models:"), *lines, hint])


def _describe_choice(call: CommandCall) -> str:
    chosen, name = _choices_here(call).model, _model_here(call)
    label = call.current.models[name]
    if not chosen.model:
        return _("`{name}` ({label}) answers here, as configured.", name=name, label=label)
    if chosen.model == name and chosen.effort in _efforts_of(call, name):
        values = {"name": name, "label": label, "effort": chosen.effort}
        used = _("`{name}` ({label}) answers here with the effort `{effort}`.", **values)
    else:
        used = _("`{name}` ({label}) answers here.", name=name, label=label)
    return join_sentences(used, _whose_choice(call, chosen))


def _whose_choice(call: CommandCall, chosen: ChosenModel) -> str:
    """Say who chose the model that answers here, and how that ends."""
    if chosen.model and not call.role.may_use_model(chosen.model):
        values = {"name": chosen.model, "role": call.role.name}
        return _("`{name}` was chosen, which your role here, **{role}**, may not use.", **values)
    if chosen.model and chosen.model not in call.current.models:
        return _("`{name}` was chosen, which is no longer configured.", name=chosen.model)
    if chosen.own:
        end = command_hint(f"model {DEFAULT} {FOR_ME}")
        return _("You chose it for all your conversations; `{command}` ends that.", command=end)
    end = command_hint(f"model {DEFAULT}")
    return _("It was chosen for this conversation; `{command}` ends that.", command=end)


def _choices_here(call: CommandCall) -> Choices:
    return agents.choices_of(call.execute, call.here, call.thread, call.message.author.id)


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
    choices, models = _choices_here(call), call.current.models
    own = next((entry.model for entry in call.current.config.agents if entry.name == choices.agent), "")
    chosen = call.role.choose_model(choices.model.model)
    return next(name for name in (chosen, own, *models) if name in models)


def _efforts_of(call: CommandCall, name: str) -> tuple[str, ...]:
    entries = call.current.config.models
    return next((effort_names(entry.preset, entry.use) for entry in entries if entry.name == name), ())


def _command(name: str) -> str:
    return command_hint(f"model {name}")


def _quoted(names: Iterable[str]) -> str:
    return list_items(f"`{name}`" for name in names)
