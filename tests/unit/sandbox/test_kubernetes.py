"""Sandboxes as pods, on a cluster that refuses what an API server refuses and runs pods as containers."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.base import OUTPUTS, WORKSPACE, SandboxError, SandboxGone, SandboxUnavailable, ShellCommand
from sandbox.engines.select import select_provider
from sandbox.kubernetes.access import find_access
from sandbox.kubernetes.provider import KubernetesProvider
from sandbox.kubernetes.spec import KubernetesSettings, PodPlan, pod_manifest
from sandbox.settings import KubernetesOptions
from tests.fakes.kube import FakeKube
from tests.fakes.kube_rules import Refused, check_pod_spec, check_restricted, decode_strictly, missing_fields
from tests.support.certificates import make_certificate
from tests.support.cluster import CLAIM, kubernetes_provider, kubernetes_settings
from tests.support.engines import docker_settings, measured, need_docker

Cluster = tuple[KubernetesProvider, FakeKube]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with kubernetes_provider(tmp_path) as made:
        yield made


@pytest.fixture
def manifest(tmp_path: Path) -> dict[str, Any]:
    parts = {"workspace": "threads/a/workspace", "passwd": "state/passwd-1000"}
    settings = KubernetesSettings(tmp_path, state=tmp_path, kubernetes=KubernetesOptions(claim=CLAIM))
    return pod_manifest(settings, PodPlan("fawn-1", "0123", "any key", 1000, parts))


def check_pod(pod: dict[str, Any]) -> None:
    """Check a pod as the API server does. Raises Refused."""
    decode_strictly(pod, "V1Pod")
    check_pod_spec(pod["spec"], "fawn-1")
    check_restricted(pod["spec"], "fawn-1")


# ---------------------------------------------------------------- the pod


def test_the_pod_meets_the_schema_and_the_restricted_level(manifest: dict[str, Any]) -> None:
    assert list(missing_fields(manifest, "V1Pod")) == []
    check_pod(manifest)


@pytest.mark.parametrize(
    ("place", "name", "wrong", "reason"),
    [
        ((), "replicas", 1, 'unknown field "spec.replicas"'),
        ((), "hostname", 1, "wrong type"),
        ((), "hostNetwork", True, "host namespaces"),
        (("securityContext",), "runAsNonRoot", False, "runAsNonRoot"),
        (("securityContext",), "seccompProfile", {"type": "Unconfined"}, "seccompProfile"),
        (("containers", 0, "securityContext"), "allowPrivilegeEscalation", True, "allowPrivilegeEscalation"),
        (("containers", 0, "securityContext"), "capabilities", {}, "unrestricted capabilities"),
        (("containers", 0, "volumeMounts", 0), "subPath", "../other", "must not contain"),
        (("containers", 0, "volumeMounts", 0), "name", "none", "Not found"),
        (("volumes", 0), "hostPath", {"path": "/"}, "must specify one volume type"),
        (("containers", 0), "image", "", "image: Required value"),
    ],
)
def test_the_fake_refuses_what_an_api_server_refuses(
    manifest: dict[str, Any], place: tuple[Any, ...], name: str, wrong: Any, reason: str
) -> None:
    part = manifest["spec"]
    for step in place:
        part = part[step]
    part[name] = wrong
    with pytest.raises(Refused, match=reason):
        check_pod(manifest)


def test_settings_reach_the_pod(tmp_path: Path) -> None:
    options = KubernetesOptions(
        claim="disk", runtime_class="gvisor", pull_secret="registry", node_selector={"pool": "sandboxes"}
    )
    settings = KubernetesSettings(tmp_path, state=tmp_path, memory_mb=64, cpus=0.02, kubernetes=options)
    spec = pod_manifest(settings, PodPlan("fawn-1", "0", "k", 1000, {}))["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["nodeSelector"] == {"pool": "sandboxes"}
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "disk"}
    resources = spec["containers"][0]["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == "64Mi"  # a request is at most the limit
    check_pod_spec(spec, "fawn-1")


async def test_the_walls_as_commands_see_them(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        script = (
            "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status | tr -s '\\t' ' '; touch /usr/x 2>&1;"
            " ulimit -n; ulimit -c; ls /var/run/secrets 2>&1; env | grep -ci kubernetes; ls /sys/class/net;"
            " stat -c %U /mnt/user-data/workspace"
        )
        lines = (await sandbox.run(ShellCommand(script))).output.splitlines()
    user = str(os.geteuid() or 1000)
    assert lines[:3] == [user, "CapEff: 0000000000000000", "NoNewPrivs: 1"]
    assert "Read-only" in lines[3]
    assert lines[4:6] == ["512", "0"]
    assert "No such file" in lines[6]
    assert lines[7:] == ["0", "lo", "agent"]
    [pod] = kube.created
    assert pod["metadata"]["annotations"]["fawn/key"] == "a"


# ---------------------------------------------------------------- what happens to pods


async def test_an_eviction_is_said_and_the_next_call_gets_a_new_pod(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        await sandbox.write(f"{WORKSPACE}/kept", b"kept")
        [name] = kube.pods
        await kube.evict(name)
        with pytest.raises(SandboxGone, match=r"evicted the sandbox: The node was low on resource.*files are intact"):
            await sandbox.run(ShellCommand("sleep 60"))
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        assert await sandbox.read(f"{WORKSPACE}/kept") == b"kept"
    assert len(kube.created) == 2


async def test_a_lost_node_is_noticed_though_no_connection_ends(tmp_path: Path) -> None:
    async with kubernetes_provider(tmp_path, end_seconds=0.5) as (provider, kube):
        async with provider.acquire("a", tmp_path / "a") as sandbox:
            begun = asyncio.Event()

            async def seen(_: str) -> None:
                begun.set()

            running = asyncio.create_task(sandbox.run(ShellCommand("echo begun; sleep 60", on_output=seen)))
            await begun.wait()
            kube.lose_node(next(iter(kube.pods)))
            with pytest.raises(SandboxGone, match="node of the sandbox does not answer"):
                await running
        # The object of such a pod goes only by force, and would keep its name.
        async with provider.acquire("a", tmp_path / "a") as sandbox:
            assert (await sandbox.run(ShellCommand("echo here"))).output == "here\n"


@pytest.mark.parametrize(("how", "reason"), [("drain", "was drained"), ("delete", "removed from outside")])
async def test_a_pod_that_is_deleted_from_outside_is_said(
    cluster: Cluster, tmp_path: Path, how: str, reason: str
) -> None:
    provider, kube = cluster
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        [name] = kube.pods
        if how == "drain":
            await kube.drain(name)
        else:
            await kube.delete(name)
        with pytest.raises(SandboxGone, match=reason):
            await sandbox.run(ShellCommand("sleep 60"))


async def test_memory_that_ran_out_is_said(tmp_path: Path) -> None:
    provider = kubernetes_provider(tmp_path, memory_mb=64)
    async with provider as (made, _kube), made.acquire("a", tmp_path / "a") as sandbox:
        said = ""
        try:
            said = (await sandbox.run(ShellCommand("python3 -c 'x = bytearray(200 << 20)'; echo $?"))).output
        except SandboxGone as gone:  # where the kernel ends the whole container
            said = str(gone)
    assert "out of memory" in said


async def test_a_forgotten_version_is_no_end_of_the_watch(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        before = kube.calls.count(f"GET /api/v1/namespaces/{kube.namespace}/pods")
        kube.forget_versions()
        async with asyncio.timeout(60):
            while kube.calls.count(f"GET /api/v1/namespaces/{kube.namespace}/pods") < before + 2:  # a list, a watch
                await asyncio.sleep(0.02)
        await kube.evict(next(iter(kube.pods)))
        with pytest.raises(SandboxGone, match="evicted"):
            await sandbox.run(ShellCommand("sleep 60"))


async def test_the_old_exec_protocol_works_too(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    kube.protocols = ("v4.channel.k8s.io",)
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        assert (await sandbox.run(ShellCommand("cat; echo end"))).output == "end\n"


async def test_pods_of_a_killed_service_are_replaced_or_reaped(cluster: Cluster, tmp_path: Path) -> None:
    killed, kube = cluster
    for key in ("a", "b"):
        async with killed.acquire(key, tmp_path / key) as sandbox:
            await sandbox.run(ShellCommand("sleep 7009 &"))
    left = {pod["metadata"]["uid"] for pod in kube.pods.values()}
    restarted = KubernetesProvider(kubernetes_settings(kube, tmp_path))  # the same service after a restart
    try:
        async with restarted.acquire("a", tmp_path / "a") as sandbox:
            assert (await sandbox.run(ShellCommand("pgrep -fc 'sleep 700[9]'; true"))).output == "0\n"
            assert await restarted.reap(3600) == []
            assert await restarted.reap(0) == ["b"], "not the one in use"
            while len(kube.pods) > 1:
                await asyncio.sleep(0.05)
        assert not left & {pod["metadata"]["uid"] for pod in kube.pods.values()}
    finally:
        await restarted.close()
    assert kube.pods == {}


async def test_closing_removes_all_pods_and_a_cancelled_start_leaves_none(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    async with provider.acquire("a", tmp_path / "a"):
        pass
    kube.has_room = False
    starting = asyncio.create_task(_acquire(provider, tmp_path))
    while len(kube.pods) < 2:
        await asyncio.sleep(0.02)
    await provider.destroy("b")
    with pytest.raises(SandboxGone, match="stopped while it started"):
        await starting
    assert len(kube.pods) == 1
    await provider.close()
    assert kube.pods == {}


async def _acquire(provider: KubernetesProvider, folder: Path) -> None:
    async with provider.acquire("b", folder / "b"):
        pass


# ---------------------------------------------------------------- the check


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rights": ("create", "pods/exec")}, r"may not do this in the namespace fawn: create pods/exec"),
        ({"rights": ("delete", "pods")}, "delete pods"),
        ({"claims": {}}, "no persistent volume claim fawn-data"),
        ({"images": set()}, "cannot pull the image fawn-sandbox:test .*Back-off pulling"),
        ({"has_room": False}, "No node of the cluster has room .*Insufficient memory"),
        ({"max_pods": 0}, "exceeded quota"),
        ({"tokens": {"another"}}, "Unauthorized"),
        ({"enforces_policies": False}, "reach the cluster's network .*NetworkPolicy"),
    ],
)
async def test_the_check_says_what_is_missing(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    async with kubernetes_provider(tmp_path, options={"start_seconds": 3.0}) as (provider, kube):
        for name, value in change.items():
            if name == "rights":
                kube.rights.discard(value)
            elif name == "enforces_policies":
                kube.enforces_policies = value
                provider = KubernetesProvider(kubernetes_settings(kube, tmp_path, options={"start_seconds": 60.0}))
            else:
                setattr(kube, name, value)
        try:
            with pytest.raises(SandboxUnavailable, match=reason):
                await provider.check()
        finally:
            await provider.close()
        assert kube.pods == {}


async def test_an_unknown_runtime_class_is_said(tmp_path: Path) -> None:
    async with kubernetes_provider(tmp_path, options={"runtime_class": "gvisor"}) as (provider, kube):
        with pytest.raises(SandboxUnavailable, match='RuntimeClass "gvisor" not found'):
            await provider.check()
        kube.runtime_classes.add("gvisor")
        await provider.check()


async def test_another_volume_than_the_services_is_noticed(tmp_path: Path) -> None:
    async with kubernetes_provider(tmp_path) as (provider, kube):
        kube.claims[CLAIM] = tmp_path / "elsewhere"
        with pytest.raises(SandboxUnavailable):
            await provider.check()


async def test_data_outside_of_the_claim_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mount").mkdir()
    async with kubernetes_provider(tmp_path, options={"claim_path": str(tmp_path / "mount")}) as (provider, _kube):
        with pytest.raises(SandboxUnavailable, match=r"is not below .*mount"):
            await provider.check()


async def test_without_a_volume_the_setting_is_asked_for(tmp_path: Path) -> None:
    async with kubernetes_provider(tmp_path, options={"claim_path": ""}) as (provider, _kube):
        root = next(place for place in (tmp_path, *tmp_path.parents) if place.is_mount())
        if root == Path("/"):
            with pytest.raises(SandboxUnavailable, match="is on no mounted volume"):
                await provider.check()


async def test_the_configured_provider_is_chosen_after_its_check(tmp_path: Path) -> None:
    need_docker()
    async with FakeKube({CLAIM: tmp_path}) as kube:
        options = kubernetes_settings(kube, tmp_path).kubernetes
        settings = docker_settings(tmp_path, kubernetes=options)
        provider, description, why = await select_provider("kubernetes", settings, measured())
        await provider.close()
        assert provider.name == "kubernetes"
        assert str(description).startswith("Kubernetes, one pod of fawn-sandbox:test per conversation, without network")
        assert str(why) == ""
        kube.rights.discard(("watch", "pods"))
        with pytest.raises(SandboxUnavailable, match="watch pods"):
            await select_provider("kubernetes", settings, measured())


# ---------------------------------------------------------------- access


async def test_in_a_cluster_the_token_is_read_again_when_it_rotates(tmp_path: Path) -> None:
    need_docker()
    account = tmp_path / "account"
    account.mkdir()
    certificate, key = make_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    (account / "ca.crt").write_bytes(certificate.read_bytes())
    (account / "namespace").write_text("fawn")
    (account / "token").write_text("token-1\n")
    async with FakeKube({CLAIM: tmp_path}, tls=tls) as kube:
        settings = KubernetesSettings(
            tmp_path / "skills",
            state=tmp_path / "state",
            image="fawn-sandbox:test",
            kubernetes=KubernetesOptions(claim=CLAIM, claim_path=str(tmp_path)),
            service_account=account,
            server=kube.url,
        )
        provider = KubernetesProvider(settings)
        try:
            async with provider.acquire("a", tmp_path / "a"):
                pass
            kube.tokens = {"token-2"}
            (account / "token").write_text("token-2\n")
            async with provider.acquire("b", tmp_path / "b") as sandbox:
                await sandbox.write(f"{OUTPUTS}/x", b"1")
        finally:
            await provider.close()
        assert kube.pods == {}


def _kubeconfig(path: Path, user: dict[str, Any], cluster: dict[str, Any]) -> KubernetesOptions:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return KubernetesOptions(claim=CLAIM, kubeconfig=str(path))


@pytest.mark.parametrize(
    ("user", "cluster", "reason"),
    [
        ({"username": "me"}, {"server": "https://k"}, "signs in with 'username'"),
        ({"token": "t"}, {"server": "ftp://k"}, "server is no URL"),
        ({"token": "t"}, {"server": "https://k", "insecure-skip-tls-verify": True}, "turns the check"),
        ({"token": "t"}, {"server": "https://k", "certificate-authority-data": "%%"}, "cannot be used"),
        ({"client-certificate": "none.pem"}, {"server": "https://k"}, "No such file"),
    ],
)
def test_a_kubeconfig_that_is_not_safe_is_refused(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], reason: str
) -> None:
    options = _kubeconfig(tmp_path / "config", user, cluster)
    with pytest.raises(SandboxUnavailable, match=reason):
        find_access(KubernetesSettings(tmp_path, state=tmp_path, kubernetes=options))


def test_a_kubeconfig_with_a_client_certificate(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    user = {"client-certificate": certificate.name, "client-key": key.name}
    options = _kubeconfig(
        tmp_path / "config", user, {"server": "https://k/", "certificate-authority": certificate.name}
    )
    access = find_access(KubernetesSettings(tmp_path, state=tmp_path, kubernetes=options))
    token, tls = access.read()
    assert (access.server, access.namespace, token) == ("https://k", "default", "")
    assert tls
    assert tls.cert_store_stats()["x509_ca"] == 1


def test_outside_of_a_cluster_the_fix_is_said(tmp_path: Path) -> None:
    options = KubernetesOptions(claim=CLAIM)
    settings = KubernetesSettings(tmp_path, state=tmp_path, kubernetes=options, service_account=tmp_path / "none")
    with pytest.raises(SandboxUnavailable, match="does not run in a Kubernetes cluster"):
        find_access(settings)


async def test_a_missing_claim_is_said(tmp_path: Path) -> None:
    provider = KubernetesProvider(KubernetesSettings(tmp_path, state=tmp_path / "state"))
    with pytest.raises(SandboxUnavailable, match=r"`sandbox.kubernetes.claim` is missing"):
        await provider.check()
    await provider.close()


async def test_a_server_that_is_away_is_an_error_of_ours(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    await kube.stop()
    with pytest.raises(SandboxError, match="did not answer"):
        async with provider.acquire("a", tmp_path / "a"):
            pass
