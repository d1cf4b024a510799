"""Write the system texts of sub-agents."""

from __future__ import annotations

import orjson

from agent.core.brief import join_parts
from agent.settings.subagents import KindSettings

ROLE = """You are a sub-agent: another agent gave you the task below. Nobody reads what you write on the way; your last
message is your result, and the other agent sees nothing else of your work. So it must contain everything asked for:
findings, numbers, sources, paths of files. State what you could not do or verify. Ask a person only if you cannot
continue without the answer. Files for the person belong in /mnt/user-data/outputs."""
BACKGROUND = """You are a sub-agent: another agent gave you the task below, to do in the background. The person gets
your last message as the result and sees nothing else of your work. So it must contain everything asked for: findings,
numbers, sources, paths of files. State what you could not do or verify. Ask the person only if you cannot continue
without the answer. You have a sandbox of your own, which is empty at first; files for the person belong in
/mnt/user-data/outputs."""
SHARED_SANDBOX = "You share the sandbox and its folders with the other agent and other sub-agents."
OWN_SANDBOX = "You have a sandbox of your own, which is empty at first. What you leave in outputs is copied from there."
CHECKER = """You check the result of another agent's task. Find out with your tools whether the result is correct and
complete; do not repeat the whole task, and do not change any file. Answer with `PASSED` or `FAILED`, and then the
reason in at most three sentences."""


def worker_brief(kind: KindSettings, *, background: bool = False) -> str:
    """Return the system text of a sub-agent."""
    schema = orjson.dumps(kind.output_schema, option=orjson.OPT_INDENT_2).decode() if kind.output_schema else ""
    answer = f"Your last message must be one JSON value that fits this schema, without other text:\n{schema}"
    role = join_parts(ROLE, OWN_SANDBOX if kind.sandbox == "own" else SHARED_SANDBOX)
    return join_parts(BACKGROUND if background else role, kind.prompt, answer if schema else "")
