"""The agent's plan: changed by calls of `write_todos`, which the messages keep, and by nothing else.

So a repair keeps the plan with the finished calls, and a summary carries it on in its own message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, ToolMessage

from agent.blocks import Plan, PlanItem

MAX_TODOS = 20
MAX_TODO_CHARS = 200
TODOS_KEY = "todos"  # of an artifact, and of the message of a summary
MARKS = {"pending": "[ ]", "running": "[>]", "done": "[x]"}
_STATES = {"pending": "pending", "in_progress": "running", "completed": "done"}


def change_plan(plan: Plan | None, change: Mapping[str, Any]) -> Plan:
    """Return the plan after a change: replaced, or with `merge` the items of the same text or number updated."""
    given = [_plan_item(each) for each in change[TODOS_KEY]]
    if not change.get("merge") or plan is None:
        return Plan(tuple({item.title: item for item in given}.values()))
    items = list(plan.items)
    for item in given:
        place = _find_item(items, item.title)
        if place is None:
            items.append(item)
        else:
            items[place] = PlanItem(items[place].title, item.state)
    return Plan(tuple(items))


def _plan_item(todo: Mapping[str, str]) -> PlanItem:
    title = " ".join(todo["content"].split())
    state: Any = _STATES[todo["status"]]
    return PlanItem(title if len(title) <= MAX_TODO_CHARS else f"{title[: MAX_TODO_CHARS - 1]}…", state)


def _find_item(items: Sequence[PlanItem], title: str) -> int | None:
    same = next((n for n, item in enumerate(items) if item.title.casefold() == title.casefold()), None)
    number = title.rstrip(".")
    if same is None and number.isdecimal() and 0 < int(number) <= len(items):
        return int(number) - 1
    return same


def plan_of(messages: Iterable[AnyMessage], plan: Plan | None = None) -> Plan | None:
    """Return the plan after these messages. `plan` is the one before them."""
    for message in messages:
        artifact = message.artifact if isinstance(message, ToolMessage) else message.additional_kwargs
        if isinstance(artifact, dict) and TODOS_KEY in artifact:
            plan = change_plan(plan, artifact if plan else {TODOS_KEY: artifact.get("all", artifact[TODOS_KEY])})
    return plan


def is_finished(plan: Plan) -> bool:
    """Return whether every item is done."""
    return all(item.state == "done" for item in plan.items)


def dump_plan(plan: Plan) -> list[dict[str, str]]:
    """Return the items as a tool call has them."""
    names = {state: name for name, state in _STATES.items()}
    return [{"content": item.title, "status": names[item.state]} for item in plan.items]


def list_plan(plan: Plan) -> str:
    """Return the plan as numbered lines for the model."""
    return "\n".join(f"{number}. {MARKS[item.state]} {item.title}" for number, item in enumerate(plan.items, 1))
