"""Keep the plan that people see while the agent works."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from langchain_core.tools import ToolException
from pydantic import BaseModel, Field

from agent.core.tool import Runtime, ToolTraits, always, make_tool
from agent.todos import MAX_TODOS, TODOS_KEY, change_plan, dump_plan, plan_of


class Todo(BaseModel):
    """One step of the plan."""

    content: str = Field(min_length=1, description="The step. In an update, its number is enough.")
    status: Literal["pending", "in_progress", "completed"]


@make_tool(ToolTraits(effect="none", read_only=True, shows_plan=True, permission="allow"))
async def write_todos(
    todos: Annotated[list[Todo], "At most 20 steps, in order."],
    runtime: Runtime,
    merge: Annotated[bool, "Change only these steps, or append them, and keep the others."] = False,
) -> tuple[str, dict[str, Any]]:
    """Write the plan of a task with three or more steps, which the person sees live. Keep one step in progress, and
    update a step when you begin or finish it (with `merge`). Not for short tasks."""
    change: dict[str, Any] = {TODOS_KEY: [todo.model_dump() for todo in todos], "merge": merge}
    plan = change_plan(plan_of(runtime.state["messages"]), change)
    if len(plan.items) > MAX_TODOS:
        raise ToolException(f"A plan has at most {MAX_TODOS} steps, and this one has {len(plan.items)}. Join some.")
    done = sum(item.state == "done" for item in plan.items)
    running = next((n for n, item in enumerate(plan.items, 1) if item.state == "running"), None)
    now = f"; in progress: {running}" if running else ""
    return f"{done} of {len(plan.items)} done{now}", {**change, "all": dump_plan(plan)}


make = always(write_todos)
