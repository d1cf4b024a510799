"""Egress rules: which hosts and addresses a sandbox may reach.

Names are compared in one form (lower case, IDNA, without the dot at the end). An entry is `example.com`,
`*.example.com` (every name below it, not itself), an address, or any of these with a port. What is named exactly may
lie on a private address, such as a registry of the company; what only a wildcard or the mode "on" allows must be
public. This machine and its link are reached only where the address itself is named.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from sandbox.base import SandboxUnavailable
from sandbox.inside.relay import PORT

SOCKET_FOLDER = "/run/fawn"  # where the folder with the proxy's socket is bound, read-only
SOCKET_NAME = "egress.sock"
CA_FILE = "ca.pem"
WEB_PORTS = (80, 443)
# The sandbox's own loopback: never through the proxy.
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "sandbox")  # noqa: S104  names to compare with, nothing is bound

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_PUBLIC6 = ipaddress.IPv6Network("2000::/3")  # all of IPv6 that is given out (RFC 4291 §2.4)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last four bytes are an IPv4 address
# Not public either, whatever this Python knows of the IANA's list of special addresses; the second is Azure's host of
# every virtual machine.
_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "168.63.129.16/32", "2001::/23", "3fff::/20")))
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


class EgressDenied(Exception):
    """The rules forbid it. The text is for people and the model: what, and what an operator can switch on; `why` is
    one word for logs."""

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
        """There is a way out at all."""
        return self.mode != "off"

    def description(self) -> str:
        """What sandboxes may reach, and what an operator can change."""
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
        named = ", ".join(self.entries()[:20]) or "none"
        return f"The sandbox reaches only the hosts that an operator lists in sandbox.network.hosts, now {named}"

    def entries(self) -> list[str]:
        """All that is named: the hosts, and those of the package registries."""
        urls = map(urlsplit, filter(None, (self.pip_index_url, self.npm_registry_url)))
        return [
            *self.hosts,
            *(shown_host(url.hostname or "", url.port or WEB_PORTS[url.scheme == "https"]) for url in urls),
        ]

    def environment(self) -> dict[str, str]:
        """What commands find in their environment, and FAWN_EGRESS for the command server. Also without a network the
        proxy is asked: it says what an operator can switch on, which no failed lookup of a name would."""
        here = f"http://127.0.0.1:{PORT}"
        found = {"FAWN_EGRESS": f"{SOCKET_FOLDER}/{SOCKET_NAME}"}
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            found |= {name: here, name.lower(): here}
        found |= {name: ",".join(LOOPBACK_NAMES) for name in ("NO_PROXY", "no_proxy")}
        found |= {"NODE_USE_ENV_PROXY": "1"}  # fetch() of Node 24 and later takes the proxy then
        if not self.enabled:
            found["PIP_RETRIES"] = "1"  # each is said, and in vain
        if self.ca_file and self.enabled:
            names = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
            found |= dict.fromkeys((*names, "NODE_EXTRA_CA_CERTS"), f"{SOCKET_FOLDER}/{CA_FILE}")
        if self.pip_index_url:
            found["PIP_INDEX_URL"] = self.pip_index_url
        if self.npm_registry_url:
            found["npm_config_registry"] = self.npm_registry_url
        return found


class EgressPolicy:
    """`NetworkRules`, read: who may go where."""

    def __init__(self, rules: NetworkRules) -> None:
        self.mode = rules.mode
        self._allowed: set[tuple[str, int]] = set()
        self._ports: set[tuple[str, int]] = set()  # of those, what an entry names with its port
        for entry in rules.entries():
            wild = entry.startswith("*.")
            try:
                host, port = split_host_port(entry[2:] if wild else entry)
                host = "*." * wild + normalize_host(host)
            except ValueError as error:
                raise SandboxUnavailable(
                    f"sandbox.network.hosts: {entry!r} is {error}: write example.com, *.example.com or an address, "
                    "with :port where it is not 80 or 443."
                ) from error
            self._allowed.update((host, number) for number in ((port,) if port else WEB_PORTS))
            self._ports.update({(host, port)} if port else ())

    def check_name(self, host: str, port: int, *, tunnel: bool) -> None:
        """Check that a request may name `host` (in normal form); a `tunnel` only for TLS, or with a port that the rules
        name. Raises Denied."""
        if self.mode == "off":
            raise EgressDenied(
                f"The sandbox has no network (sandbox.network.mode is off); an operator can allow {host}.", "off"
            )
        names = {(host, port), *(("*" + host[at:], port) for at, sign in enumerate(host) if sign == ".")}
        if not names & self._allowed:
            if port not in WEB_PORTS:
                raise EgressDenied(
                    f"Port {port} of {host} is not allowed for the sandbox; an operator can add"
                    f" {shown_host(host, port)} to "
                    "sandbox.network.hosts.",
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
        """Whether `address`, which `host` resolved to, may be connected to. Raises Denied."""
        ip = unwrap_ipv4(ipaddress.ip_address(address.partition("%")[0]))
        if (str(ip), port) in self._allowed:
            return
        if is_local(ip) or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
            missing = str(ip)  # what is so near is reached by its own address only, not by who answers for a name
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
    """An address of the internet, and of nobody's own network or machine."""
    if ip.version == 6 and ip not in _PUBLIC6:
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or any(ip in network for network in _SPECIAL))


def is_local(ip: Address) -> bool:
    """An address of this very machine, whatever kind: only on those a socket can be bound."""
    kind = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ip), 0))
    except OSError:
        return False
    return True


def unwrap_ipv4(ip: Address) -> Address:
    """The IPv4 address that an IPv6 one only wraps (mapped, 6to4, NAT64), else `ip`."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _NAT64:
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return ip.ipv4_mapped or ip.sixtofour or ip
    return ip


def parse_address(host: str) -> bool:
    """An address instead of a name; none with a zone, which may hold any character."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def normalize_host(host: str) -> str:
    """The one form of a name or address. Raises ValueError for what is neither."""
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if parse_address(text):
        return str(unwrap_ipv4(ipaddress.ip_address(text)))
    text = text.removesuffix(".")
    name = (text if text.isascii() else text.encode("idna").decode("ascii")).lower()
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise ValueError("not a host name")
    return name


def split_host_port(text: str) -> tuple[str, int]:
    """Host and port of "host", "host:port", "[v6]:port" or "v6"; port 0 when there is none. Raises ValueError."""
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
    """A host with its port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def shown_host(host: str, port: int) -> str:
    """A host as an operator writes it into the rules."""
    return join_host_port(host, port).removesuffix(f":{port}") if port in WEB_PORTS else join_host_port(host, port)
