"""People who are gone, in a running service: by the command line, and by Slack's word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_slack import DIRECT, InSlack
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.slack import JANE as JANE_IN_SLACK
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, bash

GONE = "U8"
GRANT = """INSERT INTO permission_grants(conversation, tool, subject, channel, person, name, given)
    VALUES ('*', 'bash', 'ls', 'slack', :person, 'Kim', 0)"""


@pytest.mark.usefixtures("bubblewrap")
async def test_the_command_stops_a_live_run_of_a_running_service(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(ask(steps=[bash("sleep 60")], text="too late"))
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE finished IS NULL"), what="a run")
    await until(lambda: model.requests(), what="a model call")
    code, said = await service.fawn("offboard", "telegram", str(JANE))
    assert code == 0, said
    assert f"Offboarded {JANE} on telegram." in said
    assert "1 request at work is being stopped." in said
    await service.quiet()  # well before the command ends
    assert not service.rows("SELECT 1 FROM runs WHERE finished IS NULL")
    assert not [text for text in telegram_texts(telegram) if "too late" in text]
    assert service.rows("SELECT 1 FROM jobs WHERE kind='stop_work'") == []


def telegram_texts(telegram: FakeTelegram) -> list[str]:
    return [shown.text for shown in telegram.visible(JANE)]


class Office(InSlack):
    """Slack with an operator, Jane."""

    def channels(self) -> dict[str, dict[str, object]]:
        given = super().channels()
        given["slack"]["access"] = {"allow": [JANE_IN_SLACK], "operators": [JANE_IN_SLACK], "pairing": False}
        return given


def change(service: Service, sql: str, **values: str) -> None:
    service.change(sql, **values)


async def test_a_service_offboards_whom_slack_deactivated_the_day_before(tmp_path: Path) -> None:
    async with FakeModel() as model, FakeSlack() as slack:
        service = Office(tmp_path, slack, model)
        try:
            await service.start()
            asked = slack.send("hello", DIRECT)
            await slack.wait("hello", DIRECT, asked)
            await service.quiet()
            assert await service.stop() == 0
            slack.person(GONE, deleted=True)
            change(service, GRANT, person=GONE)
            change(service, GRANT.replace("'ls'", "'pwd'"), person=JANE_IN_SLACK)
            await service.start()
            await until(lambda: service.rows("SELECT person FROM departures") == [(GONE,)], what="the first answer")
            assert len(service.rows("SELECT 1 FROM permission_grants")) == 2
            assert await service.stop() == 0
            change(service, "UPDATE departures SET since=since-86400")
            await service.start()
            await slack.wait("Offboarded U8 on slack.", DIRECT)
            assert service.rows("SELECT person FROM permission_grants") == [(JANE_IN_SLACK,)]
            assert service.rows("SELECT 1 FROM departures") == []
        finally:
            await service.kill()
        assert "Traceback" not in service.log(), service.log()
