"""The shipped skills in a real bubblewrap sandbox, with the packages that `make dev` installs for its Python.

With FAWN_SKILLS_IMAGE=fawn-sandbox they run in containers of that image instead, with what it has.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.skills.library import write_shared_modules
from sandbox.base import SHARED_MODULES, WORKSPACE, CommandResult, Sandbox, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.docker.spec import DockerSettings
from sandbox.settings import SandboxSettings
from tests.support.engines import docker_provider, need_bubblewrap, need_skill_packages

ROOT = Path(__file__).parents[3]
PACKAGES = "/mnt/skills/packages"
IMAGE = os.environ.get("FAWN_SKILLS_IMAGE", "")


def link_file(source: str, target: str) -> None:
    """Link a file; copy it if it is on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="session")
def skill_shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for /mnt/skills: the shipped skills, and the packages."""
    shelf = tmp_path_factory.mktemp("skills") / "shelf"  # what mktemp makes is closed to other users
    if not IMAGE:
        need_bubblewrap()
        need_skill_packages()
    return fill_shelf(shelf)


def fill_shelf(shelf: Path) -> Path:
    """Copy the shipped skills into a folder, and the packages unless an image has them."""
    shutil.copytree(ROOT / "skills/public", shelf, ignore=shutil.ignore_patterns("__pycache__"))
    write_shared_modules(shelf / SHARED_MODULES)
    if not IMAGE:
        shutil.copytree(ROOT / ".venv/skill-packages", shelf / "packages", copy_function=link_file)
    return shelf


def first_json(output: str) -> Any:
    """Parse the output of a script. The sandbox may add notes about its limits."""
    return json.JSONDecoder().raw_decode(output)[0]


class SkillRunner:
    """Runs scripts of skills, and reads and writes files in the workspace."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def write(self, **files: str) -> None:
        """Write files; `data_csv` becomes data.csv."""
        for name, text in files.items():
            await self.sandbox.write(f"{WORKSPACE}/{'.'.join(name.rsplit('_', 1))}", text.encode())

    async def read(self, name: str) -> bytes:
        return await self.sandbox.read(f"{WORKSPACE}/{name}")

    async def bash(self, text: str) -> CommandResult:
        return await self.sandbox.run(ShellCommand(text, cwd=WORKSPACE, env={"PYTHONPATH": PACKAGES}))

    async def script(self, skill: str, line: str, *, exit_code: int = 0) -> str:
        """Run a script of a skill with the packages, and return its output."""
        result = await self.bash(f"python3 /mnt/skills/{skill}/scripts/{line}")
        assert result.exit_code == exit_code, result.output
        return result.output

    async def json(self, skill: str, line: str, *, exit_code: int = 0) -> Any:
        return first_json(await self.script(skill, line, exit_code=exit_code))

    async def without_packages(self, skill: str, line: str, *, exit_code: int) -> Any:
        """Run a script with nothing but the standard library."""
        result = await self.sandbox.run(
            ShellCommand(f"PATH= /usr/bin/python3 -S /mnt/skills/{skill}/scripts/{line}", cwd=WORKSPACE)
        )
        assert result.exit_code == exit_code, result.output
        return first_json(result.output)


@pytest.fixture
async def runner(skill_shelf: Path, tmp_path: Path) -> AsyncIterator[SkillRunner]:
    if IMAGE:
        settings = DockerSettings(skill_shelf, state=tmp_path / "state", image=IMAGE)
        async with docker_provider(settings) as docker, docker.acquire("t", tmp_path / "thread") as sandbox:
            yield SkillRunner(sandbox)
        return
    provider = BubblewrapProvider(SandboxSettings(skill_shelf))
    async with provider.acquire("t", tmp_path / "thread") as sandbox:
        yield SkillRunner(sandbox)
    await provider.close()
