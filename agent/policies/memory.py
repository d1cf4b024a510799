"""Put the notes from memory into the message that began the turn, for this call only."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AnyMessage, HumanMessage

from agent.core.context import TurnContext
from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse


class MemoryPolicy:
    """The notes stand in the person's message and never join its state: a memory that was forgotten is in no later
    request. Behind the results of tools, they would be a person's new message, before which the templates of many
    models leave the thoughts out. All calls of a turn have them at the same place, so that providers cache what
    follows."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call with the notes."""
        context = request.runtime.context
        if context.memory is None or not context.memory.notes:
            return await handler(request)
        return await handler(request.override(messages=_with_notes(request.messages, context)))


def _with_notes(messages: Sequence[AnyMessage], context: TurnContext) -> list[AnyMessage]:
    notes = context.memory.notes if context.memory else ""
    people = [place for place, message in enumerate(messages) if isinstance(message, HumanMessage)]
    if not people:
        return [*messages, HumanMessage(notes)]
    place = next((place for place in people if messages[place].id == context.notes_in), people[-1])
    message = messages[place]
    context.notes_in = message.id
    if isinstance(message.content, str):
        content: str | list[str | dict[str, object]] = f"{notes}\n\n{message.content}"
    else:
        content = [{"type": "text", "text": f"{notes}\n\n"}, *message.content]
    return [*messages[:place], message.model_copy(update={"content": content}), *messages[place + 1 :]]
