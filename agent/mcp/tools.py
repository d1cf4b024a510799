"""Tools of MCP servers as tools of the agent, and `tool_search`, which finds and promotes them."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from agent.core.tool import AgentTool, ToolTraits, describe_as
from agent.mcp.bounds import clean_text
from agent.memory.words import STOP_WORDS, content_words, stem
from catalogue import N_

TOOL_SEARCH = "tool_search"
CHARS_PER_TOKEN = 4
MAX_FOUND = 8
MAX_LISTED_CHARS = 4000  # of the names in the description of `tool_search`
MAX_LINE_CHARS = 200
MAX_READ_CHARS = 1000  # of a description that a search reads
NAME_WEIGHT = 3
PREFIX = "mcp__"
STARTING = "(still starting, or down: search to learn which)"
_CAMEL = re.compile(r"(?<=[a-z\d])(?=[A-Z])")
PROMOTED_KEY = "promoted"  # in the graph's state
_SEARCH = f"""Find tools of connected systems and make them available: their schemas follow in your next step, and then
you can call them. Query: words, or `select:NAME,NAME` for exact names. At most {MAX_FOUND} are found at once.
The tools, by server; `read` of `notes` is `mcp__notes__read` (descriptions are found, too):"""

SEARCH_TRAITS = ToolTraits(
    describe=describe_as(N_("Looking for tools: {query}")), effect="none", read_only=True, permission="allow"
)
Run = Callable[[dict[str, Any], str], Awaitable[ToolMessage | Command[Any]]]
Wait = Callable[[], Awaitable[tuple[Mapping[str, "DynamicTool"], str]]]
"""Wait for the servers that start. Returns the tools then, and a sentence about the servers that are still missing."""


class DynamicTool(AgentTool):
    """A tool that was not known when the graph was built. Its arguments are checked by its server, so langchain's
    handling of arguments, whose own names could collide with them, is left out."""

    run_call: Run
    schema_of_args: dict[str, Any]

    @functools.cached_property
    def json_schema(self) -> dict[str, Any]:
        """The tool as OpenAI-compatible servers expect it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema_of_args}
        return {"type": "function", "function": function}

    @functools.cached_property
    def tokens(self) -> int:
        """About how many tokens it takes in a request."""
        return len(orjson.dumps(self.json_schema, default=str)) // CHARS_PER_TOKEN

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run a tool call."""
        return await self.run_call(input["args"], input["id"])


def make_dynamic_tool(name: str, description: str, schema: dict[str, Any], traits: ToolTraits, run: Run) -> DynamicTool:
    """Return a tool with this JSON schema of its arguments."""
    return DynamicTool(
        name=name, description=description, args_schema=schema, traits=traits, run_call=run, schema_of_args=schema
    )


def promote(old: list[str], new: list[str]) -> list[str]:
    """Append new names in order: the tools before them stay as they were, for the provider's cache."""
    return list(dict.fromkeys([*old, *new]))


def make_tool_search(
    tools: Mapping[str, DynamicTool], starting: Sequence[str] = (), wait: Wait | None = None
) -> DynamicTool:
    """Return the tool that finds these tools. The tools of the servers in `starting` are not known yet: a search for
    which nothing else is found waits for them."""

    async def run(args: dict[str, Any], call: str) -> ToolMessage | Command[Any]:
        query = str(args.get("query", ""))
        found, missing = search_tools(tools, query), ""
        if wait and not found:
            later, missing = await wait()
            found = search_tools(later, query)
        if not found:
            text = f"No tool matches {query[:100]!r}. Try other words, or names from the list.{missing}"
            return ToolMessage(text, tool_call_id=call, name=TOOL_SEARCH)
        lines = [f"- {tool.name}: {_first_line(tool.description)}" for tool in found]
        text = "\n".join(["Available now:", *lines]) + missing
        message = ToolMessage(text, tool_call_id=call, name=TOOL_SEARCH)
        return Command(update={PROMOTED_KEY: sorted(tool.name for tool in found), "messages": [message]})

    schema = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "Words, or select:NAME,NAME."}},
        "required": ["query"],
        "additionalProperties": False,
    }
    return make_dynamic_tool(TOOL_SEARCH, f"{_SEARCH} {_listed(list(tools), starting)}", schema, SEARCH_TRAITS, run)


def search_tools(tools: Mapping[str, DynamicTool], query: str) -> list[DynamicTool]:
    """Return the tools that `select:` names or that words match; a word in a name counts more."""
    if query.strip().startswith("select:"):
        wanted = {each.strip() for each in query.strip().removeprefix("select:").split(",")}
        return [tool for name, tool in tools.items() if name in wanted][:MAX_FOUND]
    words = _words_of(query)
    named = {name: _words_of(name) for name in tools}
    described = {name: _words_of(tool.description[:MAX_READ_CHARS]) for name, tool in tools.items()}
    counts = Counter(word for name in tools for word in named[name] | described[name])
    weights = {word: math.log(1 + len(tools) / counts[word]) for word in words if counts[word]}  # rare words weigh more
    scores = {
        name: sum(
            weight * (NAME_WEIGHT * (word in named[name]) + (word in described[name]))
            for word, weight in weights.items()
        )
        for name in tools
    }
    best = sorted((name for name in tools if scores[name]), key=lambda name: (-scores[name], name))
    return [tools[name] for name in best[:MAX_FOUND]]


def _words_of(text: str) -> set[str]:
    """Return the words of a text that say something; `readFile` and `read_file` have two."""
    parted = _CAMEL.sub(" ", text).replace("_", " ")
    return {stem(word) for word in content_words(parted) if word not in STOP_WORDS and len(word) > 1}


def _listed(names: Sequence[str], starting: Sequence[str] = ()) -> str:
    """Return the names by server, as many of each as fit, and how many do not: no server is left out."""
    servers: dict[str, list[str]] = {}
    for name in names:
        server, _, tool = name.removeprefix(PREFIX).partition("__")
        servers.setdefault(server, []).append(tool or name)
    heads = len("".join(servers)) + len("".join(starting)) + len(STARTING) * len(starting)
    rooms = _share([sum(len(tool) + 2 for tool in tools) for tools in servers.values()], MAX_LISTED_CHARS - heads)
    known = [
        f"{server}: {_list_within(tools, room)}" for (server, tools), room in zip(servers.items(), rooms, strict=True)
    ]
    return "; ".join([*known, *(f"{server}: {STARTING}" for server in starting)])


def _share(wanted: Sequence[int], room: int) -> list[int]:
    """Return how much of the room each one gets: what a small one leaves, the large ones share."""
    shares = [0] * len(wanted)
    for rank, place in enumerate(sorted(range(len(wanted)), key=lambda place: wanted[place])):
        shares[place] = max(0, min(wanted[place], room // (len(wanted) - rank)))
        room -= shares[place]
    return shares


def _list_within(names: Sequence[str], room: int) -> str:
    """Return the names that fit, at least one."""
    listed: list[str] = []
    for name in names:
        room -= len(name) + 2
        if room < 0 and listed:
            break
        listed.append(name)
    more = len(names) - len(listed)
    return ", ".join(listed) + (f" … and {more} more" if more else "")


def _first_line(text: str) -> str:
    return clean_text(text.partition("\n")[0], MAX_LINE_CHARS)
