"""Say how the service reaches its cluster: as a pod of it, or by a kubeconfig.

In a pod, the token is a file that the kubelet replaces before it expires, and the authority's certificate may be
replaced, too, so both are read again and again. A kubeconfig may name a token, a client certificate, or a program that
prints one of them (`sandbox.kubernetes.credentials`).
"""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from catalogue import N_
from sandbox.base import SandboxUnavailable
from sandbox.kubernetes.credentials import (
    CredentialSource,
    KnownContent,
    Plugin,
    PluginCredential,
    StoredCredential,
)
from sandbox.kubernetes.spec import KubernetesSettings

MAX_CONFIG_BYTES = 1 << 20
EXTENSION = "client.authentication.k8s.io/exec"  # of a cluster: its part for credential plug-ins


class ClusterAccess:
    """The API server, how it is trusted, and as whom. `namespace` is the one of the sandboxes."""

    def __init__(self, server: str, namespace: str, source: CredentialSource, authority: KnownContent) -> None:
        self.server, self.namespace = server.rstrip("/"), namespace
        self._source, self._authority = source, authority
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        self._made_of: tuple[bytes, bytes] | None = None

    def read(self, *, again: bool = False) -> tuple[str, ssl.SSLContext | None]:
        """Return the token, "" if a certificate says who this is, and the TLS to use, None without TLS.

        `again`: the last one was refused. Blocks. Raises SandboxUnavailable.
        """
        with self._lock:  # a program runs once for all calls that wait
            credential = self._source.read(again=again)
            if self.server.startswith("https://"):
                self._renew_tls(credential.pair, again)
            return credential.token, self._tls

    def _renew_tls(self, pair: bytes, again: bool) -> None:
        """Make the TLS context, if a certificate has changed since."""
        try:
            known = self._authority.read(again=again)
            if self._made_of != (known, pair):
                tls = ssl.create_default_context(cadata=known.decode("ascii") if known else None)
                if pair:
                    _load_pair(tls, pair)
                self._tls, self._made_of = tls, (known, pair)
        except (OSError, UnicodeError, ValueError) as error:  # ssl.SSLError is an OSError
            text = N_("The certificate for the Kubernetes API cannot be used: {error}")
            raise SandboxUnavailable(text, error=str(error)) from error


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
        ssl.create_default_context(cafile=str(place / "ca.crt"))
    except (OSError, UnicodeError) as error:
        text = N_("The cluster's certificate or namespace in {place} cannot be read: {error}")
        raise SandboxUnavailable(text, place=str(place), error=str(error)) from error
    source = StoredCredential(KnownContent(path=place / "token"), KnownContent(), KnownContent())
    return ClusterAccess(settings.server, namespace, source, KnownContent(path=place / "ca.crt"))


def _from_kubeconfig(path: Path, wanted: str, namespace: str) -> ClusterAccess:
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ValueError(f"more than {MAX_CONFIG_BYTES >> 10} KiB")
        document = yaml.safe_load(path.read_text("utf-8"))
        context = _named(document, "contexts", "context", wanted or str(document.get("current-context", "")))
        cluster = _named(document, "clusters", "cluster", str(context.get("cluster", "")))
        user = _named(document, "users", "user", str(context.get("user", "")))
        return _make_access(path.parent, context, cluster, user, namespace)
    except (OSError, ValueError, AttributeError, TypeError, KeyError, yaml.YAMLError, binascii.Error) as error:
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
    for unsupported in ("auth-provider", "username"):
        if unsupported in user:
            raise ValueError(f"it signs in with {unsupported!r}; use `exec`, a token or a certificate")
    authority = _content(folder, cluster, "certificate-authority")
    access = ClusterAccess(
        server,
        namespace or str(context.get("namespace") or "default"),
        _credential_source(folder, cluster, user, authority),
        authority,
    )
    if server.startswith("https://"):
        authority.read()
    return access


def _credential_source(
    folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], authority: KnownContent
) -> CredentialSource:
    """Return where the user's credential comes from. Raises OSError if a file is missing, ValueError."""
    if program := user.get("exec"):
        told = {name: cluster[name] for name in ("server", "tls-server-name", "proxy-url") if name in cluster}
        if known := authority.read():
            told["certificate-authority-data"] = base64.b64encode(known).decode()
        for extension in cluster.get("extensions") or ():
            if extension.get("name") == EXTENSION:
                told["config"] = extension.get("extension")
        return PluginCredential(Plugin.parse(program, folder, told))
    token = KnownContent(str(user.get("token") or "").encode())
    if file := user.get("tokenFile"):
        token = KnownContent(path=folder / str(file))
    certificate, key = (_content(folder, user, name) for name in ("client-certificate", "client-key"))
    for each in (token, certificate, key):
        each.read()
    return StoredCredential(token, certificate, key)


def _content(folder: Path, entry: Mapping[str, Any], name: str) -> KnownContent:
    """Return what `NAME-data` holds, or the file `NAME` beside the kubeconfig; empty without either."""
    if data := entry.get(f"{name}-data"):
        return KnownContent(base64.b64decode(str(data), validate=True))
    return KnownContent(path=folder / str(entry[name])) if entry.get(name) else KnownContent()


def _load_pair(tls: ssl.SSLContext, pair: bytes) -> None:
    """Load a certificate and its key; OpenSSL takes them from a file only."""
    with tempfile.NamedTemporaryFile(prefix="fawn-") as file:  # readable by this user only
        file.write(pair)
        file.flush()
        tls.load_cert_chain(file.name)
