"""`fawn ask --url` and `fawn chat --url`: a console of a service elsewhere, over HTTP with a key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, add_key
from tests.e2e.test_console import interrupt_ask
from tests.e2e.test_embedded import QUESTION
from tests.e2e.test_probes import address_of
from tests.fakes.server import until
from tests.support.forked_services import run_forked
from tests.support.ports import free_port
from tests.support.service_process import Service, ask, bash


async def elsewhere(
    service: Service, folder: Path, *words: str, stdin: bytes = b"", variables: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Run the program in a folder without a configuration, as on another machine."""
    folder.mkdir(exist_ok=True)
    environment = {name: text for name, text in service.environment().items() if not name.endswith(("KEY", "TOKEN"))}
    return await run_forked([*words], folder, environment | (variables or {}), stdin)


async def at(start: Start) -> tuple[Service, tuple[str, ...]]:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    return service, ("--url", address_of(service), "--key", key)


@pytest.mark.usefixtures("bubblewrap")
async def test_ask_answers_with_files_questions_and_commands(start: Start, tmp_path: Path) -> None:
    service, where = await at(start)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "note.txt").write_text("six times seven")
    text = ask(steps=[bash("cp /mnt/user-data/uploads/note.txt /mnt/user-data/outputs/copy.txt")], text="forty-two")
    code, out, errors = await elsewhere(service, folder, "ask", *where, "--json", "--file", "note.txt", text)
    assert code == 0, errors
    answer = json.loads(out)
    assert (answer["text"], answer["state"], len(answer["steps"])) == ("forty-two", "done", 1)
    assert Path(answer["files"][0]).read_text() == "six times seven"
    question = ask(steps=[{"calls": [QUESTION]}], text="thanks")
    code, out, errors = await elsewhere(service, folder, "ask", *where, "--continue", "q", question)
    assert (code, out) == (1, "")
    assert "Which?" in errors
    assert "2. Blue" in errors
    code, out, errors = await elsewhere(service, folder, "ask", *where, "--continue", "q", "2")
    assert (code, out.strip()) == (0, "thanks"), errors
    code, out, errors = await elsewhere(service, folder, "ask", *where, "/whoami")
    assert code == 0, errors
    assert "telegram:7" in out or "`7`" in out
    code, out, _errors = await elsewhere(
        service, folder, "ask", *where, "--timeout", "1", ask(text="x", delay_ms=60_000)
    )
    assert (code, out) == (1, "")
    await until(lambda: not service.rows("SELECT 1 FROM runs WHERE state='running'"), what="the stop")


async def test_ctrl_c_stops_what_ask_began_elsewhere(start: Start) -> None:
    service, where = await at(start)
    await interrupt_ask(service, *where)


async def test_chat_speaks_through_a_pipe(start: Start, tmp_path: Path) -> None:
    service, where = await at(start)
    code, out, errors = await elsewhere(
        service, tmp_path / "elsewhere", "chat", *where, stdin=ask(text="hello there").encode() + b"\n"
    )
    assert code == 0, errors
    assert "hello there" in out
    assert service.rows("SELECT DISTINCT person FROM usage WHERE kind='turn'") == [("telegram:7",)]


async def test_commands_through_a_pipe_are_answered_beside_the_request(start: Start, tmp_path: Path) -> None:
    service, where = await at(start)
    typed = f"/whoami\n{ask(text='hello there', delay_ms=1000)}\n/whoami\n"
    code, out, errors = await elsewhere(service, tmp_path / "elsewhere", "chat", *where, stdin=typed.encode())
    assert code == 0, errors
    assert "telegram:7" in out or "`7`" in out
    assert "hello there" in out


async def test_what_cannot_be_reached_says_what_to_do(start: Start, tmp_path: Path) -> None:
    service, (flag, address, *_key) = await at(start)
    folder = tmp_path / "elsewhere"
    for words, said in (
        (("--url", f"http://127.0.0.1:{free_port()}", "--key", "x"), "I cannot reach http://127.0.0.1"),
        (("--url", "nonsense", "--key", "x"), "I cannot reach nonsense"),
        ((flag, address, "--key", "wrong"), "no good key"),
        ((flag, address), "FAWN_KEY"),
    ):
        code, out, errors = await elsewhere(service, folder, "ask", *words, "hello")
        assert (code, out) == (2, ""), errors
        assert said in errors
        assert "Traceback" not in errors
    assert service.rows("SELECT 1 FROM inbox") == []


async def test_the_key_need_not_stand_in_the_arguments(start: Start, tmp_path: Path) -> None:
    service, (flag, address, _key, key) = await at(start)
    (tmp_path / "key").write_text(f"{key}\n")
    words = ("ask", flag, address, "/whoami")
    for more in ({"FAWN_KEY": key}, {"FAWN_KEY_FILE": str(tmp_path / "key")}):
        code, _out, errors = await elsewhere(service, tmp_path / "elsewhere", *words, variables=more)
        assert code == 0, errors
    code, _out, errors = await elsewhere(
        service, tmp_path / "elsewhere", *words, variables={"FAWN_KEY_FILE": "/none/such"}
    )
    assert (code, "FAWN_KEY_FILE" in errors) == (2, True)
