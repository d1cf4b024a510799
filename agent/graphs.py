"""Name the type of the graphs in which agents work."""

from __future__ import annotations

from typing import Any

from langgraph.graph.state import CompiledStateGraph

from agent.context import TurnContext

Graph = CompiledStateGraph[Any, TurnContext, Any, Any]
