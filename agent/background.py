"""Background tasks as the agent knows them: commands and agents that outlive the turn which starts them."""

from __future__ import annotations

from typing import Protocol


class BackgroundWork(Protocol):
    """The background tasks of a turn's requester. Each answer is a text for the model."""

    async def start_command(self, key: str, tool: str, title: str, command: str, follow_up: str) -> str:
        """Run a command in the conversation's sandbox. The same `key` starts it once."""

    async def start_agent(self, key: str, title: str, prompt: str, kind: str) -> str:
        """Let a sub-agent of this kind work in a conversation and a sandbox of its own, with the limits of the agent
        that starts it. The same `key` starts it once."""

    async def list_tasks(self) -> str:
        """Return the tasks of the requester with their states."""

    async def cancel(self, number: int) -> str:
        """End a task of the requester."""
