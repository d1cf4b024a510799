"""Send a model's reasoning back to its server together with the tool call it led to.

DeepSeek, Kimi, GLM, MiniMax, OpenRouter, Gemini and others answer 400 if it is missing, even in later turns, but
ChatOpenAI drops it. It is stored in the message, and so in the checkpoint, keyed by model and server: no other server
receives it. Servers do not want the reasoning of messages without tool calls.

Tell the thoughts that stand in tags before an answer from the answer itself.

Servers without a reasoning parser (llama.cpp, LM Studio, vLLM and SGLang by default, Groq's raw format) stream what the
model writes. The thoughts go back as they came: those servers' templates look for the tags in the text.
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
from agent.models.control_marks import clean_answer

TAGS = {  # only at the very beginning of an answer, where no answer has them
    "<think>": "</think>",  # Qwen, DeepSeek, MiniMax, GLM
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # Gemini
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",  # Magistral
    "◁think▷": "◁/think▷",  # Kimi
}
TAGGED_FIELD = "tagged_thoughts"  # of a delta, and of what is stored
MAX_BLANK_CHARS = 1000  # before a tag
_ORPHAN = "\n</think>\n"  # of templates that open the tag in the prompt


class ThinkTags:
    """The tagged thoughts of one stream, moved from `content` of its deltas into a field of their own."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of a tag
        self._end = ""  # the tag for which the thoughts wait
        self._begun = False  # no tag can open any more
        self._strips = False  # the answer has not begun after the thoughts

    def take(self, delta: dict[str, Any]) -> None:
        """Move thoughts out of the delta, and hold back what may become a tag."""
        text = delta.get("content")
        if not isinstance(text, str) or not text:
            return
        if not self._begun:
            text = self._open(self._held + text)
        elif self._end:
            text = self._held + text
        if self._end:
            text = self._think(text, delta)
        if self._strips:
            text = text.lstrip()
            self._strips = not text
        delta["content"] = text

    def put_back(self, delta: dict[str, Any]) -> None:
        """Put what was held back into the last delta."""
        if self._held:
            field = TAGGED_FIELD if self._end else "content"
            delta[field] = f"{delta.get(field) or ''}{self._held}"
            self._held = ""

    def _open(self, text: str) -> str:
        begin = text.lstrip()
        tag = next((tag for tag in TAGS if begin.startswith(tag)), None)
        if tag is None and len(text) < MAX_BLANK_CHARS and any(tag.startswith(begin) for tag in TAGS):
            self._held = text
            return ""
        self._begun, self._held = True, ""
        if tag is None:
            return text
        self._end = TAGS[tag]
        return begin.removeprefix(tag)

    def _think(self, text: str, delta: dict[str, Any]) -> str:
        thought, closed, answer = text.partition(self._end)
        self._held = ""
        if not closed:
            partial = range(min(len(self._end) - 1, len(thought)), 0, -1)
            size = next((size for size in partial if self._end.startswith(thought[-size:])), 0)
            thought, self._held = thought[: len(thought) - size], thought[len(thought) - size :]
        else:
            self._end, self._strips = "", True
        if thought:
            delta[TAGGED_FIELD] = thought
        return answer


def split_thoughts(text: str) -> tuple[str, str]:
    """Return the tagged thoughts at the beginning of a whole answer, and the answer."""
    begin = text.lstrip()
    for tag, end in TAGS.items():
        if begin.startswith(tag):
            thought, _closed, answer = begin.removeprefix(tag).partition(end)
            return thought, answer.lstrip()
    thought, closed, answer = f"{text}\n".partition(_ORPHAN)
    if closed and thought.count("```") % 2 == 0:
        return thought, answer.strip()
    return "", text


def with_tags(thoughts: str, text: object) -> str:
    """Return thoughts and answer as the server had sent them."""
    return f"<think>{thoughts}</think>\n\n{text or ''}"


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
        """Take the thoughts, and other marks that are not for people, out of a whole answer, in place."""
        thoughts = clean_answer(message)
        if thoughts and REASONING_KEY not in message.additional_kwargs:
            self._keep_reasoning(message, {TAGGED_FIELD: thoughts})

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
