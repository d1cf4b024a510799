"""As whom the service calls its cluster: a token, a file with one, a certificate, or what a program prints.

The program is a credential plug-in as GKE, EKS and AKS use it: it prints an ExecCredential of
`client.authentication.k8s.io` (kubernetes.io/docs/reference/config-api/client-authentication.v1). The kubeconfig that
the operator names decides what runs, so the program is as trusted as that file. It gets no keys of the service, has a
limit of time and of output, and runs again only when its credential expires or is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from catalogue import N_
from sandbox.base import SandboxUnavailable
from sandbox.wire.connection import sanitize_text

API = "client.authentication.k8s.io/"
VERSIONS = (f"{API}v1", f"{API}v1beta1")
PLUGIN_SECONDS = 60.0
MAX_PLUGIN_BYTES = 256 << 10  # of each of its outputs
AGAIN_SECONDS = 10.0  # between two runs, whoever refuses its credential
MARGIN_SECONDS = 60.0  # a credential is renewed before it expires
READ_SECONDS = 60.0  # a file is read again after this, as the Go client does it
# What plug-ins of clouds read. The service's other variables are keys of models and chats.
PASSED_NAMES = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER")
PASSED_PREFIXES = (
    "AWS_",
    "AZURE_",
    "AAD_",
    "GOOGLE_",
    "CLOUDSDK_",
    "USE_GKE_",
    "XDG_",
    "LC_",
    "SSL_CERT_",
    "REQUESTS_CA_",
)
PROXY_SUFFIX = "_PROXY"  # in capitals or not


@dataclass(frozen=True, slots=True)
class Credential:
    """A token, "" without one; `pair` is a certificate with its key as PEM, b"" without one."""

    token: str = field(default="", repr=False)
    pair: bytes = field(default=b"", repr=False)


class CredentialSource(Protocol):
    """Where a credential comes from."""

    def read(self, *, again: bool) -> Credential:
        """Return it. `again`: the last one was refused. Blocks. Raises SandboxUnavailable."""


class KnownContent:
    """Content that is known, or that a file has: it is read again after a minute, because it may be renewed."""

    def __init__(self, content: bytes = b"", path: Path | None = None) -> None:
        self._content, self._path, self._read = content, path, -READ_SECONDS

    def read(self, *, again: bool = False) -> bytes:
        """Return the content. Blocks. Raises OSError."""
        now = time.monotonic()
        if self._path and (again or now - self._read >= READ_SECONDS):
            try:
                self._content, self._read = self._path.read_bytes(), now
            except OSError:
                if not self._content:  # else it is being replaced, and the old one may still do
                    raise
        return self._content


class StoredCredential:
    """A token or a certificate that a kubeconfig or a service account has."""

    def __init__(self, token: KnownContent, certificate: KnownContent, key: KnownContent) -> None:
        self._token, self._certificate, self._key = token, certificate, key

    def read(self, *, again: bool) -> Credential:
        """See `CredentialSource`."""
        try:
            token = self._token.read(again=again).decode("ascii").strip()
            pair = self._certificate.read(again=again) + b"\n" + self._key.read(again=again)
        except (OSError, UnicodeError) as error:
            text = N_("The token for the Kubernetes API cannot be read: {error}")
            raise SandboxUnavailable(text, error=str(error)) from error
        return Credential(token, pair if pair.strip() else b"")


@dataclass(frozen=True, slots=True)
class Plugin:
    """The `exec` entry of a kubeconfig's user. `info` becomes KUBERNETES_EXEC_INFO."""

    argv: Sequence[str]
    version: str
    environment: Mapping[str, str]
    info: Mapping[str, Any]
    hint: str = ""

    @classmethod
    def parse(cls, entry: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any]) -> Plugin:
        """Read the entry of a kubeconfig in `folder`. Raises ValueError."""
        command, version = entry.get("command"), entry.get("apiVersion")
        if not isinstance(command, str) or not command or "\0" in command:
            raise ValueError("its exec entry names no command")
        if version not in VERSIONS:
            raise ValueError(f"its exec entry wants {version!r}; Fawn knows {', '.join(VERSIONS)}")
        if entry.get("interactiveMode") == "Always":
            raise ValueError("its exec entry wants a terminal (interactiveMode: Always)")
        if "/" in command:
            command = str(folder / command)
        spec: dict[str, Any] = {"interactive": False}
        if entry.get("provideClusterInfo"):
            spec["cluster"] = dict(cluster)
        return cls(
            [command, *map(str, entry.get("args") or ())],
            version,
            {str(each["name"]): str(each["value"]) for each in entry.get("env") or ()},
            {"apiVersion": version, "kind": "ExecCredential", "spec": spec},
            str(entry.get("installHint") or ""),
        )


class PluginCredential:
    """What a plug-in gives, kept until it expires."""

    def __init__(self, plugin: Plugin, seconds: float = PLUGIN_SECONDS, again_seconds: float = AGAIN_SECONDS) -> None:
        self._plugin, self._seconds, self._again_seconds = plugin, seconds, again_seconds
        self._kept: Credential | SandboxUnavailable = Credential()
        self._expires = 0.0  # by the wall clock; 0: never
        self._ran = -again_seconds

    def read(self, *, again: bool) -> Credential:
        """See `CredentialSource`."""
        is_new = time.monotonic() - self._ran < self._again_seconds
        is_good = isinstance(self._kept, Credential) and not again
        is_expired = self._expires and time.time() >= self._expires
        if self._kept == Credential() or is_expired or not (is_good or is_new):
            self._renew()
        if isinstance(self._kept, SandboxUnavailable):
            raise self._kept
        return self._kept

    def _renew(self) -> None:
        name = Path(self._plugin.argv[0]).name
        try:
            output = run_plugin(self._plugin, self._seconds)
            self._kept, self._expires = parse_credential(output, self._plugin.version)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
            hint = f" {self._plugin.hint}" if isinstance(error, FileNotFoundError) and self._plugin.hint else ""
            text = N_("The program {name}, by which the kubeconfig signs in, gave no credential: {reason}")
            self._kept = SandboxUnavailable(text, name=name, reason=sanitize_text(f"{why}.{hint}")[:500])
            self._expires = 0.0
        self._ran = time.monotonic()


def parse_credential(output: bytes, version: str) -> tuple[Credential, float]:
    """Read an ExecCredential. Returns it, and when to renew it. Raises ValueError."""
    document = orjson.loads(output)
    if not isinstance(document, dict) or document.get("kind") != "ExecCredential":
        raise ValueError("what it prints is no ExecCredential")
    if document.get("apiVersion") != version:
        raise ValueError(f"it answers in another version than {version}")
    match document.get("status"):
        case dict(status):
            pass
        case _:
            raise ValueError("its ExecCredential has no status")
    token, certificate, key = (status.get(name) or "" for name in ("token", "clientCertificateData", "clientKeyData"))
    if not all(isinstance(each, str) for each in (token, certificate, key)):
        raise ValueError("its token or certificate is no text")
    if bool(certificate) != bool(key) or not (token or key):
        raise ValueError("it gives neither a token nor a certificate with its key")
    if not (token.isascii() and (token + "x").isprintable() and " " not in token):
        raise ValueError("its token has characters that no token has")
    expires = 0.0
    if until := status.get("expirationTimestamp"):
        if not isinstance(until, str) or (moment := datetime.fromisoformat(until)).tzinfo is None:
            raise ValueError("its expirationTimestamp is no time of RFC 3339")
        expires = max(1.0, moment.timestamp() - MARGIN_SECONDS)
    return Credential(token, f"{certificate}\n{key}".encode() if key else b""), expires


def plugin_environment(plugin: Plugin, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the program sees of the service's environment, and what the kubeconfig adds."""
    passed = {
        name: value
        for name, value in environ.items()
        if name in PASSED_NAMES or name.startswith(PASSED_PREFIXES) or name.upper().endswith(PROXY_SUFFIX)
    }
    return {**passed, **plugin.environment, "KUBERNETES_EXEC_INFO": orjson.dumps(dict(plugin.info)).decode()}


def run_plugin(plugin: Plugin, seconds: float) -> bytes:
    """Run the program, and return what it prints. What does not end is killed, with its children.

    Blocks. Raises ValueError with what went wrong, OSError if it cannot be started.
    """
    environment = plugin_environment(plugin, os.environ)  # noqa: TID251  a cloud's program reads its cloud's variables
    try:
        process = subprocess.Popen(
            plugin.argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # to kill its children, too
        )
    except PermissionError as error:
        if "/" in plugin.argv[0] or shutil.which(plugin.argv[0], os.F_OK, environment.get("PATH")):
            raise
        # A folder of PATH may not be read, and the program is in none of the others.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error
    deadline = time.monotonic() + seconds
    with process:
        try:
            output, complaint = _read_bounded(process, deadline)
            code = process.wait(max(0.1, deadline - time.monotonic()))
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if code:
        said = complaint.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ValueError(f"exit code {code}" + "".join(f": {each}" for each in said))
    return output


def _read_bounded(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    """Read both outputs until the program ends. Raises ValueError beyond the bounds."""
    parts: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            if pipe:
                parts[pipe.fileno()] = bytearray()
                selector.register(pipe, selectors.EVENT_READ)
        # A child that goes on and keeps the pipes is not waited for.
        while (selector.get_map() and process.poll() is None) or selector.select(0):
            if (left := deadline - time.monotonic()) <= 0:
                raise ValueError("it does not end")
            for key, _ in selector.select(min(left, 0.05)):
                data = os.read(key.fd, 1 << 16)
                parts[key.fd] += data
                if not data:
                    selector.unregister(key.fileobj)
                if len(parts[key.fd]) > MAX_PLUGIN_BYTES:
                    raise ValueError(f"it prints more than {MAX_PLUGIN_BYTES >> 10} KB")
    first, second = parts.values()
    return bytes(first), bytes(second)
