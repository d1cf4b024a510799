"""Measure three tasks in parallel against the longest one, and what a task costs beyond its model's own time."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from bench.harness import Job, Row, World, median, new_chats, show
from bench.latency import FAST

TASK_SECONDS = (0.5, 1.0, 1.5)


@dataclass(slots=True)
class DelegatingJob(Job):
    """A message whose answer needs tasks of these lengths at the same time."""

    seconds: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        calls = [self._call(number, seconds) for number, seconds in enumerate(self.seconds)]
        steps = [{"calls": calls}] if calls else []
        directive = {"id": self.id, "tokens": self.tokens, "word": f"{self.id}_", "steps": steps}
        return f"go ::{orjson.dumps(directive).decode()}"

    def _call(self, number: int, seconds: float) -> dict[str, object]:
        own = {"id": f"{self.id}-{number}", "delay_ms": seconds * 1000, "text": "ended"}
        prompt = f"work ::{orjson.dumps(own).decode()}"
        args = {"description": f"part {number}", "prompt": prompt, "kind": "general-purpose"}
        return {"name": "task", "args": args}


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals."""
    count = 20 if full else 8
    chats = new_chats(count)
    async with world.service("fawn", rates=FAST) as service:
        del service  # only its answers are measured
        for chat in new_chats(3):  # warm up
            await world.turn(DelegatingJob(chat, seconds=(0.0,)))
        plain = [await world.turn(DelegatingJob(chat)) for chat in chats]
        single = [await world.turn(DelegatingJob(chat, seconds=(0.2,))) for chat in chats]
        several = [await world.turn(DelegatingJob(chat, seconds=TASK_SECONDS)) for chat in chats]
    whole = median([turn.final_visible - turn.received for turn in several])
    bare = median([turn.final_visible - turn.received for turn in plain])
    one = median([turn.final_visible - turn.received for turn in single])
    rows = [
        Row(
            "three tasks in parallel / the longest one",
            whole / max(TASK_SECONDS),
            "x",
            goal=1.15,
            note=f"{count} turns",
        ),
        Row("a turn with a task, beyond both models and a bare turn", (one - bare - 0.2) * 1000, goal=30),
    ]
    show("Sub-agents", rows)
    return rows
