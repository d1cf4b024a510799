"""An upgrade by `git pull` keeps an operator's settings, and nothing of theirs stops it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from bot.config.loader import load_config
from bot.database import migrate
from tests.fakes.model import FakeModel
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support import released_data
from tests.support.forked_services import ROOT, run_forked
from tests.support.service_process import Service, ask, bash, said

OLD_DATA = sorted(released_data.FOLDER.glob("fawn-*.tar.gz"))
IDENTITY = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com"}
IDENTITY |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com"}


def git(folder: Path, *words: str) -> None:
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**os.environ, **IDENTITY}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def settings_of_the_readme() -> str:
    """Return what the README writes into config.local.yaml."""
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"config\.local\.yaml.*?```yaml\n(.*?)```", readme, re.DOTALL)
    assert found
    return found[1]


async def fawn(folder: Path, *words: str) -> tuple[int, str]:
    environment = {name: os.environ[name] for name in ("PATH", "HOME")}
    code, out, errors = await run_forked(words, folder, environment)
    return code, out + errors


async def test_settings_written_as_the_readme_says_survive_a_pull_and_a_start(tmp_path: Path) -> None:
    upstream, mine = tmp_path / "upstream", tmp_path / "mine"
    git(tmp_path, "clone", "-q", "--shared", str(ROOT), "upstream")
    for name in (".gitignore", "config.yaml"):  # as they are here, also before a commit
        (upstream / name).write_bytes((ROOT / name).read_bytes())
    git(upstream, "commit", "-q", "--allow-empty", "-am", "Now")
    git(tmp_path, "clone", "-q", "--shared", "upstream", "mine")
    (mine / "config.local.yaml").write_text(settings_of_the_readme())
    for name in ("config.yaml", "README.md"):
        (upstream / name).write_text((upstream / name).read_text("utf-8") + "\n# another example\n", "utf-8")
    git(upstream, "commit", "-q", "-am", "Change what is shipped")
    git(mine, "pull", "-q", "--ff-only")
    assert (mine / "config.yaml").read_text("utf-8").endswith("# another example\n")

    config = load_config(mine / "config.yaml", {"DEEPSEEK_API_KEY": "k"})
    assert ([model.model for model in config.models], config.keep_days) == (["deepseek-v4-pro"], 30)
    (mine / "config.local.yaml").write_text("keep_days: none\nroles: {lead: nobody}\n")
    code, text = await fawn(mine, "check")
    assert code == 2
    assert "config.local.yaml:1: keep_days: expected a whole number, found text" in text
    assert "config.local.yaml:2: roles.lead: no model has this name" in text
    (mine / "config.local.yaml").write_text("keep_days: 30\n")
    assert (await fawn(mine, "ask", "hello"))[0] == 0
    assert "ok    configuration: config.yaml, config.local.yaml" in (await fawn(mine, "check"))[1]


def version_after(folder: Path) -> tuple[Path, str]:
    """Return a folder with the program with one migration more, as the version after it, and its revision."""
    new = folder / "new"
    for name in ("agent", "bot", "catalogue", "channels", "fawn", "sandbox", "skills"):
        shutil.copytree(ROOT / name, new / name, ignore=shutil.ignore_patterns("__pycache__", "public"))
    after, head = "9999", migrate.head_revision()
    (new / "bot" / "database" / "migrations" / "versions" / f"{after}_later.py").write_text(
        f'''"""later: a table"""\n\nimport sqlalchemy as sa\nfrom alembic import op\n\nrevision = "{after}"\n'''
        f'''down_revision = "{head}"\n\n\ndef upgrade() -> None:\n'''
        """    op.create_table("later", sa.Column("name", sa.Text(), primary_key=True))\n"""
    )
    return new, after


async def run_version(program: Path, folder: Path, *words: str) -> tuple[int, str]:
    """Run a command of the version whose source is in `program`."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(program), "PYTHONSAFEPATH": "1"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", *words), cwd=folder, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


def test_every_released_version_left_its_data() -> None:
    """A version with a date in CHANGELOG.md is one that somebody may have."""
    released = re.findall(r"(?m)^## (\S+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert {f"fawn-{version}.tar.gz" for version in released} <= {file.name for file in OLD_DATA}


@pytest.mark.slow
@pytest.mark.parametrize("archive", OLD_DATA, ids=lambda file: file.name.removesuffix(".tar.gz"))
@pytest.mark.parametrize("way", ["start", "restore"])
async def test_data_of_a_released_version_goes_on(
    archive: Path, way: str, telegram: FakeTelegram, model: FakeModel, tmp_path: Path
) -> None:
    """Its open turn ends, its conversation goes on, its audit is whole, and its keys and schedules are there."""
    telegram.go_on_after(1000)
    service = Service(tmp_path, telegram, model, released_data.SETTINGS)
    if way == "restore":
        code, text = await service.fawn("restore", str(archive))
        assert code == 0, text
    else:
        with tarfile.open(archive) as saved:
            saved.extractall(service.data, filter="tar")
        service.data.chmod(0o700)
    old = revision_of(service.data)
    await service.start()
    try:
        await telegram.wait(JANE, released_data.WORKING, seconds=60)
        assert revision_of(service.data) == migrate.head_revision()
        kept = [*service.data.glob(f"backups/fawn-{old}-*.db")]
        assert bool(kept) == (old != migrate.head_revision())

        telegram.send(ask(steps=[bash("cat notes")], text="the next answer"))
        await telegram.wait(JANE, "the next answer", seconds=60)
        await service.quiet()
        asked = json.dumps(model.requests()[-1].messages)
        assert released_data.FIRST in asked, "the agent knows what was said before"
        assert asked.count(released_data.WRITTEN) >= 2, "the file is there: its words came back from the sandbox"
        exported = (await service.fawn("export", f"telegram/123456/{JANE}/"))[1]
        for words in (released_data.FIRST, released_data.WORKING, "the next answer"):
            assert exported.count(words) >= 1
        assert said(telegram, JANE).count(released_data.WORKING) == 1
        telegram.send("/schedule")
        await telegram.wait(JANE, released_data.READ)
        assert "script" in (await service.fawn("key", "list"))[1]
        code, text = await service.fawn("audit", "verify")
        assert code == 0, text
    finally:
        assert await service.stop() == 0
    assert "Traceback" not in service.log()


def revision_of(data: Path) -> str:
    with closing(sqlite3.connect(data / "fawn.db")) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


@pytest.mark.slow
async def test_an_upgrade_is_taken_back_as_the_docs_say(tmp_path: Path) -> None:
    """Back up with the old version, upgrade, and go back: the old version refuses the newer data, and restores."""
    new, after = version_after(tmp_path)
    before = migrate.head_revision()
    data = tmp_path / "data"
    (tmp_path / "config.yaml").write_text(f"config_version: 1\ndata_dir: {data}\nsandbox: {{provider: none}}\n")
    code, text = await run_version(ROOT, tmp_path, "ask", "hello")
    assert code == 0, text
    (data / "threads" / "one" / "workspace").mkdir(parents=True)
    (data / "threads" / "one" / "workspace" / "notes").write_text("kept")

    code, text = await run_version(ROOT, tmp_path, "backup", "before.tar.gz")
    assert code == 0, text
    assert revision_of(data) == before

    code, text = await run_version(new, tmp_path, "ask", "hello")
    assert code == 0, text
    assert revision_of(data) == after

    for words in (["ask", "hello"], ["dead", "list"]):
        code, text = await run_version(ROOT, tmp_path, *words)
        assert code != 0
        assert "A newer version of Fawn wrote this database: install that version again, or restore a backup" in text

    data.rename(tmp_path / "newer")
    code, text = await run_version(ROOT, tmp_path, "restore", "before.tar.gz")
    assert code == 0, text
    assert revision_of(data) == before
    assert (data / "threads" / "one" / "workspace" / "notes").read_text() == "kept"
    code, text = await run_version(ROOT, tmp_path, "dead", "list")
    assert code == 0, text
