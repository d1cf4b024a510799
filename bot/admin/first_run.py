"""`fawn init`: ask what cannot be found, try it at once, write it, and have the bot answer once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.models.presets import PRESETS
from agent.models.prices import NO_CALL, price_call
from agent.settings.models import ModelSettings
from bot.admin.doctor import check_channel, check_model, render_finding
from bot.admin.first_answers import Answers, Question
from bot.admin.first_files import FirstFiles, Section
from bot.admin.model_trial import DEMO, OTHER, check_url, choose_model
from bot.admin.service_client import call_service
from bot.admin.setup import (
    Connected,
    SetupOptions,
    SetupStopped,
    bound_command,
    connect_account,
    is_served,
    variables_of,
    welcome_first_person,
)
from bot.base.display_names import display_name
from bot.base.findings import Finding
from bot.base.model_discovery import name_models
from bot.config.files import DEFAULT_NAME
from bot.config.loader import ConfigError, channel_modules, environment_names, known_variables, load_config
from bot.config.schema import ChannelConfig, Config
from bot.config.spending import Money, TokenCount
from bot.service.sandbox_setup import folders, sandbox_settings
from catalogue import N_, _, join_sentences, list_items, localized
from sandbox.base import SandboxUnavailable
from sandbox.engines.select import select_provider

CONSOLE = "console"
PAIRING, OPEN = "pairing", "open"
AUTO, NONE = "auto", "none"  # of the sandbox
FIRST_QUESTION = N_("Say in one sentence that you are ready to work here.")
MODELS_COMMENT = N_("the first model answers; docs/models.md")
BUDGETS_COMMENT = N_("how much the models may be used; docs/team.md")
SANDBOX_COMMENT = N_("where commands run; docs/sandbox.md")
CHANNELS_COMMENT = N_("who may talk to it; docs/configuration.md")


@dataclass(slots=True)
class _Plan:
    """What is to be written, and what was found or chosen on the way."""

    sections: list[Section] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    model: ModelSettings | None = None
    channel: Connected | None = None  # a new one


def first_run(file: Path | None, answers: Answers, *, wait: bool) -> None:
    """Set Fawn up. Raises SetupStopped, ConfigError and OSError; a run that stops is gone on with by the next one."""
    files = FirstFiles(Path.cwd() / (file or DEFAULT_NAME))
    if answers.resumed:
        print(_("Going on with the answers in {file}.", file=answers.progress), flush=True)
    _refuse_wrong(answers)
    plan, known, present = _Plan(), known_variables(file), files.present()
    config, options = _open(plan, answers, file, wait=wait)
    options = options or _choose_place(plan, config, answers, file, wait=wait)
    _take_model(plan, config, answers, known)
    if "sandbox" not in present:
        _choose_sandbox(plan, config, answers)
    if plan.model and not config.budgets:
        _choose_budget(plan, answers)
    if twice := present & {each.name for each in plan.sections}:
        text = _("{file} has {names} already → change them there by hand", file=files.target, names=list_items(twice))
        raise SetupStopped(text)
    _write(plan, files, answers, file)
    _answer_once(load_config(file), file)
    if plan.channel and options:
        entry = _entry_of(load_config(file), plan.channel.entry.name)
        welcome_first_person(options, plan.channel._replace(entry=entry), config.data_dir)
    else:
        print(_("Start Fawn with `fawn run`, or talk to it here with `fawn chat`."), flush=True)


def _open(plan: _Plan, answers: Answers, file: Path | None, *, wait: bool) -> tuple[Config, SetupOptions | None]:
    """Return the configuration. Where it lacks only tokens of a channel, they are taken now, with these options."""
    try:
        return load_config(file), None
    except ConfigError as error:
        named = {tuple(fault.place.split(".")[:2]) for fault in error.faults}
        section, name = next(iter(named)) if len(named) == 1 else ("", "")
        if section != "channels" or name not in channel_modules():
            raise
    options = SetupOptions(name, file, token_stdin=False, wait=wait)
    _connect(plan, answers, options)
    return load_config(file, overrides=plan.variables), options


# ------------------------------------------------------------ the questions


def _refuse_wrong(answers: Answers) -> None:
    """Name all given answers that cannot be taken, before anything is tried. At a terminal each is asked again."""
    fixed = {"where": (CONSOLE, *_platforms()), "provider": (*PRESETS, OTHER, DEMO)}
    fixed |= {"access": (PAIRING, OPEN), "sandbox": (AUTO, NONE)}
    asked = [Question(name, "", [(value, value) for value in values]) for name, values in fixed.items()]
    asked += [Question("base_url", "", check=check_url), Question("budget", "", check=_check_amount)]
    given = [(each, str(answers.given[each.name])) for each in asked if each.name in answers.given]
    wrong = [f"{each.name}: {why}" for each, value in given if (why := each.refusal(value))]
    if wrong and not answers.terminal:
        raise SetupStopped("\n".join(wrong))


def _check_amount(value: str) -> None:
    """Accept dollars and tokens: which of them is meant, the model says. Raises ValueError."""
    try:
        Money.parse(value or "0")
    except ValueError:
        TokenCount.parse(value)


def _platforms() -> Sequence[str]:
    return sorted(name for name, module in channel_modules().items() if environment_names(module))


def _connect(plan: _Plan, answers: Answers, options: SetupOptions) -> None:
    """Take the tokens of a platform, which are tried at once."""
    plan.channel = connect_account(options, answers.tokens)
    entry = plan.channel.entry
    plan.variables |= variables_of(entry)
    if answers.terminal:
        answers.keep("tokens", variables_of(entry))


def _choose_place(
    plan: _Plan, config: Config, answers: Answers, file: Path | None, *, wait: bool
) -> SetupOptions | None:
    """Ask where people first talk to it, and connect it. Returns the options of a platform."""
    if configured := [entry for entry in config.channels if entry.name != CONSOLE]:
        for entry in configured:
            _say(asyncio.run(check_channel(entry)))
        return None
    choices = [(CONSOLE, _("here, on this terminal")), *((name, display_name(name)) for name in _platforms())]
    place = answers.ask(Question("where", _("Where do you want to talk to it first?"), choices, default=CONSOLE))
    if place == CONSOLE:
        return None
    options = SetupOptions(place, file, token_stdin=False, wait=wait)
    _connect(plan, answers, options)
    _choose_access(plan, answers)
    return options


def _take_model(plan: _Plan, config: Config, answers: Answers, known: Mapping[str, str]) -> None:
    """Try the model that is configured or that the environment names; ask for one where there is none."""
    if config.models:
        [plan.model] = asyncio.run(name_models(config.models[:1]))
        finding = asyncio.run(check_model(config, plan.model))
        if not finding.ok:
            raise SetupStopped(render_finding(finding))
        _say(finding)
        return
    if not (chosen := choose_model(answers, known)):
        return
    plan.model = chosen.settings
    plan.variables |= chosen.variables
    plan.sections.append(Section("models", [dict(chosen.entry)], _(MODELS_COMMENT)))


def _choose_access(plan: _Plan, answers: Answers) -> None:
    """Ask who may talk on the new platform; pairing, the default, needs no line."""
    if not plan.channel:
        return
    entry = plan.channel.entry
    choices = [
        (PAIRING, _("you first; others write to it and get a code, which you accept")),
        (OPEN, _("every member of the workspace")),
    ]
    question = Question("access", _("Who may talk to it?"), choices, default=PAIRING)
    if answers.ask(question) == OPEN:
        module = channel_modules()[entry.name]
        settings = {name: f"${variable}" for name, variable in environment_names(module).items()}
        section = {entry.name: {**settings, "access": {"open": True}}}
        plan.sections.append(Section("channels", section, _(CHANNELS_COMMENT)))


def _choose_sandbox(plan: _Plan, config: Config, answers: Answers) -> None:
    """Say where commands would run, and ask whether they may."""
    found = asyncio.run(_describe_sandbox(config))
    choices = [(AUTO, found), (NONE, _("no commands: the agent reads and writes files only"))]
    chosen = answers.ask(Question("sandbox", _("Where may the agent run commands?"), choices, default=AUTO))
    if chosen != AUTO:
        plan.sections.append(Section("sandbox", {"provider": chosen}, _(SANDBOX_COMMENT)))


async def _describe_sandbox(config: Config) -> str:
    try:
        provider, description, why = await select_provider(
            config.sandbox.provider, sandbox_settings(config), folders(config)
        )
    except (SandboxUnavailable, OSError) as error:
        return localized(error)
    await provider.close()
    return join_sentences(description, localized(why))


def _choose_budget(plan: _Plan, answers: Answers) -> None:
    """Ask how much may be used a day: in dollars where the model's price is known, else in tokens."""
    priced = price_call(plan.model, NO_CALL)[0] is not None
    if priced:
        text = _("Dollars a day for everybody together, such as 5 (empty: no limit)")
    else:
        text = _("No price is known. Tokens a day for everybody together, such as 5M (empty: no limit)")
    parse = Money.parse if priced else TokenCount.parse
    amount = answers.ask(Question("budget", text, optional=True, check=lambda value: value and parse(value)))
    if amount:
        limit = {"money": f"{Money.parse(amount) / 1e6:g} USD"} if priced else {"tokens": amount}
        entry = {"scope": "everything", "period": "day", **limit}
        plan.sections.append(Section("budgets", [entry], _(BUDGETS_COMMENT)))


# ------------------------------------------------------------ the end


def _write(plan: _Plan, files: FirstFiles, answers: Answers, file: Path | None) -> None:
    """Show what changes, write it, and read it back; what cannot be read is taken back."""
    if not (plan.sections or plan.variables):
        print(_("Nothing is missing in the configuration."), flush=True)
        answers.forget()
        return
    print(files.difference(plan.sections, plan.variables), flush=True)
    if not answers.confirm(_("Write this?")):
        raise SetupStopped(_("Nothing was written. `fawn init` goes on with these answers."))
    before, written = files.snapshot(), list_items(_written(plan, files))  # the target is another file afterwards
    files.write(plan.sections, plan.variables)
    try:
        load_config(file)
    except ConfigError:
        files.put_back(before)
        raise
    answers.forget()
    print(_("Wrote {names}.", names=written), flush=True)


def _written(plan: _Plan, files: FirstFiles) -> Sequence[str]:
    return [str(files.target)] * bool(plan.sections) + [str(files.env)] * bool(plan.variables)


def _answer_once(config: Config, file: Path | None) -> None:
    """Have the bot answer one message through the whole service. Raises SetupStopped."""
    if is_served(config.data_dir):
        answer = asyncio.run(call_service(config.data_dir, "reload", {}))
        if restart := answer.get("not_applied"):
            print(_("A restart is needed for: {sections}.", sections=list_items(restart)), flush=True)
    question = _(FIRST_QUESTION)
    print(f"\n> {question}", flush=True)
    sys.stdout.flush()
    if subprocess.run(
        bound_command("ask", file, "--quiet", question), stdin=subprocess.DEVNULL, check=False
    ).returncode:
        raise SetupStopped(_("There was no answer → `fawn check` says what is wrong; then run `fawn init` again"))


def _entry_of(config: Config, name: str) -> ChannelConfig:
    return next(entry for entry in config.channels if entry.name == name)


def _say(finding: Finding) -> None:
    print(render_finding(finding), flush=True)
