"""Anthropic's Messages API: thinking, efforts and caching; its package is an extra, imported when a model uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

import anthropic
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import LanguageModelInput
from langchain_core.outputs import ChatGenerationChunk

from agent.models.arguments import join_arguments
from agent.models.http_transport import StreamBroke, open_http_client
from agent.models.presets import ANTHROPIC_BUDGETS
from agent.models.reasoning import without_foreign_blocks
from agent.settings.models import ModelSettings

MIN_ANSWER_TOKENS = 1024  # of `max_tokens` that thinking leaves


class ThinkingAnthropic(ChatAnthropic):
    """ChatAnthropic whose `effort_level` becomes what the model in use takes."""

    effort_level: str | None = None

    def connect(self, settings: ModelSettings) -> Self:
        """Use Fawn's transport, with its timeouts, proxy and certificates."""
        http = open_http_client(settings)
        # The cached property of the class: copies of the model share the client.
        self.__dict__["_async_client"] = anthropic.AsyncAnthropic(**self._client_params, http_client=http)
        return self

    @property
    def root_async_client(self) -> anthropic.AsyncAnthropic:
        """The SDK's client, under the name that ChatOpenAI gives it."""
        return self._async_client

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        messages = self._convert_input(input_).to_messages()
        own = [without_foreign_blocks(message, "anthropic") for message in messages]
        payload = super()._get_request_payload(own, stop=stop, **kwargs)
        payload.setdefault("cache_control", {"type": "ephemeral"})  # up to the last message
        payload.update(self._effort_parameters())
        if payload.get("thinking", {}).get("type") == "enabled" and _lacks_thinking(payload["messages"]):
            del payload["thinking"]  # another model began this turn; the next one thinks again
        return payload

    def _effort_parameters(self) -> dict[str, Any]:
        """Models from 4.6 on think as much as their effort asks for, older ones within a budget of tokens."""
        if not self.effort_level:
            return {}
        if self.effort_level == "none":
            return {"thinking": {"type": "disabled"}}
        levels: Sequence[str] = (self.profile or {}).get("reasoning_effort_levels") or ()
        if "max" in levels:
            effort = self.effort_level if self.effort_level in levels else "high"
            display = {"display": "summarized"} if "xhigh" in levels else {}
            return {"thinking": {"type": "adaptive", **display}, "output_config": {"effort": effort}}
        budget = ANTHROPIC_BUDGETS.get(self.effort_level, max(ANTHROPIC_BUDGETS.values()))
        room = (self.max_tokens or 0) - MIN_ANSWER_TOKENS
        return {"thinking": {"type": "enabled", "budget_tokens": min(budget, room)}}

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        ended = False
        async for chunk in join_arguments(super()._astream(*args, **kwargs)):
            ended = ended or "stop_reason" in chunk.message.response_metadata
            chunk.message.id = None  # only its first chunk has an id; langchain gives all of them the same
            yield chunk
        if not ended:
            raise StreamBroke("The stream ended in the middle.")


def _lacks_thinking(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether an answer of the current turn calls tools without its thinking, which the API refuses."""
    for message in reversed(messages):
        content = message["content"] if isinstance(message["content"], list) else []
        kinds = [block["type"] for block in content]
        if message["role"] == "assistant":
            if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
                return True
        elif "tool_result" not in kinds:
            return False
    return False
