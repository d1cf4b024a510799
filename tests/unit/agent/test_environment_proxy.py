"""Which proxy the environment names for an address, as curl and Go read it."""

from __future__ import annotations

import pytest

from agent.settings.network import choose_proxy

PROXY = "http://proxy.corp:3128"
NAMED = {"HTTPS_PROXY": PROXY}


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, "https://api.example.com/v1", None),
        (NAMED, "https://api.example.com/v1", PROXY),
        ({"https_proxy": PROXY}, "https://api.example.com/v1", PROXY),
        (NAMED, "http://api.example.com/v1", None),
        ({"ALL_PROXY": PROXY}, "https://api.example.com/v1", PROXY),
        ({"all_proxy": PROXY}, "http://api.example.com/v1", PROXY),
        ({"ALL_PROXY": "http://other:1", **NAMED}, "https://api.example.com/v1", PROXY),
        ({"HTTPS_PROXY": "proxy.corp:3128"}, "https://api.example.com/v1", PROXY),
        ({"HTTPS_PROXY": "10.0.0.9:3128"}, "https://api.example.com/v1", "http://10.0.0.9:3128"),
        ({"HTTPS_PROXY": "http://a%40b:p@proxy:1"}, "https://api.example.com/v1", "http://a%40b:p@proxy:1"),
        ({"ALL_PROXY": "socks5://proxy:1080"}, "https://api.example.com/v1", None),
        ({"ALL_PROXY": "socks://proxy:1080"}, "https://api.example.com/v1", None),
        ({"HTTPS_PROXY": ""}, "https://api.example.com/v1", None),
    ],
)
def test_the_proxy_of_an_address(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, proxy: str | None
) -> None:
    forget_proxies(monkeypatch)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert choose_proxy(url) == proxy


@pytest.mark.parametrize(
    ("exceptions", "url", "is_direct"),
    [
        ("*", "https://api.example.com", True),
        ("api.example.com", "https://api.example.com", True),
        ("example.com", "https://api.example.com", True),
        (".example.com", "https://api.example.com", True),
        ("*.example.com", "https://api.example.com", True),
        ("EXAMPLE.com", "https://API.example.com.", True),
        ("ample.com", "https://api.example.com", False),
        ("api.example.com.evil", "https://api.example.com", False),
        ("localhost, 10.1.2.3 ,x", "https://10.1.2.3", True),
        ("localhost 10.1.2.3", "https://10.1.2.3", True),
        ("10.1.2.0/24", "https://10.1.2.3", True),
        ("10.0.0.0/8,192.168.0.0/16", "https://192.168.7.7:8443", True),
        ("10.1.2.0/24", "https://10.1.3.3", False),
        ("10.1.2.9/24", "https://10.1.2.3", True),
        ("10.1.2.0/24", "https://api.example.com", False),
        (".2.3", "https://10.1.2.3", False),
        ("10.1.2.3:8443", "https://10.1.2.3:8443", True),
        ("10.1.2.3:8443", "https://10.1.2.3", False),
        ("api.example.com:443", "https://api.example.com", True),
        ("api.example.com:80", "https://api.example.com", False),
        ("fd00::/8", "https://[fd00::7]", True),
        ("fd00::7", "https://[fd00::7]:8443", True),
        ("[fd00::7]:8443", "https://[fd00::7]:8443", True),
        ("[fd00::7]:8443", "https://[fd00::7]", False),
        (",,", "https://api.example.com", False),
        ("", "https://api.example.com", False),
    ],
)
def test_no_proxy_names_what_is_reached_directly(
    monkeypatch: pytest.MonkeyPatch, exceptions: str, url: str, is_direct: bool
) -> None:
    forget_proxies(monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", exceptions)
    assert choose_proxy(url) == (None if is_direct else PROXY)


def forget_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        for each in (name, name.lower()):
            monkeypatch.delenv(each, raising=False)
