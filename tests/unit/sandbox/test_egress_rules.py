"""The hosts and addresses that the network rules allow."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import pytest

from bot.config.loader import load_config
from bot.service.sandbox_setup import sandbox_settings
from sandbox.base import SandboxUnavailable
from sandbox.rules import (
    EgressDenied,
    EgressPolicy,
    NetworkRules,
    is_local,
    is_public,
    normalize_host,
    split_host_port,
    unwrap_ipv4,
)

WORLD = ("example.com", "*.wide.example", "Bücher.example", "10.1.2.3:5000", "special.example:8443", "[fd00::7]:80")


@pytest.mark.parametrize(
    ("mode", "host", "port", "why"),
    [
        ("off", "example.com", 443, "off"),
        ("allowlist", "example.com", 443, ""),
        ("allowlist", "EXAMPLE.com.", 80, ""),
        ("allowlist", "sub.example.com", 443, "host"),
        ("allowlist", "example.com.evil.test", 443, "host"),
        ("allowlist", "notexample.com", 443, "host"),
        ("allowlist", "a.wide.example", 443, ""),
        ("allowlist", "a.b.wide.example", 443, ""),
        ("allowlist", "wide.example", 443, "host"),
        ("allowlist", "evilwide.example", 443, "host"),
        ("allowlist", "xn--bcher-kva.example", 443, ""),
        ("allowlist", "BÜCHER.example", 443, ""),
        ("allowlist", "10.1.2.3", 5000, ""),
        ("allowlist", "10.1.2.3", 80, "host"),
        ("allowlist", "::ffff:10.1.2.3", 5000, ""),
        ("allowlist", "[fd00:0:0::7]", 80, ""),
        ("allowlist", "special.example", 8443, ""),
        ("allowlist", "special.example", 443, "host"),
        ("allowlist", "example.com", 22, "port"),
        ("on", "anything.test", 443, ""),
        ("on", "anything.test", 25, "port"),
        ("on", "special.example", 8443, ""),
    ],
)
def test_allowed_names(mode: str, host: str, port: int, why: str) -> None:
    rules = NetworkRules(mode, WORLD)  # type: ignore[arg-type]  # a literal, from the table above
    if not why:
        EgressPolicy(rules).check_name(normalize_host(host), port, tunnel=False)
        return
    with pytest.raises(EgressDenied, match="an operator can") as denied:
        EgressPolicy(rules).check_name(normalize_host(host), port, tunnel=False)
    assert denied.value.why == why
    assert normalize_host(host) in str(denied.value)


@pytest.mark.parametrize(
    ("mode", "host", "port", "why"),
    [
        ("on", "anything.test", 443, ""),
        ("on", "anything.test", 80, "port"),
        ("on", "fd00::7", 80, ""),
        ("on", "special.example", 8443, ""),
        ("allowlist", "example.com", 443, ""),
        ("allowlist", "example.com", 80, "port"),
        ("allowlist", "a.wide.example", 80, "port"),
        ("allowlist", "a.named.example", 80, ""),
        ("allowlist", "evil.test", 80, "host"),
        ("off", "example.com", 80, "off"),
    ],
)
def test_tunnels_are_limited_to_tls_and_named_ports(mode: str, host: str, port: int, why: str) -> None:
    guard = EgressPolicy(NetworkRules(mode, (*WORLD, "*.named.example:80")))  # type: ignore[arg-type]  # from the table above
    if not why:
        guard.check_name(host, port, tunnel=True)
        return
    with pytest.raises(EgressDenied, match=re.escape(f"{host}:80") if why == "port" else "operator can") as denied:
        guard.check_name(host, port, tunnel=True)
    assert denied.value.why == why


INNER = [
    "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.17.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "100.100.100.200", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.0.0.192", "198.18.0.1",
    "168.63.129.16", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1",
    "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b:1::1",
    "2002:7f00:1::1", "2002:a9fe:a9fe::", "2001:db8::1", "2001::1", "100::1", "5f00::1", "3fff::1", "2001:2::1",
    "0.0.0.0",  # noqa: S104  nothing is bound
]  # fmt: skip


@pytest.mark.parametrize("address", INNER)
def test_non_public_addresses_are_refused(address: str) -> None:
    assert not is_public(unwrap_ipv4(ipaddress.ip_address(address)))
    for rules in (NetworkRules("on"), NetworkRules("allowlist", ("*.wide.example",))):
        with pytest.raises(EgressDenied, match="not public"):
            EgressPolicy(rules).check_address("a.wide.example", 443, address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_public_addresses_are_allowed(address: str) -> None:
    EgressPolicy(NetworkRules("on")).check_address("a.example", 443, address)


def test_a_named_host_may_be_private_but_not_local() -> None:
    guard = EgressPolicy(
        NetworkRules("allowlist", ("registry.corp", "169.254.7.7", "here.corp:5000", "127.0.0.1:5000"))
    )
    guard.check_address("registry.corp", 443, "10.0.0.1")
    guard.check_address("169.254.7.7", 80, "169.254.7.7")
    guard.check_address("here.corp", 5000, "127.0.0.1")  # an entry has its address, too
    for address in ("127.0.0.1", "::1", "169.254.169.254", "fe80::1%eth0", "224.0.0.1", "::", "::ffff:169.254.169.254"):
        with pytest.raises(
            EgressDenied, match=re.escape(str(unwrap_ipv4(ipaddress.ip_address(address.partition("%")[0]))))
        ):
            guard.check_address("registry.corp", 443, address)
    with pytest.raises(EgressDenied):  # the entry is for web ports only
        guard.check_address("registry.corp", 8080, "10.0.0.1")


def test_local_addresses_are_recognized() -> None:
    assert is_local(ipaddress.ip_address("127.0.0.1"))
    assert not is_local(ipaddress.ip_address("192.0.2.1"))


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "a b",
        "a..b",
        "-a.b",
        "a/b",
        "a@b",
        "a\r\nb",
        "ü" * 70,
        "x" * 260,
        "[::1",
        "*",
        "fe80::1%eth0",
        "[2606:4700::1%a\nb]",
    ],
)
def test_invalid_hosts_are_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"not a host name|idna"):
        normalize_host(host)


@pytest.mark.parametrize("text", ["a:0", "a:65536", "a:x", "a:-1", "[::1]:x", "a:²"])
def test_invalid_ports_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="port"):
        split_host_port(text)


@pytest.mark.parametrize("entry", ["", "two words", "https://example.com", "*", "a:b", "*.*.example"])
def test_an_invalid_rule_is_reported(entry: str) -> None:
    with pytest.raises(SandboxUnavailable, match=r"sandbox\.network\.hosts"):
        EgressPolicy(NetworkRules("allowlist", (entry,)))


def test_the_description_includes_the_registries() -> None:
    rules = NetworkRules("allowlist", ("a.example",), "https://u:p@pip.example/simple", "http://npm.example:4873/")
    assert rules.description().endswith(" now a.example, pip.example, npm.example:4873")


@pytest.mark.parametrize("mode", ["off", "on", "allowlist", '"on"', "Off"])
def test_the_rules_are_read_from_the_configuration(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "config.yaml"
    network = f"{{mode: {mode}, hosts: [a.example, 10.0.0.7, 'b.example:8443']}}"
    file.write_text(f"config_version: 1\nsandbox:\n  network: {network}\n  preview: {{enabled: true}}\n")
    config = load_config(file, {})
    assert config.sandbox.network.mode == mode.strip('"').lower()
    assert config.sandbox.network.hosts == ("a.example", "10.0.0.7", "b.example:8443")
    assert config.sandbox.preview.enabled
    assert sandbox_settings(config).network == config.sandbox.network
