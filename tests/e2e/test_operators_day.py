"""What an operator looks at: the log of one run, the turns in progress, the level of the log, and how it died."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.forked_services import PROGRAM, program
from tests.support.service_process import ask, bash

BOB = 77


@pytest.mark.usefixtures("bubblewrap")
async def test_the_log_of_one_run_is_shown_and_followed_to_its_end(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send("hello", user=BOB, chat=BOB)
    await telegram.wait(BOB, "hello")
    await service.quiet()
    wait = bash("while ! test -e /mnt/user-data/workspace/go; do sleep 0.1; done")
    telegram.send(ask(steps=[wait], text="done"))
    await until(lambda: "tool.begin tool=bash" in service.log(), what="the tool")
    [(run, key)] = service.rows("SELECT r.id, i.key FROM runs r JOIN inbox i ON i.run=r.id WHERE r.state='running'")
    following = asyncio.create_task(service.fawn("logs", str(run)))
    await asyncio.wait([following], timeout=1.5)
    assert not following.done(), "it follows a run that works"
    for each in service.data.glob("threads/*/workspace"):
        (each / "go").touch()
    code, text = await asyncio.wait_for(following, 60)
    assert code == 0
    assert f"inbox.accepted key={key}" in text
    assert "tool.end tool=bash" in text
    assert f"run={run}" in text
    assert not re.search(rf"[/:]{BOB}[/:]", text)

    code, text = await service.fawn("logs", f"telegram/123456/{BOB}/")
    assert code == 0
    assert "turn.begin" in text
    assert f"/{JANE}/" not in text
    code, text = await service.fawn("logs", "telegram/nothing/")
    assert code == 1
    assert "the log has nothing of telegram/nothing/" in text
    await service.stop()
    code, text = await service.fawn("logs", str(run))
    assert code == 4
    assert "journalctl -u fawn" in text


@pytest.mark.usefixtures("bubblewrap")
async def test_top_shows_the_turns_in_progress(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    telegram.send(ask(steps=[bash("sleep 60")], text="done"))
    await until(lambda: "tool.begin tool=bash" in service.log(), what="the tool")
    code, text = await service.fawn("top")
    assert code == 0
    assert re.search(r"turns 1, queued 0 .*sandboxes 1", text)
    assert re.search(r"\n +1 +\d+ s +1 +[\d,]+ +1  telegram/123456/42/ +Running sleep", text)
    code, text = await service.fawn("top", "--json")
    assert json.loads(text)["turns"][0]["requester"] == str(JANE)
    telegram.send("/stop")
    await service.quiet()
    code, text = await service.fawn("top", "--once")
    assert "turns 0" in text
    await service.stop()
    assert (await service.fawn("top"))[0] == 4


async def test_top_redraws_a_terminal_and_gives_it_back(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    ours, theirs = pty.openpty()
    top = [*program(), "top", "--config", "config.yaml"]
    shown = await asyncio.create_subprocess_exec(
        *top, cwd=service.folder, env=service.environment(), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    text = b""

    def read() -> bool:
        nonlocal text
        try:
            text += os.read(ours, 65536)
        except (BlockingIOError, OSError):
            return False
        return text.count(b"RUN ") >= 2

    await until(read, what="two pictures")
    shown.send_signal(signal.SIGINT)
    await shown.wait()
    read()
    os.close(ours)
    assert text.startswith(b"\x1b[?1049h")
    assert text.rstrip().endswith(b"\x1b[?1049l")
    assert shown.returncode == 0


@pytest.mark.usefixtures("bubblewrap")
async def test_a_reload_changes_the_level_of_the_log(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    file = service.folder / "config.yaml"
    file.write_text(file.read_text() + "\nlog: {level: debug}\n")
    assert (await service.fawn("reload"))[0] == 0
    telegram.send(ask(steps=[bash("echo 1")], text="done"))
    await telegram.wait(JANE, "done")
    assert "tool.arguments" in service.log()


@pytest.mark.parametrize(
    ("signal_number", "why"),
    [(signal.SIGKILL, "killed from outside"), (signal.SIGSEGV, "Fatal Python error: Segmentation fault")],
)
async def test_a_death_has_a_report_that_the_status_names(
    telegram: FakeTelegram, model: FakeModel, start: Start, signal_number: int, why: str
) -> None:
    service = await start()
    assert service.process
    os.kill(service.process.pid, signal_number)
    await service.process.wait()
    code, text = await service.fawn("status")  # before the next start gives the report its name
    assert (code, "The process died at" in text, why in text) == (4, True, True), text
    await service.start()
    assert "crash.found" in service.log()
    [report] = (service.data / "crashes").glob("*.txt")
    assert report.stat().st_mode & 0o077 == 0
    if signal_number == signal.SIGSEGV:
        assert "most recent call first" in report.read_text()
    code, text = await service.fawn("status")
    assert "The process died at" in text
    assert why in text
    assert str(report) in text
    assert await service.stop() == 0
    code, text = await service.fawn("status")  # also where nothing runs
    assert code == 4
    assert str(report) in text
    await service.start()
    await service.stop()
    assert [*(service.data / "crashes").glob("*")] == [report], "a shutdown is no crash"


async def test_an_error_that_ends_the_process_is_in_a_report_without_secrets(start: Start, tmp_path: Path) -> None:
    service = await start()
    await service.stop()
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from bot.config.schema import LogConfig\n"
        "from bot.service.crashes import reporting_crashes, latest_crash\n"
        "from bot.base.log import set_up_logging\n"
        "set_up_logging(LogConfig(), ['opensesame'])\n"
        "folder = Path(sys.argv[1])\n"
        "try:\n"
        "    with reporting_crashes(folder):\n"
        "        raise OverflowError('too much of opensesame')\n"
        "except OverflowError:\n"
        "    found = latest_crash(folder, 0)\n"
        "print(found.why, found.file.read_text(), sep='\\n')\n"
    )
    done = await asyncio.create_subprocess_exec(
        PROGRAM[0], "-c", program, str(tmp_path), env=service.environment(), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await done.communicate()
    assert out.decode().startswith("OverflowError: too much of ***\n")
    assert "Traceback (most recent call last)" in out.decode()
    assert "opensesame" not in out.decode()


@pytest.mark.usefixtures("bubblewrap")
async def test_the_use_of_sandboxes_is_counted_priced_and_part_of_budgets(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(sandbox={"price_per_hour": 3600.0}, budgets=[{"scope": "person", "money": 1.0}])
    config = yaml.safe_load((service.folder / "config.yaml").read_text())
    config["models"][0]["price"] = {"input": 0.0, "output": 0.0}
    (service.folder / "config.yaml").write_text(yaml.safe_dump(config))
    await service.stop()
    await service.start()
    telegram.send(ask(text="without a sandbox"))
    await telegram.wait(JANE, "without a sandbox")
    await service.quiet()
    assert service.rows("SELECT 1 FROM usage WHERE kind='sandbox'") == []
    telegram.send(ask(steps=[bash("sleep 1.1")], text="slept"))
    await telegram.wait(JANE, "slept")
    await service.quiet()
    [(seconds, cost, run, person)] = service.rows("SELECT seconds, cost, run, person FROM usage WHERE kind='sandbox'")
    assert seconds >= 1.1
    assert cost == pytest.approx(seconds * 1e6, abs=1)
    assert person == f"telegram:{JANE}"
    assert service.rows("SELECT money FROM budgets WHERE scope='person:telegram:42'") == [(cost,)]
    telegram.send("/usage")
    shown = await telegram.wait(JANE, "sandboxes this month")
    assert re.search(r"sandboxes this month: .+, \$\d+\.\d\d", shown.text)
    assert "in 3 calls" in shown.text  # of the model
    assert "`sandbox`" not in shown.text
    _code, text = await service.fawn("trace", str(run))
    assert re.search(r" +\d+\.\d\d s .* sandbox in use", text)
    telegram.send(ask(text="never"))
    await telegram.wait(JANE, "Your budget")


@pytest.mark.usefixtures("bubblewrap")
async def test_a_background_command_is_counted_too(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(sandbox={"price_per_hour": 1.0})
    telegram.send(ask(steps=[bash("sleep 1", background=True)], text="started"))
    await telegram.wait(JANE, "started")
    ended = "SELECT seconds FROM usage WHERE kind='sandbox' AND seconds>=1"
    await until(lambda: service.rows(ended), what="its row")


async def test_without_a_service_the_file_of_the_log_is_read(start: Start) -> None:
    service = await start()
    await service.stop()
    lines = [
        "a run=7",
        "b run=77 x=1",
        '{"event":"c","run":"7"}',
        "inbox.accepted key=k:1",
        "d thread=telegram/1/2/ run=8",
    ]
    (service.data / "fawn.log.1").write_text(lines[0] + "\n")
    (service.data / "fawn.log").write_text("\n".join(lines[1:]) + "\n")
    assert await service.fawn("logs", "7") == (0, f"{lines[0]}\n{lines[2]}\n")
    assert await service.fawn("logs", "k:1") == (0, f"{lines[3]}\n")
    assert await service.fawn("logs", "telegram/1/") == (0, f"{lines[4]}\n")
    assert (await service.fawn("logs"))[1].count("\n") == len(lines)
