"""Hostile folders of one conversation do not affect other conversations or the service."""

from __future__ import annotations

import shlex
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.base.data_dir import conversation_folder as folder_of
from tests.e2e.conftest import Start
from tests.e2e.test_docker import DOCKER, engine, results  # noqa: F401  a fixture
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.engines import need_bubblewrap
from tests.support.folder_trees import remove_afterwards
from tests.support.service_process import Service, ask, bash, said

JOHN = 4711
OUT = "/mnt/user-data/outputs"


@pytest.fixture(params=["local", "docker"])
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The settings of each provider; removes its containers at the end."""
    if request.param == "docker":
        request.getfixturevalue("engine")
    else:
        need_bubblewrap()
    with remove_afterwards(tmp_path / "data"):
        yield DOCKER if request.param == "docker" else {"provider": "local"}


def python(source: str) -> dict[str, Any]:
    return bash(f"python3 -c {shlex.quote(source)}")


async def asked(telegram: FakeTelegram, chat: int, words: str, *steps: dict[str, Any]) -> None:
    telegram.send(ask(steps=list(steps), text=words), chat=chat)
    await telegram.wait(chat, words)


def forget_soon(service: Service, chat: int) -> Path:
    """Make a conversation look unused for years; return its folder."""
    database = sqlite3.connect(service.data / "fawn.db")
    ((key,),) = database.execute(
        "UPDATE conversations SET used=0 WHERE thread LIKE ? RETURNING key", (f"%/{chat}/%",)
    ).fetchall()
    database.commit()
    database.close()
    return folder_of(service.data, key)


async def test_a_very_deep_tree_can_be_backed_up_and_deleted(
    telegram: FakeTelegram, start: Start, tmp_path: Path, sandbox: dict[str, Any]
) -> None:
    service = await start(sandbox=sandbox)
    await asked(telegram, JOHN, "kept yours", bash("echo kept > file"))
    tree = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    links = "os.chdir('/mnt/user-data/workspace'); open('a', 'w').write('both'); os.link('a', 'b'); os.mkfifo('pipe')"
    await asked(telegram, JANE, "dug down", python(f"{tree}\n{links}"))
    await service.quiet()

    code, words = await service.fawn("backup", "saved.tar.gz")
    assert code == 0, words
    assert words.count("LEFT OUT") == 2
    with tarfile.open(tmp_path / "saved.tar.gz") as tar:
        names = {name.split("/", 2)[-1] for name in tar.getnames()}
    assert {"workspace/a", "workspace/b", "workspace/file"} < names

    assert await service.stop() == 0
    folder = forget_soon(service, JANE)
    assert folder.exists()
    await service.start()
    await asked(telegram, JOHN, "still here")
    await until(lambda: not folder.exists(), 60, "the folder's end")
    await until(lambda: len(service.rows("SELECT 1 FROM conversations")) == 1, what="the row's end")
    await asked(telegram, JANE, "begun anew")


@pytest.mark.usefixtures("bubblewrap")
async def test_a_backup_from_the_middle_of_a_turn_repeats_no_effect(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    """`fawn.db` from the middle of a call and the files from its end, the order in which `fawn backup` copies."""
    need_bubblewrap()
    service = await start()
    effect = bash("echo once >> effects; until [ -e go ]; do sleep 0.1; done")
    telegram.send(ask(steps=[effect], text="did it"))
    await until(lambda: list(service.data.glob("threads/*/workspace/effects")), what="the command")
    source, copy = sqlite3.connect(service.data / "fawn.db"), sqlite3.connect(tmp_path / "fawn.db")
    source.backup(copy)
    copy.close()
    source.close()
    workspace = service.folder_of() / "workspace"
    (workspace / "go").touch()
    await telegram.wait(JANE, "did it")
    await service.quiet()
    assert await service.stop() == 0
    for name in ("fawn.db-wal", "fawn.db-shm"):
        (service.data / name).unlink(missing_ok=True)
    (tmp_path / "fawn.db").replace(service.data / "fawn.db")
    before = len(model.requests())

    await service.start()
    await service.quiet()
    assert service.rows("SELECT state FROM runs") == [("done",)]
    assert len(model.requests()) == before + 1, "the call of unknown outcome goes back to the model"
    assert (workspace / "effects").read_text() == "once\n"
    await asked(telegram, JANE, "and now?")
    assert "did it" in str(model.requests()[-1].messages)


async def test_thousands_of_links_in_outputs_give_one_short_answer(
    telegram: FakeTelegram, start: Start, sandbox: dict[str, Any]
) -> None:
    service = await start(sandbox=sandbox)
    links = f"import os\nos.chdir('{OUT}')\nfor i in range(2000): os.symlink('/', str(i))\nopen('x', 'w').write('x')"
    await asked(telegram, JANE, "left links", python(links))
    await service.quiet()
    answer, file = said(telegram, JANE)
    assert file == "x"
    assert answer.count("Not sent") == 3
    assert "and 1,997 more" in answer
    await asked(telegram, JANE, "nothing new", bash("ls"))
    await service.quiet()
    assert said(telegram, JANE)[2:] == ["nothing new"]


async def test_many_deep_folders_in_outputs_do_not_delay_the_answer(
    telegram: FakeTelegram, model: FakeModel, start: Start, sandbox: dict[str, Any]
) -> None:
    service = await start(sandbox=sandbox)
    wide = (  # 10,370 folders
        f"import os\nfor i in range(170):\n    os.chdir('{OUT}')\n"
        "    for part in (str(i), *'d' * 60): os.mkdir(part); os.chdir(part)\nprint('all of them')"
    )
    await asked(telegram, JANE, "made folders", python(wide))
    await service.quiet()
    assert "all of them" in results(model)[-1]
    (answer,) = said(telegram, JANE)
    assert "there are more than 10,000 files and folders" in answer
    (length,) = service.rows("SELECT sum(length(path) + length(stamp)) FROM outputs")[0]
    assert length < 1_000
