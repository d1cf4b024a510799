"""Map tool exceptions to results for the model, without host paths."""

from __future__ import annotations

import logging

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.policy import ToolCallHandler, ToolCallResult
from sandbox.base import SandboxError

log = logging.getLogger(__name__)


class ToolErrorPolicy:
    """Return a tool's exception as its result. The text of sandbox and tool errors is written for the model; of any
    other exception the model gets only the type, and the log the rest."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool. An interrupt is not an error and passes through."""
        name = request.tool_call["name"]
        try:
            return await handler(request)
        except GraphBubbleUp:
            raise
        except (SandboxError, ToolException) as error:
            text = f"{name} failed: {error}"
        except TimeoutError:
            text = f"{name} failed: it timed out."
        except Exception as error:  # a tool may raise anything, and the turn must continue
            log.exception("tool %s failed", name)
            text = f"{name} failed internally ({type(error).__name__}). The fault is in the tool, not in its arguments."
        return ToolMessage(text, tool_call_id=request.tool_call["id"], name=name, status="error")
