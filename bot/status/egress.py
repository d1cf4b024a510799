"""Name every host and port that a configuration lets the service reach, for firewalls and network policies.

Every setting that is an address is found by walking the configuration, so that a new one is part of the list. What is
added here are hosts that are in no setting: those that the platforms name beside their API, the defaults of models and
searches, and what sandboxes may reach, whose connections the service makes.
"""

from __future__ import annotations

import importlib
import ipaddress
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import yaml

from agent.models.presets import PRESETS
from agent.setting import Secret
from agent.settings.network import choose_proxy
from agent.web.search import PUBLIC_URLS
from bot.config.document import URL_NAMES
from bot.config.loader import OPENAI
from bot.config.schema import ChannelConfig, Config
from catalogue import _

PORTS = {"https": 443, "wss": 443, "http": 80, "ws": 80, "tcp": 2375, "postgresql": 5432, "postgres": 5432}
NO_ADDRESS = ("redirect_uri", "url_file")
PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10")
ANY = "*"  # every public host


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """A host and a port, and what is reached there. `host` may be `*.example.com`, an address, or every public host.

    `through` is the HTTP proxy by which it is reached; a firewall then sees only that.
    """

    host: str
    port: int
    what: str
    through: str = ""

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, which no firewall concerns."""
        return self.host == "localhost" or (_is_address(self.host) and ipaddress.ip_address(self.host).is_loopback)


def list_destinations(config: Config) -> tuple[list[Destination], list[str]]:
    """Return what the service reaches, by host, and sentences about what no list can name."""
    found = [*_addresses(config, "", ""), *_defaults_of_models(config), *_search_defaults(config)]
    for entry in config.channels:
        found += _hosts_of_channel(entry)
    found += _sandbox_hosts(config)
    if config.web.fetch:
        hosts = [each for name in config.web.hosts for each in (name, f"*.{name}")] or [ANY]
        for scheme, host in ((scheme, host) for host in hosts for scheme in ("http", "https")):
            proxy = choose_proxy(f"{scheme}://{host}", config.web.proxy) or ""
            found.append(Destination(host, PORTS[scheme], "web.fetch", proxy))
    proxied = [each for each in found if each.through]
    found += [_parse(each.through, _("proxy of {what}", what=each.what)) for each in proxied]
    return sorted({*found}), [*_notes(config)]


# ------------------------------------------------------------ what is reached


def _addresses(value: Any, at: str, proxy: str) -> Iterator[Destination]:
    """Yield the addresses in a part of the configuration; `at` is its name, `proxy` the one that it uses."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _addresses(inner, f"{at}.{name}" if at else str(name), proxy)
    elif isinstance(value, tuple | list):
        for number, inner in enumerate(value):
            name = getattr(inner, "name", "") or number
            yield from _addresses(inner, f"{at}[{name}]", proxy)
    elif isinstance(value, ChannelConfig):
        yield from _addresses(value.settings, at, proxy)
    elif is_dataclass(value) and not isinstance(value, type):
        own_search = getattr(value, "provider", "") == "searxng"  # it is asked without the proxy
        inner_proxy = "" if own_search else str(getattr(value, "proxy", "") or proxy)
        for field in fields(value):
            if field.name == "proxy" or (field.name in ("places", "variables") and not at):
                continue
            inner, name = getattr(value, field.name), f"{at}.{field.name}" if at else field.name
            if _is_address_setting(field.name):
                yield from _address(inner, name, inner_proxy)
            else:
                yield from _addresses(inner, name, inner_proxy)


def _address(value: Any, what: str, proxy: str) -> Iterator[Destination]:
    for each in value if isinstance(value, tuple) else (value,):
        text = each.reveal() if isinstance(each, Secret) else each
        parts = urlsplit(text if isinstance(text, str) and "://" in text else "")
        if parts.scheme in PORTS and parts.hostname:  # a database may be at a socket
            yield _reach(str(text), what, proxy)


def _is_address_setting(name: str) -> bool:
    return name not in NO_ADDRESS and (
        name in URL_NAMES or name.endswith("_url") or name in ("bark_servers", "domain", "docker_host")
    )


def _parse(address: str, what: str) -> Destination:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    return Destination(parts.hostname or "", parts.port or PORTS.get(parts.scheme, 443), what)


def _reach(address: str, what: str, proxy: str) -> Destination:
    """Return where an address is reached: this machine without the proxy."""
    found = _parse(address, what)
    return found if found.is_local else replace(found, through=choose_proxy(address, proxy) or "")


def _defaults_of_models(config: Config) -> Iterator[Destination]:
    """Yield the servers of models without a `base_url`."""
    for model in config.models:
        if not model.base_url:
            preset = PRESETS.get(model.preset or "")
            default = preset.base_url if preset and preset.base_url else ""
            if not default and model.use == OPENAI:
                from agent.models.openai_stream import OPENAI_URL as default  # it imports the agent stack
            if default:
                yield _reach(default, f"models[{model.name}]", model.proxy)


def _search_defaults(config: Config) -> Iterator[Destination]:
    for entry in config.web.search:
        if not entry.url and (default := PUBLIC_URLS.get(entry.provider)):
            yield _reach(default, f"web.search[{entry.provider}]", config.web.proxy)


def _hosts_of_channel(entry: ChannelConfig) -> Iterator[Destination]:
    """Yield the hosts beside its API that a platform names, where the API is the public one."""
    module, what = importlib.import_module(entry.module), f"channels[{entry.name}]"
    base = getattr(entry.settings, "base_url", "") or getattr(entry.settings, "gateway_url", "")
    if hasattr(entry.settings, "base_url"):  # of Feishu, it is not a setting
        yield from _address(base, f"{what}.base_url", getattr(entry.settings, "proxy", ""))
    for public, hosts in getattr(module, "MORE_HOSTS", {}).items():
        if base and (urlsplit(base).hostname or "").endswith(public):
            own = getattr(entry.settings, "proxy", "")
            yield from (Destination(host, 443, what, choose_proxy(f"https://{host}", own) or "") for host in hosts)


def _sandbox_hosts(config: Config) -> Iterator[Destination]:
    """Yield what the proxy of the sandboxes connects to."""
    rules = config.sandbox.network
    if rules.mode == "on":
        yield from (Destination(ANY, port, "sandbox.network", rules.proxy) for port in (80, 443))
    for host in rules.hosts if rules.enabled else ():
        name, port = _split_port(host)
        yield from (Destination(name, each, "sandbox.network", rules.proxy) for each in ([port] if port else [80, 443]))


def _split_port(text: str) -> tuple[str, int]:
    if _is_address(text.strip("[]")):
        return text.strip("[]"), 0
    name, colon, port = text.rpartition(":")
    return (name.strip("[]"), int(port)) if colon and port.isdecimal() else (text, 0)


def _notes(config: Config) -> Iterator[str]:
    yield _("names are resolved by the DNS servers of this machine: port 53, TCP and UDP")
    for model in config.models:
        if not model.base_url and not model.preset and model.use != OPENAI:
            yield _("model {name}: its class {use} knows its own server", name=model.name, use=model.use)
    for search in config.web.search:
        if search.provider == "ddgs":
            yield _("web.search: `ddgs` asks several public search engines")
    programs = [server.name for server in config.mcp.servers if not server.url and server.enabled]
    for name in programs:
        yield _("MCP server {name}: a program of yours, which reaches what it wants", name=name)
    for server in config.mcp.servers:
        if server.url and server.allows_sign_in:
            text = _("MCP server {name}: a sign-in asks the authorization server that it names", name=server.name)
            yield text
    for entry in config.channels:
        if entry.use and not hasattr(importlib.import_module(entry.module), "MORE_HOSTS"):
            yield _(
                "channel {name}: its module {use} does not say what else it reaches", name=entry.name, use=entry.use
            )
    if config.policies or config.tools:
        yield _("your own policies and tools reach what their code does")
    if config.backup.then:
        yield _("backup.then: a program of yours, which reaches what it wants")
    yield _("who installs a skill has the git server of its address asked")


# ------------------------------------------------------------ formats


def render_text(found: Sequence[Destination], notes: Sequence[str]) -> str:
    """Return a table for people."""
    lines = []
    for each in found:
        host = _("every public host") if each.host == ANY else each.host
        through = _("(through {proxy})", proxy=_without_password(each.through)) if each.through else ""
        lines.append(f"{host:44} {each.port:>5}  {each.what} {through}".rstrip())
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)])


def render_list(found: Sequence[Destination], *, resolve: bool) -> str:
    """Return what a firewall has to allow: `tcp HOST PORT` a line, and the addresses of the names at this moment."""
    lines = []
    for host, port in _outside(found):
        addresses = _resolved(host) if resolve else []
        lines += [f"tcp {address} {port}  # {host}" for address in addresses] or [f"tcp {host} {port}"]
    return "\n".join(lines)


def render_policy(found: Sequence[Destination], name: str) -> str:
    """Return a NetworkPolicy of Kubernetes, which knows addresses only: those of the names at this moment."""
    dns: dict[str, Any] = {"ports": [{"protocol": kind, "port": 53} for kind in ("UDP", "TCP")]}
    rules: list[dict[str, Any]] = [dns]
    unresolved = []
    for host, port in _outside(found):
        ports = [{"protocol": "TCP", "port": port}]
        if host == ANY:
            rules.append({"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [*PRIVATE]}}], "ports": ports})
        elif blocks := [{"ipBlock": {"cidr": _block(address)}} for address in _resolved(host)]:
            rules.append({"to": blocks, "ports": ports})
        else:
            unresolved.append(f"{host}:{port}")
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": {"app": name}}, "policyTypes": ["Egress"], "egress": rules},
    }
    head = [_("Addresses of names change: make this again, or use --format cilium, which knows names.")]
    head += [_("{name} is not in it, because it has no address", name=each) for each in unresolved]
    return "\n".join([*(f"# {line}" for line in head), yaml.safe_dump(policy, sort_keys=False)])


def render_cilium(found: Sequence[Destination], name: str) -> str:
    """Return a CiliumNetworkPolicy, which knows names (docs.cilium.io, Layer 3 policies, DNS based)."""
    rules: list[dict[str, Any]] = [
        {
            "toEndpoints": [{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system", "k8s-app": "kube-dns"}}],
            "toPorts": [{"ports": [{"port": "53", "protocol": "ANY"}], "rules": {"dns": [{"matchPattern": "*"}]}}],
        }
    ]
    for host, port in _outside(found):
        ports = [{"ports": [{"port": str(port), "protocol": "TCP"}]}]
        if host == ANY:
            rules.append({"toCIDRSet": [{"cidr": "0.0.0.0/0", "except": [*PRIVATE]}], "toPorts": ports})
        elif _is_address(host):
            rules.append({"toCIDR": [_block(host)], "toPorts": ports})
        else:
            rules.append({"toFQDNs": [{"matchPattern" if "*" in host else "matchName": host}], "toPorts": ports})
    policy = {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNetworkPolicy",
        "metadata": {"name": name},
        "spec": {"endpointSelector": {"matchLabels": {"app": name}}, "egress": rules},
    }
    return yaml.safe_dump(policy, sort_keys=False)


def _outside(found: Sequence[Destination]) -> list[tuple[str, int]]:
    """Return the hosts and ports that packets go to, each once: of what goes through a proxy, only the proxy."""
    return sorted({(each.host, each.port) for each in found if not each.through and not each.is_local})


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _block(address: str) -> str:
    return f"{address}/{ipaddress.ip_address(address).max_prefixlen}"


def _resolved(host: str) -> list[str]:
    """Return the addresses of a name at this moment; [] for a pattern, and for one that has none. Blocks."""
    if _is_address(host):
        return [host]
    if "*" in host:
        return []
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except OSError:
        return []


def _without_password(proxy: str) -> str:
    parsed = _parse(proxy, "")
    return f"{parsed.host}:{parsed.port}"
