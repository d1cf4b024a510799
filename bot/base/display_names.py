"""Name platforms and providers as they name themselves."""

from __future__ import annotations

from collections.abc import Mapping

SPELLINGS: Mapping[str, str] = {
    "deepseek": "DeepSeek",
    "dingtalk": "DingTalk",
    "feishu": "Feishu/Lark",
    "minimax": "MiniMax",
    "openai": "OpenAI",
    "openrouter": "OpenRouter",
    "vllm": "vLLM",
    "wechat": "WeChat",
    "wecom": "WeCom",
    "whatsapp": "WhatsApp",
}


def display_name(id: str) -> str:
    """Return what people call a platform or a provider, by the name that the configuration has for it."""
    return SPELLINGS.get(id, id.capitalize())
