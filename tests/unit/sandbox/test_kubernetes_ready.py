"""Ready pods: each is claimed once, by one conversation, with its files, and nothing is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.base import OUTPUTS, UPLOADS, WORKSPACE, SandboxGone, SandboxUnavailable, ShellCommand
from sandbox.kubernetes.provider import KubernetesProvider
from sandbox.kubernetes.spec import KEY_LABEL, POOL_LABEL, READY, claim_patch, key_label
from sandbox.network.service import EgressService
from sandbox.rules import EgressRequest, NetworkRules
from tests.fakes.kube import FakeKube
from tests.fakes.server import until
from tests.support.cluster import kubernetes_provider, kubernetes_settings
from tests.support.outside_world import HOST, Names, Outside, hosts

Cluster = tuple[KubernetesProvider, FakeKube]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with kubernetes_provider(tmp_path, options={"ready_pods": 1}) as made:
        yield made


def ready(kube: FakeKube) -> list[str]:
    """Return the names of the pods that run and wait."""
    pods = [pod for pod in kube.pods.values() if pod["metadata"]["labels"].get(POOL_LABEL) == READY]
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]


async def until_ready(provider: KubernetesProvider, kube: FakeKube, count: int = 1) -> list[str]:
    """Let the service look after its pods, and wait until so many are ready."""
    await provider.reap(3600)
    async with asyncio.timeout(60):
        while provider.ready_pods < count:
            await asyncio.sleep(0.05)
    return ready(kube)


async def test_a_ready_pod_serves_one_conversation_with_its_files_and_is_replaced(
    cluster: Cluster, tmp_path: Path
) -> None:
    provider, kube = cluster
    for name, text in (("uploads", "sent before"), ("workspace", "of another day")):
        (tmp_path / "a" / name).mkdir(parents=True)
        (tmp_path / "a" / name / "file").write_text(text)
        (tmp_path / "a" / name / "file").chmod(0o644)
    [name] = await until_ready(provider, kube)
    created = len(kube.created)
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        assert kube.pods[name]["metadata"]["labels"][KEY_LABEL] == key_label("a")
        assert POOL_LABEL not in kube.pods[name]["metadata"]["labels"]
        assert kube.pods[name]["metadata"]["annotations"]["fawn/key"] == "a"
        assert await sandbox.read(f"{UPLOADS}/file") == b"sent before"
        assert await sandbox.read(f"{WORKSPACE}/file") == b"of another day"
        await sandbox.run(ShellCommand(f"echo answer > {OUTPUTS}/x; echo more >> {WORKSPACE}/file"))
        assert (tmp_path / "a" / "outputs" / "x").read_text() == "answer\n"
        assert (tmp_path / "a" / "workspace" / "file").read_text() == "of another daymore\n"
        assert sorted(path.name for path in (tmp_path / "a").rglob("*") if path.is_file()) == ["file", "file", "x"]
        (tmp_path / "a" / "uploads" / "later").write_text("sent during it")
        assert await sandbox.read(f"{UPLOADS}/later") == b"sent during it"
    [other] = await until_ready(provider, kube)
    assert other != name
    assert len(kube.created) == created + 1
    await provider.destroy("a")
    assert name not in kube.pods, "it is never given to another conversation"
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        assert await sandbox.read(f"{OUTPUTS}/x") == b"answer\n"
        assert kube.pods[other]["metadata"]["labels"][KEY_LABEL] == key_label("a")


async def test_of_two_conversations_one_gets_it_and_the_other_starts_its_own(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    [name] = await until_ready(provider, kube)

    async def work(key: str) -> str:
        async with provider.acquire(key, tmp_path / key) as sandbox:
            await sandbox.write(f"{WORKSPACE}/mine", key.encode())
            return (await sandbox.run(ShellCommand("cat mine; ls"))).output

    assert list(await asyncio.gather(work("a"), work("b"))) == ["amine\n", "bmine\n"]
    keys = [pod["metadata"]["labels"].get(KEY_LABEL) for pod in kube.pods.values()]
    assert {key_label("a"), key_label("b")} <= set(keys)
    assert sum(pod["metadata"]["name"].startswith("fawn-ready-") for pod in kube.pods.values()) >= 1
    assert name in kube.pods


async def test_a_pod_that_another_process_has_claimed_is_not_used(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    [name] = await until_ready(provider, kube)
    [client] = [provider._cluster.client] if provider._cluster else []
    uid = kube.pods[name]["metadata"]["uid"]
    assert await client.patch_pod(name, claim_patch(uid, "theirs"))
    assert not await client.patch_pod(name, claim_patch(uid, "again")), "exactly once"
    assert not await client.patch_pod(name, claim_patch("another", "again"))
    assert not await client.patch_pod("gone", claim_patch(uid, "again"))
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        assert (await sandbox.run(ShellCommand("echo own"))).output == "own\n"
    assert kube.pods[name]["metadata"]["annotations"]["fawn/key"] == "theirs"


@pytest.mark.parametrize("claimed", [False, True])
async def test_a_killed_service_leaves_nothing_for_ever(tmp_path: Path, claimed: bool) -> None:
    async with kubernetes_provider(tmp_path, options={"ready_pods": 1}) as (killed, kube):
        [name] = await until_ready(killed, kube)
        assert killed._cluster
        if claimed:  # it died between the claim and the first use
            await killed._cluster.client.patch_pod(name, claim_patch(kube.pods[name]["metadata"]["uid"], "a"))
        killed._cluster.ready._keeper.cancel()  # type: ignore[union-attr]  # it does nothing any more
        restarted = KubernetesProvider(kubernetes_settings(kube, tmp_path))
        try:
            if claimed:
                async with restarted.acquire("a", tmp_path / "a") as sandbox:
                    assert (await sandbox.run(ShellCommand("echo new"))).output == "new\n"
                assert name not in kube.pods
            else:
                await restarted.reap(3600)
                await restarted.reap(0)  # it has been there for two minutes
                async with asyncio.timeout(60):
                    while name in kube.pods:
                        await asyncio.sleep(0.05)
        finally:
            await restarted.close()
        assert kube.pods == {}


async def test_without_the_setting_nothing_is_started_or_patched(tmp_path: Path) -> None:
    async with kubernetes_provider(tmp_path) as (provider, kube):
        kube.rights.discard(("patch", "pods"))
        await provider.check()
        await provider.reap(3600)
        async with provider.acquire("a", tmp_path / "a"):
            pass
        assert not [call for call in kube.calls if call.startswith("PATCH")]
        assert {pod["metadata"]["labels"].get(POOL_LABEL) for pod in kube.created} == {None}
        assert not (tmp_path / "state" / "ready").exists()


async def test_a_ready_pod_that_ended_is_replaced_and_closing_removes_all(tmp_path: Path) -> None:
    async with kubernetes_provider(tmp_path, options={"ready_pods": 2}) as (provider, kube):
        first = await until_ready(provider, kube, 2)
        await kube.evict(first[0])
        await until(lambda: provider.ready_pods < 2, what="the end of one")
        async with provider.acquire("a", tmp_path / "a") as sandbox:
            assert (await sandbox.run(ShellCommand("echo here"))).output == "here\n"
            assert kube.pods[first[1]]["metadata"]["labels"].get(KEY_LABEL) == key_label("a")
        again = await until_ready(provider, kube, 2)
        assert not set(first) & set(again)
        await provider.close()
        assert kube.pods == {}
        assert list((tmp_path / "state" / "ready").iterdir()) == []
        assert list((tmp_path / "state" / "egress").iterdir()) == []


async def test_without_room_for_ready_pods_conversations_work(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    kube.max_pods = 1
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        await provider.reap(3600)
        async with asyncio.timeout(60):
            while kube.calls.count(f"POST /api/v1/namespaces/{kube.namespace}/pods") < 3:
                await asyncio.sleep(0.05)
        assert (await sandbox.run(ShellCommand("echo here"))).output == "here\n"
    assert list((tmp_path / "state" / "ready").iterdir()) == []


async def test_a_volume_whose_mounts_do_not_follow_is_noticed(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    kube.mounts_follow_renames = False
    [name] = await until_ready(provider, kube)
    (tmp_path / "a" / "uploads").mkdir(parents=True)
    (tmp_path / "a" / "uploads" / "file").write_text("kept")
    (tmp_path / "a" / "uploads" / "file").chmod(0o644)
    async with provider.acquire("a", tmp_path / "a") as sandbox:
        assert await sandbox.read(f"{UPLOADS}/file") == b"kept", "in a pod of its own"
        assert name not in kube.pods
    await until(lambda: ready(kube) == [], what="the end of those that were started")
    await asyncio.sleep(0.3)
    assert ready(kube) == [], "no further ones"
    other = KubernetesProvider(kubernetes_settings(kube, tmp_path, options={"ready_pods": 1}))
    try:
        with pytest.raises(SandboxUnavailable, match=r"ready_pods`: ready pods do not work here.*Set it to 0"):
            await other.check()
    finally:
        await other.close()


async def test_the_check_tries_a_ready_pod_and_asks_for_the_right(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    await provider.check()
    assert any(call.startswith("PATCH") for call in kube.calls)
    assert kube.pods == {}, "the check keeps none"
    kube.rights.discard(("patch", "pods"))
    with pytest.raises(SandboxUnavailable, match="may not do this in the namespace fawn: patch pods"):
        await provider.check()


async def test_a_cancelled_claim_leaves_no_pod(cluster: Cluster, tmp_path: Path) -> None:
    provider, kube = cluster
    [name] = await until_ready(provider, kube)
    kube.patches.clear()
    starting = asyncio.create_task(_acquire(provider, tmp_path))
    async with asyncio.timeout(60):
        while not any(call.startswith("PATCH") for call in kube.calls):
            await asyncio.sleep(0.02)
    await provider.destroy("a")
    with pytest.raises(SandboxGone, match="stopped while it started"):
        await starting
    assert name not in kube.pods
    await provider.close()
    assert kube.pods == {}


async def test_a_claimed_pod_has_the_way_out_of_its_conversation(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def report(key: str, request: EgressRequest) -> None:
        asked.append((key, request.host))

    async with Outside(tmp_path) as outside:
        rules = NetworkRules("allowlist", hosts(outside.http))
        egress = EgressService(rules, tmp_path / "egress", Names(), report)
        pods = kubernetes_provider(tmp_path, egress, network=rules, options={"ready_pods": 2})
        async with pods as (provider, kube):
            names = await until_ready(provider, kube, 2)
            url = f"http://{HOST}:{outside.http}/hello"
            fetch = ShellCommand(f"python3 -c 'import urllib.request as u; print(u.urlopen(\"{url}\").read())'")
            for key in ("a", "b"):
                async with provider.acquire(key, tmp_path / key) as sandbox:
                    assert "hello" in (await sandbox.run(fetch)).output
            assert {kube.pods[name]["metadata"]["annotations"]["fawn/key"] for name in names} == {"a", "b"}
    assert asked == [("a", HOST), ("b", HOST)]


async def _acquire(provider: KubernetesProvider, folder: Path) -> None:
    async with provider.acquire("a", folder / "a"):
        pass
