"""Find what an operator could change in the configuration by what the models did. Nothing is changed by itself."""

from __future__ import annotations

from collections.abc import Mapping

from agent.outcomes import Used
from agent.spending import LEAD
from bot.config.schema import Config
from bot.database.database import Execute
from bot.rights.budget_texts import format_money
from bot.service.model_comparison import Cheaper, find_cheaper
from bot.storage.outcomes import OUTCOME_DAYS, OutcomeKey, OutcomeSums, read_outcomes
from catalogue import _, join_sentences, ngettext


def model_proposals(execute: Execute, config: Config, now: float) -> list[str]:
    """Return a paragraph for each role in which another model did as well for less."""
    return [describe(each, config) for each in find_proposals(read_outcomes(execute, Used.MODEL, now), config)]


def find_proposals(found: Mapping[OutcomeKey, OutcomeSums], config: Config) -> list[Cheaper]:
    """Return the cheaper model of each role that has one."""
    names = [model.name for model in config.models]
    cheaper = []
    for role, present in present_models(config).items():
        models = {key.name: sums for key, sums in found.items() if key.role == role}
        if each := find_cheaper(role, present, models, names):
            cheaper.append(each)
    return cheaper


def present_models(config: Config) -> dict[str, str]:
    """Return the model of each role in which people judge what it does, by the configuration."""
    if not config.models:
        return {}
    lead = config.roles.lead or config.models[0].name
    kinds = {kind.name: kind.model or lead for kind in config.subagents.all_kinds().values()}
    agents = {agent.name: agent.model or lead for agent in config.agents}
    return {LEAD: lead, **kinds, **agents}


def describe(each: Cheaper, config: Config) -> str:
    """Return what the numbers say, and which setting would follow them."""
    days = ngettext("{n} day", "{n} days", OUTCOME_DAYS)
    saved = _(
        "In the role `{role}`, `{other}` cost {saved} % less a request than `{present}` in the last {days} (95 %"
        " interval: {least} to {most} %): {cheap} in {n} requests, {dear} in {m}.",
        role=each.role,
        other=each.other,
        present=each.present,
        saved=round(100 * each.saved),
        least=round(100 * each.least),
        most=round(100 * each.most),
        days=days,
        cheap=format_money(round(each.after.cost / each.after.requests)),
        dear=format_money(round(each.before.cost / each.before.requests)),
        n=each.after.requests,
        m=each.before.requests,
    )
    thumbs = _(
        "People gave it 👍 for {up} of {n} answers that they judged, and `{present}` for {before} of {m}.",
        up=each.after.up,
        n=each.after.up + each.after.down,
        present=each.present,
        before=each.before.up,
        m=each.before.up + each.before.down,
    )
    caution = _(
        "They did not get the same requests, so try it first. To change it, set {setting} to `{other}`; I change"
        " nothing by myself.",
        setting=setting_of(each.role, config),
        other=each.other,
    )
    return join_sentences(saved, thumbs, caution)


def setting_of(role: str, config: Config) -> str:
    """Return the setting that decides on the model of a role."""
    if role == LEAD:
        return "`roles.lead`"
    section = "agents" if role in {agent.name for agent in config.agents} else "subagents.kinds"
    return _("`model` of `{role}` in `{section}`", role=role, section=section)
