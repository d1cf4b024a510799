"""Say how models, tools and skills did: shares and times for everybody, counts and costs for operators."""

from __future__ import annotations

from collections.abc import Mapping

from agent.outcomes import CallError, Used
from bot.commands.call import CommandCall
from bot.rights.budgets import format_money
from bot.rights.deeds import SEE_SERVICE
from bot.service.outcome_records import add_up
from bot.storage.outcomes import OUTCOME_DAYS, OutcomeKey, OutcomeSums, read_outcomes
from catalogue import N_, _, list_items, ngettext

MIN_CALLS = MIN_THUMBS = 20  # of which a share is said to members
MAX_LISTED = 20
MAX_ERRORS = 4
ERROR_WORDS = {
    CallError.RATE: N_("busy"),
    CallError.SERVER: N_("server error"),
    CallError.NETWORK: N_("no connection"),
    CallError.TIMEOUT: N_("time limit"),
    CallError.TOO_LONG: N_("too long"),
    CallError.REFUSED: N_("refused"),
    CallError.UNREADABLE: N_("unreadable answer"),
    CallError.REPORTED: N_("reported by the tool"),
    CallError.SANDBOX: N_("sandbox"),
    CallError.FAULT: N_("unexpected"),
    CallError.EXIT_CODE: N_("exit code"),
}


def describe_models(call: CommandCall) -> str:
    """Return how the models did that this person may use; "": nothing yet."""
    sums = read_outcomes(call.execute, Used.MODEL, call.now)
    names = {name for name in call.current.models if call.role.may_use_model(name)}
    by_model = add_up((OutcomeKey(key.used, key.name), each) for key, each in sums.items() if key.name in names)
    full = call.may(SEE_SERVICE)
    blocks = [_describe_table(_heading(), by_model, full=full)]
    if full:
        several = {key: each for key, each in sums.items() if key.name in names}
        blocks += [_describe_table(_("By role:"), several, full=True)] if len(several) > len(by_model) else []
    return "\n\n".join(filter(None, blocks))


def describe_skills(call: CommandCall, allowed: Mapping[str, object]) -> str:
    """Return how these skills did, and for operators all tools, too."""
    full = call.may(SEE_SERVICE)
    found = read_outcomes(call.execute, Used.SKILL, call.now)
    skills = {key: each for key, each in found.items() if full or key.name in allowed}
    blocks = [_describe_table(_heading(), skills, full=full)]
    if full:
        blocks.append(_describe_table(_("Tools:"), read_outcomes(call.execute, Used.TOOL, call.now), full=True))
    return "\n\n".join(filter(None, blocks)) or _("I can't say yet how my skills did: too few uses are counted.")


def _heading() -> str:
    return ngettext("In the last {n} day:", "In the last {n} days:", OUTCOME_DAYS)


def _describe_table(heading: str, sums: Mapping[OutcomeKey, OutcomeSums], *, full: bool) -> str:
    describe = describe_fully if full else describe_shares
    lines = [f"- {_name(key)}: {words}" for key, each in [*sums.items()][:MAX_LISTED] if (words := describe(each))]
    return "\n".join([heading, *lines]) if lines else ""


def _name(key: OutcomeKey) -> str:
    return _("`{name}` as `{role}`", name=key.name, role=key.role) if key.role else f"`{key.name}`"


def describe_shares(sums: OutcomeSums) -> str:
    """Return shares and the usual time of a call, without a count or a cost; "" if they would say nothing."""
    judged, parts = sums.up + sums.down, []
    if judged >= MIN_THUMBS:
        parts.append(_("👍 {share} %", share=round(100 * sums.up / judged)))
    if sums.calls >= MIN_CALLS:
        parts.append(_("{seconds} s a call", seconds=_seconds(sums)))
        parts.append(_("{share} % of the calls failed", share=round(100 * sums.failed / sums.calls)))
    return list_items(parts) if parts else ""


def describe_fully(sums: OutcomeSums) -> str:
    """Return all counts, the classes of errors, the thumbs, and what a request has cost."""
    parts = [
        ngettext("{n} request", "{n} requests", sums.requests),
        ngettext("{n} call", "{n} calls", sums.calls),
        _("{seconds} s a call", seconds=_seconds(sums)),
    ]
    if sums.failed:
        errors = list_items(
            _("{n} × {error}", n=count, error=_(ERROR_WORDS[error]))
            for error, count in [*sums.errors.items()][:MAX_ERRORS]
        )
        parts.append(_("{failed} failed ({errors})", failed=sums.failed, errors=errors))
    if sums.up or sums.down:
        parts.append(_("{up} 👍 and {down} 👎", up=sums.up, down=sums.down))
    if sums.cost and sums.requests:
        parts.append(_("{money} a request", money=format_money(round(sums.cost / sums.requests))))
    return _("; ").join(parts)


def _seconds(sums: OutcomeSums) -> str:
    return f"{sums.seconds / sums.calls:.1f}" if sums.calls else "0"
