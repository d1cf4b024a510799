"""The lines with curl of docs/api.md, as they stand there: real curl against a running service."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, add_key
from tests.e2e.test_probes import address_of
from tests.fakes.server import until

DOCUMENT = Path(__file__).parents[2] / "docs/api.md"
FIRST = 17  # the number of the first message in the document
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (curl (?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Line:
    """A command of the document, and what it shows below."""

    command: str
    shown: str


def lines() -> list[Line]:
    blocks = BLOCK.findall(DOCUMENT.read_text())
    return [Line(*found) for block in blocks for found in COMMAND.findall(block)]


async def run(command: str, folder: Path, key: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"{command} --fail-with-body --max-time 60"),
        cwd=folder,
        env={"PATH": os.environ["PATH"], "FAWN_KEY": key},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _nothing = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_each_line_does_what_it_shows(start: Start, tmp_path: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("curl is missing")
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    (tmp_path / "notes.txt").write_text("It works.")
    assert len(lines()) >= 10
    first = FIRST
    for line in lines():
        command = line.command.replace("http://127.0.0.1:8080", address_of(service))
        for number in (FIRST, FIRST + 1):
            command = command.replace(f"/{number}", f"/{first + number - FIRST}")
        code, said = await run(command, tmp_path, key)
        assert code == 0, f"{command}\n{said}"
        if line.shown.startswith("event: "):
            events = {*re.findall("^event: (.*)$", said, re.MULTILINE)}
            wanted = line.shown.splitlines()[0].removeprefix("event: ")
            assert events & {wanted, "snapshot"}, f"{command}\n{said}"  # what came before curl is one snapshot
            assert "end" in events
        elif line.shown:
            found = orjson.loads(said)
            assert orjson.loads(line.shown).keys() == found.keys(), f"{command}\n{said}"
            first = found["id"] if first == FIRST and "id" in found else first
        else:
            assert said == "", said
