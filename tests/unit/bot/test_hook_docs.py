"""docs/hooks.md: each example loads, and takes what its sender posts."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientSession

from bot.commands.feature import Door
from bot.config.http import HttpConfig
from bot.config.loader import load_config
from bot.config.schema import Config
from bot.hooks.endpoint import HookEndpoint
from bot.http.listener import listening
from bot.rights.current import Current
from tests.fakes import hook_payloads
from tests.fakes.hook_payloads import headers_of
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

PAGE = (Path(__file__).parents[3] / "docs" / "hooks.md").read_text("utf-8")
SECRET = "the-secret-of-the-hook"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def load(folder: Path) -> Config:
    """Load all hooks of the page as one configuration."""
    samples = [sample for block in blocks("yaml") if "hooks" in (sample := yaml.safe_load(block))]
    hooks: dict[str, Any] = {name: hook for sample in samples for name, hook in sample["hooks"].items()}
    assert all("http" in sample or len(sample) == 1 for sample in samples)
    slack = {"bot_token": "xoxb-1-a", "app_token": "xapp-1-a"}
    sections = {**samples[0], "config_version": 1, "hooks": hooks, "channels": {"slack": slack}}
    (folder / "config.yaml").write_text(yaml.safe_dump(sections))
    return load_config(folder / "config.yaml", dict.fromkeys(re.findall(r"\$([A-Z_]+)", str(hooks)), SECRET))


async def test_each_example_takes_what_its_sender_posts(tmp_path: Path) -> None:
    config = load(tmp_path)
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        door = Door(store, Current(config), *[None] * 8)  # type: ignore[arg-type]  # the route needs no more
        async with (
            listening(HttpConfig(listen="127.0.0.1:0"), HookEndpoint(door).routes()) as address,
            ClientSession(base_url=address) as client,
        ):
            for sender, make in hook_payloads.ALL.items():
                headers, content = make()
                body = json.dumps(content).encode()
                headers = headers_of(config.hooks[sender], headers, body)
                async with client.post(f"/hooks/{sender}", data=body, headers=headers) as answer:
                    assert answer.status == 202, sender
            [command] = blocks("sh")
            line = command.replace("http://127.0.0.1:8080", address)
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", line),
                env={"SCRIPT_SECRET": SECRET, "PATH": "/usr/bin:/bin"},
                stdout=asyncio.subprocess.PIPE,
            )
            out, _errors = await process.communicate()
            assert json.loads(out)["state"] == "stored"
            rows = await store.run(lambda execute: execute("SELECT event FROM hook_deliveries ORDER BY id", {}))
            [item] = json.loads(rows[-1]["event"])["items"]
            assert (item["title"], item["state"], item["severity"]) == ("Backup failed", "firing", "high")


def test_the_address_in_the_example_of_alertmanager_is_that_of_its_hook() -> None:
    [receiver] = [yaml.safe_load(block) for block in blocks("yaml") if "receivers" in block]
    [webhook] = receiver["receivers"][0]["webhook_configs"]
    assert webhook["url"].endswith("/hooks/alertmanager")
    assert webhook["http_config"] == {"authorization": {"credentials": SECRET}}
