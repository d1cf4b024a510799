"""`fawn setup`, on a pseudo-terminal and in scripts, from the token to the first answer."""

from __future__ import annotations

import asyncio
import re
import signal
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.model import FakeModel
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, FakeSlack
from tests.fakes.telegram import JANE, TOKEN, FakeTelegram
from tests.support.forked_services import program
from tests.support.service_process import ask
from tests.support.wizard import PATIENCE_SECONDS, NewService


class NewSlackService(NewService):
    slack_url = ""

    def channels(self) -> dict[str, dict[str, Any]]:
        tokens = {"bot_token": "$SLACK_BOT_TOKEN", "app_token": "$SLACK_APP_TOKEN"}
        return {"slack": {**tokens, "base_url": self.slack_url}}


def new_service(folder: Path, telegram: FakeTelegram, model: FakeModel, **settings: Mapping[str, Any]) -> NewService:
    return NewService(folder, telegram, model, {"channels": {"telegram": {"access": {}}}, **settings})


async def test_from_the_token_to_the_first_answer_on_telegram(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    (tmp_path / ".env").write_text("KEPT=1\n")
    service = new_service(tmp_path, telegram, model)
    async with service.wizard("setup", "telegram") as wizard:
        await wizard.shows(r"https://t\.me/BotFather.*(?s:.*)Paste the bot's token.*: ")
        await wizard.types("not a token")
        blamed = await wizard.shows(r"(\S*)token: does not look like one → copy it again")
        assert blamed[1] == "", "what was typed is blamed, not the configuration file"
        await wizard.shows("Paste the bot's token")
        await wizard.types("123456789:wrong-wrong")
        await wizard.shows("rejects the bot's token")
        await wizard.shows("Paste the bot's token")
        await wizard.types(TOKEN)
        await wizard.shows("connected as @fawn_bot")
        link = await wizard.shows(r"https://t\.me/fawn_bot\?start=(\w+) and press Start")
        telegram.send(f"/start {link[1]}")
        await wizard.shows(r"Let Jane \(42\) in\? \[Y/n\] ")
        await wizard.types("")
        await wizard.shows(r"Jane \(42\) is in, and is an operator")
        await wizard.shows("Fawn runs here until you press Ctrl-C")
        await telegram.wait(JANE, "You're in! What can I do for you?")
        telegram.send(ask(text="the first answer"))
        await telegram.wait(JANE, "the first answer", seconds=PATIENCE_SECONDS)
        assert await wizard.leaves() == 0
        assert TOKEN not in wizard.text
    assert (tmp_path / ".env").read_text() == f"KEPT=1\nTELEGRAM_BOT_TOKEN={TOKEN}\n"
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert service.rows("SELECT allowed, operator FROM people") == [(1, 1)]
    assert (await service.fawn("status"))[0] == 4  # it has ended with the set-up


async def test_a_stranger_who_does_not_have_the_link_is_not_let_in_by_a_script(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = new_service(tmp_path, telegram, model)
    process = await asyncio.create_subprocess_exec(
        *program(),
        *("setup", "telegram", "--token-stdin", "--wait"),
        cwd=tmp_path,
        env=service.environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=sys.stderr,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(TOKEN.encode())
    process.stdin.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := re.search(rb"start=(\w+)", await process.stdout.readline())):
            pass
        telegram.send("hello", chat=77)
        await telegram.wait(77, "Send this code")
        telegram.send(f"/start {found[1].decode()}")
        await telegram.wait(JANE, "You're in!")
        assert b"Jane (42) is in" in await process.stdout.read()
        assert await process.wait() == 0
    assert service.rows("SELECT person, allowed, operator FROM people ORDER BY person") == [("42", 1, 1), ("77", 0, 0)]


async def test_the_word_counts_while_the_question_about_a_stranger_is_open(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = new_service(tmp_path, telegram, model)
    async with service.wizard("setup", "telegram") as wizard:
        await wizard.shows("Paste the bot's token")
        await wizard.types(TOKEN)
        link = await wizard.shows(r"https://t\.me/fawn_bot\?start=(\w+) and press Start")
        telegram.send("hello", chat=77)
        await wizard.shows(r"\(77\) in\? They did not send the word above\. \[y/N\] ")
        telegram.send(f"/start {link[1]}")
        await wizard.shows(r"Jane \(42\) in\? \[Y/n\] ")
        await wizard.types("")
        await wizard.shows(r"Jane \(42\) is in, and is an operator")
        assert await wizard.leaves() == 0
    assert service.rows("SELECT person, allowed, operator FROM people ORDER BY person") == [("42", 1, 1), ("77", 0, 0)]


async def test_the_word_counts_after_other_messages_and_after_a_no(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = new_service(tmp_path, telegram, model)
    async with service.wizard("setup", "telegram") as wizard:
        await wizard.shows("Paste the bot's token")
        await wizard.types(TOKEN)
        link = await wizard.shows(r"https://t\.me/fawn_bot\?start=(\w+) and press Start")
        telegram.send(ask(text="my first question"))
        await wizard.shows(r"Jane \(42\) in\? They did not send the word above\. \[y/N\] ")
        await wizard.types("n")
        telegram.send(f"/start {link[1]}")
        await wizard.shows(r"Jane \(42\) in\? \[Y/n\] ")
        await wizard.types("")
        await wizard.shows(r"Jane \(42\) is in, and is an operator")
        await telegram.wait(JANE, "my first question", seconds=PATIENCE_SECONDS)  # nothing is lost
        assert await wizard.leaves() == 0


async def test_who_leaves_early_reads_what_is_done_in_rows_that_end_between_words(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = new_service(tmp_path, telegram, model)
    async with service.wizard("setup", "telegram", columns=60) as wizard:
        await wizard.shows("Paste the bot's token")
        assert await wizard.leaves() == 130
        await wizard.shows(r"Nothing was written: `fawn setup telegram` begins again\.")
    async with service.wizard("setup", "telegram", columns=60) as wizard:
        await wizard.shows("Paste the bot's token")
        await wizard.types(TOKEN)
        await wizard.shows("Ctrl-C leaves")
        assert await wizard.leaves() == 130
        await wizard.shows(
            r"Nobody is an operator yet, but the tokens are saved: `fawn\s+setup telegram` goes on from here\."
        )
    rows = [row for row in wizard.seen.splitlines() if "/" not in row]  # a path is one word
    assert max(map(len, rows)) <= 60, rows
    assert "Traceback" not in wizard.seen


async def test_a_script_gets_clear_errors_and_exit_codes(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = new_service(tmp_path, telegram, model)
    for stdin, arguments, words in (
        (b"", (), "TELEGRAM_BOT_TOKEN is not set"),
        (b"", ("--token-stdin",), "--token-stdin reads a line each for TELEGRAM_BOT_TOKEN, but got 0"),
        (b"nonsense", ("--token-stdin",), "does not look like one"),
        (b"123456789:wrong-wrong", ("--token-stdin",), "rejects the bot's token"),
    ):
        exit_code, output = await service.fawn("setup", "telegram", *arguments, stdin=stdin)
        assert (exit_code, words in output) == (1, True), output
        assert "Traceback" not in output
    assert not (tmp_path / ".env").exists()
    assert (await service.fawn("setup", "telegram", "--token-stdin", stdin=TOKEN.encode()))[0] == 0
    service.configure({"channels": {"telegram": {"token": "123456789:other-other", "access": {}}}})
    exit_code, output = await service.fawn("setup", "telegram")
    assert (exit_code, "sets channels.telegram itself" in output) == (1, True), output
    for channels in ("", "channels: {telegram: {access: {allow: [7]}}}\n"):  # as most are: without the token
        (tmp_path / "config.yaml").write_text(f"config_version: 1\n{channels}")
        exit_code, output = await service.fawn("setup", "telegram", "--token-stdin", stdin=b"nonsense")
        assert (exit_code, "TELEGRAM_BOT_TOKEN: does not look like one" in output) == (1, True), output


async def test_the_first_message_on_slack_is_answered_by_the_set_up(tmp_path: Path) -> None:
    async with FakeModel() as model, FakeSlack() as slack:
        NewSlackService.slack_url = slack.api_url
        service = NewSlackService(tmp_path, FakeTelegram(), model, {})
        async with service.wizard("setup", "slack") as wizard:
            link = await wizard.shows(
                r"\x1b]8;;https://api\.slack\.com/apps\?new_app=1&manifest_json=%7B%22display_information\S*?\x1b\\"
                r"(\S+)\x1b]8;;\x1b\\"
            )
            assert link[1] == "https://api.slack.com/apps?new_app=1…"
            await wizard.shows("Paste the app-level token")
            await wizard.types(APP_TOKEN)
            await wizard.shows(r"Install App(?s:.*)Paste the bot's token")
            await wizard.types(BOT_TOKEN)
            await wizard.shows("find the app under Apps")
            slack.send(ask(text="a stranger's question"), "DU1", user="U1")
            await wizard.shows(r"\(U1\) in\? They did not send the word above\. \[y/N\] ")
            await wizard.types("")
            asked = slack.send(ask(text="the first answer"), "DU2", user="U2")
            await wizard.shows(r"\(U2\) in\? They did not send the word above\. \[y/N\] ")
            await wizard.types("y")
            await wizard.shows(r"Is .+ \(U2\) to be an operator, who decides about others\? \[y/N\] ")
            await wizard.types("")
            await wizard.shows(r"\(U2\) is in, but is no operator\. Waiting for you")
            await slack.wait("the first answer", "DU2", asked)
            slack.send(ask(text="mine"), "DU3", user="U3")
            await wizard.shows(r"\(U3\) in\? They did not send")
            await wizard.types("y")
            await wizard.shows(r"\(U3\) to be an operator")
            await wizard.types("y")
            await wizard.shows(r"\(U3\) is in, and is an operator")
            assert await wizard.leaves() == 0
    people = service.rows("SELECT person, allowed, operator FROM people ORDER BY person")
    assert people == [("U1", 0, 0), ("U2", 1, 0), ("U3", 1, 1)], "Enter lets nobody in, and makes nobody an operator"
    names = re.findall(r"^(\w+)=", (tmp_path / ".env").read_text(), re.MULTILINE)
    assert sorted(names) == ["SLACK_APP_TOKEN", "SLACK_BOT_TOKEN"]


async def test_closing_the_terminal_of_the_wizard_ends_its_service(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = new_service(tmp_path, telegram, model)
    async with service.wizard("setup", "telegram") as wizard:
        await wizard.shows("Paste the bot's token")
        await wizard.types(TOKEN)
        await wizard.shows(r"and press Start")
        assert (await service.fawn("status"))[0] != 4, "it runs"
        wizard.process.send_signal(signal.SIGHUP)  # what a terminal sends that is closed
        await wizard.process.wait()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await service.fawn("status"))[0] != 4:
            pass
