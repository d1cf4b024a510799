"""Send each call to the first model of the turn's route; when it fails, continue with the next."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, AnyMessage

from agent.blocks import Notice
from agent.core.context import TurnContext
from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse
from agent.core.tool import AgentTool
from agent.models.errors import BudgetExceeded, ModelFailure
from agent.models.loader import LoadedModel
from agent.policies.pictures import picture_paths
from agent.policies.retry import ContextOverflow
from agent.token_estimates import messages_tokens
from catalogue import _

log = logging.getLogger(__name__)


class RoutePolicy:
    """A model that failed is out of the route for the rest of the turn: its retries delay the turn only once.

    So is a model whose server is down, without a call to it, as long as another model may answer.
    """

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the models until one answers. Raises what the last one raised."""
        context = request.runtime.context
        _use_vision(request)
        usable = _usable(context.route, context)
        if usable is not context.route:
            _hand_over(request, usable, _("The server of {model} is failing.", model=context.route[0].settings.label))
        while True:
            failed = context.route[0]
            try:
                return await handler(_for_model(request, failed))
            except (ModelFailure, ContextOverflow) as error:
                if isinstance(error, BudgetExceeded) and not error.other_model:
                    raise
                following = _usable(context.route[1:], context)
                if isinstance(error, ContextOverflow):
                    needed = max(failed.settings.context_tokens, messages_tokens(request.messages))
                    following = _with_room(following, needed)
                if not following:
                    raise
                what = str(error)
            _hand_over(request, following, what)


def _hand_over(request: ModelCallRequest, route: Sequence[LoadedModel], why: str) -> None:
    """Let the first model of `route` answer for the rest of the turn, and tell people."""
    context = request.runtime.context
    log.warning("model.fallback from=%s to=%s", context.route[0].settings.name, route[0].settings.name)
    context.route = route
    text = _("{problem} {model} answers instead.", problem=why, model=route[0].settings.label)
    request.runtime.stream_writer(Notice("fallback", text, kept=True))


def _usable(route: Sequence[LoadedModel], context: TurnContext) -> Sequence[LoadedModel]:
    """Return the route from its first model whose server is not down; all of it if there is none."""
    for number, entry in enumerate(route):
        if entry.endpoint.admits_call(context.meter.root.conversation):
            return route[number:] if number else route
    return route


def _use_vision(request: ModelCallRequest) -> None:
    """If this turn shows pictures to a model that does not see, let the one of the role `vision` take over, once."""
    context = request.runtime.context
    vision = context.vision
    if vision is None or context.route[0].sees_pictures or not any(map(picture_paths, _of_turn(request.messages))):
        return
    context.vision = None
    others = [entry for entry in context.route if entry.settings.name != vision.settings.name]
    seeing = _("{model} can't see pictures.", model=context.route[0].settings.label)
    _hand_over(request, [vision, *others], seeing)


def _of_turn(messages: Sequence[AnyMessage]) -> Iterator[AnyMessage]:
    """Yield the messages after the last final answer, newest first."""
    for message in reversed(messages):
        if isinstance(message, AIMessage) and not message.tool_calls:
            return
        yield message


def _for_model(request: ModelCallRequest, entry: LoadedModel) -> ModelCallRequest:
    if not entry.wants_json_schemas:
        return request.override(model=entry.model)
    tools = [tool.json_schema if isinstance(tool, AgentTool) else tool for tool in request.tools]
    return request.override(model=entry.model, tools=tools)


def _with_room(route: Sequence[LoadedModel], tokens: int) -> Sequence[LoadedModel]:
    """Return the route from its first model whose context window is known to exceed `tokens`."""
    return next((route[n:] for n, entry in enumerate(route) if entry.settings.context_tokens > tokens), ())
