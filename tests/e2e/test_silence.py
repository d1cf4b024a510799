"""Why a message is not answered: in the log, and for `fawn why`."""

from __future__ import annotations

from pathlib import Path

from bot.config.loader import load_config
from tests.e2e.conftest import Start
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask

GROUP, EVE = -100, 78


async def test_the_log_and_fawn_why_name_the_reason(telegram: FakeTelegram, start: Start) -> None:
    service = await start(channels={"telegram": {"access": {"open": False, "allow": [str(JANE)]}}})
    telegram.send("@fawn_bot hello", chat=GROUP, user=EVE)
    await until(lambda: "reason=no_access person=78 thread=telegram/" in service.log(), 30, "the reason")
    telegram.send("nothing for the bot", chat=GROUP, user=JANE)
    await until(lambda: "reason=not_addressed person=42 thread=telegram/" in service.log(), 30, "the other reason")
    line = next(line for line in service.log().splitlines() if "reason=no_access" in line)
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    for what in (words["key"], words["thread"]):
        code, text = await service.fawn("why", what)
        assert (code, "its author has no access there" in text) == (0, True), text
    telegram.send(ask(text="the answer"))
    await telegram.wait(JANE, "the answer", seconds=60)
    await service.quiet()
    [(thread, key)] = service.rows(
        "SELECT c.thread, i.key FROM inbox i JOIN conversations c ON c.key=i.conversation LIMIT 1"
    )
    for what in (thread, key):
        code, text = await service.fawn("why", what)
        assert (code, "it was answered" in text) == (0, True), text
    code, text = await service.fawn("why", "telegram:nothing")
    assert (code, "I know no message and no thread telegram:nothing" in text) == (1, True), text


def test_keys_that_no_model_uses_are_named(tmp_path: Path) -> None:
    keys = {"DEEPSEEK_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "OPENAI_KEY": "k", "OPENAI_MODEL": "m"}
    (tmp_path / "config.yaml").write_text("config_version: 1\n")
    hints = "\n".join(load_config(tmp_path / "config.yaml", keys).hints)
    assert "DEEPSEEK_API_KEY is set, but no model uses it: add `models: [{name: main, preset: deepseek" in hints
    assert "ANTHROPIC_API_KEY is set" in hints
    assert "OPENAI_KEY is set: did you mean OPENAI_API_KEY?" in hints
    assert "OPENAI_MODEL is set, but OPENAI_API_KEY is not" in hints
    assert load_config(tmp_path / "config.yaml", {"OPENAI_API_KEY": "k", **keys}).hints == ()
