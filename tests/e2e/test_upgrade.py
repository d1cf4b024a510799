"""An upgrade by `git pull` keeps an operator's settings, and nothing of theirs stops it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from bot.config.loader import load_config
from tests.support.forked_services import ROOT, run_forked

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
