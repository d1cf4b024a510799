"""Send a model's reasoning back to its server together with the tool call it led to.

DeepSeek, Kimi, GLM, MiniMax, OpenRouter, Gemini and others answer 400 if it is missing, even in later turns, but
ChatOpenAI drops it. It is stored in the message, and so in the checkpoint, keyed by model and server: no other server
receives it. Servers do not want the reasoning of messages without tool calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast
from urllib.parse import urlsplit

import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.prompt_values import ChatPromptValue, PromptValue
from langchain_openai import ChatOpenAI

from agent.models.arguments import mark_arguments
from agent.models.think_tags import TAGGED_FIELD, split_thoughts, with_tags

REASONING_FIELDS = ("reasoning_content", "reasoning", TAGGED_FIELD)  # DeepSeek, Kimi, GLM, Qwen; Groq, vLLM, Ollama
DETAILS_FIELD = "reasoning_details"  # OpenRouter, MiniMax: a list, whose texts stand in `reasoning`, too
SIGNATURES_FIELD = "extra_content"  # Gemini: beside each tool call
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
        if isinstance(page := cast(Any, response), str):
            raise TypeError(f"a text in place of an answer: {page[:100]!r}")
        whole = response if isinstance(response, dict) else response.model_dump(warnings=False)
        for choice in whole["choices"]:
            _take_tags(choice["message"])
            for call in choice["message"].get("tool_calls") or ():
                call["function"]["arguments"] = mark_arguments(call["function"].get("arguments"))
        result = super()._create_chat_result(whole, generation_info)
        for made, choice in zip(result.generations, whole["choices"], strict=True):
            self._keep_reasoning(made.message, choice["message"])
        return result

    def _keep_reasoning(self, message: Any, said: Mapping[str, Any]) -> None:
        reasoning: dict[str, Any] = {name: said[name] for name in (*REASONING_FIELDS, DETAILS_FIELD) if said.get(name)}
        calls = said.get("tool_calls") or ()
        if signatures := {call["id"]: call[SIGNATURES_FIELD] for call in calls if call.get(SIGNATURES_FIELD)}:
            reasoning[SIGNATURES_FIELD] = signatures
        if reasoning:  # merging chunks joins the texts; the others come once
            message.additional_kwargs[REASONING_KEY] = {self._reasoning_owner: reasoning}

    def fold_thoughts(self, message: AIMessage) -> None:
        """Take the thoughts out of a whole answer that only closes their tag, in place."""
        if isinstance(message.content, str):
            thoughts, answer = split_thoughts(message.content)
            if thoughts.strip():
                self._keep_reasoning(message, {TAGGED_FIELD: thoughts})
                message.content = answer

    @property
    def _reasoning_owner(self) -> str:
        return _owner(self.model_name, self.openai_api_base or "")

    def _convert_input(self, model_input: LanguageModelInput) -> PromptValue:
        """Do not validate the messages of a conversation again, which takes longer the longer it is."""
        if isinstance(model_input, list) and all(isinstance(message, BaseMessage) for message in model_input):
            return ChatPromptValue.model_construct(messages=cast(list[AnyMessage], model_input))
        return super()._convert_input(model_input)

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        messages = self._convert_input(input_).to_messages()
        payload = super()._get_request_payload([_plain(message) for message in messages], stop=stop, **kwargs)
        said = [message for message in messages if isinstance(message, AIMessage)]
        sent = [message for message in payload.get("messages", ()) if message["role"] == "assistant"]
        for message, out in zip(said, sent, strict=True):
            if message.tool_calls:
                self._add_reasoning(
                    message.additional_kwargs.get(REASONING_KEY, {}).get(self._reasoning_owner, {}), out
                )
        return payload

    @staticmethod
    def _add_reasoning(reasoning: Mapping[str, Any], out: dict[str, Any]) -> None:
        if DETAILS_FIELD in reasoning:
            out[DETAILS_FIELD] = reasoning[DETAILS_FIELD]
        else:
            fields = {name: reasoning[name] for name in REASONING_FIELDS if name in reasoning}
            if tagged := fields.pop(TAGGED_FIELD, ""):
                out["content"] = with_tags(tagged, out.get("content"))
            out.update(fields)
        for call in out["tool_calls"]:
            if signature := reasoning.get(SIGNATURES_FIELD, {}).get(call["id"]):
                call[SIGNATURES_FIELD] = signature


@lru_cache
def _owner(model: str, url: str) -> str:
    """Return to which model of which server a reasoning belongs."""
    server = urlsplit(url)
    return f"{model} at {server.hostname}" + (f":{server.port}" if server.port else "")


def _take_tags(said: dict[str, Any]) -> None:
    if isinstance(text := said.get("content"), str):
        thoughts, said["content"] = split_thoughts(text)
        if thoughts:
            said[TAGGED_FIELD] = thoughts


class ReasoningDetails:
    """The `reasoning_details` of one stream: taken from its deltas, and put back merged into the last one.

    Each token comes as an object of its own, which langchain would merge again and again. A delta keeps their text as
    `reasoning`, which is cheap to merge.
    """

    def __init__(self) -> None:
        self._merged: list[dict[str, Any]] = []

    def take(self, delta: dict[str, Any]) -> None:
        """Move the details out of the delta."""
        details: Sequence[dict[str, Any]] = delta.pop(DETAILS_FIELD, None) or ()
        for detail in details:
            last = self._merged[-1] if self._merged else {}
            if last and all(last.get(name) == detail.get(name) for name in ("type", "index")):
                for name, value in detail.items():
                    joins = name in ("text", "summary", "data") and isinstance(last.get(name), str)
                    last[name] = last[name] + value if joins and value else value or last.get(name)
            else:
                self._merged.append(dict(detail))
        text = "".join(detail.get("text") or detail.get("summary") or "" for detail in details)
        if text and not any(delta.get(name) for name in REASONING_FIELDS):
            delta["reasoning"] = text

    def put_back(self, delta: dict[str, Any]) -> None:
        """Put all details into the delta, if there were any."""
        if self._merged:
            delta[DETAILS_FIELD] = self._merged
            self._merged = []


def thinking_of(message: AIMessage) -> str:
    """Return the text of the reasoning in a message or chunk of any class."""
    texts = []
    for reasoning in message.additional_kwargs.get(REASONING_KEY, {}).values():
        texts += [reasoning[name] for name in REASONING_FIELDS if name in reasoning][:1]
    for block in message.content if isinstance(message.content, list) else ():
        match block:
            case {"type": "thinking", "thinking": str(text)}:
                texts.append(text)
            case {"type": "reasoning", "summary": list(parts)}:
                texts += [part.get("text", "") for part in parts]
    return "".join(texts)


def without_foreign_blocks(message: BaseMessage, provider: str, model: str = "") -> BaseMessage:
    """Return an answer of another provider (or model) as text and tool calls: its blocks mean nothing to this one."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return message
    source = message.response_metadata
    if source.get("model_provider") == provider and str(source.get("model_name", "")).startswith(model):
        return message
    return _plain(message)


def _plain(message: BaseMessage) -> BaseMessage:
    """Return an answer in blocks as text and tool calls. Chat Completions know nothing else."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return message
    return AIMessage(message.text, tool_calls=message.tool_calls, id=message.id)


def rename_signatures(message: AIMessage, new_ids: Mapping[str, str]) -> None:
    """Let the signatures of calls follow the new ids of the calls."""
    for reasoning in message.additional_kwargs.get(REASONING_KEY, {}).values():
        signatures = reasoning.get(SIGNATURES_FIELD, {})
        signatures.update({new: signatures[old] for old, new in new_ids.items() if old in signatures})
