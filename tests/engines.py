"""Engines that a test may need and a machine may lack."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from pathlib import Path

import pytest

from sandbox.base import SandboxUnavailable
from sandbox.bubblewrap import Bubblewrap, BubblewrapSettings


@functools.cache
def bubblewrap_problem() -> str:
    """Why bubblewrap does not work here, with the fix; "" when it does."""
    problems: list[str] = []

    async def probe() -> None:
        provider = Bubblewrap(BubblewrapSettings(Path("skills")))
        try:
            await provider.check()
        except SandboxUnavailable as error:
            problems.append(str(error))
        await provider.close()

    # A loop of its own: the test that asks may already be inside one.
    thread = threading.Thread(target=lambda: asyncio.run(probe()), name="probe")
    thread.start()
    thread.join()
    return "".join(problems)


def need_bubblewrap() -> None:
    """Skip the test, or fail it where FAWN_REQUIRE_ENGINES=1 forbids that, when bubblewrap does not work."""
    if problem := bubblewrap_problem():
        if os.environ.get("FAWN_REQUIRE_ENGINES") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
