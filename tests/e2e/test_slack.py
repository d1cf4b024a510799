"""The whole service in a Slack workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.slack import APP_TOKEN, BOT, BOT_TOKEN, JANE, OPS, FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.support.service_process import Service

DIRECT = f"D{JANE}"


class InSlack(Service):
    """`fawn run` with Slack only; only Jane has access."""

    sandboxed = True

    def __init__(self, folder: Path, slack: FakeSlack, model: FakeModel) -> None:
        self.slack = slack
        super().__init__(folder, FakeTelegram(), model, {})

    def channels(self) -> dict[str, dict[str, Any]]:
        tokens = {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN, "base_url": self.slack.api_url}
        return {"slack": {**tokens, "access": {"allow": [JANE], "pairing": False}}}

    async def start(self) -> None:
        await self.spawn("run", "--config", "config.yaml")
        await until(lambda: self.slack.sockets or self._ended(), what="the event socket")
        assert not self._ended(), self.log()

    def asked(self) -> str:
        """Return the user messages of the last model call."""
        return "\n".join(str(m["content"]) for m in self.model.requests()[-1].messages if m["role"] == "user")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[InSlack]:
    async with FakeModel() as model, FakeSlack() as slack, InSlack(tmp_path, slack, model) as made:
        yield made


# Case 9 of docs/cases.md
async def test_10_and_11_messages_and_files_are_answered(service: InSlack) -> None:
    slack = service.slack
    asked = slack.send("remember 7", DIRECT)
    await slack.wait("remember 7", DIRECT, asked)
    slack.send("which number?", DIRECT, thread=asked)
    await slack.wait("which number?", DIRECT, asked)
    assert "remember 7" in service.asked()
    await until(lambda: slack.conversation(DIRECT).sessions == {asked: "active"}, what="the end of the session")
    long = "用中文回答。" * 290  # fits in one streamed message
    other = slack.send(long, DIRECT)
    await slack.wait(long, DIRECT, other)
    assert "remember 7" not in service.asked()

    root = slack.send(f"<@{BOT}> first question")
    slack.send("second question", thread=root)
    slack.send(f"<@{BOT}> third question", thread=root)
    await slack.wait("third question", thread=root)
    await service.quiet()
    asked = service.asked()
    assert asked.index("first") < asked.index("second") < asked.index("third")
    assert "remember 7" not in asked

    slack.send("summarize", thread=root, files={"report.pdf": b"%PDF-1.7"}, mime="application/pdf")
    await slack.wait("report.pdf", thread=root)
    assert "/mnt/user-data/uploads/report.pdf" in service.asked()
    [stored] = service.data.glob("threads/*/uploads/report.pdf")
    assert stored.read_bytes() == b"%PDF-1.7"

    slack.send(f"<@{BOT}> /new", thread=root)
    await slack.wait("A fresh start: I no longer see what was said before.", thread=root)
    slack.send(f"<@{BOT}> what do you know?", thread=root)
    await slack.wait("what do you know?", thread=root)
    assert "second question" not in service.asked()


# Case 3 of docs/cases.md
async def test_people_without_access_get_no_reaction_and_read_alone_that_they_have_none(service: InSlack) -> None:
    ts = service.slack.send(f"<@{BOT}> hello", user="U2")
    service.slack.send("hello", "DU2", user="U2")
    await until(
        lambda: service.rows("SELECT 1 FROM inbox WHERE error IN ('no_access', 'waits_for_pairing')"),
        what="the stranger's message",
    )
    service.slack.send(f"<@{BOT}> hello", thread=ts)
    await service.slack.wait("hello", thread=ts)
    await service.quiet()
    told, answer = service.slack.visible(OPS)
    assert (told.only_for, answer.only_for) == ("U2", "")
    assert told.text.startswith("I don't know you yet")
    assert service.slack.visible("DU2") == []
    assert not service.slack.calls_of("reactions.add")
