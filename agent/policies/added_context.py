"""Add to the conversation before a model call: the brief, notes from memory, steering, and pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage, ToolMessage

from agent.core.context import TurnContext
from agent.core.pictures import PICTURES_KEY
from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse
from agent.core.user_message import MessageFormatter
from sandbox.base import SandboxError


class BriefPolicy:
    """The brief is the same in all calls of a turn, whichever model answers, so that its prefix stays cached."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call with the brief."""
        brief = SystemMessage(request.runtime.context.brief)
        return await handler(request.override(system_message=brief))


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


class SteeringPolicy:
    """Add unread messages before each model call, in the same superstep as its answer.

    Their ids are the event keys: after a crash during the call they are unread again and are added without duplicates.
    """

    def __init__(self, formatter: MessageFormatter) -> None:
        self._formatter = formatter

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Add unread messages to the request, and to the state before the answer."""
        context = request.runtime.context
        unread = await context.steering.take_unread()
        context.taken_steering += unread  # if the call fails, the repair adds them to the state
        await context.exposure.note_inputs(unread)
        known = {message.id for message in request.messages} if unread else set()
        new = [self._formatter.format_message(item) for item in unread if item.message.key not in known]
        if not new:
            return await handler(request)
        response = await handler(request.override(messages=[*request.messages, *new]))
        included = {message.id for message in response.result}  # a summary rewrites the state, these included
        response.result = [*(message for message in new if message.id not in included), *response.result]
        return response


MAX_PICTURES = 20  # the newest in one request; with more, some providers accept only smaller ones
MAX_STORED_BYTES = 4 << 20  # of a scaled picture
BLIND = "[{count} not shown: you cannot see pictures. Tell the person if that matters.]"
GONE = "[A picture is not shown any more; view_image shows it again.]"


class PicturePolicy:
    """Put the pictures into the request, inside of the route: each model gets what it can use."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model with the pictures that its messages name."""
        if not any(map(picture_paths, request.messages)):
            return await handler(request)
        context = request.runtime.context
        if context.route and context.route[0].sees_pictures:
            messages = await _with_pictures(request.messages, context)
        else:
            messages = [_with_note(message) for message in request.messages]
        return await handler(request.override(messages=messages))


def picture_paths(message: AnyMessage) -> Sequence[str]:
    """Return the pictures that a message shows."""
    holder = message.artifact if isinstance(message, ToolMessage) else message.additional_kwargs
    paths: Sequence[str] = holder.get(PICTURES_KEY, ()) if isinstance(holder, dict) else ()
    return paths


def _with_note(message: AnyMessage) -> AnyMessage:
    if not (paths := picture_paths(message)) or not isinstance(message, HumanMessage):
        return message
    count = f"{len(paths)} picture{'s' * (len(paths) != 1)}"
    return message.model_copy(update={"content": f"{message.text}\n{BLIND.format(count=count)}"})


async def _with_pictures(messages: Sequence[AnyMessage], context: TurnContext) -> list[AnyMessage]:
    """Return the messages with the newest pictures. Those of tools follow as a message of their own, because few
    providers accept pictures in a tool's result."""
    hidden = sum(len(picture_paths(message)) for message in messages) - MAX_PICTURES
    result: list[AnyMessage] = []
    of_tools: list[dict[str, Any]] = []
    for message in messages:
        if of_tools and not isinstance(message, ToolMessage):
            result.append(HumanMessage(list(of_tools)))
            of_tools.clear()
        blocks = []
        for path in picture_paths(message):
            hidden -= 1
            blocks.append({"type": "text", "text": GONE} if hidden >= 0 else await _picture_block(path, context))
        if blocks and isinstance(message, HumanMessage):
            content = [{"type": "text", "text": message.text}, *blocks]
            message = message.model_copy(update={"content": content})
        elif blocks:
            of_tools += [{"type": "text", "text": f"[The picture of {message.name}]"}, *blocks]
        result.append(message)
    return [*result, HumanMessage(list(of_tools))] if of_tools else result


async def _picture_block(path: str, context: TurnContext) -> dict[str, Any]:
    if path not in context.pictures:
        try:
            sandbox = await context.sandbox.get()
            data = await sandbox.read(path, limit=MAX_STORED_BYTES)
        except SandboxError:
            return {"type": "text", "text": GONE}
        context.pictures[path] = base64.b64encode(data).decode()
    mime = "image/png" if path.endswith(".png") else "image/jpeg"
    return {"type": "image", "base64": context.pictures[path], "mime_type": mime}
