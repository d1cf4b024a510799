"""What features check: errors of a check are faults, and a fault of one for a start refuses the configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent.settings.models import AgentConfigError
from bot.base.findings import Check, Finding
from bot.base.skill_library import open_library
from bot.config.source import ConfigSource
from bot.database.database import Database
from bot.fleet.reload import ConfigReloader
from bot.service.agent_builder import AgentBuilder
from tests.support.current_config import current_of

Begin = Callable[..., Awaitable[None]]


async def _fail() -> Finding:
    raise ZeroDivisionError("by zero")


def _check(finding: Finding, *, at_start: bool = True) -> Check:
    async def run() -> Finding:
        return finding

    return Check(finding.subject, run, at_start)


async def test_an_error_of_a_check_is_its_fault() -> None:
    [found] = await Check("dice", _fail).findings()
    assert (found.state, found.subject) == ("fault", "dice")
    assert found.text == "the check failed: ZeroDivisionError: by zero"


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Return what begins with these checks."""

    async def begin(*checks: Check) -> None:
        current = current_of()
        async with Database(tmp_path / "fawn.db") as store:
            reloader = ConfigReloader(
                store, current, ConfigSource(None, None), print, lambda _config: checks, lambda _name, _connect: None
            )
            builder = AgentBuilder(store, open_library(current.config), None, runs_commands=False)
            await reloader.begin(builder)
            await current.close()

    return begin


async def test_a_fault_refuses_a_start_and_names_every_other_one(begin: Begin) -> None:
    faults = [_check(Finding("fault", name, f"{name} is wrong", "mend it")) for name in ("dice", "cards")]
    with pytest.raises(AgentConfigError, match="dice is wrong → mend it") as raised:
        await begin(*faults)
    assert [each.wrong for each in raised.value.others] == ["cards is wrong"]


async def test_a_note_and_a_check_for_another_time_let_it_start(begin: Begin) -> None:
    note, later = Finding("note", "dice", "are few"), Finding("fault", "cards", "are gone")
    await begin(_check(note), _check(later, at_start=False))
