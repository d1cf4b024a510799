"""Turn tool exceptions into results for the model, without host paths."""

from __future__ import annotations

import logging

from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.errors import GraphBubbleUp

from agent.policies.base import ToolCallHandler, ToolCallResult
from sandbox.base import SandboxError

log = logging.getLogger(__name__)


class ToolErrorPolicy:
    """Exceptions of a tool become its result. Sandbox and tool errors are written for the model and shown as they
    are; of anything else only the kind is told, the rest goes to the log."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool; an interrupt passes, it is no fault."""
        name = request.tool_call["name"]
        try:
            return await handler(request)
        except GraphBubbleUp:
            raise
        except (SandboxError, ToolException) as error:
            text = f"{name} failed: {error}"
        except TimeoutError:
            text = f"{name} failed: it took too long."
        except Exception as error:  # the edge of a tool: whatever it raises, the turn goes on
            log.exception("tool %s failed", name)
            text = f"{name} failed inside ({type(error).__name__}). This is a fault of the tool, not of its arguments."
        return ToolMessage(text, tool_call_id=request.tool_call["id"], name=name, status="error")
