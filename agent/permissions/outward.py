"""The question whether a call may carry data out: for rules a call of its own, such as `outward(web_fetch HOST)`."""

from __future__ import annotations

from typing import Any

from agent.exposure import OUTWARD
from agent.permissions.rules import GRANTED, Judgement, Subject, ToolUse, parse_rule, permission_question


def outward_use(to: str) -> ToolUse:
    """Return the use that rules and grants judge; without one, a person is asked."""
    return ToolUse(OUTWARD, {"to": to}, Subject("to"), "ask")


def outward_question(use: ToolUse, to: str) -> dict[str, Any]:
    """Return the value of the interrupt that asks whether a call may carry data out: the call as it is, and what a
    person may allow for later."""
    return permission_question(use) | {"grant": [OUTWARD, to], "argument": "", OUTWARD: to}


def settles(judgement: Judgement, use: ToolUse) -> bool:
    """Return whether what allows a call also says that it may carry data out: a person's grant for this call, or a rule
    that names its tool. A shell line has several commands, of which a pattern names one."""
    if judgement.rule == GRANTED:
        return True
    if not judgement.rule:
        return False
    rule = parse_rule("allow", judgement.rule)
    return not rule.pattern or (use.subject is not None and use.subject.kind != "shell")
