"""Matrix end to end: the set-up with a password, and an answer in an encrypted room through a kill of the process."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import FakeTelegram
from tests.support.service_process import ask
from tests.support.synapse import PASSWORD, Person, shared_synapse
from tests.support.thread_talk import ThreadTalk
from tests.support.wizard import PATIENCE_SECONDS, NewService


class NewMatrixService(NewService):
    def channels(self) -> dict[str, dict[str, Any]]:
        return {"matrix": {"homeserver": "$MATRIX_HOMESERVER", "token": "$MATRIX_TOKEN", "overall": 1000, "burst": 100}}


async def test_from_the_password_to_the_first_answer(tmp_path: Path) -> None:
    server, tag = shared_synapse(), secrets.token_hex(4)
    server.register(f"fawn{tag}")
    jane = Person(server.url, server.register(f"jane{tag}"))
    bot = f"@fawn{tag}:localhost"
    async with FakeModel() as model:
        service = NewMatrixService(tmp_path, FakeTelegram(), model, {})
        async with service.wizard("setup", "matrix") as wizard:
            await wizard.shows("Create an account for the bot(?s:.*)Paste the address of the homeserver")
            await wizard.types(server.url)
            await wizard.shows("Press Enter to log in(?s:.*)Paste the access token")
            await wizard.types("")
            await wizard.shows("User name of the bot's account")
            await wizard.types(f"fawn{tag}")
            await wizard.shows("Password")
            await wizard.types("wrong")
            await wizard.shows("Invalid username or password(?s:.*)Paste the access token")
            await wizard.types("")
            await wizard.shows("User name of the bot's account")
            await wizard.types(bot)
            await wizard.shows("Password")
            await wizard.types(PASSWORD)
            await wizard.shows(f"connected as {bot}")
            word = await wizard.shows(r"Begin a direct chat with \S+ in Element or another client, and write: (\w+)")
            room = jane.create_room(bot, direct=True)
            jane.send(room, {"msgtype": "m.text", "body": word[1]})
            await wizard.shows(r"Let \S+ \(@jane\S+\) in\? \[Y/n\] ")
            await wizard.types("")
            await wizard.shows("is in, and is an operator")
            jane.send(room, {"msgtype": "m.text", "body": ask(text="the first answer")})
            await until(
                lambda: "the first answer" in [each["content"]["body"] for each in jane.visible(room, bot)],
                PATIENCE_SECONDS,
                "the first answer",
            )
            assert await wizard.leaves() == 0
            assert PASSWORD not in wizard.seen
    jane.close()
    lines = (tmp_path / ".env").read_text().splitlines()
    assert [line.partition("=")[0] for line in lines] == ["MATRIX_HOMESERVER", "MATRIX_TOKEN"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]


async def test_an_answer_in_an_encrypted_room_goes_on_in_its_message_after_a_kill(tmp_path: Path) -> None:
    async with ThreadTalk.open(tmp_path, "matrix") as talk:
        talk.say(ask(text="word " * 60 + "end", delay_ms=50))
        await until(lambda: "word word" in "\n".join(talk.visible()), what="a part of the answer")
        await talk.service.kill()
        await talk.service.start()
        await talk.shows("end")
        await talk.service.quiet()
        assert len(talk.visible()) == 1
        talk.say(ask(text="and on"))
        await talk.shows("and on")
