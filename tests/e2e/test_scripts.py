"""What scripts rely on: whose stdin is read, how long an answer may take, and what is asked before data is deleted."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.forked_services import program
from tests.support.service_process import Service, ask
from tests.support.wizard import at_terminal


def idle_service(folder: Path, telegram: FakeTelegram, model: FakeModel) -> Service:
    return Service(folder, telegram, model, {})


async def shell(service: Service, line: str) -> tuple[int, str, str]:
    """Run a line of a shell in which `fawn` is the program; return its exit code, stdout and stderr."""
    script = f'fawn() {{ {" ".join(program())} "$@"; }}\n{line}'
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", script),
        cwd=service.folder,
        env=service.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_loop_over_lines_asks_each_of_them(tmp_path: Path, telegram: FakeTelegram, model: FakeModel) -> None:
    service = idle_service(tmp_path, telegram, model)
    (tmp_path / "lines").write_text("".join(f"{ask(text=f'answer {n}')}\n" for n in (1, 2)))
    code, out, err = await shell(service, 'while read -r line; do fawn ask --quiet "$line"; done <lines')
    assert (code, out) == (0, "answer 1\nanswer 2\n"), err


async def test_a_pipe_without_data_is_named_and_does_not_hang(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = idle_service(tmp_path, telegram, model)
    (tmp_path / "request").write_text(ask(text="the answer"))
    code, out, err = await shell(service, 'mkfifo open; exec 3<>open; fawn ask --quiet "$(cat request)" <&3')
    assert (code, out) == (0, "the answer\n"), err
    assert "Nothing came from the pipe" in err
    await shell(service, 'echo "from the pipe" | fawn ask --quiet "$(cat request)"')
    assert "from the pipe" in str(model.requests()[-1].messages)


async def test_a_request_that_takes_too_long_is_stopped(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = idle_service(tmp_path, telegram, model)
    (tmp_path / "request").write_text(ask(tokens=30_000, tok_ms=50))
    code, out, err = await shell(service, 'fawn ask --quiet --timeout 3 "$(cat request)"')
    assert (code, out) == (1, ""), out
    assert "No answer within 3 s. I stopped the request." in err
    assert service.rows("SELECT 1 FROM runs WHERE state='running'") == []


async def test_a_request_that_took_too_long_ends_where_it_was_asked(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    await shell(service, "echo /status | fawn chat --old")  # the person has a console of their own
    (tmp_path / "request").write_text(ask(tokens=30_000, tok_ms=50))
    code, out, err = await shell(service, f'fawn ask --timeout 3 "$(cat {tmp_path}/request)"')
    assert (code, out) == (1, ""), out
    assert "No answer within 3 s. I stopped the request." in err
    await service.quiet()
    assert service.rows("SELECT state FROM runs") == [("stopped",)]
    assert service.rows("SELECT key FROM outbox WHERE key LIKE 'gone:%'") == []


async def test_what_nobody_reads_any_more_is_not_said_elsewhere_when_it_was_stopped(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    await shell(service, "echo /status | fawn chat --old")
    words = [*program(), "ask", "--quiet", ask(tokens=30_000, tok_ms=50)]
    asking = await asyncio.create_subprocess_exec(*words, cwd=service.folder, env=service.environment())
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='running'"), 60, "the turn")
    asking.kill()
    await asking.wait()
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='stopped'"), what="the end of the turn")
    await service.quiet()
    assert service.rows("SELECT key FROM outbox WHERE key LIKE 'gone:%'") == []


async def test_forgetting_asks_with_name_and_counts(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.send(ask(text="good morning"))
    await telegram.wait(JANE, "good morning", seconds=60)
    await service.quiet()
    code, text = await service.fawn("forget", "telegram", "999")
    assert (code, "nothing is stored of 999 on telegram" in text) == (1, True), text
    code, text = await service.fawn("forget", "telegram", str(JANE))
    assert (code, "1 message" in text, "--yes" in text) == (1, True, True), text
    assert service.rows("SELECT 1 FROM jobs WHERE kind='forget_person'") == []
    async with at_terminal(service, "forget", "telegram", str(JANE)) as terminal:
        await terminal.shows(r"1 message(?s:.*)for ever\? \[y/N\] ")
        assert await terminal.leaves() == 130
        await terminal.shows("Nothing has changed")
    assert service.rows("SELECT 1 FROM jobs WHERE kind='forget_person'") == []
    code, text = await service.fawn("forget", "telegram", str(JANE), "--yes")
    assert (code, "within moments" in text) == (0, True), text


async def test_a_command_is_answered_like_a_request(tmp_path: Path, telegram: FakeTelegram, model: FakeModel) -> None:
    """It begins no turn: its notice is the answer, also of a service that runs already."""
    service = idle_service(tmp_path, telegram, model)
    code, out, err = await shell(service, "fawn ask --quiet /zone Europe/Paris")
    assert code == 0, err
    assert "Europe/Paris" in out
    await service.start()
    code, out, err = await shell(service, "fawn ask --quiet --json /help")
    assert (code, json.loads(out)["state"]) == (0, "done"), err
    await service.kill()
