"""Presets: how each provider is reached, which window and eyes its models have, and how it takes a reasoning effort.

Data only, imports nothing heavy. The sources of the facts stand in
tests/fakes/model_dialects.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CHAT_OPENAI_CLASS_PATH = "langchain_openai:ChatOpenAI"
CHAT_ANTHROPIC_CLASS_PATH = "langchain_anthropic:ChatAnthropic"

Arguments = Mapping[str, Any]
"""Arguments of a model class. Those in a section, such as `extra_body`, are merged with the operator's."""


@dataclass(frozen=True, slots=True)
class ModelPreset:
    """What a provider needs. `known` maps the beginnings of model names to window (tokens) and vision."""

    base_url: str
    key_variable: str = ""  # "": it needs no key
    use: str = CHAT_OPENAI_CLASS_PATH
    arguments: Arguments = field(default_factory=dict)
    efforts: Mapping[str, Arguments] = field(default_factory=dict)
    shown: Arguments = field(default_factory=dict)  # what the server needs to send its thinking
    known: Mapping[str, tuple[int, bool]] = field(default_factory=dict)


def _body(**values: Any) -> dict[str, Any]:
    return {"extra_body": values}


def _efforts(*names: str) -> dict[str, Arguments]:
    """Return the efforts that a server takes in OpenAI's own parameter."""
    return {name: {"reasoning_effort": name} for name in names}


def _switched(none: Arguments, on: Arguments, efforts: Mapping[str, Arguments]) -> dict[str, Arguments]:
    """Return efforts beside which thinking is switched on, and "none", which switches it off."""
    return {"none": none, **{name: {**on, **arguments} for name, arguments in efforts.items()}}


_THINKING_OFF, _THINKING_ON = _body(thinking={"type": "disabled"}), _body(thinking={"type": "enabled"})
_QWEN_BUDGETS = {"low": 2048, "medium": 8192, "high": 24_576}  # tokens
ANTHROPIC_BUDGETS = {"low": 2048, "medium": 8192, "high": 16_384}  # tokens; for models without levels of their own

PRESETS: Mapping[str, ModelPreset] = {
    "openai": ModelPreset(
        "",
        "OPENAI_API_KEY",
        efforts=_efforts("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        known={"gpt-6": (1_050_000, True), "gpt-5": (272_000, True)},
    ),
    "openai-responses": ModelPreset(
        "",
        "OPENAI_API_KEY",
        # OpenAI does not store the conversation, so its reasoning travels encrypted in the messages.
        arguments={
            "use_responses_api": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "output_version": "responses/v1",
        },
        efforts={
            name: {"reasoning": {"effort": name}}
            for name in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
        },
        shown={"reasoning": {"summary": "auto"}},
        known={"gpt-6": (1_050_000, True), "gpt-5": (272_000, True)},
    ),
    "anthropic": ModelPreset(
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        CHAT_ANTHROPIC_CLASS_PATH,
        # The class gives each model the parameters that it takes: agent/models/anthropic.py.
        efforts={name: {"effort_level": name} for name in ("none", "low", "medium", "high", "xhigh", "max")},
        known={"claude-": (200_000, True)},
    ),
    "gemini": ModelPreset(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        efforts=_efforts("none", "minimal", "low", "medium", "high"),
        known={"gemini-": (1_048_576, True)},
    ),
    "deepseek": ModelPreset(
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        efforts=_switched(_THINKING_OFF, _THINKING_ON, _efforts("low", "medium", "high", "max")),
        known={"deepseek-": (128_000, False)},
    ),
    "kimi": ModelPreset(
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        efforts=_switched(_THINKING_OFF, {}, _efforts("low", "high", "max")),
        known={"kimi-k2-": (262_144, False), "kimi-k": (262_144, True)},
    ),
    "qwen": ModelPreset(
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        arguments={"streaming": True},  # it refuses to think in an answer that is not streamed
        efforts=_switched(
            _body(enable_thinking=False),
            {},
            {name: _body(enable_thinking=True, thinking_budget=budget) for name, budget in _QWEN_BUDGETS.items()},
        ),
        known={"qwen3-vl": (262_144, True), "qwen3-": (131_072, False)},
    ),
    "doubao": ModelPreset(
        "https://ark.cn-beijing.volces.com/api/v3",
        "ARK_API_KEY",
        efforts=_switched(_THINKING_OFF, _THINKING_ON, _efforts("low", "medium", "high")),
        known={"doubao-seed-": (262_144, True)},
    ),
    "minimax": ModelPreset(
        "https://api.minimax.io/v1",
        "MINIMAX_API_KEY",
        arguments=_body(reasoning_split=True),  # otherwise the thinking stands in the text
        known={"MiniMax-M3": (1_000_000, False), "MiniMax-M2": (204_800, False)},
    ),
    "ollama": ModelPreset("http://127.0.0.1:11434/v1", efforts=_efforts("none", "low", "medium", "high")),
    "vllm": ModelPreset(
        "http://127.0.0.1:8000/v1",
        efforts=_switched(
            _body(chat_template_kwargs={"enable_thinking": False}),
            _body(chat_template_kwargs={"enable_thinking": True}),
            _efforts("low", "medium", "high"),
        ),
    ),
    "openrouter": ModelPreset(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        efforts={
            name: _body(reasoning={"effort": name})
            for name in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
        },
    ),
}


def preset_of(name: str, use: str) -> ModelPreset:
    """Return the preset of an entry; one without takes OpenAI's arguments, or none if its class is another."""
    if name:
        return PRESETS[name]
    return PRESETS["openai"] if use == CHAT_OPENAI_CLASS_PATH else ModelPreset("", use=use)


def complete_entry(entry: dict[str, Any]) -> None:
    """Add what the preset of a raw entry of `models:` knows, as far as the entry does not say it."""
    preset = PRESETS[entry["preset"]]
    model = str(entry.get("model") or "")
    window, sees = next((facts for begin, facts in preset.known.items() if model.startswith(begin)), (None, None))
    facts = {"use": preset.use, "base_url": preset.base_url, "context_tokens": window, "vision": sees}
    for name, value in facts.items():
        if entry.get(name) is None and value not in (None, ""):
            entry[name] = value


def effort_names(preset: str, use: str) -> tuple[str, ...]:
    """Return the efforts that an entry takes, the least first; none if its provider has no such setting."""
    return tuple(preset_of(preset, use).efforts)


def merge_arguments(*layers: Arguments) -> dict[str, Any]:
    """Merge arguments; later ones win. Sections are merged, with theirs."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            before = merged.get(name)
            both = isinstance(before, Mapping) and isinstance(value, Mapping)
            merged[name] = merge_arguments(before, value) if both else value  # type: ignore[arg-type]  # both are
    return merged
