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


@pytest.mark.parametrize("named", [True, False], ids=["by --config", "found"])
def test_a_local_file_alone_needs_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    """A container has no other file: `./config.local.yaml` is mounted as compose.yaml says."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.local.yaml"
    file.write_text("keep_days: 5\n")
    assert load_config(file if named else None, {}).keep_days == 5


def test_a_local_file_is_merged_over_the_shipped_one(tmp_path: Path) -> None:
    text = "config_version: 1\nmodels: [{name: a, api_key: k}, {name: b, api_key: $K}]\n"
    text += "limits: {attempts: 2, bot_turns: 3}\n"
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "config.local.yaml").write_text("models: [{name: c, api_key: k}]\nlimits: {attempts: 5}\n")
    config = load_config(tmp_path / "config.yaml", {"K": "secret-of-b"})
    assert [model.name for model in config.models] == ["c"]
    assert (config.limits.attempts, config.limits.bot_turns) == (5, 3)
    assert config.source.count("config") == 2
    (tmp_path / "config.local.yaml").write_text("models:\n  - {name: c, api_key: k, retries: many}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "config.yaml", {"K": "secret-of-b"})
    assert "config.local.yaml:2: models[0].retries: expected a whole number" in str(caught.value)
