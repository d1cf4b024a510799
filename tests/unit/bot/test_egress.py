"""Every host that a configuration lets the service reach is in the list, in each format."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from agent.models.presets import PRESETS
from agent.web.search import APIS
from bot.config.loader import channel_modules, load_config
from bot.status.egress import (
    ANY,
    Destination,
    list_destinations,
    render_cilium,
    render_list,
    render_policy,
    render_text,
)

BASE = "config_version: 1\nweb: {fetch: false}\n"


def destinations(folder: Path, text: str, **environ: str) -> dict[tuple[str, int], Destination]:
    """Return the list of a configuration, by host and port."""
    (folder / "config.yaml").write_text(text)
    found, _notes = list_destinations(load_config(folder / "config.yaml", environ))
    return {(each.host, each.port): each for each in found}


def test_a_configuration_without_anything_reaches_nothing(tmp_path: Path) -> None:
    assert not destinations(tmp_path, BASE)
    (tmp_path / "config.yaml").write_text(BASE)
    _found, notes = list_destinations(load_config(tmp_path / "config.yaml", {}))
    assert any("port 53" in note for note in notes)


def test_every_channel_with_an_address_is_in_the_list_with_what_its_platform_names(tmp_path: Path) -> None:
    settings = {
        "telegram": {"token": "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0"},
        "slack": {"bot_token": "xoxb-123456-abc", "app_token": "xapp-1-A-1-abc"},
        "discord": {"token": "MTIzNDU2Nzg5MDEyMzQ1Njc4.abcdef.abcdefghijklmnopqrstuvwxyz"},
        "feishu": {"app_id": "cli_a", "app_secret": "abcdefghijk"},
        "dingtalk": {"client_id": "ding1", "client_secret": "abcdefghijk"},
        "wecom": {"bot_id": "aib1", "secret": "abcdefghijk"},
        "whatsapp": {
            "phone_number_id": "106540352242922",
            "token": "abcdefghijk",
            "app_secret": "abcdefghijk",
            "relay_url": "https://relay.corp:8443",
            "relay_key": "k" * 40,
        },
        "wechat": {"person": "o9cq80-abc@im.wechat"},
    }
    with_address = {
        name
        for name, module in channel_modules().items()
        if {"base_url", "gateway_url", "domain"} & {field.name for field in fields(module.Settings)}
    }
    assert settings.keys() == with_address, "a new channel needs its entry here, and MORE_HOSTS"
    assert all(hasattr(channel_modules()[name], "MORE_HOSTS") for name in with_address)
    found = destinations(tmp_path, BASE + yaml.safe_dump({"channels": settings}))
    assert found.keys() == {
        *(("api.telegram.org", 443), ("slack.com", 443), ("*.slack.com", 443)),
        *(("discord.com", 443), ("gateway.discord.gg", 443), ("*.discord.gg", 443), ("cdn.discordapp.com", 443)),
        *(("media.discordapp.net", 443), ("open.feishu.cn", 443), ("*.feishu.cn", 443)),
        *(("graph.facebook.com", 443), ("lookaside.fbsbx.com", 443), ("relay.corp", 8443)),
        *(("ilinkai.weixin.qq.com", 443), ("*.weixin.qq.com", 443), ("novac2c.cdn.weixin.qq.com", 443)),
        *(("openws.work.weixin.qq.com", 443), ("*.myqcloud.com", 443)),
        *(("api.dingtalk.com", 443), ("oapi.dingtalk.com", 443), ("*.dingtalk.com", 443), ("*.aliyuncs.com", 443)),
    }
    own = {"channels": {"slack": {**settings["slack"], "base_url": "https://slack.proxy.corp/api/"}}}
    assert destinations(tmp_path, BASE + yaml.safe_dump(own)).keys() == {("slack.proxy.corp", 443)}


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "anthropic"])
def test_every_preset_of_a_model_names_its_server(tmp_path: Path, preset: str) -> None:
    model = {"name": "m", "preset": preset, "model": "x", "api_key": "k1234567"}
    found = destinations(tmp_path, BASE + yaml.safe_dump({"models": [model]}))
    assert len(found) == 1, found


@pytest.mark.parametrize("provider", [name for name, api in APIS.items() if api.url])
def test_every_search_provider_names_its_server(tmp_path: Path, provider: str) -> None:
    web = {"fetch": False, "proxy": "http://proxy.corp:3128", "search": [{"provider": provider, "api_key": "k1234567"}]}
    found = destinations(tmp_path, "config_version: 1\n" + yaml.safe_dump({"web": web}))
    assert len(found) == 2
    assert found["proxy.corp", 3128].what == f"proxy of web.search[{provider}]"


def test_sections_with_addresses_and_the_rules_of_sandboxes(tmp_path: Path) -> None:
    text = BASE + yaml.safe_dump(
        {
            "mcp": {"servers": [{"name": "x", "url": "https://mcp.example.com:8443/mcp", "token": "t0ken-of-x"}]},
            "push": {"targets": [{"name": "p", "url": "https://hooks.example.com/s3cret"}]},
            "voice": {"base_url": "https://voice.example.com/v1", "model": "w"},
            "traces": {"endpoint": "http://otel.corp/v1/traces"},
            "sandbox": {
                "docker_host": "tcp://docker.corp:2376",
                "network": {
                    "mode": "allowlist",
                    "hosts": ["*.packages.example", "git.corp:2222", "10.1.2.3"],
                    "npm_registry_url": "https://npm.corp:444/",
                },
            },
        }
    )
    found = destinations(tmp_path, text)
    assert found.keys() == {
        *(("mcp.example.com", 8443), ("hooks.example.com", 443), ("voice.example.com", 443), ("otel.corp", 80)),
        *(
            ("docker.corp", 2376),
            ("*.packages.example", 80),
            ("*.packages.example", 443),
            ("git.corp", 2222),
            ("npm.corp", 444),
        ),
        *(("10.1.2.3", 80), ("10.1.2.3", 443)),
    }
    assert "s3cret" not in str(found)
    off = text.replace("mode: allowlist", "mode: 'off'")
    assert ("*.packages.example", 443) not in destinations(tmp_path, off)
    on = destinations(tmp_path, text.replace("mode: allowlist", "mode: 'on'"))
    assert (ANY, 443) in on


FOUND = [
    Destination("*.slack.com", 443, "a"),
    Destination("10.1.2.3", 8443, "b"),
    Destination(ANY, 443, "c"),
    Destination("127.0.0.1", 11434, "local"),
    Destination("api.example.invalid", 443, "d"),
    Destination("far.example", 443, "e", "http://user:pass@10.0.0.9:3128"),
]


def test_a_firewall_sees_the_proxy_and_not_what_is_behind_it_or_on_this_machine() -> None:
    lines = render_list(FOUND, resolve=True).splitlines()
    assert lines == ["tcp * 443", "tcp *.slack.com 443", "tcp 10.1.2.3 8443  # 10.1.2.3", "tcp api.example.invalid 443"]
    text = render_text(FOUND, ["a note"])
    assert "(through 10.0.0.9:3128)" in text
    assert "pass" not in text
    assert "every public host" in text


def test_policies_have_the_shape_of_their_api() -> None:
    text = render_policy(FOUND, "bot")
    policy = yaml.safe_load(text)
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app": "bot"}}
    assert policy["spec"]["policyTypes"] == ["Egress"]
    rules = policy["spec"]["egress"]
    assert {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"protocol": "TCP", "port": 8443}]} in rules
    [public] = [rule for rule in rules if rule.get("to", [{}])[0].get("ipBlock", {}).get("cidr") == "0.0.0.0/0"]
    assert "10.0.0.0/8" in public["to"][0]["ipBlock"]["except"]
    assert "# *.slack.com:443 is not in it, because it has no address" in text
    cilium = yaml.safe_load(render_cilium(FOUND, "bot"))
    names = [rule["toFQDNs"] for rule in cilium["spec"]["egress"] if "toFQDNs" in rule]
    assert names == [[{"matchPattern": "*.slack.com"}], [{"matchName": "api.example.invalid"}]]
    assert json.dumps(cilium)
