"""The question whether a call may carry data out: for rules a call of its own, such as `outward(web_fetch HOST)`."""

from __future__ import annotations

import re
from typing import Any

from agent.exposure import OUTWARD, WayOut, host_of
from agent.permissions.rules import GRANTED, Judgement, Subject, ToolUse, parse_rule, permission_question


def outward_use(to: str) -> ToolUse:
    """Return the use that rules and grants judge; without one, a person is asked."""
    return ToolUse(OUTWARD, {"to": to}, Subject("to"), "ask")


def outward_question(use: ToolUse, to: str) -> dict[str, Any]:
    """Return the value of the interrupt that asks whether a call may carry data out: the call as it is, and what a
    person may allow for later."""
    return permission_question(use) | {"grant": [OUTWARD, to], "argument": "", OUTWARD: to}


def settles(judgement: Judgement, use: ToolUse, way: WayOut) -> bool:
    """Return whether what allows a call also says that it may carry data out: a person's grant for this call, or a rule
    that names both the tool and, where there is one, the host, without a wildcard. A command line names no host."""
    if judgement.rule == GRANTED:
        return True
    if not judgement.rule:
        return False
    rule = parse_rule("allow", judgement.rule)
    if way == "network" or _has_wildcard(rule.tool):
        return False
    if way == "address":
        return bool(rule.pattern) and host_of(rule.pattern) == host_of(str(use.args.get("url", "")).strip()) != ""
    return not _has_wildcard(rule.pattern)


def explicit(judgement: Judgement) -> Judgement:
    """Return the judgement of an `outward_use`. A rule allows it only if it says `outward` and names a tool, and for
    a tool with addresses a host or domain: `*`, `outward` and `outward(web_fetch *)` do not, so a person is asked."""
    if judgement.verdict != "allow" or judgement.rule == GRANTED:
        return judgement
    rule = parse_rule("allow", judgement.rule)
    named = [re.sub(r"[*?.\-_\[\]]", "", word) for word in rule.pattern.split(" ")]
    return judgement if rule.tool.lower() == OUTWARD and all(named) else Judgement("ask")


def _has_wildcard(pattern: str) -> bool:
    return any(mark in pattern for mark in "*?[")
