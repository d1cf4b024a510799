"""Every wrong value of every setting gets a sentence of Fawn's own, and a fault only its own place's names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.config.loader import ConfigError, load_config
from bot.config.reference import settings_table

WRONG: tuple[Any, ...] = ("some words", -1, 0, 0.5, True, None, ["x y"], [{"in": 3}], {"in": 3})
TELEGRAM = f"channels: {{telegram: {{token: '1234567:{'a' * 35}'"
PYDANTIC = re.compile(r"Input should|should be a|valid (?:integer|number|string|boolean|dict|list|tuple)|required")


def faults_of(folder: Path, settings: dict[str, Any]) -> list[str]:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"config_version": 1, **settings}))
    try:
        load_config(file, {})
    except ConfigError as error:
        return [str(fault) for fault in error.faults]
    return []


def everywhere(value: Any) -> dict[str, Any]:
    """Return a configuration in which every setting has this value."""
    whole: dict[str, Any] = {}
    names = [row.name.replace("NAME", "telegram") for row in settings_table() if row.name != "config_version"]
    for name in names:
        if not any(other.startswith((f"{name}.", f"{name}[].")) for other in names):
            section = whole
            *sections, last = name.split(".")
            for part in sections:
                inner = section.setdefault(part.removesuffix("[]"), [{}] if part.endswith("[]") else {})
                section = inner[0] if part.endswith("[]") else inner
            section[last] = value
    return whole


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_no_sentence_of_pydantic_reaches_a_person(tmp_path: Path, value: Any) -> None:
    found = faults_of(tmp_path, everywhere(value))
    assert len(found) > 20, "most settings refuse it"
    assert [fault for fault in found if PYDANTIC.search(fault)] == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("models: [{name: a, api_key: k, price: {in: 3}}]", "unknown setting → one of: cached, input, output"),
        (
            "team: {roles: [{name: a, rights: [admin]}]}",
            "'admin' is not a valid value → one of: talk, network, approve",
        ),
        ("team: {roles: [{name: a, rights: [aprove]}]}", "did you mean 'approve'?"),
        ("tasks: {hours: 0}", "tasks.hours: must be more than 0"),
        (
            "team: {roles: {a: {}}}",
            "team.roles: expected a list, found a section → one item a line: `- {name: …, rights",
        ),
        ("models: [{name: a, api_key: k, price: 3}]", "such as `{input: …, output: …}`"),
        (
            "models: [{name: a, preset: claude}]",
            "'claude' is not a valid value → did you mean 'anthropic'? One of: openai",
        ),
        ("sandbox: {preview: {listen: 8088}}", "found a whole number → such as `listen: 127.0.0.1:8088`"),
        ("models:\n  - name: main\n   model: x", "config.yaml:4: YAML syntax: this line is indented like none"),
        (
            "channels:\n  telegram:\n  token: abc",
            "channels.token: there is no such channel → indent it: it belongs below `telegram:`",
        ),
        ("limits:\nattempts: 3", "attempts: unknown setting → indent it: it belongs below `limits:`"),
        ("mcp: {servers: [{name: a, command: b, url: 'http://x'}]}", "has both `command` and `url`"),
        ("sandbox: {network: {mode: allowlist, hosts: ['https://a.com']}}", "write only the host"),
        ("prompt: {file: nope.md}", "config.yaml:2: prompt.file: the file does not exist"),
        ("roles: {fallback: [a]}\nmodels: [{name: a, api_key: k}]", "a model cannot take over from itself"),
        (
            "models: [{name: main, api_key: k}]\nbudgets: [{scope: model, which: mian, tokens: 3}]",
            "did you mean 'main'?",
        ),
        ("data_dir: config.yaml", "config.yaml:2: data_dir: is a file, not a folder → name a folder of its own"),
        ("data_dir: [a]", "data_dir: expected text, found a list\n"),
        ("channels: {telegram: {token: }}", "expected text, found nothing → write it behind the colon, or remove"),
        (
            "permissions: {deny: ['WebFetch(domain:example.com)']}",
            "is the form of another program → write `web_fetch(https://example.com/*)`",
        ),
        (
            "web: {proxy: 'socks5://127.0.0.1:1080'}",
            "web.proxy: an address with socks5:// cannot be used here → name an HTTP proxy",
        ),
        ("models: [{name: a, api_key: k, proxy: 'socks5h://a:1'}]", "models[0].proxy: an address with socks5h://"),
        (f"{TELEGRAM}, proxy: 'ws://a:1'}}}}", "telegram.proxy: an address with ws:// cannot be used here"),
        ("models: [{name: a, api_key: k, base_url: 'ws://a'}]", "→ write it with http://"),
        ("channels: {discord: {token: a, gateway_url: 'https://a'}}", "cannot be used here → write it with ws://"),
        ("mcp: {servers: [{name: a, url: 'ws://a'}]}", "mcp.servers[0].url: an address with ws:// cannot be used"),
        ("mcpServers: {a: {url: a.b}}", "mcpServers.a.url: not a URL"),
        ("push: {targets: [{name: a, url: 'ws://a'}]}", "push.targets[0].url: an address with ws:// cannot be"),
        ("web: {search: [{provider: searxng, url: 'localhost:80'}]}", "web.search[0].url: not a URL"),
        ("preview: {enabled: true}", "preview: unknown setting → did you mean 'sandbox.preview'?"),
        ("network: {mode: on}", "did you mean 'sandbox.network'?"),
        ("telegram: {token: a}", "telegram: unknown setting → did you mean 'channels.telegram'?"),
        ("kinds: []", "kinds: unknown setting → did you mean 'subagents.kinds'?"),
        ("approvals: []", "did you mean 'team.approvals'?"),
        ("log_level: debug", "log_level: unknown setting → did you mean 'log.level'?"),
        ("sandbox: {mode: on}", "sandbox.mode: unknown setting → did you mean 'sandbox.network.mode'?"),
        (f"{TELEGRAM}, allow: ['1']}}}}", "did you mean 'channels.telegram.access.allow'?"),
        (
            "channels: {slack: {bot_token: xapp-1-A-1-a, app_token: xoxb-1-1-a}}",
            "slack.bot_token: this is the `app_token` → write it there, and here xoxb-",
        ),
        ("web: {hosts: ['https://a.com/']}", "web.hosts[0]: is a URL → write only the host"),
        ("web: {search: [{provider: google}]}", "'google' is not a valid value → one of: searxng"),
        ("rate_limits: [{scope: person}, {scope: person}]", "[1]: has the same scope as `rate_limits[0]` → remove"),
        ("budgets: [{scope: turn, which: a, tokens: 3}]", "which: this scope has no single ones → remove `which`"),
        ("push: {bark_servers: [api.day.app]}", "push.bark_servers[0]: not a URL"),
        ("push: {targets: [{name: a, url: a.b}]}", "push.targets[0].url: not a URL"),
        ("models: [{name: a, api_key: sk-xxx}]", "models[0].api_key: is a placeholder of a sample → put the real one"),
        (
            "channels: {slack: {bot_token: xoxb-..., app_token: xapp-1-A-1-a}}",
            "channels.slack.bot_token: is a placeholder of a sample",
        ),
        ("channels: {discord: {token: <your token>}}", "channels.discord.token: is a placeholder of a sample"),
        ("web: {search: [{provider: brave, api_key: YOUR_API_KEY}]}", "web.search[0].api_key: is a placeholder"),
        ("sandbox: {docker_host: /var/run/docker.sock}", "sandbox.docker_host: has no scheme that Fawn can use"),
        ("mcp: {servers: [{name: a, command: npx -y server}]}", "mcp.servers[0].command: is a program with its"),
        ("mcpServers: {a: {command: [npx, -y, server]}}", "write only npx here, and the other words into `args: […]`"),
        ("mcpServers: {a: {command: uvx server}}", "write only uvx here, and the other words into `args: […]`"),
        (
            f"channels: {{telegram: {{token: '1234567:{'a' * 35}'}}}}\nrate_limits: [{{scope: person, which: alice}}]",
            "rate_limits[0].which: is not an id of this platform",
        ),
    ],
)
def test_a_fault_says_what_to_write_at_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "config.yaml").write_text(f"config_version: 1\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "config.yaml", {})
    assert sentence in str(caught.value)
    assert len(caught.value.faults) <= 3


def test_a_placeholder_in_the_environment_is_named_and_a_server_elsewhere_takes_any_key(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("config_version: 1\n")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY: is a placeholder of a sample"):
        load_config(file, {"OPENAI_API_KEY": "sk-REPLACE-ME"})
    assert load_config(file, {"OPENAI_API_KEY": "xxx", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}).models
    file.write_text(
        "config_version: 1\nmodels: [{name: a, base_url: 'http://127.0.0.1:1/v1', api_key: xxx}]\n"
        "mcp: {servers: [{name: a, command: '/opt/my tools/server'}]}\n"
    )
    assert load_config(file, {}).models


def test_commands_without_accounts_do_not_miss_the_models(tmp_path: Path) -> None:
    text = "config_version: 1\nmodels: [{name: m, api_key: $K}]\nteam: {roles: [{name: a, models: [m]}]}\n"
    file = tmp_path / "config.yaml"
    file.write_text(f"{text}agents: [{{name: b, model: m}}]\nbudgets: [{{scope: model, which: m, tokens: 3}}]\n")
    assert load_config(file, {}, accounts=False).agents[0].model == "m"


def test_a_local_file_is_merged_over_the_shipped_one(tmp_path: Path) -> None:
    text = "config_version: 1\nmodels: [{name: a, api_key: k}, {name: b, api_key: $K}]\n"
    text += "limits: {attempts: 2, upload_mb: 3}\n"
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "config.local.yaml").write_text("models: [{name: c, api_key: k}]\nlimits: {attempts: 5}\n")
    config = load_config(tmp_path / "config.yaml", {"K": "secret-of-b"})
    assert [model.name for model in config.models] == ["c"]
    assert (config.limits.attempts, config.limits.upload_mb) == (5, 3)
    assert config.source.count("config") == 2
    (tmp_path / "config.local.yaml").write_text("models:\n  - {name: c, api_key: k, retries: many}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "config.yaml", {"K": "secret-of-b"})
    assert "config.local.yaml:2: models[0].retries: expected a whole number" in str(caught.value)
