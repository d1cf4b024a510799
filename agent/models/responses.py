"""OpenAI's Responses API, where the reasoning of newer models travels encrypted in the messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
from langchain_core.exceptions import ModelAPIError
from langchain_core.language_models import LanguageModelInput
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI

from agent.models.arguments import join_arguments, mark_arguments
from agent.models.http_transport import StreamBroke
from agent.models.reasoning import without_foreign_blocks


class StatelessResponses(ChatOpenAI):
    """ChatOpenAI for the Responses API; other models' blocks stay away from it."""

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        messages = self._convert_input(input_).to_messages()
        own = [without_foreign_blocks(message, "openai", self.model_name) for message in messages]
        return super()._get_request_payload(own, stop=stop, **kwargs)

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        ended = False
        try:
            async for chunk in join_arguments(super()._astream(*args, **kwargs)):
                ended = ended or "status" in chunk.message.response_metadata
                chunk.message.id = None  # only its first chunk has an id; langchain gives all of them the same
                yield chunk
        except ValueError as error:  # what langchain makes of an error event
            raise ModelAPIError(str(error)) from error
        if not ended:
            raise StreamBroke("The stream ended in the middle.")


class MarkedResponses:
    """The SDK's client, whose streams contain no arguments that langchain cannot parse."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client
        self.responses = MarkedResource(client.responses)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class MarkedResource:
    """The SDK's resource, except that a streamed `create` returns a `MarkedStream`."""

    def __init__(self, resource: Any) -> None:
        self._resource = resource

    def __getattr__(self, name: str) -> Any:
        return getattr(self._resource, name)

    async def create(self, **payload: Any) -> Any:
        """Do what the SDK's `create` does."""
        made = await self._resource.create(**payload)
        return MarkedStream(made) if payload.get("stream") else made


class MarkedStream:
    """The events of one streamed answer: an async context manager and iterator."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aenter__(self) -> MarkedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._stream:
            for item in getattr(getattr(event, "response", None), "output", None) or ():
                if getattr(item, "type", "") == "function_call":  # the last event repeats all calls
                    item.arguments = mark_arguments(item.arguments)
            yield event
