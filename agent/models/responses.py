"""OpenAI's Responses API, where the reasoning of newer models travels encrypted in the messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.exceptions import ModelAPIError
from langchain_core.language_models import LanguageModelInput
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI

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
            async for chunk in super()._astream(*args, **kwargs):
                ended = ended or "status" in chunk.message.response_metadata
                chunk.message.id = None  # only its first chunk has an id; langchain gives all of them the same
                yield chunk
        except ValueError as error:  # what langchain makes of an error event
            raise ModelAPIError(str(error)) from error
        if not ended:
            raise ConnectionError("The stream ended in the middle.")
