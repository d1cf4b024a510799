"""Chat templates in the manner of three families of thinking models, in words of our own.

They share the rules that matter here with the published ones (of Qwen3, MiniMax M2 and Gemma 4): which thoughts reach
the model, and where the last message of a person is looked for.
"""

from __future__ import annotations

from typing import Any

import jinja2
import orjson
from jinja2.sandbox import ImmutableSandboxedEnvironment

# Qwen3: the last query is the last message of a user that is a text and no result of a tool. Thoughts before it go.
QWEN = """
{%- set seen = namespace(query=messages|length - 1, open=true) -%}
{%- for message in messages|reverse -%}
  {%- if seen.open and message.role == 'user' and message.content is string
      and not message.content.startswith('<tool_response>') -%}
    {%- set seen.open = false -%}{%- set seen.query = messages|length - 1 - loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  <|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{% if message.role == 'assistant' -%}
  {%- if message.reasoning_content and loop.index0 > seen.query -%}
    <think>{{ message.reasoning_content }}</think>
  {%- endif -%}
  {{ message.content or '' }}
  {%- for call in message.tool_calls or [] -%}<tool_call>{{ call.function|tojson }}</tool_call>{%- endfor -%}
{%- elif message.role == 'tool' -%}<tool_response>{{ message.content }}</tool_response>
{%- else -%}{{ message.content if message.content is string else '' }}{%- endif -%}
<|im_end|>
{% endfor -%}
<|im_start|>assistant
"""

# MiniMax M2: as Qwen3, but every message of a user counts, and a result without a call before it is an error.
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

# Gemma 4: only a message with calls keeps its thought, and only behind the last message of a user.
GEMMA = """
{%- set seen = namespace(user=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set seen.user = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
<|turn>{{ 'model' if message.role == 'assistant' else message.role }}
{% if message.tool_calls -%}
  {%- if message.reasoning_content and loop.index0 > seen.user -%}
    <|channel>thought {{ message.reasoning_content }}<channel|>
  {%- endif -%}
  {%- for call in message.tool_calls -%}<|tool_call>{{ call.function|tojson }}<tool_call|>{%- endfor -%}
{%- endif -%}
{{ message.content if message.content is string else '' }}<turn|>
{% endfor -%}
<|turn>model
"""

TEMPLATES = {"Qwen3": QWEN, "MiniMax M2": MINIMAX, "Gemma 4": GEMMA}


def render_prompt(template: str, messages: list[dict[str, Any]]) -> str:
    """Return what the model reads, as servers render it: in a sandbox, with the arguments of calls parsed."""

    def refuse(reason: str) -> str:
        raise jinja2.TemplateError(reason)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    made.globals["raise_exception"] = refuse
    parsed = orjson.loads(orjson.dumps(messages))
    for message in parsed:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = orjson.loads(call["function"]["arguments"])
    return made.from_string(template).render(messages=parsed, add_generation_prompt=True)
