"""How the service reaches its cluster: as a pod of it, or by a kubeconfig.

In a pod, the token is a file that the kubelet replaces before it expires, so it is read again and again. A kubeconfig
may name a token or a client certificate. One that names a program is refused: it would run whatever the file says.
"""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from catalogue import N_
from sandbox.base import SandboxUnavailable
from sandbox.kubernetes.options import KubernetesSettings

TOKEN_SECONDS = 60.0  # a token is read again after this, as the Go client does it
MAX_CONFIG_BYTES = 1 << 20


class ClusterAccess:
    """The API server, how it is trusted, and as whom. `namespace` is the one of the sandboxes."""

    def __init__(
        self,
        server: str,
        namespace: str,
        tls: ssl.SSLContext | None,
        *,
        token: str = "",
        token_file: Path | None = None,
    ) -> None:
        self.server, self.namespace, self.tls = server.rstrip("/"), namespace, tls
        self._token, self._file, self._read = token, token_file, 0.0

    def read_token(self, *, again: bool = False) -> str:
        """Return the token, "" if a certificate says who this is. Blocks. Raises SandboxUnavailable."""
        if self._file and (again or time.monotonic() - self._read > TOKEN_SECONDS or not self._token):
            try:
                self._token, self._read = self._file.read_text("ascii").strip(), time.monotonic()
            except (OSError, UnicodeError) as error:
                text = N_("The token for the Kubernetes API cannot be read: {error}")
                raise SandboxUnavailable(text, error=str(error)) from error
        return self._token


def find_access(settings: KubernetesSettings) -> ClusterAccess:
    """Return the access that the settings name. Blocks. Raises SandboxUnavailable."""
    options = settings.kubernetes
    if options.kubeconfig:
        return _from_kubeconfig(Path(options.kubeconfig), options.context, options.namespace)
    place = settings.service_account
    if not (place / "token").is_file():
        text = N_(
            "Fawn does not run in a Kubernetes cluster: {place} has no token. Run it there (docs/kubernetes.md), or set"
            " `sandbox.kubernetes.kubeconfig`."
        )
        raise SandboxUnavailable(text, place=str(place))
    try:
        namespace = options.namespace or (place / "namespace").read_text("ascii").strip()
        tls = ssl.create_default_context(cafile=str(place / "ca.crt"))
    except (OSError, UnicodeError) as error:
        text = N_("The cluster's certificate or namespace in {place} cannot be read: {error}")
        raise SandboxUnavailable(text, place=str(place), error=str(error)) from error
    return ClusterAccess(settings.server, namespace, tls, token_file=place / "token")


def _from_kubeconfig(path: Path, wanted: str, namespace: str) -> ClusterAccess:
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ValueError(f"more than {MAX_CONFIG_BYTES >> 10} KiB")
        document = yaml.safe_load(path.read_text("utf-8"))
        context = _named(document, "contexts", "context", wanted or str(document.get("current-context", "")))
        cluster = _named(document, "clusters", "cluster", str(context.get("cluster", "")))
        user = _named(document, "users", "user", str(context.get("user", "")))
        return _make_access(path.parent, context, cluster, user, namespace)
    except (OSError, ValueError, AttributeError, yaml.YAMLError, binascii.Error) as error:
        text = N_("`sandbox.kubernetes.kubeconfig`: {path} cannot be used: {error}")
        raise SandboxUnavailable(text, path=str(path), error=" ".join(str(error).split())[:300]) from error


def _named(document: Mapping[str, Any], kind: str, part: str, name: str) -> Mapping[str, Any]:
    for entry in document.get(kind) or ():
        if entry.get("name") == name and isinstance(found := entry.get(part), dict):
            return found
    raise ValueError(f"it has no entry {name!r} in {kind}")


def _make_access(
    folder: Path, context: Mapping[str, Any], cluster: Mapping[str, Any], user: Mapping[str, Any], namespace: str
) -> ClusterAccess:
    server = str(cluster.get("server", ""))
    if not server.startswith(("https://", "http://")):
        raise ValueError("its server is no URL")
    if cluster.get("insecure-skip-tls-verify"):
        raise ValueError("it turns the check of the server's certificate off; name certificate-authority-data instead")
    for unsupported in ("exec", "auth-provider", "username"):
        if unsupported in user:
            raise ValueError(f"it signs in with {unsupported!r}; use the token of a service account or a certificate")
    tls = None
    if server.startswith("https://"):
        known = _content(folder, cluster, "certificate-authority")
        tls = ssl.create_default_context(cadata=known.decode("ascii") if known else None)
        if certificate := _content(folder, user, "client-certificate"):
            _load_pair(tls, certificate + b"\n" + _content(folder, user, "client-key"))
    file = user.get("tokenFile")
    return ClusterAccess(
        server,
        namespace or str(context.get("namespace") or "default"),
        tls,
        token=str(user.get("token") or ""),
        token_file=folder / str(file) if file else None,
    )


def _content(folder: Path, entry: Mapping[str, Any], name: str) -> bytes:
    """Return what `NAME-data` holds, or the file `NAME` beside the kubeconfig; b"" without either."""
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(str(data), validate=True)
    return (folder / str(entry[name])).read_bytes() if entry.get(name) else b""


def _load_pair(tls: ssl.SSLContext, pair: bytes) -> None:
    """Load a certificate and its key; OpenSSL takes them from a file only."""
    with tempfile.NamedTemporaryFile(prefix="fawn-") as file:  # readable by this user only
        file.write(pair)
        file.flush()
        tls.load_cert_chain(file.name)
