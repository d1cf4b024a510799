"""docs/extend.md: its code, as it stands there, in a real service and under the contract kit."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.support.service_process import ask

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extend.md"
BLOCK = re.compile(r"^```(\w+)\n(?:# (\S+\.(?:py|yaml))|<!-- (\S+\.md) -->)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_examples(folder: Path) -> list[str]:
    """Write each block of the page to the file that its first line names; return the names."""
    names = []
    for _language, code, page, text in BLOCK.findall(PAGE.read_text("utf-8")):
        name = code or page
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.strip() + "\n", "utf-8")
        names.append(name)
    return names


def test_every_block_of_code_on_the_page_is_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(?!sh$)\w+$", PAGE.read_text("utf-8"), re.MULTILINE)
    names = write_examples(tmp_path)
    assert len(names) == len(blocks)
    assert "test_my_team.py" in names


async def test_own_tool_policy_channel_sandbox_and_skill_work_in_a_service(
    tmp_path: Path, model: FakeModel, start: Start
) -> None:
    write_examples(tmp_path)
    settings = yaml.safe_load((tmp_path / "config.local.yaml").read_text("utf-8"))
    (tmp_path / "config.local.yaml").unlink()
    service = await start(**settings)
    code, words = await service.fawn("check")
    assert "letters in " in words, (code, words)
    letters = tmp_path / "letters" / "in" / "jane"
    letters.mkdir(parents=True)
    (letters / "draft").write_text(
        ask(steps=[{"calls": [{"name": "roll_dice", "args": {"count": 3}}]}], text="It is done.")
    )
    (letters / "draft").rename(letters / "one.txt")
    answers = tmp_path / "letters" / "out" / "jane"
    await until(lambda: [*answers.glob("*.md")], 60, "the answer in the letterbox")
    assert "It is done." in next(answers.glob("*.md")).read_text("utf-8")
    [result] = [m["content"] for m in model.requests()[-1].messages if m["role"] == "tool"]
    assert re.fullmatch(r"[1-6] [1-6] [1-6]", str(result))
    assert (tmp_path / "audit.log").read_text("utf-8") == "roll_dice\n"
    assert "library, by my_team.reading_room:ReadingRoom" in (await service.fawn("status"))[1] + service.log()
    assert "haiku" in (await service.fawn("skills", "list"))[1]


@pytest.mark.slow
async def test_the_contract_kit_runs_outside_of_fawn(tmp_path: Path) -> None:
    write_examples(tmp_path)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-o", "pythonpath=.", "test_my_team.py"]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "failed" not in done.stdout
