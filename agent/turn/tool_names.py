"""Find the names of tools and skills in a configuration that nothing has. Imports nothing heavy."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.exposure import OUTWARD
from agent.near_misses import DID_YOU_MEAN, closest_name, suggest_lazily
from agent.permissions.rules import Rule
from agent.settings.models import AgentConfigError
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
NO_SUCH_OWNER = N_("no MCP server or external agent has this name")

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class KnownTools:
    """The names of tools, and how those begin that only a running service knows, such as `mcp__github__`."""

    names: Collection[str]
    foreign: Collection[str] = ()


def suggest_tool(name: str, known: Collection[str]) -> LazyText | str:
    """Return "did you mean …?", also for names that other programs use, or the list of what there is."""
    plain = name.lower().rstrip("*")
    meant = OTHER_NAMES.get(plain, "")
    return suggest_lazily(meant if meant in known else plain, known)


def unknown_rules(at: Place, rules: Iterable[Rule], known: KnownTools) -> Iterator[AgentConfigError]:
    """Yield the rules that never match, because no tool has their name."""
    for number, rule in enumerate(rules):
        if _is_foreign(rule.tool):
            yield from _unknown_owner((*at, number), rule.tool, known)
        elif not (rule.names(OUTWARD) or any(map(rule.names, known.names))):
            wrong = LazyText(N_("the rule {rule!r} never matches: no tool has that name"), rule=str(rule))
            yield AgentConfigError((*at, number), wrong, suggest_tool(rule.tool, known.names))


def unknown_tools(at: Place, patterns: Sequence[str], known: KnownTools) -> Iterator[AgentConfigError]:
    """Yield the names and patterns that no tool has."""
    for number, pattern in enumerate(patterns):
        yield from unknown_tool((*at, number), pattern, known)


def unknown_tool(at: Place, pattern: str, known: KnownTools) -> Iterator[AgentConfigError]:
    """Yield the fault of a name or pattern that no tool has."""
    if _is_foreign(pattern):
        yield from _unknown_owner(at, pattern, known)
    elif not fnmatch.filter(known.names, pattern):
        yield AgentConfigError(at, LazyText(NO_SUCH_TOOL), suggest_tool(pattern, known.names))


def _is_foreign(pattern: str) -> bool:
    return pattern.lower().startswith(FOREIGN_PREFIXES)


def _unknown_owner(at: Place, pattern: str, known: KnownTools) -> Iterator[AgentConfigError]:
    """Yield the fault of a pattern whose server or external agent is none. One for all servers may come first."""
    fixed = re.split(r"[*?[]", pattern.lower(), maxsplit=1)[0]
    begins = [each.lower() for each in known.foreign]
    if fixed in FOREIGN_PREFIXES or any(fixed.startswith(each) or each.startswith(fixed) for each in begins):
        return
    kind, name, *_rest = fixed.split("__")
    others = [each.split("__")[1] for each in begins if each.startswith(f"{kind}__")]
    if close := closest_name(name, others):
        fix = LazyText(DID_YOU_MEAN, name=f"{kind}__{close}__*")
    else:
        fix = LazyText(N_("add it to `mcp.servers` or `external_agents`, or remove this"))
    yield AgentConfigError(at, LazyText(NO_SUCH_OWNER), fix)


def unknown_skills(at: Place, names: Sequence[str], known: Collection[str]) -> Iterator[AgentConfigError]:
    """Yield the skills that are not installed."""
    for number, name in enumerate(names):
        if name not in known:
            wrong = LazyText(N_("no installed skill has this name"))
            yield AgentConfigError((*at, number), wrong, suggest_lazily(name, known))
