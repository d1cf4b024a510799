"""`from fawn import Fawn`: over HTTP, and with the service in the same process, as docs/api.md has it."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from agent.blocks import Ask, Text
from fawn import Answer, Fawn, FawnError, FawnSync
from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, add_key
from tests.e2e.test_probes import address_of
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import FakeTelegram
from tests.support.ports import free_port
from tests.support.service_process import Service, ask, bash

ROOT = Path(__file__).parents[2]
QUESTION = {"name": "ask_clarification", "args": {"question": "Which?", "options": ["Red", "Blue"]}}


@pytest.mark.usefixtures("bubblewrap")
async def test_a_program_asks_a_service_elsewhere(start: Start, tmp_path: Path) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    note = tmp_path / "note.txt"
    note.write_text("six times seven")
    async with Fawn(url=address_of(service), key=key) as fawn:
        present = {"files": [{"path": "/mnt/user-data/outputs/copy.txt", "caption": "The copy"}]}
        steps = [bash("cp /mnt/user-data/uploads/note.txt /mnt/user-data/outputs/copy.txt")]
        text = ask(steps=[*steps, {"calls": [{"name": "present_files", "args": present}]}], text="forty-two")
        blocks = [block async for block in fawn.ask(text, files=[note])]
        answer = blocks[-1]
        assert isinstance(answer, Answer)
        assert "".join(block.delta for block in blocks if isinstance(block, Text)) == "forty-two"
        assert (answer.text, answer.state, answer.questions) == ("forty-two", "done", ())
        assert [(file["name"], file["size"], file["caption"]) for file in answer.files] == [
            ("copy.txt", 15, "The copy")
        ]
        saved = await fawn.download(answer.files[0]["url"], tmp_path / "copy.txt")
        assert saved.read_text() == "six times seven"
        blocks = [block async for block in fawn.ask(ask(steps=[{"calls": [QUESTION]}], text="thanks"))]
        [question] = [block for block in blocks if isinstance(block, Ask)]
        asked = blocks[-1]
        assert isinstance(asked, Answer)
        assert (question.options, asked.state) == (("Red", "Blue"), "waiting")
        *_blocks, answer = [block async for block in fawn.answer(asked.questions[0], "Blue")]
        assert isinstance(answer, Answer)
        assert answer.text == "thanks"
        for again in (question, question.id, asked.questions[0]):
            with pytest.raises(FawnError, match="not open any more") as refused:
                [_ async for _ in fawn.answer(again, "Red")]
            assert (refused.value.status, refused.value.code) == (409, "answered")
        slow = asyncio.create_task(read_answer(fawn, ask(text="late", delay_ms=60000)))
        await until(lambda: bool(service.rows("SELECT 1 FROM runs WHERE state='running'")), what="the run")
        await until(lambda: fawn.run == service.rows("SELECT max(id) FROM runs")[0][0], what="its number")
        await fawn.stop()
        assert (await slow).state == "stopped"


async def read_answer(fawn: Fawn, text: str) -> Answer:
    found = [block async for block in fawn.ask(text)][-1]
    assert isinstance(found, Answer)
    return found


async def test_an_answer_goes_on_over_a_restart_of_the_service(start: Start) -> None:
    port = free_port()
    service = await start(http={"listen": f"127.0.0.1:{port}"})
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    words = " ".join(f"word{number}" for number in range(40))
    async with Fawn(url=f"http://127.0.0.1:{port}", key=key) as fawn:
        asking = asyncio.create_task(read_answer(fawn, ask(text=words, tok_ms=40)))
        await until(lambda: fawn.run == service.rows("SELECT max(id) FROM runs")[0][0], what="its number")
        await service.restart()
        assert (await asking).text == words


async def test_a_program_without_an_event_loop(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")

    def run() -> str:
        with FawnSync(url=address_of(service), key=key) as fawn:
            *_blocks, answer = fawn.ask(ask(text="in a thread"), thread="sync")
            assert isinstance(answer, Answer)
            return answer.text

    assert await asyncio.to_thread(run) == "in a thread"


async def test_the_example_runs_with_the_service_in_its_process(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    Service(tmp_path, telegram, model, {}).configure({"channels": {}})
    page = (ROOT / "docs/api.md").read_text("utf-8")
    [code] = re.findall(r"(?s)```python\n(import asyncio\n.*?)```", page)
    example = tmp_path / "example.py"
    example.write_text(code.replace("What changed since yesterday?", ask(text="Nothing.").replace('"', '\\"')))
    service = Service(tmp_path, telegram, model, {})
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(example),
        cwd=tmp_path,
        env=service.environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()
    assert out.decode().splitlines()[-1] == "Nothing. (done)", errors.decode()
    assert b"Traceback" not in errors, errors.decode()
    assert [row[0] for row in service.rows("SELECT count(*) FROM api_keys")] == [0]
