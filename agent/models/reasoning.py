"""Send a model's reasoning back to its server together with the tool call it led to.

DeepSeek, Kimi, GLM, MiniMax and others answer 400 if it is missing, even in later turns, but ChatOpenAI drops it. It is
stored in the message, and so in the checkpoint, keyed by model and server: no other server receives it. Servers do not
want the reasoning of messages without tool calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI

REASONING_FIELDS = ("reasoning_content", "reasoning")  # DeepSeek, Kimi, GLM, MiniMax, Qwen; Groq and vLLM
REASONING_KEY = "thoughts"


class ThinkingOpenAI(ChatOpenAI):
    """ChatOpenAI that stores reasoning and sends it back."""

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        made = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        if made:
            for choice in chunk.get("choices") or ():
                self._keep_reasoning(made.message, choice.get("delta") or {})
        return made

    def _create_chat_result(
        self, response: dict[str, Any] | openai.BaseModel, generation_info: dict[str, Any] | None = None
    ) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        whole = response if isinstance(response, dict) else response.model_dump(warnings=False)
        for made, choice in zip(result.generations, whole["choices"], strict=True):
            self._keep_reasoning(made.message, choice["message"])
        return result

    def _keep_reasoning(self, message: Any, said: Mapping[str, Any]) -> None:
        if reasoning := {name: text for name in REASONING_FIELDS if (text := said.get(name))}:
            # Merging chunks joins these texts.
            message.additional_kwargs[REASONING_KEY] = {self._reasoning_owner: reasoning}

    @property
    def _reasoning_owner(self) -> str:
        return f"{self.model_name} at {urlsplit(self.openai_api_base or '').hostname}"

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        said = [message for message in self._convert_input(input_).to_messages() if isinstance(message, AIMessage)]
        sent = [message for message in payload.get("messages", ()) if message["role"] == "assistant"]
        for message, out in zip(said, sent, strict=True):
            if message.tool_calls:
                out.update(message.additional_kwargs.get(REASONING_KEY, {}).get(self._reasoning_owner, {}))
        return payload
