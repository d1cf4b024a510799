"""Chat templates of three families of thinking models: those of Qwen3 and Gemma 4 as published, one in our own words.

The one in the manner of MiniMax M2 shares the rules that matter here with the published template: which thoughts reach
the model, and where the last message of a person is looked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import orjson
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = Path(__file__).parent / "templates"

# MiniMax M2: thoughts before the last message of a user go, and a result without a call before it is an error.
MINIMAX = """
{%- set seen = namespace(user=-1, called=false) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set seen.user = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
]~b]ai
    {%- if message.reasoning_content and loop.index0 > seen.user %}<think>{{ message.reasoning_content }}</think>
    {%- endif -%}
    {{ message.content or '' }}
    {%- set seen.called = message.tool_calls|length > 0 if message.tool_calls else false -%}
    {%- for call in message.tool_calls or [] -%}<invoke name="{{ call.function.name }}">
      {%- for name, value in call.function.arguments|items -%}
        <parameter name="{{ name }}">{{ value|tojson }}</parameter>
      {%- endfor -%}</invoke>
    {%- endfor -%}
  {%- elif message.role == 'tool' -%}
    {%- if not seen.called -%}{{ raise_exception('a result without a call') }}{%- endif -%}
]~b]tool <response>{{ message.content }}</response>
  {%- else -%}]~b]{{ message.role }}
    {%- if message.content is string %} {{ message.content }}
    {%- else -%}{%- for part in message.content if part.type == 'text' %} {{ part.text }}{% endfor -%}{%- endif -%}
  {%- endif -%}[e~[
{% endfor -%}
]~b]ai
"""

TEMPLATES = {
    "Qwen3": (FOLDER / "qwen3.jinja").read_text("utf-8"),
    "MiniMax M2": MINIMAX,
    "Gemma 4": (FOLDER / "gemma4.jinja").read_text("utf-8"),
}


def render_prompt(template: str, messages: list[dict[str, Any]]) -> str:
    """Return what the model reads, as servers render it: in a sandbox, with texts as strings and arguments parsed.

    vLLM does the same before it renders (vllm/entrypoints/chat_utils.py: `_parse_chat_message_content`).
    """

    def refuse(reason: str) -> str:
        raise jinja2.TemplateError(reason)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    made.globals["raise_exception"] = refuse
    parsed = orjson.loads(orjson.dumps(messages))
    for message in parsed:
        message["content"] = _text_of(message["content"])
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = orjson.loads(call["function"]["arguments"])
    return made.from_string(template).render(messages=parsed, add_generation_prompt=True)


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part["type"] == "text")
    return content or ""
