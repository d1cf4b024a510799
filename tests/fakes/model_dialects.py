"""What each OpenAI-compatible provider does differently, as strict as the provider; `FakeModel(dialect=...)` speaks it.

A dialect refuses parameters and fields that its provider does not document. Facts with their sources stand in the
docstrings, each with the words of the refusal where they are known.
"""

from __future__ import annotations

from typing import Any

from tests.fakes.server import Json

PARAMETERS = {"model", "messages", "tools", "tool_choice", "stream", "stream_options", "max_tokens", "temperature"}
MESSAGE_FIELDS = {"role", "content", "tool_calls", "tool_call_id", "name"}
REASONING_FIELDS = {"reasoning_content", "reasoning", "reasoning_details"}


class Dialect:
    """OpenAI itself: reasoning stays hidden, unknown parameters are refused ("Unrecognized request argument …")."""

    preset = "openai"
    parameters: tuple[str, ...] = ("reasoning_effort", "max_completion_tokens")
    fields: tuple[str, ...] = ()  # of an assistant's message
    call_fields: tuple[str, ...] = ()
    efforts: tuple[str, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    too_long = "This model's maximum context length is 128000 tokens. Your messages resulted in 130000 tokens."

    def __init__(self) -> None:
        self.issued: set[str] = set()  # the ids of its tool calls: those of other models come without reasoning

    def refuses(self, body: Json) -> str:
        """Return why the provider refuses the request, "" if it does not."""
        if unknown := body.keys() - {*PARAMETERS, *self.parameters}:
            return f"Unrecognized request argument supplied: {', '.join(sorted(unknown))}"
        if (effort := body.get("reasoning_effort")) and effort not in self.efforts:
            return f"Unsupported value: 'reasoning_effort' does not support '{effort}' with this model."
        for number, message in enumerate(body["messages"]):
            own = self.fields if message["role"] == "assistant" else ()
            if unknown := message.keys() - {*MESSAGE_FIELDS, *own}:
                return f"'messages.{number}' : property '{min(unknown)}' is unsupported"
            for call in message.get("tool_calls") or ():
                if unknown := call.keys() - {"id", "type", "function", *self.call_fields}:
                    return f"'messages.{number}.tool_calls' : property '{min(unknown)}' is unsupported"
            if wrong := _wrong_part(message.get("content")):
                return f"'messages.{number}.content' : {wrong}"
        return self.refuses_reasoning(body)

    def refuses_reasoning(self, body: Json) -> str:
        return ""

    def thinks(self, body: Json) -> bool:
        return False

    def deltas(self, thoughts: list[str]) -> list[Json]:
        """Return the deltas of the reasoning, one a token."""
        return []

    def message(self, thoughts: list[str]) -> Json:
        """Return the fields of a whole message with this reasoning."""
        return {}

    def call(self, call: Json, number: int) -> Json:
        """Return a tool call as the provider sends it; `number` counts those of the answer."""
        return call

    def error(self, status: int, words: str, code: str | None) -> Any:
        """Return the body of an error."""
        kind = "invalid_request_error" if status < 429 else "server_error"
        return {"error": {"message": words, "type": kind, "param": None, "code": code}}

    def usage(self, usage: Json) -> Json:
        return usage


class DeepSeek(Dialect):
    """api-docs.deepseek.com/guides/thinking_mode: `thinking` switches, on by default; `reasoning_effort` low, high or
    max, medium counts as high. With tool calls, "the reasoning_content must be fully passed back to the API in all
    subsequent requests", else 400. Cache hits: `prompt_cache_hit_tokens` (guides/kv_cache)."""

    preset = "deepseek"
    parameters: tuple[str, ...] = (
        "reasoning_effort",
        "thinking",
    )
    fields: tuple[str, ...] = ("reasoning_content",)
    efforts: tuple[str, ...] = ("minimal", "low", "medium", "high", "xhigh", "max", "ultra")
    too_long = "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens."
    demand = "The `reasoning_content` in the thinking mode must be passed back to the API."

    def thinks(self, body: Json) -> bool:
        kind = body.get("thinking", {}).get("type", "enabled")
        return bool(kind != "disabled")

    def refuses_reasoning(self, body: Json) -> str:
        for message in body["messages"] if self.thinks(body) else ():
            if message.get("tool_calls") and "reasoning_content" not in message:
                return self.demand
        return ""

    def deltas(self, thoughts: list[str]) -> list[Json]:
        return [{"content": None, "reasoning_content": thought} for thought in thoughts]

    def message(self, thoughts: list[str]) -> Json:
        return {"reasoning_content": "".join(thoughts)}

    def usage(self, usage: Json) -> Json:
        cached = usage.pop("prompt_tokens_details")["cached_tokens"]
        missed = usage["prompt_tokens"] - cached
        return {**usage, "prompt_cache_hit_tokens": cached, "prompt_cache_miss_tokens": missed}


class Kimi(DeepSeek):
    """platform.kimi.ai/docs/api/chat: `thinking` disabled for K2.5 and K2.6, `reasoning_effort` low, high, max for K3.
    Usage of a stream stands in the last choice (github.com/earendil-works/pi/issues/2017), cache hits in
    `usage.cached_tokens` (…/pi/pull/8119). The refusals: github.com/openclaw/openclaw/issues/91558,
    github.com/MoonshotAI/kimi-cli/issues/2011."""

    preset = "kimi"
    efforts: tuple[str, ...] = ("low", "high", "max")
    too_long = "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"
    demand = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"

    def usage(self, usage: Json) -> Json:
        return {**usage, "cached_tokens": usage.pop("prompt_tokens_details")["cached_tokens"]}


class Qwen(DeepSeek):
    """DashScope refuses to think without streaming ("parameter.enable_thinking must be set to false for non-streaming
    calls", github.com/langchain4j/langchain4j/issues/3974) and wants a budget with it (github.com/QwenLM/Qwen-Agent/
    issues/941). Too long: github.com/QwenLM/qwen-code/issues/98. It does not demand the reasoning."""

    preset = "qwen"
    parameters: tuple[str, ...] = (
        "enable_thinking",
        "thinking_budget",
    )
    too_long = "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]"

    def thinks(self, body: Json) -> bool:
        return bool(body.get("enable_thinking", True))

    def refuses_reasoning(self, body: Json) -> str:
        if self.thinks(body) and not body.get("stream"):
            return "parameter.enable_thinking must be set to false for non-streaming calls"
        if body.get("enable_thinking") and not body.get("thinking_budget"):
            return "The thinking_budget parameter must be a positive integer and not greater than 0"
        return ""

    def usage(self, usage: Json) -> Json:
        return usage


class Doubao(DeepSeek):
    """Volcengine Ark: `thinking` enabled, disabled or auto, and `reasoning_effort` (docs.byteplus.com, Chat API). Too
    long: github.com/agentscope-ai/QwenPaw/issues/272. It takes the reasoning back, but does not demand it."""

    preset = "doubao"
    efforts: tuple[str, ...] = ("minimal", "low", "medium", "high")
    too_long = "Total tokens of image and text exceed max message tokens. Request id: 0217"

    def refuses_reasoning(self, body: Json) -> str:
        return ""

    def error(self, status: int, words: str, code: str | None) -> Any:
        return {"error": {"code": code or "InvalidParameter", "message": words, "param": "", "type": "BadRequest"}}

    def usage(self, usage: Json) -> Json:
        return usage


class MiniMax(Dialect):
    """platform.minimax.io/docs/api-reference/text-openai-api: without `reasoning_split` the thinking stands in the text
    as <think>; with it, in `reasoning_details`, "which must also be preserved completely". Its texts are increments
    (github.com/MiniMax-AI/MiniMax-M2/issues/95, against its own example)."""

    preset = "minimax"
    parameters: tuple[str, ...] = ("reasoning_split",)
    fields: tuple[str, ...] = ("reasoning_details",)
    too_long = "invalid params, context window exceeds limit (2013)"

    def thinks(self, body: Json) -> bool:
        return True

    def refuses_reasoning(self, body: Json) -> str:
        if not body.get("reasoning_split"):
            return "this test wants reasoning_split: people would read <think>"
        return _refuse_details(body, self.issued)

    def deltas(self, thoughts: list[str]) -> list[Json]:
        detail = {"type": "reasoning.text", "id": "reasoning-text-1", "format": "MiniMax-response-v1", "index": 0}
        return [{"reasoning_details": [{**detail, "text": thought}]} for thought in thoughts]

    def message(self, thoughts: list[str]) -> Json:
        return self.deltas(["".join(thoughts)])[0]


class Ollama(Dialect):
    """docs.ollama.com/api/openai-compatibility: `reasoning_effort`, where "none" switches thinking off
    (github.com/ollama/ollama/issues/14820), and the text in `reasoning`."""

    preset = "ollama"
    parameters: tuple[str, ...] = ("reasoning_effort",)
    fields: tuple[str, ...] = ("reasoning",)
    efforts: tuple[str, ...] = ("none", "low", "medium", "high")

    def thinks(self, body: Json) -> bool:
        return bool(body.get("reasoning_effort") != "none")

    def deltas(self, thoughts: list[str]) -> list[Json]:
        return [{"content": "", "reasoning": thought} for thought in thoughts]

    def message(self, thoughts: list[str]) -> Json:
        return {"reasoning": "".join(thoughts)}


class Vllm(Ollama):
    """docs.vllm.ai, Reasoning Outputs: `reasoning`, once called reasoning_content; `chat_template_kwargs` switches it.
    Its error: vllm/entrypoints/openai, ErrorResponse, with a number as `code`."""

    preset = "vllm"
    parameters: tuple[str, ...] = (
        "reasoning_effort",
        "chat_template_kwargs",
    )
    efforts: tuple[str, ...] = ("low", "medium", "high")
    too_long = "This model's maximum context length is 32768 tokens. However, your request has 40000 input tokens."

    def thinks(self, body: Json) -> bool:
        return bool(body.get("chat_template_kwargs", {}).get("enable_thinking", True))

    def error(self, status: int, words: str, code: str | None) -> Any:
        return {"error": {"message": words, "type": "BadRequestError", "param": None, "code": status}}


class OpenRouter(Dialect):
    """openrouter.ai/docs/guides/best-practices/reasoning-tokens: `reasoning: {effort}`; the text in `reasoning` and
    `reasoning_details`; when they are sent back, "the entire sequence of consecutive reasoning blocks must match the
    outputs generated by the model". A signature comes in a detail of its own, as Anthropic streams it."""

    preset = "openrouter"
    parameters: tuple[str, ...] = ("reasoning",)
    fields: tuple[str, ...] = ("reasoning_details",)
    too_long = "This endpoint's maximum context length is 200000 tokens. However, you requested about 210000 tokens."

    def thinks(self, body: Json) -> bool:
        return bool(body.get("reasoning", {}).get("effort") != "none")

    def refuses_reasoning(self, body: Json) -> str:
        effort = body.get("reasoning", {}).get("effort", "low")
        if effort not in self.efforts:
            return f"reasoning.effort: Invalid option: {effort}"
        return _refuse_details(body, self.issued, "signed") if self.thinks(body) else ""

    def deltas(self, thoughts: list[str]) -> list[Json]:
        texts: list[Json] = [
            {"content": "", "reasoning": thought, "reasoning_details": [{**_DETAIL, "text": thought}]}
            for thought in thoughts
        ]
        return [*texts, {"content": "", "reasoning_details": [{**_DETAIL, "signature": "signed"}]}]

    def message(self, thoughts: list[str]) -> Json:
        text = "".join(thoughts)
        return {"reasoning": text, "reasoning_details": [{**_DETAIL, "text": text, "signature": "signed"}]}


class Gemini(Dialect):
    """Gemini's OpenAI-compatible gateway. Function calls of the current turn need their `thought_signature`
    (ai.google.dev/gemini-api/docs/thought-signatures), the first of parallel ones has it;
    "skip_thought_signature_validator" stands for one of another model. The refusal, a list:
    discuss.ai.google.dev/t/…/109823."""

    preset = "gemini"
    call_fields: tuple[str, ...] = ("extra_content",)
    efforts: tuple[str, ...] = ("none", "minimal", "low", "medium", "high")
    too_long = "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."

    def refuses_reasoning(self, body: Json) -> str:
        last = max((number for number, each in enumerate(body["messages"]) if each["role"] == "user"), default=0)
        for message in body["messages"][last:]:
            for call in (message.get("tool_calls") or ())[:1]:
                given = call.get("extra_content", {}).get("google", {}).get("thought_signature")
                if given not in ("skip_thought_signature_validator", f"signature of {call['id']}"):
                    return "Function call is missing a thought_signature in functionCall parts."
        return ""

    def call(self, call: Json, number: int) -> Json:
        signature = {"google": {"thought_signature": f"signature of {call['id']}"}}
        return call if number else {**call, "extra_content": signature}

    def error(self, status: int, words: str, code: str | None) -> Any:
        return [{"error": {"code": status, "message": words, "status": "INVALID_ARGUMENT"}}]


_DETAIL = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
DIALECTS: dict[str, type[Dialect]] = {
    kind.preset: kind for kind in (Dialect, DeepSeek, Kimi, Qwen, Doubao, MiniMax, Ollama, Vllm, OpenRouter, Gemini)
}


def _wrong_part(content: object) -> str:
    """Chat Completions know texts and pictures as parts of a message."""
    for part in content if isinstance(content, list) else ():
        kind = part.get("type")
        known = {"text": {"type", "text"}, "image_url": {"type", "image_url"}}.get(kind)
        if known is None:
            return f"unknown type {kind!r}"
        if part.keys() - known:
            return f"unknown field {min(part.keys() - known)!r}"
        if kind == "image_url" and not part["image_url"]["url"].startswith(("data:image/", "https://")):
            return "not a picture"
    return ""


def _refuse_details(body: Json, issued: set[str], signature: str = "") -> str:
    """Each tool call of this server has the details that came with it: one text, whole, with its signature."""
    for message in body["messages"]:
        if not message.get("tool_calls") or message["tool_calls"][0]["id"] not in issued:
            continue
        if not message.get("reasoning_details"):
            return "reasoning_details must be passed back"
        [detail] = message["reasoning_details"]
        if not (detail["text"].startswith("thought ") and detail["text"].endswith("done")):
            return "reasoning_details must match the outputs generated by the model"
        if detail.get("signature", "") != signature:
            return "Invalid `signature` in `thinking` block"
    return ""
