"""Judge the shell lines that take longest, with 125 rules: nothing else waits meanwhile, so each has 50 ms of CPU."""

from __future__ import annotations

import time

from bench.harness import Row, World, show

GOAL_MS = 50


async def run(world: World, full: bool = False) -> list[Row]:
    """Measure each line without what was remembered of it; `full` measures the best of more times."""
    from agent.permissions.rules import judge
    from agent.permissions.shell import parse_shell_line
    from tests.support.slow_lines import MANY_RULES, SLOW_LINES, shell_call

    judge(MANY_RULES, shell_call("git status"))  # compiles the rules
    worst = (0.0, "")
    for line in SLOW_LINES:
        times = []
        for _ in range(10 if full else 3):
            parse_shell_line.cache_clear()
            began = time.thread_time()
            judge(MANY_RULES, shell_call(line))
            times.append((time.thread_time() - began) * 1000)
        worst = max(worst, (min(times), line))
    note = f"{worst[1][:16]!r}, {len(worst[1]):,} characters, of {len(SLOW_LINES)} lines"
    rows = [Row("the worst shell line judged, CPU", worst[0], goal=GOAL_MS, note=note)]
    show("Judgement of commands", rows)
    return rows
