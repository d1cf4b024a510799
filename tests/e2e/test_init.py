"""`fawn init`: at a terminal, by answers, and again after it stopped; each ends with an answer of the real service."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest
import yaml

from tests.fakes.model import FakeModel
from tests.fakes.telegram import JANE, TOKEN, FakeTelegram
from tests.support.forked_services import run_forked
from tests.support.service_process import ask
from tests.support.wizard import NewService

KEY = "sk-the-right-one"
DOWN = "\x1b[B"  # to the next choice


class EmptyFolder(NewService):
    """A folder without models; only what this machine's tests need is configured."""

    def environment(self) -> dict[str, str]:
        kept = super().environment()
        del kept["OPENAI_API_KEY"]
        return kept | {"PROMPT_TOOLKIT_NO_CPR": "1", **self.more_environment}


@pytest.fixture
def folder(tmp_path: Path, telegram: FakeTelegram, model: FakeModel) -> EmptyFolder:
    model.api_key = KEY
    service = EmptyFolder(tmp_path, telegram, model, {"channels": {"telegram": {"access": {}}}})
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    del config["models"], config["channels"], config["sandbox"]
    config["sandbox"] = {"image": "not-there"}
    (tmp_path / "config.yaml").write_text("# mine\n" + yaml.safe_dump(config))
    return service


def given(server: FakeModel, **more: str) -> dict[str, str]:
    return {"where": "console", "provider": "other", "base_url": f"{server.base_url}/v1", "key": KEY, **more}


async def test_a_person_at_a_terminal_gets_from_nothing_to_the_first_answer(
    folder: EmptyFolder, model: FakeModel, tmp_path: Path
) -> None:
    async with folder.wizard("init") as wizard:
        await wizard.shows("Where do you want to talk to it first")
        await wizard.types("")
        await wizard.shows("Which model do you want to use")
        await wizard.types(DOWN * 9)
        await wizard.shows("URL of the server")
        await wizard.types(f"{model.base_url}/v1")
        await wizard.shows("Key of the server")
        await wizard.types("sk-wrong")
        await wizard.shows(r"refused the key \(401\)")
        await wizard.shows("Key of the server")
        await wizard.types(KEY)
        await wizard.shows("scripted answers: ")
        await wizard.shows("Where may the agent run commands")
        await wizard.types("")
        await wizard.shows("No price is known. Tokens a day")
        await wizard.types("a lot")
        await wizard.shows("is not a number of tokens")
        await wizard.types("\x15" + "5M")
        await wizard.shows(r"\+  api_key: \$MODEL_API_KEY")
        await wizard.shows(r"\+MODEL_API_KEY=…")
        await wizard.shows("Write this")
        await wizard.types("y")
        await wizard.shows("> Say in one sentence that you are ready")
        await wizard.shows("Start Fawn with `fawn run`")
        async with asyncio.timeout(60):
            assert await wizard.process.wait() == 0
        assert KEY not in wizard.seen, "a key is never shown"
    local = (tmp_path / "config.local.yaml").read_text()
    assert yaml.safe_load(local) == {
        "models": [
            {"name": "main", "base_url": f"{model.base_url}/v1", "model": "scripted", "api_key": "$MODEL_API_KEY"}
        ],
        "budgets": [{"scope": "everything", "period": "day", "tokens": "5M"}],
    }
    assert "# the first model answers" in local
    assert (tmp_path / "config.yaml").read_text().startswith("# mine"), "an upgrade may replace that file"
    assert (tmp_path / ".env").read_text() == f"MODEL_API_KEY={KEY}\n"
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert not (tmp_path / ".fawn-init.yaml").exists()
    assert (await folder.fawn("check"))[0] == 0


async def test_a_run_that_stops_is_gone_on_with(folder: EmptyFolder, model: FakeModel, tmp_path: Path) -> None:
    async with folder.wizard("init") as wizard:
        await wizard.shows("Where do you want to talk to it first")
        await wizard.types("")
        await wizard.shows("Which model do you want to use")
        await wizard.types(DOWN * 9)
        await wizard.shows("URL of the server")
        os.write(wizard.screen, b"\x03")  # Ctrl-C
        await wizard.shows("The answers so far are kept")
    kept = tmp_path / ".fawn-init.yaml"
    assert yaml.safe_load(kept.read_text()) == {"where": "console", "provider": "other"}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not (tmp_path / "config.local.yaml").exists()
    async with folder.wizard("init") as wizard:
        await wizard.shows("Going on with the answers in")
        await wizard.shows("URL of the server")
        await wizard.leaves()


async def test_answers_in_a_file_and_flags_need_no_terminal(
    folder: EmptyFolder, model: FakeModel, tmp_path: Path
) -> None:
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(given(model, sandbox="none")))
    code, output = await folder.fawn("init", "--answers", "answers.yaml", "--budget", "2M")
    assert code == 0, output
    assert "> Say in one sentence" in output
    local = yaml.safe_load((tmp_path / "config.local.yaml").read_text())
    assert [local["models"][0]["model"], local["budgets"][0]["tokens"]] == ["scripted", "2M"]
    assert KEY not in output
    code, output = await folder.fawn("init")
    assert (code, "Nothing is missing in the configuration." in output) == (0, True), "what is there is not asked"


async def test_the_configuration_that_it_writes_is_named(folder: EmptyFolder, model: FakeModel, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").unlink()
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(given(model, sandbox="none")))
    words = ["init", "--answers", "answers.yaml"]
    code, output, errors = await run_forked(words, tmp_path, folder.environment())
    assert (code, f"Wrote {tmp_path / 'config.yaml'}" in output) == (0, True), output + errors
    assert not (tmp_path / "config.local.yaml").exists()


async def test_what_is_missing_or_wrong_is_said_and_nothing_is_written(
    folder: EmptyFolder, model: FakeModel, tmp_path: Path
) -> None:
    closed = "http://127.0.0.1:9/v1"
    for answers, words in (
        ({}, "provider has no answer → give --provider"),
        ({"provider": "opnai"}, "'opnai' is none of the choices: did you mean 'openai'?"),
        ({"privider": "openai"}, "did you mean 'provider'?"),
        ({"privider": "openai", "where": True, "acces": "open"}, "acces"),
        (given(model, where="myspace", sandbox="docker", budget="much"), "where: 'myspace'"),
        (given(model, where="myspace", sandbox="docker", budget="much"), "sandbox: 'docker'"),
        (given(model, where="myspace", sandbox="docker", budget="much"), "budget: 'much'"),
        (given(model, key="sk-wrong"), "refused the key (401)"),
        (given(model, key="$MY_KEY"), "The variable MY_KEY is not set"),
        (given(model, base_url="localhost"), "not a URL"),
        (given(model, base_url=closed), f"{closed} cannot be asked"),
        (given(model, model="another", sandbox="docker"), "'docker' is none of the choices"),
        (given(model, budget="much"), "is not a number of tokens"),
        (given(model, where="myspace"), "'myspace' is none of the choices"),
    ):
        (tmp_path / "answers.yaml").write_text(yaml.safe_dump(answers))
        code, output = await folder.fawn("init", "--answers", "answers.yaml")
        assert (code, words in output) == (1, True), output
        assert "Traceback" not in output
        assert KEY not in output
        assert not (tmp_path / "config.local.yaml").exists()
        assert not (tmp_path / ".env").exists()


async def test_a_key_in_the_environment_is_found(folder: EmptyFolder, model: FakeModel, tmp_path: Path) -> None:
    folder.more_environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{model.base_url}/v1"}
    code, output = await folder.fawn("init", "--where", "console")
    assert code == 0, output
    assert "scripted answers:" in output
    assert not (tmp_path / ".env").exists(), "nothing was missing"


async def test_a_variable_is_named_in_place_of_a_key(folder: EmptyFolder, model: FakeModel, tmp_path: Path) -> None:
    folder.more_environment = {"MY_KEY": KEY}
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(given(model, key="$MY_KEY", sandbox="none")))
    code, output = await folder.fawn("init", "--answers", "answers.yaml")
    assert code == 0, output
    assert yaml.safe_load((tmp_path / "config.local.yaml").read_text())["models"][0]["api_key"] == "$MY_KEY"
    assert not (tmp_path / ".env").exists(), "the key stays where it is"


async def test_a_platform_is_connected_and_its_first_person_answered(
    folder: EmptyFolder, model: FakeModel, telegram: FakeTelegram, tmp_path: Path
) -> None:
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    config["channels"] = {"telegram": {"token": "$TELEGRAM_BOT_TOKEN", "base_url": telegram.base_url}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(given(model)))
    code, output = await folder.fawn("init", "--answers", "answers.yaml")
    assert (code, "TELEGRAM_BOT_TOKEN is not set" in output) == (1, True), output
    answers = given(model) | {"tokens": {"TELEGRAM_BOT_TOKEN": TOKEN}}
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(answers))
    async with folder.wizard("init", "--answers", "answers.yaml") as wizard:
        await wizard.shows("connected as @fawn_bot")
        await wizard.shows("Where may the agent run commands")
        await wizard.types("")
        await wizard.shows("Tokens a day")
        await wizard.types("")
        await wizard.shows("Write this")
        await wizard.types("y")
        await wizard.shows("> Say in one sentence")
        link = await wizard.shows(r"https://t\.me/fawn_bot\?start=(\w+) and press Start")
        telegram.send(f"/start {link[1]}")
        await wizard.shows(r"Let Jane \(42\) in\?")
        await wizard.types("")
        await wizard.shows("Fawn runs here until you press Ctrl-C")
        telegram.send(ask(text="the first answer"))
        await telegram.wait(JANE, "the first answer", seconds=60)
        assert await wizard.leaves() == 0
        assert TOKEN not in wizard.seen
    text = (tmp_path / ".env").read_text()
    assert sorted(text.splitlines()) == [f"MODEL_API_KEY={KEY}", f"TELEGRAM_BOT_TOKEN={TOKEN}"]
