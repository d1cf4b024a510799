"""Egress rules: which hosts and addresses a sandbox may reach.

Names are compared in normal form (lower case, IDNA, no final dot). An entry is `example.com`, `*.example.com` (all
names below it, not itself) or an address, with or without a port. A host that an entry names exactly may have a
private address, such as a company's registry. A host that only a wildcard or the mode "on" allows must be public. This
machine and its local network segment are reached only if an entry has the address itself.

Define what a proxy of sandboxes reports of each request.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from catalogue import N_
from sandbox.base import SandboxUnavailable
from sandbox.inside.relay import PROXY_PORT


@dataclass(frozen=True, slots=True)
class EgressRequest:
    """A request of a sandbox: what became of it, where it went, and how many bytes of it."""

    outcome: Literal["done", "refused", "failed", "other"]
    host: str
    port: int
    sent: int = 0
    received: int = 0


ReportEgress = Callable[[str, EgressRequest], None]  # with the key of the sandbox


def report_nothing(_key: str, _request: EgressRequest) -> None:
    """Tell nobody."""


SOCKET_FOLDER = "/run/fawn"  # mount point of the proxy's folder, read-only
SOCKET_NAME = "egress.sock"
CA_FILE = "ca.pem"
WEB_PORTS = (80, 443)
# The sandbox's own loopback, which never uses the proxy.
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "sandbox")  # noqa: S104  names to compare, nothing is bound

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_PUBLIC6 = ipaddress.IPv6Network("2000::/3")  # all allocated IPv6 (RFC 4291 §2.4)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last four bytes are an IPv4 address
# Not public either, even if this Python does not know it; the second is Azure's host of every virtual machine.
_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "168.63.129.16/32", "2001::/23", "3fff::/20")))
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


class EgressDenied(Exception):
    """The rules forbid a connection. The text is for people and the model; `why` is a word for logs."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(text)
        self.why = why


@dataclass(frozen=True, slots=True)
class NetworkRules:
    """`sandbox.network` in config.yaml."""

    mode: Literal["off", "allowlist", "on"] = field(
        default="off",
        metadata={
            "help": "`off`: no network; `allowlist`: only `hosts` and the two registries below; `on`: every public"
            " host. Connections always go through a proxy that refuses this machine and its network"
        },
    )
    hosts: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "`example.com`, `*.example.com` or an address, with `:port` unless it is 80 or 443; only an exact"
            " entry may be a private address"
        },
    )
    pip_index_url: str = field(
        default="",
        metadata={"help": "package index for pip; its host is allowed. Add the host of its files to `hosts`"},
    )
    npm_registry_url: str = field(default="", metadata={"help": "package registry for npm; its host is allowed"})
    ca_file: str = field(
        default="", metadata={"help": "PEM file with certificate authorities that sandboxes trust, too"}
    )
    proxy: str = field(
        default="", metadata={"help": "HTTP proxy for outbound connections, with user:password@ if it needs them"}
    )

    @property
    def enabled(self) -> bool:
        """Whether sandboxes have any network access."""
        return self.mode != "off"

    def description(self) -> str:
        """Describe what sandboxes can reach, and what an operator can change."""
        if self.mode == "off":
            return (
                "The sandbox has no network (sandbox.network.mode is off); an operator can allow the hosts it needs, "
                "or all public ones"
            )
        if self.mode == "on":
            return (
                "The sandbox reaches public hosts on ports 80 and 443; an operator can add others to "
                "sandbox.network.hosts"
            )
        named = ", ".join(self.allowed_entries()[:20]) or "none"
        return f"The sandbox reaches only the hosts that an operator lists in sandbox.network.hosts, now {named}"

    def allowed_entries(self) -> list[str]:
        """List `hosts` and the hosts of the package registries."""
        urls = map(urlsplit, filter(None, (self.pip_index_url, self.npm_registry_url)))
        named = (shown_host(url.hostname or "", url.port or WEB_PORTS[url.scheme == "https"]) for url in urls)
        return [*self.hosts, *named]

    def environment(self) -> dict[str, str]:
        """Return the environment variables of commands. The proxy is set without a network, too: it answers what an
        operator can allow, and a failed name lookup would not."""
        here = f"http://127.0.0.1:{PROXY_PORT}"
        found = {"FAWN_EGRESS": f"{SOCKET_FOLDER}/{SOCKET_NAME}"}
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            found |= {name: here, name.lower(): here}
        found |= {name: ",".join(LOOPBACK_NAMES) for name in ("NO_PROXY", "no_proxy")}
        found |= {"NODE_USE_ENV_PROXY": "1"}  # for fetch() of Node 24 and later
        if not self.enabled:
            found["PIP_RETRIES"] = "1"  # pip would report each retry, and none can succeed
        if self.ca_file and self.enabled:
            names = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
            found |= dict.fromkeys((*names, "NODE_EXTRA_CA_CERTS"), f"{SOCKET_FOLDER}/{CA_FILE}")
        if self.pip_index_url:
            found["PIP_INDEX_URL"] = self.pip_index_url
        if self.npm_registry_url:
            found["npm_config_registry"] = self.npm_registry_url
        return found


class EgressPolicy:
    """Parsed `NetworkRules`, which decide about each connection."""

    def __init__(self, rules: NetworkRules) -> None:
        self.mode = rules.mode
        self._allowed: set[tuple[str, int]] = set()
        self._ports: set[tuple[str, int]] = set()  # entries with a port
        for entry in rules.allowed_entries():
            wild = entry.startswith("*.")
            try:
                host, port = split_host_port(entry[2:] if wild else entry)
                host = "*." * wild + normalize_host(host)
            except ValueError as error:
                text = N_(
                    "`sandbox.network.hosts`: {entry!r} is not a host: write example.com, *.example.com or an address,"
                    " with :port where it is not 80 or 443."
                )
                raise SandboxUnavailable(text, entry=entry) from error
            self._allowed.update((host, number) for number in ((port,) if port else WEB_PORTS))
            self._ports.update({(host, port)} if port else ())

    def check_name(self, host: str, port: int, *, tunnel: bool) -> None:
        """Check a request to `host` (in normal form), or a `tunnel` for TLS. Raises EgressDenied."""
        if self.mode == "off":
            raise EgressDenied(
                f"The sandbox has no network (sandbox.network.mode is off); an operator can allow {host}.", "off"
            )
        names = {(host, port), *(("*" + host[at:], port) for at, sign in enumerate(host) if sign == ".")}
        if not names & self._allowed:
            if port not in WEB_PORTS:
                raise EgressDenied(
                    f"Port {port} of {host} is not allowed for the sandbox; an operator can add "
                    f"{shown_host(host, port)} to sandbox.network.hosts.",
                    "port",
                )
            if self.mode == "allowlist":
                raise EgressDenied(
                    f"{host} is not allowed for the sandbox; an operator can add it to sandbox.network.hosts.", "host"
                )
        if tunnel and port != 443 and not names & self._ports:
            raise EgressDenied(
                f"A tunnel to port {port} of {host} is not allowed for the sandbox, only a plain request; an operator "
                f"can add {join_host_port(host, port)} to sandbox.network.hosts.",
                "port",
            )

    def check_address(self, host: str, port: int, address: str) -> None:
        """Check whether the `address` of `host` may be connected to. Raises EgressDenied."""
        ip = unwrap_ipv4(ipaddress.ip_address(address.partition("%")[0]))
        if (str(ip), port) in self._allowed:
            return
        if is_near(ip):
            missing = str(ip)  # so near, only an entry with the address itself allows it, whatever a name resolves to
        elif (host, port) in self._allowed or is_public(ip):
            return
        else:
            missing = host
        raise EgressDenied(
            f"{host} is on an address that is not public, which the sandbox may not reach; an operator can add "
            f"{shown_host(missing, port)} to sandbox.network.hosts.",
            "address",
        )


def is_public(ip: Address) -> bool:
    """Whether an address is on the internet."""
    if ip.version == 6 and ip not in _PUBLIC6:
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or any(ip in network for network in _SPECIAL))


def is_local(ip: Address) -> bool:
    """Whether an address is this machine's own: only then can a socket be bound to it."""
    kind = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ip), 0))
    except OSError:
        return False
    return True


def is_near(ip: Address) -> bool:
    """Whether an address is this machine's, its network segment's or nobody's: only its own entry allows it."""
    return is_local(ip) or ip.is_link_local or ip.is_multicast or ip.is_unspecified


def unwrap_ipv4(ip: Address) -> Address:
    """Return the IPv4 address in an IPv6 one (mapped, 6to4, NAT64), else `ip`."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _NAT64:
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return ip.ipv4_mapped or ip.sixtofour or ip
    return ip


def parse_address(host: str) -> bool:
    """Whether `host` is an address. A zone is refused, because it may hold any character."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def normalize_host(host: str) -> str:
    """Return the normal form of a name or address. Raises ValueError."""
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if parse_address(text):
        return str(unwrap_ipv4(ipaddress.ip_address(text)))
    text = text.removesuffix(".")
    name = (text if text.isascii() else text.encode("idna").decode("ascii")).lower()
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise ValueError("not a host name")
    return name


def split_host_port(text: str) -> tuple[str, int]:
    """Split "host", "host:port", "[v6]:port" or "v6"; port 0 if it has none. Raises ValueError."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, ""
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("not a port")
    return host, int(port or 0)


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def shown_host(host: str, port: int) -> str:
    """Return a host in the form of an entry in the rules."""
    return join_host_port(host, port).removesuffix(f":{port}") if port in WEB_PORTS else join_host_port(host, port)
