"""Send each call to the first model of the turn's route; when it fails, continue with the next."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.blocks import Notice
from agent.models.errors import BudgetExceeded, ModelFailure
from agent.models.loader import LoadedModel
from agent.policies.base import ModelCallHandler, ModelCallRequest, ModelCallResponse, change_request
from agent.policies.retry import ContextOverflow
from agent.policies.summarization import estimated_tokens
from agent.tools.tool import AgentTool
from catalogue import _

log = logging.getLogger(__name__)


class RoutePolicy:
    """A model that failed is out of the route for the rest of the turn: its retries delay the turn only once."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the models until one answers. Raises what the last one raised."""
        context = request.runtime.context
        while True:
            failed = context.route[0]
            try:
                return await handler(_for_model(request, failed))
            except (ModelFailure, ContextOverflow) as error:
                if isinstance(error, BudgetExceeded) and not error.other_model:
                    raise
                following = context.route[1:]
                if isinstance(error, ContextOverflow):
                    needed = max(failed.settings.context_tokens, estimated_tokens(request.messages))
                    following = _with_room(following, needed)
                if not following:
                    raise
                what = str(error)
            context.route = following
            taker = following[0].settings
            log.warning("model.fallback from=%s to=%s", failed.settings.name, taker.name)
            text = _("{problem} {model} answers instead.", problem=what, model=taker.label)
            request.runtime.stream_writer(Notice("fallback", text, kept=True))


def _for_model(request: ModelCallRequest, entry: LoadedModel) -> ModelCallRequest:
    if not entry.wants_json_schemas:
        return change_request(request, model=entry.model)
    tools = [tool.json_schema if isinstance(tool, AgentTool) else tool for tool in request.tools]
    return change_request(request, model=entry.model, tools=tools)


def _with_room(route: Sequence[LoadedModel], tokens: int) -> Sequence[LoadedModel]:
    """Return the route from its first model whose context window is known to exceed `tokens`."""
    return next((route[n:] for n, entry in enumerate(route) if entry.settings.context_tokens > tokens), ())
