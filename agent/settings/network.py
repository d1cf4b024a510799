"""The section `network:`: which proxy and which certificate authorities a connection of this process uses.

The environment carries the section (`variables`), because SDKs, git and other programs of Fawn read only that. Every
client asks `choose_proxy` for each address and `make_trust` for its certificates.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from agent.setting import setting

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_SECURE = {"wss": "https", "ws": "http"}
_PORTS = {"http": 80, "https": 443}
CA_FILE = "SSL_CERT_FILE"
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", CA_FILE)


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """The way to the outside for all connections of Fawn (docs/behind-a-proxy.md)."""

    proxy: str = setting(
        "",
        "HTTP proxy for all connections whose own section names none, with user:password@ if it needs them; empty:"
        " that of HTTPS_PROXY or HTTP_PROXY, also of `.env`",
        repr=False,
    )
    no_proxy: tuple[str, ...] = setting(
        (),
        "hosts that are reached without `proxy`, with those below them, addresses and networks, each also with a"
        " port; empty: those of NO_PROXY",
    )
    ca_file: str = setting(
        "",
        "PEM file with the certificate authorities to trust instead of the system's; empty: that of SSL_CERT_FILE",
    )

    def variables(self) -> dict[str, str]:
        """Return the variables that say the same to every program; "" removes one."""
        named: dict[str, str] = {}
        if self.proxy:
            named |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), self.proxy) | {"ALL_PROXY": ""}
        if self.no_proxy:
            named["NO_PROXY"] = ",".join(self.no_proxy)
        named |= {name.lower(): value for name, value in named.items()}
        return named | ({CA_FILE: self.ca_file} if self.ca_file else {})


def left_to_files(own: Mapping[str, str], files: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the way to the outside that only files such as `.env` set, not the process's own."""
    found: dict[str, str] = {}
    for name in NAMES:
        spelled = (name,) if name == CA_FILE else (name, name.lower())
        written = [files[each] for each in spelled if files.get(each)]
        if written and not any(each in own for each in spelled):
            found |= dict.fromkeys(spelled, written[0])
    return found


def choose_proxy(url: str, own: str = "") -> str | None:
    """Return the proxy for an address, None for none: a client's `own` one, else that of the process's environment.

    Curl and Go read it alike: `HTTPS_PROXY` or `HTTP_PROXY` by the scheme, else `ALL_PROXY`, also without a scheme; but
    not for this machine, and not for what `NO_PROXY` names: hosts with those below them, addresses, networks, each also
    with a port, or `*`.
    """
    if own:
        return own
    parts, named = urlsplit(url), urllib.request.getproxies()
    scheme = _SECURE.get(parts.scheme, parts.scheme)
    proxy, host = named.get(scheme) or named.get("all") or "", (parts.hostname or "").rstrip(".")
    if not proxy or host in LOOPBACK_HOSTS or _is_excepted(host, parts.port or _PORTS.get(scheme), named.get("no", "")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    return proxy if proxy.lower().startswith(("http://", "https://")) else None  # aiohttp knows no others


def describe_failure(error: BaseException) -> str:
    """Return why a connection failed, in the system's words and without addresses, which may contain secrets."""
    cause: BaseException | None = error
    while cause is not None:
        if message := getattr(cause, "verify_message", ""):  # of ssl.SSLCertVerificationError
            return f"certificate: {message}"
        inner = getattr(cause, "certificate_error", None) or getattr(cause, "os_error", None)  # as aiohttp keeps them
        inner = inner or cause.__cause__ or cause.__context__
        if inner is None and isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)  # below 0: of a name
        cause = inner
    return type(error).__name__


def trusted_file(own: str = "") -> str:
    """Return the file of authorities to trust: a client's `own` one, else that of `SSL_CERT_FILE` or the system."""
    return own or ssl.get_default_verify_paths().cafile or ""


def make_trust(own: str = "") -> ssl.SSLContext:
    """Return the context of connections that trust `trusted_file`. Raises OSError."""
    return trust_of_file(trusted_file(own))


@lru_cache(maxsize=32)
def trust_of_file(file: str) -> ssl.SSLContext:
    """Return the context of a file, "" for the system's; reading it takes some 20 ms, once. Raises OSError."""
    return ssl.create_default_context(cafile=file or None)


def _is_excepted(host: str, port: int | None, exceptions: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        address = None
    for entry in re.split(r"[,\s]+", exceptions.lower()):
        name, _, only = entry.rpartition(":") if re.search(r"(?:^[^:]+|\]):\d+$", entry) else (entry, "", "")
        name = name.strip("[]").removeprefix("*.").strip(".")
        if only and only != str(port):
            continue
        if entry == "*" or (name and (host == name or (address is None and host.endswith(f".{name}")))):
            return True
        with suppress(ValueError):  # a name
            if address is not None and address in ipaddress.ip_network(name, strict=False):
                return True
    return False
