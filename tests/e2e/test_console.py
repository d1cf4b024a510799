"""Consoles beside a running service, `fawn ask`, and a terminal of the service itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from catalogue import _, use_language
from channels.console.tui import UNFOLD, WORKING
from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.forked_services import PROGRAM
from tests.support.forked_services import program as forked
from tests.support.service_process import Service, ask
from tests.support.terminal import EMPTY, PATIENCE, Terminal

QUESTION = {
    "steps": [{"calls": [{"name": "ask_clarification", "args": {"question": "Which?", "options": ["Red", "Blue"]}}]}]
}


class Terminals:
    """Programs on terminals. Their methods run in threads: the servers of a test share its loop."""

    def __init__(self) -> None:
        self.windows: list[Terminal] = []

    async def open(self, service: Service, *arguments: str, program: Sequence[str] = ()) -> Terminal:
        command = [*(program or forked()), *arguments, "--config", "config.yaml"]
        environment = {**service.environment(), "TERM": "xterm", "USER": "jane", "LOGNAME": "jane"}
        self.windows.append(Terminal(command, service.folder, environment, 40, 110))
        await asyncio.to_thread(self.windows[-1].prompt)
        return self.windows[-1]


@pytest.fixture
def terminals() -> Iterator[Terminals]:
    opened = Terminals()
    yield opened
    for window in opened.windows:
        window.close()


async def shows(window: Terminal, text: str) -> None:
    await asyncio.to_thread(window.shows, text)


async def answers(window: Terminal, text: str) -> None:
    """Wait for an answer and the end of its turn. The request shows the text, too, but not as a row of its own."""
    await asyncio.to_thread(window.until, lambda: text in window.rows())
    await asyncio.to_thread(window.prompt)


async def leaves(window: Terminal) -> int:
    await asyncio.to_thread(window.until, window.left)
    return window.process.returncode or 0


@pytest.fixture
def idle(tmp_path: Path, telegram: FakeTelegram, model: FakeModel) -> Service:
    """A configured service that does not run."""
    return Service(tmp_path, telegram, model, {"sandbox": {"provider": "none"}})


# ---------------------------------------------------------------- attached consoles


async def test_a_console_attaches_and_leaves_the_service_running(
    telegram: FakeTelegram, start: Start, terminals: Terminals
) -> None:
    service = await start()
    window = await terminals.open(service, "chat")
    await shows(window, "Attached to the running Fawn.")
    await shows(window, "Telegram: connected as @")
    window.type(f"{ask(text='through the socket')}\r")
    await answers(window, "through the socket")
    window.type("/status\r")
    await shows(window, "All is well.")
    window.type("/help\r")
    await shows(window, "Alt-Enter     begins a new line")
    window.type("\x03")
    await shows(window, "Press Ctrl-C again to leave; Fawn keeps running.")
    window.type("\x03")
    assert await leaves(window) == 0
    other = await terminals.open(service, "chat")
    await shows(other, "Attached to the running Fawn.")
    other.type("\x04")
    assert await leaves(other) == 0
    assert "Traceback" not in other.text()
    telegram.send(ask(text="still alive"))
    await telegram.wait(JANE, "still alive")


async def test_an_attached_console_itself_speaks_the_language_that_its_person_chose(
    start: Start, terminals: Terminals
) -> None:
    window = await terminals.open(await start(), "chat")
    window.type("/language zh\r")
    with use_language("zh"):
        empty, working, unfold = _("Ask me, or /help"), _(WORKING).partition(" · ")[0], _(UNFOLD)
    await shows(window, f"› {empty}")
    window.type(f"{ask(tokens=400, tok_ms=20, steps=[{'calls': [{'name': 'ls', 'args': {}}]}])}\r")
    await shows(window, f"{working} · ")
    await shows(window, f" · {unfold}")
    window.type("/language en\r")
    await shows(window, EMPTY[0])


async def test_consoles_of_one_person_share_a_conversation_unless_it_is_new(start: Start, terminals: Terminals) -> None:
    service = await start()
    first, second = await terminals.open(service, "chat"), await terminals.open(service, "chat")
    other = await terminals.open(service, "chat", "--new")
    first.type(f"{ask(text='for two of them')}\r")
    for window in (first, second):
        await answers(window, "for two of them")
    await shows(second, "On another console: please")
    other.type(f"{ask(text='for one')}\r")
    await answers(other, "for one")
    assert "for two" not in other.text()
    assert "for one" not in first.text()


async def test_a_stop_from_another_console_and_a_console_opened_during_the_turn(
    start: Start, terminals: Terminals
) -> None:
    service = await start()
    first = await terminals.open(service, "chat")
    first.type(f"{ask(tokens=3000, tok_ms=30)}\r")
    await shows(first, "w0 w1")
    await shows(first, "Working · ")
    second = await terminals.open(service, "chat")
    await shows(second, "w0 w1")
    second.type("/stop\r")
    for window in (first, second):
        await shows(window, "Stopped.")
        await asyncio.to_thread(window.prompt)


async def test_a_killed_service_is_reported(start: Start, terminals: Terminals) -> None:
    service = await start()
    window = await terminals.open(service, "chat")
    await shows(window, "Telegram: connected")
    await service.kill()
    assert await leaves(window) == 1
    assert "The connection to Fawn ended, because it was stopped." in window.text()


async def test_a_stopping_service_says_so(start: Start, terminals: Terminals) -> None:
    service = await start()
    window = await terminals.open(service, "chat")
    await shows(window, "Telegram: connected")
    assert await service.stop() == 0
    assert await leaves(window) == 0
    assert "Stopping Fawn." in window.text()


async def test_a_console_that_reads_of_the_stop_when_the_service_is_gone_ends_well(
    start: Start, terminals: Terminals
) -> None:
    """It confirms what it shows, and nobody is there any more: that is not the end of a connection."""
    service = await start()
    window = await terminals.open(service, "chat", program=PROGRAM)
    await shows(window, "Telegram: connected")
    window.process.send_signal(signal.SIGSTOP)
    assert await service.stop() == 0
    window.process.send_signal(signal.SIGCONT)
    assert await leaves(window) == 0
    assert "Stopping Fawn." in window.text()


async def test_the_answer_for_a_killed_console_waits_for_the_next_one(
    start: Start, terminals: Terminals, model: FakeModel
) -> None:
    service = await start()
    window = await terminals.open(service, "chat")
    window.type(f"{ask(text='kept for you', delay_ms=1500)}\r")
    await shows(window, "Working · ")
    window.process.kill()
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='done'"), PATIENCE)
    assert await service.stop() == 0  # it does not wait for the person
    await service.start()
    window = await terminals.open(service, "chat")
    await answers(window, "kept for you")
    await service.quiet()


async def test_an_open_question_is_shown_at_the_start_and_answered(start: Start, terminals: Terminals) -> None:
    service = await start()
    window = await terminals.open(service, "chat")
    window.type(f"{ask(**QUESTION, text='so it is')}\r")
    await shows(window, "Type a number")
    window.process.kill()
    window = await terminals.open(service, "chat")
    await shows(window, "This question is still open:")
    await shows(window, "Type a number")
    window.type("2\r")
    await answers(window, "so it is")
    assert service.rows("SELECT answer FROM questions") == [("Blue",)]


async def test_files_go_both_ways(start: Start, terminals: Terminals, bubblewrap: None) -> None:
    service = await start()
    (service.folder / "numbers.csv").write_text("1,2")
    window = await terminals.open(service, "chat")
    copy = "cp /mnt/user-data/uploads/numbers.csv /mnt/user-data/outputs/copy.csv"
    steps = [{"calls": [{"name": "bash", "args": {"command": copy}}]}]
    window.type(f"@numbers.csv {ask(steps=steps, text='copied')}\r")
    await shows(window, "→ downloads/copy.csv")
    assert (service.folder / "downloads" / "copy.csv").read_text() == "1,2"
    assert "✓ 1 step · " in window.text()


# ---------------------------------------------------------------- a terminal of the service itself


async def test_the_terminal_of_a_service_shows_its_channels_and_what_leaving_stops(
    idle: Service, terminals: Terminals
) -> None:
    window = await terminals.open(idle, "run")
    await shows(window, "Telegram: connected as @")
    window.type("/status\r")
    await asyncio.to_thread(window.until, lambda: window.text().count("Telegram: connected as @") == 2)
    await asyncio.to_thread(window.prompt)  # while an answer is printed, the terminal takes no keys
    window.type("\x03")
    await shows(window, "Press Ctrl-C again to stop Fawn for everybody (no turn is running).")
    window.type(f"{ask(tokens=3000, tok_ms=30)}\r")
    await shows(window, "w0 w1")
    window.type("/quit\r")
    await shows(window, "Stopping Fawn: 1 turn has 10 s to end.")
    window.process.send_signal(signal.SIGKILL)


async def test_a_refused_token_is_visible_on_the_terminal(
    idle: Service, terminals: Terminals, telegram: FakeTelegram
) -> None:
    idle.configure({"channels": {"telegram": {"token": "1234567:wrong-token-of-somebody-else"}}})
    window = await terminals.open(idle, "run")
    await shows(window, "Telegram: not connected. Telegram rejects the bot's token")


# ---------------------------------------------------------------- fawn ask and pipes


async def test_ask_prints_the_answer_alone_and_beside_a_service(idle: Service, start: Start) -> None:
    for place in ("alone", "beside"):
        code, out, err = await idle.run(
            "ask", ask(text="the answer", steps=[{"text": "first", "calls": [{"name": "ls", "args": {}}]}])
        )
        assert (code, out) == (0, "the answer\n"), err
        assert "Listing" in err
        code, out, err = await idle.run("ask", "--json", "--quiet", "ctx", "-", stdin=ask(text="as JSON").encode())
        answer: dict[str, Any] = json.loads(out)
        assert (code, answer["text"], answer["state"], answer["files"], err) == (0, "as JSON", "done", [], "")
        assert answer["tokens"] > 0
        await start() if place == "alone" else None
    topics = {row[0] for row in idle.rows("SELECT thread FROM conversations")}
    assert len(topics) == 4  # a conversation for each


async def test_ask_keeps_a_named_conversation_and_reports_failure(idle: Service, model: FakeModel) -> None:
    for text in ("one", "two"):
        assert (await idle.run("ask", "--continue", "nightly", ask(text=text)))[:2] == (0, f"{text}\n")
    assert len(idle.rows("SELECT 1 FROM conversations")) == 1
    code, out, _ = await idle.run("ask", ask(text="-", errors=[401]))
    assert (code, out) == (1, ""), "a failure is no answer"
    assert "401" in _
    code, _, err = await idle.run("ask")
    assert code == 2
    assert "usage: fawn ask" in err
    code, out, err = await idle.run("ask", "--file", "missing.csv", "look")
    assert code == 2
    assert "There is no file missing.csv" in err
    code, out, err = await idle.run("ask", ask(**QUESTION))
    assert (code, out) == (1, "")
    assert "Which?" in err
    [name] = re.findall(r"fawn ask --continue (\S+) ANSWER", err)
    code, out, err = await idle.run("ask", "--continue", name, "Blue")
    assert (code, out, "Which?" in err) == (0, "w0 w1 w2 w3 w4\n", False), err


async def test_several_asks_at_once_share_one_service(idle: Service) -> None:
    asked = [idle.run("ask", "--quiet", ask(text=f"answer {number}", delay_ms=100)) for number in range(4)]
    assert [(code, out) for code, out, _ in await asyncio.gather(*asked)] == [(0, f"answer {n}\n") for n in range(4)]


async def interrupt_ask(service: Service, *where: str) -> None:
    """Press Ctrl-C while `fawn ask` waits for a long answer: it ends with 130, and the turn is stopped."""
    process = await asyncio.create_subprocess_exec(
        *forked(), "ask", ask(tokens=3000, tok_ms=30), "--config", "config.yaml", *where,
        cwd=service.folder, env=service.environment(), stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    await until(lambda: service.model.requests(), PATIENCE)
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 130
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='stopped'"), PATIENCE)


async def test_ctrl_c_stops_what_ask_began(start: Start) -> None:
    await interrupt_ask(await start())


async def test_ctrl_c_stops_what_ask_began_in_a_service_of_its_own(idle: Service) -> None:
    await interrupt_ask(idle)


async def test_a_reader_that_ends_early_is_no_fault(idle: Service) -> None:
    for command in ("ask --quiet", "chat"):
        process = await asyncio.create_subprocess_shell(
            f"{' '.join(map(str, PROGRAM))} {command} --config config.yaml < words | true",
            cwd=idle.folder, env=idle.environment(), stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        (idle.folder / "words").write_text(ask(text="unread"))
        _, err = await process.communicate()
        assert b"Traceback" not in err
        assert b"BrokenPipe" not in err


async def test_a_pipe_begins_a_conversation_of_its_own(idle: Service, start: Start) -> None:
    threads = "SELECT thread FROM conversations ORDER BY key"
    for arguments in ([], ["--continue"], []):
        code, out, err = await idle.run("chat", *arguments, stdin=ask(text="piped").encode())
        assert (code, "piped" in out) == (0, True), err
        assert "Fawn 0." not in out
        assert "Fawn 0." in err
    person = [thread for (thread,) in idle.rows(threads) if thread.endswith("/")]
    assert (len(idle.rows(threads)), len(person)) == (3, 1)
    await start()
    code, out, err = await idle.run("chat", stdin=ask(text="piped through").encode())
    assert (code, "piped through" in out, err) == (0, True, "")
    assert os.path.exists(idle.data / "control.sock")


async def test_the_end_of_its_terminal_stops_the_service(
    telegram: FakeTelegram, model: FakeModel, terminals: Terminals, tmp_path: Path
) -> None:
    window = await terminals.open(Service(tmp_path, telegram, model, {}), "run")
    window.process.send_signal(signal.SIGHUP)
    assert await leaves(window) == 0
    assert "app.stopped" in (tmp_path / "data" / "fawn.log").read_text()
