"""What every tool promises to the model and to the policies around it."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from agent.core.tool import AgentTool, Effect
from agent.exposure import Brings, WayOut
from agent.permissions.rules import Verdict

MAX_SCHEMA_CHARS = 6000  # it goes with each call of the model


class ToolContract:
    """A subclass has the fixture `tool`."""

    def test_its_name_is_one_that_every_provider_accepts(self, tool: AgentTool) -> None:
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,63}", tool.name)

    def test_the_model_learns_what_it_does_and_what_each_argument_is(self, tool: AgentTool) -> None:
        schema = tool.json_schema["function"]
        assert schema["description"].strip(), "write a docstring"
        arguments = schema["parameters"].get("properties", {})
        missing = [name for name, each in arguments.items() if not each.get("description")]
        assert missing == [], 'describe each argument: Annotated[int, "what it is"]'
        assert "runtime" not in arguments
        assert len(json.dumps(schema)) <= MAX_SCHEMA_CHARS

    def test_arguments_that_it_does_not_have_are_refused(self, tool: AgentTool) -> None:
        assert getattr(tool.args_schema, "model_config", {}).get("extra") == "forbid", "make it with make_tool"

    @pytest.mark.asyncio
    async def test_it_runs_on_the_event_loop(self, tool: AgentTool) -> None:
        assert tool.coroutine is not None, "make it from an async function with make_tool"

    def test_its_traits_are_ones_that_the_policies_know(self, tool: AgentTool) -> None:
        traits = tool.traits
        assert traits.permission in get_args(Verdict)
        assert traits.way_out is None or traits.way_out in get_args(WayOut)
        assert traits.brings is None or traits.brings in get_args(Brings)
        assert callable(traits.effect) or traits.effect in get_args(Effect)

    def test_what_only_reads_changes_nothing(self, tool: AgentTool) -> None:
        """In plan mode, what only reads runs without a question, and after a crash it runs again."""
        assert not tool.traits.read_only or tool.traits.effect_of({}) == "none"

    def test_its_step_can_be_described_while_its_arguments_arrive(self, tool: AgentTool) -> None:
        for args in ({}, dict.fromkeys(tool.json_schema["function"]["parameters"].get("properties", {}), "x")):
            assert tool.traits.describe is None or isinstance(tool.traits.describe(args), str)
