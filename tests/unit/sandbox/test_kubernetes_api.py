"""The provider's calls on a real API server, without a kubelet (`tests.support.api_server` says when it is there)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.base import SandboxError
from sandbox.kubernetes.access import ClusterAccess
from sandbox.kubernetes.client import PAGE, ClusterRefused, KubernetesClient
from sandbox.kubernetes.credentials import KnownContent, StoredCredential
from sandbox.kubernetes.pods import PodState, PodWatch
from sandbox.kubernetes.provider import QUOTA_MARK, READY_RIGHT, RIGHTS, KubernetesProvider
from sandbox.kubernetes.spec import INSTANCE_LABEL, KubernetesSettings, PodPlan, claim_patch, pod_manifest
from sandbox.settings import KubernetesOptions
from tests.support.api_server import SERVICE, ApiServer, api_server

pytestmark = pytest.mark.slow
PLACE = Path(__file__).parents[3] / "packaging/kubernetes"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/fawn/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/fawn/rolebindings",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/fawn/networkpolicies",
    "StatefulSet": "/apis/apps/v1/namespaces/fawn/statefulsets",
}
PODS = "/api/v1/namespaces/fawn/pods"
SELECTOR = f"{INSTANCE_LABEL}=0123"


def path_of(kind: str) -> str:
    return PATHS.get(kind) or f"/api/v1/namespaces/fawn/{kind.lower()}s"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """A server that has what packaging/kubernetes holds; the quota is not computed, since nothing controls it."""
    async with api_server(tmp_path) as made:
        for name in yaml.safe_load((PLACE / "kustomization.yaml").read_text())["resources"]:
            for document in yaml.safe_load_all((PLACE / name).read_text()):
                if document["kind"] != "ResourceQuota":
                    await made.call("POST", path_of(document["kind"]), document)
        yield made


def access_of(server: ApiServer, token: str = SERVICE) -> ClusterAccess:
    source = StoredCredential(KnownContent(token.encode()), KnownContent(), KnownContent())
    return ClusterAccess(server.url, "fawn", source, KnownContent(path=server.authority))


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[KubernetesClient]:
    made = KubernetesClient(access_of(server))
    yield made
    await made.close()


def pod_of(name: str, key: str = "", **options: Any) -> dict[str, Any]:
    kubernetes = KubernetesOptions(claim="fawn-data", **options)
    settings = KubernetesSettings(Path("/skills"), state=Path("/state"), kubernetes=kubernetes)
    return pod_manifest(settings, PodPlan(name, "0123", key, 1000, {"workspace": "threads/a/workspace"}))


def leaves(part: Any, path: str = "") -> dict[str, Any]:
    """Map the path of each plain value to it."""
    if isinstance(part, dict):
        return {k: v for name, each in part.items() for k, v in leaves(each, f"{path}.{name}").items()}
    if isinstance(part, list):
        return {k: v for i, each in enumerate(part) for k, v in leaves(each, f"{path}[{i}]").items()}
    return {path: part}


async def set_status(server: ApiServer, name: str, **status: Any) -> None:
    """Do what a kubelet does."""
    kind = "application/merge-patch+json"
    await server.call("PATCH", f"{PODS}/{name}/status", {"status": status}, kind)


async def test_the_role_grants_what_the_provider_asks_for_and_no_more(client: KubernetesClient) -> None:
    for right in (*RIGHTS, READY_RIGHT):
        assert await client.allowed(*right), right
    assert await client.allowed("get", "persistentvolumeclaims", "fawn-data")
    for right in (("get", "secrets"), ("update", "pods"), ("list", "nodes"), ("get", "persistentvolumeclaims")):
        assert not await client.allowed(*right)
    with pytest.raises(ClusterRefused, match="forbidden") as refused:
        await client.call("GET", "/api/v1/namespaces/fawn/secrets")
    assert refused.value.code == 403
    assert (await client.get_claim("fawn-data"))["spec"]["accessModes"]


async def test_no_field_of_a_pod_is_dropped(client: KubernetesClient) -> None:
    asked = pod_of("fawn-1", "a key", pull_secret="registry", node_selector={"pool": "x"})
    made = leaves(await client.create_pod(asked))
    same = {"1024Mi": "1Gi", "0.05": "50m"}  # the server writes quantities in its own way
    for path, value in leaves(asked).items():
        assert made.get(path, False if value is False else None) in (value, same.get(value)), path
    with pytest.raises(ClusterRefused, match="already exists") as refused:
        await client.create_pod(asked)
    assert refused.value.code == 409


async def test_a_watch_tells_the_life_of_a_pod(client: KubernetesClient, server: ApiServer) -> None:
    watch = PodWatch(client, SELECTOR)
    try:
        pods = []
        for name in ("fawn-1", "fawn-2"):
            pod = watch.follow(name)
            pod.begin(PodState.parse(await client.create_pod(pod_of(name, name))))
            pods.append(pod)
        running = {"name": "sandbox", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        await set_status(server, "fawn-1", phase="Running", containerStatuses=[{**running, "state": state}])
        async with asyncio.timeout(60):
            while not pods[0].state.runs:
                pods[0].changed.clear()
                await pods[0].changed.wait()
            await set_status(server, "fawn-1", phase="Failed", reason="Evicted", message="The node was low on memory.")
            assert "evicted the sandbox: The node was low on memory." in str(await pods[0].ended)
            await client.delete_pod("fawn-2", "00000000-0000-0000-0000-000000000000", 1)
            assert (await client.get_pod("fawn-2"))["metadata"]["name"] == "fawn-2", "another one has the name"
            await client.delete_pod("fawn-2", pods[1].state.uid, 0)
            await pods[1].removed.wait()
        await client.delete_pod("fawn-2", pods[1].state.uid, 0)  # gone already
    finally:
        await watch.close()


async def test_a_ready_pod_is_claimed_by_one_of_many(client: KubernetesClient) -> None:
    uid = (await client.create_pod(pod_of("fawn-ready-1")))["metadata"]["uid"]
    assert not await client.patch_pod("fawn-ready-1", claim_patch("another", "key"))
    claims = [client.patch_pod("fawn-ready-1", claim_patch(uid, f"key {i}")) for i in range(12)]
    won = await asyncio.gather(*claims)
    assert won.count(True) == 1
    facts = (await client.get_pod("fawn-ready-1"))["metadata"]
    assert facts["annotations"]["fawn/key"] == f"key {won.index(True)}"
    assert "fawn/pool" not in facts["labels"]
    assert not await client.patch_pod("gone", claim_patch(uid, "key"))


async def test_long_lists_come_in_pages(client: KubernetesClient) -> None:
    count = PAGE + 5
    await asyncio.gather(*(client.create_pod(pod_of(f"fawn-{i}")) for i in range(count)))
    found, version = await client.list_pods(SELECTOR)
    assert len({pod["metadata"]["uid"] for pod in found}) == count
    assert version
    assert (await client.list_pods(f"{INSTANCE_LABEL}=other"))[0] == []


async def test_a_used_up_quota_is_told_in_these_words(client: KubernetesClient, server: ApiServer) -> None:
    place = path_of("ResourceQuota")
    await server.call("POST", place, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}})
    status = {"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}  # what the controller manager computes
    await server.call("PATCH", f"{place}/few/status", status, "application/merge-patch+json")
    refused: ClusterRefused | None = None
    async with asyncio.timeout(60):
        while refused is None:  # until the admission has seen it
            try:
                await client.create_pod(pod_of("fawn-1"))
                await client.delete_pod("fawn-1", "", 0)
                await asyncio.sleep(0.5)
            except ClusterRefused as error:
                refused = error
    assert refused.code == 403
    assert QUOTA_MARK in refused.reason


async def test_a_wrong_token_and_an_unknown_authority_are_refused(server: ApiServer, tmp_path: Path) -> None:
    wrong = KubernetesClient(access_of(server, "another"))
    source = StoredCredential(KnownContent(SERVICE.encode()), KnownContent(), KnownContent())
    untrusted = KubernetesClient(ClusterAccess(server.url, "fawn", source, KnownContent()))
    try:
        with pytest.raises(ClusterRefused, match="Unauthorized") as refused:
            await wrong.list_pods(SELECTOR)
        assert refused.value.code == 401
        with pytest.raises(SandboxError, match="certificate of the Kubernetes API is not trusted"):
            await untrusted.list_pods(SELECTOR)
    finally:
        await wrong.close()
        await untrusted.close()


async def test_a_pod_that_never_runs_is_said_and_deleted(
    client: KubernetesClient, server: ApiServer, tmp_path: Path
) -> None:
    """Nothing schedules here."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "fawn"}}],
        "clusters": [{"name": "k", "cluster": {"server": server.url, "certificate-authority": str(server.authority)}}],
        "users": [{"name": "u", "user": {"token": SERVICE}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    options = KubernetesOptions(
        claim="fawn-data", claim_path=str(tmp_path), kubeconfig=str(tmp_path / "config"), start_seconds=3.0
    )
    settings = KubernetesSettings(tmp_path / "skills", state=tmp_path / "state", image="i", kubernetes=options)
    provider = KubernetesProvider(settings)
    try:
        with pytest.raises(SandboxError, match="takes too long to start a sandbox: Pending"):
            async with provider.acquire("a", tmp_path / "a"):
                pass
        found = await server.call("GET", PODS)
        assert found["items"] == []
    finally:
        await provider.close()
