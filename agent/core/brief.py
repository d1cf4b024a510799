"""The brief: the system text of a turn, made once before its first model call.

Providers cache the longest common prefix of two requests. So the parts that change least come first, and the text
contains nothing that differs between two turns, such as the time. Imports nothing heavy.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from agent.settings.models import AgentConfigError
from agent.settings.sections import PromptConfig
from catalogue import N_, LazyText


def join_parts(*parts: str) -> str:
    """Join the parts of a brief, the most stable first; empty ones are left out."""
    return "\n\n".join(text for part in parts if (text := part.strip()))


def read_prompt(prompt: PromptConfig) -> str:
    """Return the agent's prompt, the first part of every brief. Raises AgentConfigError if it cannot be read."""
    source = Path(prompt.file) if prompt.file else resources.files("agent") / "prompt.md"
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else LazyText(N_("it is not UTF-8 text"))
        wrong = LazyText(N_("{file!r} cannot be read: {reason}"), file=prompt.file, reason=reason)
        fix = LazyText(N_("check the path; it starts at the folder of the file"))
        raise AgentConfigError(("prompt", "file"), wrong, fix) from error
    return join_parts(text, prompt.extend)
