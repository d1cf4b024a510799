"""Decide which calls of the Docker engine's API pass the socket proxy: those of `DockerProvider`, and no other.

A container is created only by the configuration that `container_config` builds. What differs between sandboxes (image,
user, limits, mounts) has bounds of its own; everything else must be equal to it, and an unknown setting is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sandbox.base import FOLDERS, ROOT, SKILLS
from sandbox.docker.spec import INSTANCE, KEY, DockerSettings, EngineSite, container_config
from sandbox.rules import SOCKET_FOLDER, NetworkRules
from sandbox.wire.connection import SERVER_COMMAND

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
SANDBOX_NAME = re.compile(r"fawn-[0-9a-f]{20}")
READ_ONLY_TARGETS = (SKILLS, SOCKET_FOLDER, "/etc/passwd", "/etc/group")
TARGETS = (*(f"{ROOT}/{name}" for name in FOLDERS), *READ_ONLY_TARGETS)
_TMPFS = re.compile(
    r"rw,nosuid,nodev,(?:no)?exec,size=[0-9]{1,12}(?:,mode=[01]?[0-7]{3})?(?:,uid=[0-9]{1,10},gid=[0-9]{1,10})?"
)
_ENV = frozenset(NetworkRules(mode="on", ca_file="x", pip_index_url="x", npm_registry_url="x").environment()) | {
    "PIP_RETRIES"
}
INFO_KEYS = (
    "ID", "OSType", "Runtimes", "SecurityOptions", "DockerRootDir", "MemoryLimit", "CpuCfsQuota", "PidsLimit",
)  # fmt: skip


class CallRefused(Exception):
    """A call that the proxy does not let through; the text says why."""


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """What the operator allows. `data` is the service's folder as the engine's host sees it."""

    data: PurePosixPath
    images: tuple[str, ...]
    runtimes: tuple[str, ...] = ()
    memory_mb: int = 8192
    cpus: float = 8
    processes: int = 4096
    containers: int = 600


@dataclass(frozen=True, slots=True)
class Call:
    """A call that may pass: the kind says what to do, `subject` names a container, an image or a program."""

    kind: str
    subject: str = ""
    body: Mapping[str, Any] | None = None


_ROUTES = tuple(
    (method, re.compile(path), kind)
    for method, path, kind in (
        ("GET", r"/_ping", "ping"),
        ("GET", r"/version", "version"),
        ("GET", r"/info", "info"),
        ("GET", r"/images/(.{1,255})/json", "image"),
        ("GET", r"/containers/json", "list"),
        ("POST", r"/containers/create", "create"),
        ("GET", rf"/containers/({_NAME})/json", "inspect"),
        ("POST", rf"/containers/({_NAME})/start", "start"),
        ("DELETE", rf"/containers/({_NAME})", "remove"),
        ("POST", rf"/containers/({_NAME})/exec", "exec"),
        ("POST", r"/exec/([0-9a-f]{64})/start", "run"),
        ("GET", r"/exec/([0-9a-f]{64})/json", "program"),
    )
)


def judge(method: str, target: str, body: bytes, rules: ProxyRules) -> Call:
    """Return the call to make instead of this one. Raises CallRefused."""
    url = urlsplit(target)
    path = re.sub(r"^/v1\.[0-9]{1,3}(?=/)", "", url.path)
    found = next(
        ((kind, hit) for verb, form, kind in _ROUTES if verb == method and (hit := form.fullmatch(path))), None
    )
    if url.scheme or url.netloc or found is None:
        raise CallRefused(f"{method} {path[:100]} is no call of a sandbox")
    kind, hit = found
    subject = hit[1] if hit.groups() else ""
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    if kind == "image" and subject not in rules.images:
        raise CallRefused(f"image {subject[:100]} is not allowed")
    if kind == "list":
        return Call("list", _label_of(query))
    if kind == "create":
        name = query.get("name", "")
        if not SANDBOX_NAME.fullmatch(name):
            raise CallRefused("a sandbox has the name fawn- and 20 hexadecimal digits")
        return Call("create", name, check_container(_object(body), rules))
    if kind == "exec":
        return Call("exec", subject, check_program(_object(body)))
    if kind == "run" and _object(body) != {"Tty": False, "Detach": False}:
        raise CallRefused("a program is started attached, without a terminal")
    return Call(kind, subject)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise CallRefused("the body is not JSON") from None
    if not isinstance(found, dict):
        raise CallRefused("the body is no object")
    return found


def _label_of(query: Mapping[str, str]) -> str:
    """Return the label that a list is limited to: only containers of sandboxes have it."""
    labels = _object(query.get("filters", "").encode()).get("label")
    label = labels[0] if isinstance(labels, list) and len(labels) == 1 else None
    if not isinstance(label, str) or not re.fullmatch(rf"{re.escape(INSTANCE)}(=[0-9a-f]{{16}})?", label):
        raise CallRefused(f"containers are listed by the label {INSTANCE} only")
    return label


def check_container(body: dict[str, Any], rules: ProxyRules) -> dict[str, Any]:
    """Return the configuration of a sandbox's container. Raises CallRefused for any other one."""
    expected = container_config(DockerSettings(Path("/"), state=Path("/")), EngineSite(1, 1), "", [], {})
    inner, expected_inner = body.get("HostConfig"), expected.pop("HostConfig")
    if not isinstance(inner, dict):
        raise CallRefused("HostConfig is missing")
    checks: dict[str, Callable[[Any], bool]] = {
        "HostConfig": lambda _: True,
        "Image": lambda value: isinstance(value, str),  # compared with the allowed images by the proxy
        "User": lambda value: _is_text(value, r"[1-9][0-9]{0,9}:[1-9][0-9]{0,9}"),
        "Env": lambda value: _is_environment(value),
        "Labels": lambda value: _is_labels(value),
    }
    inner_checks: dict[str, Callable[[Any], bool]] = {
        "Ulimits": lambda value: _is_ulimits(value, expected_inner["Ulimits"]),
        "Tmpfs": _is_tmpfs,
        "ShmSize": lambda value: _is_number(value, rules.memory_mb << 20),
        "Mounts": lambda value: _is_mounts(value, rules.data),
        "Memory": lambda value: _is_number(value, rules.memory_mb << 20),
        "MemorySwap": lambda value: value == inner.get("Memory"),
        "NanoCpus": lambda value: _is_number(value, int(rules.cpus * 1e9)),
        "PidsLimit": lambda value: _is_number(value, rules.processes),
        "Runtime": lambda value: value in rules.runtimes,
    }
    _check(body, expected, checks)
    _check(inner, expected_inner, inner_checks)
    return body


def _check(given: Mapping[str, Any], expected: Mapping[str, Any], checks: Mapping[str, Callable[[Any], bool]]) -> None:
    """Compare settings with those of a sandbox. Raises CallRefused for an unknown, a missing or another one."""
    for name in sorted(given.keys() | expected.keys() - checks.keys()):
        if name not in given:
            raise CallRefused(f"{name} is missing")
        if not (checks[name](given[name]) if name in checks else _same(given[name], expected.get(name))):
            raise CallRefused(f"{name[:50]} is not that of a sandbox")


def _same(given: Any, expected: Any) -> bool:
    """Return whether two values are the same JSON: 0 is not false, and a tuple is a list."""
    return expected is not None and json.dumps(given, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _is_text(value: Any, form: str) -> bool:
    return isinstance(value, str) and re.fullmatch(form, value) is not None


def _is_number(value: Any, most: int) -> bool:
    return type(value) is int and 0 < value <= most


def _is_environment(value: Any) -> bool:
    """No variable that makes a program load code, such as LD_PRELOAD."""
    return isinstance(value, list) and all(isinstance(each, str) and each.partition("=")[0] in _ENV for each in value)


def _is_labels(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {INSTANCE, KEY}
        and all(isinstance(text, str) and len(text) <= 1000 for text in value.values())
    )


def _is_ulimits(value: Any, expected: list[dict[str, Any]]) -> bool:
    """Files may have another size than by default; the other limits are the same."""
    if not isinstance(value, list) or len(value) != len(expected):
        return False
    sizes = [each for each in value if isinstance(each, dict) and each.get("Name") == "fsize"]
    others = [each for each in value if each not in sizes]
    return (
        len(sizes) == 1
        and sizes[0].keys() == {"Name", "Soft", "Hard"}
        and _is_number(sizes[0]["Hard"], 1 << 50)
        and sizes[0]["Soft"] == sizes[0]["Hard"]
        and _same(others, [each for each in expected if each["Name"] != "fsize"])
    )


def _is_tmpfs(value: Any) -> bool:
    return isinstance(value, dict) and all(
        path.startswith("/") and ".." not in path and _is_text(options, _TMPFS.pattern)
        for path, options in value.items()
    )


def _is_mounts(value: Any, data: PurePosixPath) -> bool:
    if not isinstance(value, list) or len(value) > len(TARGETS):
        return False
    return all(_is_mount(each, data) for each in value) and len({each["Target"] for each in value}) == len(value)


def _is_mount(value: Any, data: PurePosixPath) -> bool:
    """Return whether a folder below the service's data goes to where a sandbox has folders."""
    if not isinstance(value, dict) or value.keys() != {"Type", "Source", "Target", "ReadOnly"}:
        return False
    source, target = value["Source"], value["Target"]
    return (
        value["Type"] == "bind"
        and isinstance(source, str)
        and str(PurePosixPath(source)) == source
        and ".." not in PurePosixPath(source).parts
        and data in PurePosixPath(source).parents
        and target in TARGETS
        and value["ReadOnly"] is (target in READ_ONLY_TARGETS)
    )


def check_program(body: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of the command server, the one program of a sandbox. Raises CallRefused."""
    wanted: dict[str, Any] = {
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Cmd": list(SERVER_COMMAND),
    }
    nothing = {"Tty", "Privileged", "User", "Env", "WorkingDir", "detachKeys", "Container"}
    for name, value in body.items():
        if name in wanted:
            if not _same(value, wanted[name]):
                raise CallRefused(f"{name} is not that of the command server")
        elif name not in nothing or (value and name != "Container"):
            raise CallRefused(f"{name[:50]} is not that of the command server")
    return wanted | {"Tty": False, "Privileged": False}


def own_mounts_only(found: Mapping[str, Any], data: PurePosixPath) -> dict[str, Any]:
    """Return what the service may know of its own container: where its data is. Raises CallRefused for another one."""
    mounts = [each for each in found.get("Mounts") or () if PurePosixPath(each.get("Source") or "/") == data]
    if not mounts:
        raise CallRefused("this container is no sandbox")
    kept = [{name: each[name] for name in ("Type", "Source", "Destination")} for each in mounts]
    state = {"Running": True, "OOMKilled": False, "Pid": 0}
    return {"Id": found["Id"], "Name": found["Name"], "State": state, "Config": {"Labels": {}}, "Mounts": kept}


def is_sandbox(found: Mapping[str, Any]) -> bool:
    """Return whether the engine's description is that of a container which this proxy let through."""
    labels = (found.get("Config") or {}).get("Labels") or {}
    return bool(SANDBOX_NAME.fullmatch(str(found.get("Name", "")).lstrip("/"))) and INSTANCE in labels
