"""Return a model's reasoning to its own server with the tool call it led to.

DeepSeek, Kimi, GLM, MiniMax and others answer 400 when it is missing, also in later turns; ChatOpenAI drops it both
ways. It is kept in its message, and so in the checkpoint, under the model and server that it is meant for: nobody else
gets it. Without a tool call it is not wanted.
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
    """ChatOpenAI that keeps reasoning and gives it back."""

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
        if thoughts := {name: text for name in REASONING_FIELDS if (text := said.get(name))}:
            message.additional_kwargs[REASONING_KEY] = {
                self._reasoning_owner: thoughts
            }  # texts are joined when chunks are merged

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
