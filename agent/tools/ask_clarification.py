"""Ask the person a question and wait for the answer."""

from __future__ import annotations

from typing import Annotated

from langchain_core.tools import ToolException

from agent.core.tool import Runtime, ToolTraits, always, ask_person, make_tool

MAX_CHARS = 20_000  # of the question with its options: whole chats were filled with one, and nobody reads more


@make_tool(ToolTraits(effect="resumable", asks=True, permission="allow"))
async def ask_clarification(
    question: Annotated[str, "One self-contained question."],
    runtime: Runtime,
    options: Annotated[list[str], "Answers to choose from, if there are few."] = [],  # noqa: B006  never changed
) -> str:
    """Ask the person a question and wait, for days if necessary. Use it only if you cannot continue without the
    answer."""
    chars = len(question) + sum(map(len, options))
    if chars > MAX_CHARS:
        raise ToolException(
            f"The question has {chars:,} characters, and people read at most {MAX_CHARS:,}. Ask in fewer words, and put"
            " a long text into a file that you present."
        )
    value = {"kind": "ask", "question": question, "options": options, "context": True}
    return await ask_person(runtime.context, value)


make = always(ask_clarification)
