"""The section `hooks:`: what is read, and what each mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agent.messages import Thread
from bot.config.loader import ConfigError, load_config, secret_texts
from bot.config.schema import Config

GOOD = {"to": "telegram:123456/-100", "as": "@42", "secret": "$ALERTS_SECRET", "signature": "bearer"}


def load(tmp_path: Path, hooks: object, **more: object) -> Config:
    sections = {
        "config_version": 1,
        "http": {"listen": "127.0.0.1:8080"},
        "channels": {"telegram": {"token": f"123456:{'A' * 35}"}},
        "hooks": hooks,
        **more,
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(sections))
    return load_config(tmp_path / "config.yaml", {"ALERTS_SECRET": "the-token-of-the-hook"})


@pytest.mark.parametrize(
    ("to", "thread"),
    [
        ("telegram:123456/-100", Thread("telegram", "123456", "-100")),
        ("telegram/123456/-100", Thread("telegram", "123456", "-100")),
        ("telegram:123456/-100/7", Thread("telegram", "123456", "-100", "7")),
    ],
)
def test_a_hook_names_its_chat_its_person_and_its_secret(tmp_path: Path, to: str, thread: Thread) -> None:
    config = load(tmp_path, {"alerts": {**GOOD, "to": to}})
    hook = config.hooks["alerts"]
    assert (hook.target, hook.person, hook.signature) == (thread, "42", "bearer")
    assert "the-token-of-the-hook" not in repr(config)
    assert "the-token-of-the-hook" in secret_texts(config)


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"to": "slack:T1/C1"}, "hooks.alerts.to", "this channel is not configured"),
        ({"to": "console:local/jane"}, "hooks.alerts.to", "the console has no chats"),
        ({"to": "ops"}, "hooks.alerts.to", "is not the address of a chat"),
        ({"as": "stranger"}, "hooks.alerts.as", "names no person and no role"),
        ({"as": "viewer"}, "hooks.alerts.as", "may not have the agent work"),
        ({"as": "@"}, "hooks.alerts.as", "write CHANNEL/ID"),
        ({"secret": "abc"}, "hooks.alerts.secret", "is shorter than 16 characters"),
        ({"secret": "$MISSING"}, "hooks.alerts.secret", "MISSING"),
        ({"secret": ""}, "hooks.alerts.secret", "is empty"),
        ({"signature": "hmac"}, "hooks.alerts.signature", "standard"),
        ({"group_by": "alertname"}, "hooks.alerts.group_by", "a list"),
        ({"as_": "member"}, "hooks.alerts.as_", "unknown setting"),
        ({"per_minute": 0}, "hooks.alerts.per_minute", "must be at least 1"),
    ],
)
def test_each_mistake_has_its_place_and_its_fix(
    tmp_path: Path, change: dict[str, object], place: str, words: str
) -> None:
    with pytest.raises(ConfigError) as found:
        load(tmp_path, {"alerts": {**GOOD, **change}})
    assert any(fault.place == place and words in fault.render() for fault in found.value.faults), found.value


def test_a_hook_needs_a_listener_and_a_name_for_its_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        load(tmp_path, {"My alerts": GOOD}, http={})
    assert "small letters" in str(found.value)
    assert "http: {listen: 127.0.0.1:8080}" in str(found.value)
