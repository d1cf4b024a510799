"""Run turns until they are done or the process is killed: `python -m tests.support.agent_worker FOLDER URL TURNS`.

FOLDER holds the checkpoints, the ledger and the file of effects; TURNS is a JSON list of [conversation, key, text].
Prints a line per conversation that is done; the conversations run side by side.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from agent.blocks import View
from agent.core.context import Turn
from agent.settings.models import ModelSettings
from agent.settings.sections import AgentSettings
from agent.turn.factory import build_agent
from agent.turn.turn import Agent
from tests.support.agent_database import SqliteDatabase
from tests.support.agent_tools import TOOLS
from tests.support.current_config import SERVICES
from tests.support.turn_context import make_turn_context, say


async def work(agent: Agent, database: SqliteDatabase, folder: Path, turns: list[tuple[str, str, str]]) -> None:
    """Run the turns of one conversation in order. Finished turns run again, as after a lost record."""
    for conversation, key, text in turns:
        context = await make_turn_context(database, folder / "files", conversation)
        shown = View()
        async for block in agent.run(Turn(conversation, (say(text, key),), merge_window_seconds=0.0), context):
            shown.add(block)
        print(json.dumps([key, shown.final().text]), flush=True)


async def main(folder: Path, url: str, turns: list[tuple[str, str, str]]) -> None:
    async with SqliteDatabase(folder / "agent.db") as database:
        models = (ModelSettings("m", model="scripted", base_url=url),)
        agent = await build_agent(models, AgentSettings(retry_seconds=0.05), database, SERVICES, TOOLS)
        print("ready", flush=True)
        conversations = dict.fromkeys(turn[0] for turn in turns)
        async with asyncio.TaskGroup() as group:
            for name in conversations:
                mine = [turn for turn in turns if turn[0] == name]
                group.create_task(work(agent, database, folder, mine), name=f"worker {name}")
        await agent.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))
