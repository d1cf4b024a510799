"""pip and npm in a sandbox: what they install persists with the conversation.

They run this machine's programs, through the proxy, from a registry on loopback.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.base import WORKSPACE, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.network.service import EgressService
from sandbox.rules import NetworkRules
from sandbox.settings import SandboxSettings
from tests.support.engines import need_bubblewrap
from tests.support.outside_world import HOST, Names, Outside, hosts


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    async with Outside(tmp_path) as made:
        yield made


@pytest.fixture
async def provider(outside: Outside, tmp_path: Path) -> AsyncIterator[BubblewrapProvider]:
    need_bubblewrap()
    registry = f"https://{HOST}:{outside.https}"
    rules = NetworkRules(
        "allowlist",
        hosts(outside.https),
        pip_index_url=f"{registry}/simple/",
        npm_registry_url=registry,
        ca_file=str(outside.authority),
    )
    egress = EgressService(rules, tmp_path / "egress", Names())
    made = BubblewrapProvider(SandboxSettings(tmp_path / "skills", network=rules), egress)
    yield made
    await made.close()


async def run(provider: BubblewrapProvider, folder: Path, command: str) -> str:
    """Return the output of a command that has to succeed, in the current sandbox."""
    async with provider.acquire("t", folder) as sandbox:
        result = await sandbox.run(ShellCommand(command, timeout_seconds=90))
    assert result.exit_code == 0, result.output
    return result.output


def need(program: str) -> None:
    if not shutil.which(program, path="/usr/local/bin:/usr/bin"):
        pytest.skip(f"needs {program} on this machine: sudo apt install {program}")


@pytest.mark.parametrize("pip", ["pip", "pip3", "python -m pip", "python3 -m pip"])
async def test_pip_packages_persist_in_the_workspace(provider: BubblewrapProvider, tmp_path: Path, pip: str) -> None:
    folder = tmp_path / "thread"
    assert "a deer" in await run(provider, folder, f"{pip} install -q deer && deer")
    assert (folder / "workspace/.venv/bin/deer").exists()
    assert await run(provider, folder, "pip cache dir") == f"{WORKSPACE}/.cache/pip\n"
    assert "/workspace/.venv/" in await run(provider, folder, "python3 -c 'import deer; print(deer.__file__)'")
    await provider.destroy("t")
    assert await run(provider, folder, "deer; pip freeze 2>/dev/null | grep deer") == "a deer\ndeer==1.0\n"


@pytest.mark.parametrize("pip", ["pip install --user", "/usr/bin/python3 -m pip install"])
async def test_user_installs_persist_too(provider: BubblewrapProvider, tmp_path: Path, pip: str) -> None:
    folder = tmp_path / "thread"
    await run(provider, folder, f"{pip} -q deer")
    await provider.destroy("t")
    assert await run(provider, folder, "deer; python3 -c 'import deer; deer.main()'") == "a deer\na deer\n"


async def test_concurrent_first_installs_share_one_environment(provider: BubblewrapProvider, tmp_path: Path) -> None:
    folder = tmp_path / "thread"
    async with provider.acquire("t", folder) as sandbox:
        results = await asyncio.gather(
            *(sandbox.run(ShellCommand("pip install -q deer && deer", timeout_seconds=90)) for _ in range(3))
        )
    assert [result.output.splitlines()[-1:] for result in results] == [["a deer"]] * 3, results


async def test_a_broken_environment_is_recreated(provider: BubblewrapProvider, tmp_path: Path) -> None:
    folder = tmp_path / "thread"
    await run(provider, folder, "pip install -q deer")
    python = folder / "workspace/.venv/bin/python"
    python.unlink()
    python.symlink_to("/opt/elsewhere/python3.99")
    assert "a deer" in await run(provider, folder, "pip install -q deer; deer")


async def test_npm_packages_persist_in_the_workspace(provider: BubblewrapProvider, tmp_path: Path) -> None:
    need("npm")
    folder = tmp_path / "thread"
    await run(provider, folder, "mkdir app; cd app; npm init -y; npm install fawn-greets")
    await run(provider, folder, f"cd {WORKSPACE}; npm install -g fawn-greets")
    await provider.destroy("t")
    said = await run(provider, folder, 'fawn-greets; cd app; node -p \'require("fawn-greets")("again")\'')
    assert said == "hello you\nhello again\n"
    assert (folder / "workspace/.cache/npm").is_dir()


APP = """
const greet = require('fawn-greets');
require('http').createServer((ask, answer) => answer.end(greet(ask.url.slice(1)) + '\\n')).listen(8123, '127.0.0.1');
"""
TRY = "curl -s --retry 20 --retry-connrefused --retry-delay 1 -w '%{http_code}' http://127.0.0.1:8123/"


# Case 83 of docs/cases.md
async def test_a_web_app_keeps_running_in_the_next_turn(provider: BubblewrapProvider, tmp_path: Path) -> None:
    need("npm")
    need("curl")
    folder = tmp_path / "thread"
    async with provider.acquire("t", folder) as sandbox:  # one turn …
        await sandbox.write(f"{WORKSPACE}/app/server.js", APP.encode())
        commands = ["cd app && npm init -y >/dev/null && npm install fawn-greets", "node server.js > log 2>&1 &"]
        for command in commands:
            result = await sandbox.run(ShellCommand(command, timeout_seconds=90))
            assert result.exit_code == 0, result.output
        assert (await sandbox.run(ShellCommand(TRY + "first"))).output == "hello first\n200"
    async with provider.acquire("t", folder) as sandbox:  # and in the next turn
        assert (await sandbox.run(ShellCommand(TRY + "second"))).output == "hello second\n200"


async def test_home_is_writable(provider: BubblewrapProvider, tmp_path: Path) -> None:
    said = await run(
        provider, tmp_path / "thread", "echo x > ~/x; mkdir -p ~/.config/a; git config --global a.b c; cat ~/x"
    )
    assert said == "x\n"
