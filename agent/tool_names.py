"""Find the names of tools and skills in a configuration that nothing has. Imports nothing heavy."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from agent.exposure import OUTWARD
from agent.models.settings import AgentConfigError
from agent.near_misses import suggest_lazily
from agent.permissions.rules import Rule
from catalogue import N_, LazyText

FOREIGN_PREFIXES = ("mcp__", "acp__")  # tools of servers and external agents, which only a running service knows
OTHER_NAMES: Mapping[str, str] = {  # how other programs call these tools
    **dict.fromkeys(("shell", "sh", "run", "exec", "execute", "terminal", "command", "cmd"), "bash"),
    **dict.fromkeys(("read", "cat", "open_file"), "read_file"),
    **dict.fromkeys(("write", "create_file"), "write_file"),
    **dict.fromkeys(("edit", "multiedit", "edit_file", "patch", "apply_patch"), "str_replace"),
    **dict.fromkeys(("fetch", "browse", "browser", "webfetch", "open_url"), "web_fetch"),
    **dict.fromkeys(("search", "websearch", "google"), "web_search"),
    **dict.fromkeys(("find", "find_files"), "glob"),
    **dict.fromkeys(("todowrite", "todos", "plan"), "write_todos"),
    **dict.fromkeys(("agent", "subagent", "delegate"), "task"),
}
NO_SUCH_TOOL = N_("no tool has this name")

Place = tuple[str | int, ...]


def suggest_tool(name: str, known: Collection[str]) -> LazyText | str:
    """Return "did you mean …?", also for names that other programs use, or the list of what there is."""
    plain = name.lower().rstrip("*")
    meant = OTHER_NAMES.get(plain, "")
    return suggest_lazily(meant if meant in known else plain, known)


def unknown_rules(at: Place, rules: Iterable[Rule], known: Collection[str]) -> Iterator[AgentConfigError]:
    """Yield the rules that never match, because no tool has their name."""
    for number, rule in enumerate(rules):
        if not (rule.tool.lower().startswith(FOREIGN_PREFIXES) or rule.names(OUTWARD) or any(map(rule.names, known))):
            wrong = LazyText(N_("the rule {rule!r} never matches: no tool has that name"), rule=str(rule))
            yield AgentConfigError((*at, number), wrong, suggest_tool(rule.tool, known))


def unknown_tools(at: Place, patterns: Sequence[str], known: Collection[str]) -> Iterator[AgentConfigError]:
    """Yield the names and patterns that no tool has."""
    for number, pattern in enumerate(patterns):
        if not pattern.lower().startswith(FOREIGN_PREFIXES) and not fnmatch.filter(known, pattern):
            yield AgentConfigError((*at, number), LazyText(NO_SUCH_TOOL), suggest_tool(pattern, known))


def unknown_skills(at: Place, names: Sequence[str], known: Collection[str]) -> Iterator[AgentConfigError]:
    """Yield the skills that are not installed."""
    for number, name in enumerate(names):
        if name not in known:
            wrong = LazyText(N_("no installed skill has this name"))
            yield AgentConfigError((*at, number), wrong, suggest_lazily(name, known))
