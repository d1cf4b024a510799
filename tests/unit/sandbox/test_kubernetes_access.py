"""How the service signs in to a cluster: files that rotate, certificates, and programs that a kubeconfig names."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.base import SandboxUnavailable
from sandbox.kubernetes.access import ClusterAccess, find_access
from sandbox.kubernetes.client import KubernetesClient
from sandbox.kubernetes.credentials import (
    KnownContent,
    Plugin,
    PluginCredential,
    parse_credential,
    plugin_environment,
    run_plugin,
)
from sandbox.kubernetes.spec import KubernetesSettings
from sandbox.settings import KubernetesOptions
from tests.fakes.kube import FakeKube
from tests.support.certificates import make_certificate

V1 = "client.authentication.k8s.io/v1"
PROGRAM = """#!/usr/bin/env python3
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
with open(here / "runs", "a") as file:
    file.write(json.dumps({"args": sys.argv[1:], "info": os.environ["KUBERNETES_EXEC_INFO"],
        "names": sorted(os.environ), "stdin": sys.stdin.read()}) + "\\n")
print((here / "answer").read_text())
"""


def answer(**status: Any) -> dict[str, Any]:
    return {"apiVersion": V1, "kind": "ExecCredential", "status": status}


class SignIn:
    """A program that prints an ExecCredential, and a kubeconfig that names it."""

    def __init__(self, folder: Path, server: str, **more: Any) -> None:
        self.folder = folder
        self._program = folder / "sign-in"
        self._program.write_text(PROGRAM)
        self._program.chmod(0o755)
        entry = {"apiVersion": V1, "command": "./sign-in", "interactiveMode": "IfAvailable", "args": ["get-token"]}
        self.entry = {**entry, **more}
        self.options = kubeconfig(folder / "config", {"exec": self.entry}, {"server": server})

    def says(self, what: Mapping[str, Any] | str) -> None:
        (self.folder / "answer").write_text(what if isinstance(what, str) else json.dumps(what))

    @property
    def runs(self) -> list[dict[str, Any]]:
        place = self.folder / "runs"
        return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


def kubeconfig(path: Path, user: Mapping[str, Any], cluster: Mapping[str, Any]) -> KubernetesOptions:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "fawn"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return KubernetesOptions(claim="fawn-data", kubeconfig=str(path))


def find(options: KubernetesOptions, folder: Path) -> ClusterAccess:
    return find_access(KubernetesSettings(folder, state=folder, kubernetes=options))


# ---------------------------------------------------------------- a program that signs in


async def test_a_program_signs_in_once_until_its_token_expires_or_is_refused(tmp_path: Path) -> None:
    async with FakeKube({"fawn-data": tmp_path}) as kube:
        sign_in = SignIn(tmp_path, kube.url, env=[{"name": "REGION", "value": "north"}], provideClusterInfo=True)
        sign_in.says(answer(token="token-1", expirationTimestamp="2126-01-01T00:00:00Z"))
        plugin = Plugin.parse(sign_in.entry, tmp_path, {"server": kube.url})
        source = PluginCredential(plugin, again_seconds=0.0)
        client = KubernetesClient(ClusterAccess(kube.url, "fawn", source, KnownContent()))
        try:
            await asyncio.gather(*(client.list_pods("a=b") for _ in range(8)))
            [run] = sign_in.runs
            assert run["args"] == ["get-token"]
            assert run["stdin"] == ""
            assert "REGION" in run["names"]
            info = json.loads(run["info"])
            assert (info["apiVersion"], info["kind"]) == (V1, "ExecCredential")
            assert info["spec"] == {"interactive": False, "cluster": {"server": kube.url}}

            sign_in.says(answer(token="token-2", expirationTimestamp="2126-01-01T00:00:00Z"))
            kube.tokens = {"token-2"}
            await client.list_pods("a=b")
            assert len(sign_in.runs) == 2
        finally:
            await client.close()


def test_a_credential_is_renewed_a_minute_before_it_expires(tmp_path: Path) -> None:
    sign_in = SignIn(tmp_path, "http://127.0.0.1:1")
    soon = datetime.fromtimestamp(time.time() + 65, UTC).isoformat()
    sign_in.says(answer(token="first", expirationTimestamp=soon))
    access = find(sign_in.options, tmp_path)
    assert access.read()[0] == access.read()[0] == "first"
    assert len(sign_in.runs) == 1
    sign_in.says(answer(token="second"))
    deadline = time.monotonic() + 60
    while access.read()[0] == "first" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert access.read()[0] == "second", "which never expires"
    assert len(sign_in.runs) == 2


def test_a_token_that_is_always_refused_does_not_run_the_program_each_time(tmp_path: Path) -> None:
    sign_in = SignIn(tmp_path, "http://127.0.0.1:1")
    sign_in.says(answer(token="useless"))
    access = find(sign_in.options, tmp_path)
    assert {access.read(again=True)[0] for _ in range(5)} == {"useless"}
    assert len(sign_in.runs) == 1


async def test_a_program_gives_a_certificate(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    tls.load_cert_chain(certificate, key)
    tls.verify_mode = ssl.CERT_REQUIRED
    async with FakeKube({"fawn-data": tmp_path}, tls=tls) as kube:
        sign_in = SignIn(tmp_path, kube.url)
        sign_in.options = kubeconfig(
            tmp_path / "config",
            {"exec": {"apiVersion": V1, "command": "./sign-in"}},
            {"server": kube.url, "certificate-authority": str(certificate)},
        )
        sign_in.says(answer(clientCertificateData=certificate.read_text(), clientKeyData=key.read_text()))
        client = KubernetesClient(find(sign_in.options, tmp_path))
        try:
            assert (await client.list_pods("a=b"))[0] == []
        finally:
            await client.close()


def test_a_program_gets_none_of_the_services_keys() -> None:
    environ = {"OPENAI_API_KEY": "sk-1", "SLACK_TOKEN": "x", "PATH": "/bin", "HOME": "/h", "AWS_PROFILE": "p"}
    environ |= {"CLOUDSDK_CONFIG": "c", "AZURE_TENANT_ID": "t", "HTTPS_PROXY": "http://p"}
    seen = plugin_environment(Plugin(["x"], V1, {"MORE": "1"}, {}), environ)
    assert set(environ) - set(seen) == {"OPENAI_API_KEY", "SLACK_TOKEN"}
    assert set(seen) - set(environ) == {"MORE", "KUBERNETES_EXEC_INFO"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("no json", "gave no credential"),
        ("[1]", "is no ExecCredential"),
        ({"kind": "ExecCredential", "apiVersion": f"{V1}beta1", "status": {"token": "t"}}, "another version"),
        ({"kind": "ExecCredential", "apiVersion": V1}, "has no status"),
        (answer(), "neither a token nor a certificate"),
        (answer(clientCertificateData="x"), "neither a token nor a certificate"),
        (answer(token=7), "is no text"),
        (answer(token="a\r\nHost: evil"), "characters that no token has"),
        (answer(token="t", expirationTimestamp="tomorrow"), "gave no credential"),
        (answer(token="t", expirationTimestamp="2026-01-01T00:00:00"), "no time of RFC 3339"),
        (answer(token="t", expirationTimestamp=3), "no time of RFC 3339"),
    ],
)
def test_an_answer_that_is_no_credential_is_said(tmp_path: Path, said: Any, reason: str) -> None:
    sign_in = SignIn(tmp_path, "http://127.0.0.1:1")
    sign_in.says(said)
    access = find(sign_in.options, tmp_path)
    for _ in range(3):
        with pytest.raises(SandboxUnavailable, match=rf"The program sign-in.*(gave no credential: .*)?{reason}"):
            access.read()
    assert len(sign_in.runs) == 1, "one that fails runs again after ten seconds"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("yes", "prints more than 256 KB"),
        ("yes >&2", "prints more than 256 KB"),
        ("sleep 60 & wait", "does not end"),
        ("exec >&- 2>&-; sleep 60", "timed out"),
        ("echo out; echo first >&2; echo 'no login' >&2; exit 3", "exit code 3: no login"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_a_program_that_misbehaves_is_ended(tmp_path: Path, script: str, reason: str) -> None:
    plugin = Plugin(["bash", "-c", script, str(tmp_path)], V1, {}, {})
    with pytest.raises((ValueError, subprocess.SubprocessError), match=reason):
        run_plugin(plugin, 60.0 if "prints" in reason or "exit" in reason else 1.0)
    assert not [each for each in Path("/proc").glob("[0-9]*") if str(tmp_path) in command_line(each)]


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text("utf-8", "replace")
    except OSError:  # it has just ended
        return ""


def test_what_a_program_leaves_running_is_not_waited_for() -> None:
    """Waiting for it would take longer than the program may take."""
    assert run_plugin(Plugin(["bash", "-c", "sleep 40 & echo done"], V1, {}, {}), 30.0) == b"done\n"


@pytest.mark.parametrize("refuses", [False, True])
def test_a_missing_program_is_said_with_the_kubeconfigs_own_hint(tmp_path: Path, refuses: bool) -> None:
    """Also where a part of PATH cannot be searched, which execve reports as if the program were there."""
    hint = "Install the plug-in of your cloud."
    command = "no-such-plugin-of-a-cloud"
    entry: dict[str, Any] = {"apiVersion": V1, "command": command, "installHint": hint}
    if refuses:
        (tmp_path / "bin" / command).mkdir(parents=True)
        entry["env"] = [{"name": "PATH", "value": f"{tmp_path / 'bin'}:/usr/bin"}]
    options = kubeconfig(tmp_path / "config", {"exec": entry}, {"server": "http://127.0.0.1:1"})
    with pytest.raises(SandboxUnavailable, match=rf"no-such-plugin-of-a-cloud.*No such file or directory\. {hint}"):
        find(options, tmp_path).read()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"apiVersion": V1}, "names no command"),
        ({"apiVersion": V1, "command": ["sh"]}, "names no command"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}, "v1alpha1"),
        ({"apiVersion": V1, "command": "x", "interactiveMode": "Always"}, "wants a terminal"),
        ({"apiVersion": V1, "command": "x", "env": [{"value": "1"}]}, "cannot be used"),
        ("aws", "cannot be used"),
    ],
)
def test_an_entry_that_cannot_work_is_refused_at_once(tmp_path: Path, entry: Any, reason: str) -> None:
    options = kubeconfig(tmp_path / "config", {"exec": entry}, {"server": "http://127.0.0.1:1"})
    with pytest.raises(SandboxUnavailable, match=reason):
        find(options, tmp_path)


def test_the_beta_version_is_known_too() -> None:
    said = {"kind": "ExecCredential", "apiVersion": f"{V1}beta1", "status": {"token": "t"}}
    assert parse_credential(json.dumps(said).encode(), f"{V1}beta1")[0].token == "t"


# ---------------------------------------------------------------- files that rotate


async def test_a_new_authority_and_token_are_trusted_when_the_files_change(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("old", "new", "account")]
    for place in places:
        place.mkdir()
    old, new = (make_certificate(place) for place in places[:2])
    account = places[2]
    (account / "namespace").write_text("fawn")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*new)
    (account / "ca.crt").write_bytes(old[0].read_bytes())
    (account / "token").write_text("token-0\n")
    async with FakeKube({"fawn-data": tmp_path}, tls=tls) as kube:
        options = KubernetesOptions(claim="fawn-data")
        settings = KubernetesSettings(
            tmp_path, state=tmp_path, kubernetes=options, service_account=account, server=kube.url
        )
        client = KubernetesClient(find_access(settings))
        try:
            with pytest.raises(Exception, match=r"certificate of the Kubernetes API is not trusted"):
                await client.list_pods("a=b")
            (account / "ca.crt").write_bytes(new[0].read_bytes())
            (account / "token").write_text("token-1\n")
            assert (await client.list_pods("a=b"))[0] == []
        finally:
            await client.close()


def test_a_certificate_of_a_kubeconfig_that_is_renewed_is_used(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    certificate, key = make_certificate(tmp_path / "first")
    user = {"client-certificate": "client.pem", "client-key": "client.key"}
    (tmp_path / "client.pem").write_bytes(certificate.read_bytes())
    (tmp_path / "client.key").write_bytes(key.read_bytes())
    authority = base64.b64encode(certificate.read_bytes()).decode()
    options = kubeconfig(tmp_path / "config", user, {"server": "https://k", "certificate-authority-data": authority})
    access = find(options, tmp_path)
    first = access.read()[1]
    assert access.read()[1] is first, "made once"
    certificate, key = make_certificate(tmp_path / "second")
    (tmp_path / "client.pem").write_bytes(certificate.read_bytes())
    assert access.read()[1] is first, "within a minute"
    (tmp_path / "client.key").write_bytes(key.read_bytes())
    assert access.read(again=True)[1] is not first
