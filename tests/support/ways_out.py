"""Every way in which the agent can carry data out of a conversation, and what stands before it.

A new tool is in `WAYS_OUT` or in `STAYS`: `tests/unit/agent/test_ways_out.py` compares both with the tools that exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agent.exposure import WayOut

Guard = WayOut | Literal["shared", "confirmed", "right"]
"""A way that `Exposure.destination` judges; or the calls that follow are judged by what the caller has met (shared), a
person confirms it (confirmed), or it needs a right that reaches as far (right)."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way out: where data can go, by which tools, its guard, and the test that drives it through the service."""

    to: str
    tools: tuple[str, ...]
    guard: Guard
    test: str


OUTWARD_TEST = "tests/e2e/test_outward.py"
WAYS_TEST = "tests/e2e/test_ways_out.py::test_each_way_out_asks_whatever_wildcards_allow"
WAYS_OUT = (
    Way(
        "the server of a page",
        ("web_fetch", "check_citations"),
        "address",
        f"{OUTWARD_TEST}::test_a_page_that_wants_a_file_sent_leads_to_a_question_with_the_exact_url",
    ),
    Way(
        "later conversations",
        ("memory",),
        "note",
        "tests/unit/agent/test_exposure.py::test_a_note_asks_where_strangers_words_were_read",
    ),
    Way("a search provider", ("web_search",), "query", WAYS_TEST),
    Way("an MCP server", ("mcp__*", "mcp_read_resource"), "arguments", WAYS_TEST),
    Way(
        "an external agent", ("invoke_agent",), "arguments", "tests/unit/agent/test_ways_out.py::test_all_arguments_ask"
    ),
    Way("whoever has the link of a preview", ("expose",), "arguments", WAYS_TEST),
    Way("the network of the sandbox, in the background, too", ("bash", "run_skill"), "network", WAYS_TEST),
    Way(
        "a sub-agent or a background agent, and what it calls",
        ("task",),
        "shared",
        f"{OUTWARD_TEST}::test_a_sub_agent_and_a_background_task_inherit_what_their_caller_has_met",
    ),
    Way(
        "the request that follows a background command",
        ("bash", "run_skill"),
        "shared",
        "tests/e2e/test_ways_out.py::test_what_follows_a_background_command_asks_as_its_request_would",
    ),
    Way(
        "a later run, wherever it posts",
        ("schedule",),
        "confirmed",
        "tests/e2e/test_schedules.py::test_only_its_owner_confirms_and_an_unconfirmed_schedule_never_fires",
    ),
    Way(
        "other chats of the workspace, by a note",
        ("memory",),
        "right",
        "tests/e2e/test_roles.py::test_the_agent_saves_a_note_of_the_workspace_for_whose_right_reaches_it_only",
    ),
)
STAYS: Mapping[str, str] = {
    "ask_clarification": "asks in the same chat",
    "background_tasks": "lists and ends tasks of the person",
    "glob": "reads the sandbox",
    "grep": "reads the sandbox",
    "ls": "reads the sandbox",
    "mcp_list_resources": "asks MCP servers for their lists, without words of the model",
    "present_files": "posts in the same chat",
    "propose_skill": "an operator reads and accepts it before other chats get it",
    "read_file": "reads the sandbox",
    "str_replace": "writes into the sandbox",
    "view_image": "reads the sandbox",
    "write_file": "writes into the sandbox",
    "write_todos": "shows the plan in the same chat",
}
