"""The Kubernetes provider: one pod per conversation.

The command server runs on the stream of one exec, the tunnel to the conversation's proxy on another, so a pod needs no
network at all. Its folders are parts of the claim that holds the service's data. With `ready_pods`, some run before a
conversation needs them. The service deletes its pods when it stops. It never reuses the pod of a killed service,
because processes in it could imitate the new command server. Such a pod is deleted when its conversation continues, or
after the idle time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from catalogue import N_, LazyText, join_lazily, list_items
from sandbox.base import (
    FOLDERS,
    NO_REASON,
    ROOT,
    SandboxError,
    SandboxFileError,
    SandboxGone,
    SandboxUnavailable,
    ShellCommand,
)
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.slots import Slots
from sandbox.kubernetes.access import find_access
from sandbox.kubernetes.client import ClusterRefused, Json, KubernetesClient
from sandbox.kubernetes.pods import CONFIG_REASONS, IMAGE_REASONS, FollowedPod, PodState, PodWatch
from sandbox.kubernetes.ready import ReadyPods
from sandbox.kubernetes.spec import (
    CONTAINER,
    INSTANCE_LABEL,
    KEY_ANNOTATION,
    KEY_LABEL,
    POOL_LABEL,
    KubernetesSettings,
    PodPlan,
    claim_patch,
    key_label,
    pod_manifest,
    pod_name,
    with_limits,
)
from sandbox.kubernetes.stream import EgressTunnel, PodStream
from sandbox.network.service import EgressService
from sandbox.pool.pool import EnginePool
from sandbox.settings import parse_oom_kills
from sandbox.users import account_files
from sandbox.wire.client import StreamSandbox
from sandbox.wire.connection import CLOSE_SECONDS, FILES_INTACT, SERVER_DIED, sanitize_text

log = logging.getLogger(__name__)

MAX_PARALLEL_STARTS = 16
HELLO_SECONDS = 30.0
END_SECONDS = CLOSE_SECONDS / 2  # for a deleted pod to end; then its object is removed, as on a lost node
REASON_SECONDS = 10.0  # for the watch to say why a connection ended: a kubelet looks each second, and writes it later
ROOTS_USER = 1000  # of sandboxes, if the service is root
QUOTA_MARK = "exceeded quota"  # in the API server's reason: its code alone is that of every refusal
RIGHTS = (
    *((verb, "pods") for verb in ("create", "get", "list", "watch", "delete")),
    ("get", "pods/exec"),  # for the WebSocket
    ("create", "pods/exec"),  # since Kubernetes 1.35
)
CLAIM_RIGHT = ("get", "persistentvolumeclaims")  # the one claim
CONNECTION_LOST = join_lazily(
    LazyText(N_("The connection to the Kubernetes API was lost, and the sandbox with it.")), LazyText(FILES_INTACT)
)
OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
READY_RIGHT = ("patch", "pods")  # to give a ready pod to a conversation, with `ready_pods`
READY_PROXY = "ready pods"  # the proxy of those that nobody has claimed: nothing runs in them
READY_LEFT_SECONDS = 120.0  # until a ready pod that no service of now keeps is deleted
# Exits with 1 if a host and port answer.
REACHES = (
    "import socket,sys\ntry: socket.create_connection(({host!r},{port}),3)\nexcept OSError: sys.exit(0)\nsys.exit(1)"
)


class KubernetesSandbox(StreamSandbox):
    """A sandbox in a pod."""

    async def oom_kills(self) -> int:
        for path in OOM_COUNTERS:
            with contextlib.suppress(SandboxError):
                if (count := parse_oom_kills((await self.read(path)).decode("ascii", "replace"))) is not None:
                    return count
        return 0


@dataclass(frozen=True, slots=True)
class _RunningPod:
    """A pod in which the command server and the tunnel run."""

    pod: FollowedPod
    stream: PodStream
    sandbox: KubernetesSandbox
    tunnel: EgressTunnel

    @property
    def gone(self) -> bool:
        return self.sandbox.gone or self.pod.ended.done()

    async def abandon(self) -> None:
        """End the connections, not the pod."""
        self.stream.releases = False
        await self.sandbox.close()
        await self.tunnel.close()


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What stays the same while the service runs."""

    client: KubernetesClient
    watch: PodWatch
    instance: str
    root: Path  # where the claim is mounted
    ready: ReadyPods[_RunningPod]
    slots: Slots


class KubernetesProvider(EnginePool[KubernetesSandbox]):
    """Runs sandboxes as pods. See `SandboxProvider`."""

    name = "kubernetes"
    runs_commands = True

    def __init__(
        self, settings: KubernetesSettings, egress: EgressService | None = None, end_seconds: float = END_SECONDS
    ) -> None:
        egress = egress or EgressService(settings.network, settings.state / "egress", report=settings.report_egress)
        super().__init__(self._start_sandbox, self._stop_sandbox, settings.live, egress)
        self._settings, self._end_seconds = settings, end_seconds
        self._starts = asyncio.Semaphore(MAX_PARALLEL_STARTS)
        self._lock = asyncio.Lock()
        self._cluster: _Cluster | None = None
        self._tunnels: dict[str, EgressTunnel] = {}
        self._leftovers: dict[str, float] = {}

    @property
    def ready_pods(self) -> int:
        """How many pods wait for a conversation."""
        return len(self._cluster.ready) if self._cluster else 0

    # ------------------------------------------------------------ the check

    async def check(self) -> None:
        """Ask for each permission, and start a pod that reads and writes a file of the service and reaches nothing.

        Raises SandboxUnavailable with the fix.
        """
        try:
            cluster = await self._find_cluster()
            await self._check_rights(cluster.client)
            await self._check_claim(cluster.client)
            await self._check_pod(cluster)
        except SandboxUnavailable:
            raise
        except SandboxError as error:
            raise SandboxUnavailable(N_("No pod can be started: {error}"), error=error) from error

    async def _check_rights(self, client: KubernetesClient) -> None:
        options = self._settings.kubernetes
        rights = [(*right, "") for right in ((*RIGHTS, READY_RIGHT) if options.ready_pods else RIGHTS)]
        rights.append((*CLAIM_RIGHT, options.claim))  # a role that names the claim grants nothing without its name
        answers = await asyncio.gather(*(client.allowed(*right) for right in rights))
        missing = [
            f"{verb} {resource}" for (verb, resource, _), allowed in zip(rights, answers, strict=True) if not allowed
        ]
        if missing:
            text = N_(
                "Fawn's service account may not do this in the namespace {namespace}: {missing}. Apply the role of"
                " packaging/kubernetes."
            )
            raise SandboxUnavailable(text, namespace=client.access.namespace, missing=list_items(missing))

    async def _check_claim(self, client: KubernetesClient) -> None:
        name = self._settings.kubernetes.claim
        try:
            claim = await client.get_claim(name)
        except ClusterRefused as error:
            if error.code != 404:
                raise
            text = N_("`sandbox.kubernetes.claim`: the namespace {namespace} has no persistent volume claim {name}.")
            raise SandboxUnavailable(text, namespace=client.access.namespace, name=name) from error
        if (claim.get("status") or {}).get("phase") == "Lost":
            raise SandboxUnavailable(N_("The persistent volume claim {name} has lost its volume."), name=name)

    async def _check_pod(self, cluster: _Cluster) -> None:
        await cluster.ready.fill(min(1, self._settings.kubernetes.ready_pods))
        try:
            is_same = await self._exchange_file(self._settings.state, partial(self._check_isolation, cluster))
        except SandboxFileError as error:
            text = N_(
                "A pod does not see Fawn's files ({error}): is `sandbox.kubernetes.claim` the claim that is mounted at"
                " {path}?"
            )
            raise SandboxUnavailable(text, error=error, path=str(cluster.root)) from error
        if not is_same:
            raise SandboxUnavailable(N_("A pod reads other content than Fawn wrote: both must mount the same volume."))
        if cluster.ready.unusable:
            text = N_("`sandbox.kubernetes.ready_pods`: ready pods do not work here: {reason}. Set it to 0.")
            raise SandboxUnavailable(text, reason=cluster.ready.unusable)

    async def _check_isolation(self, cluster: _Cluster, sandbox: KubernetesSandbox) -> None:
        """A pod must not reach the API server, which every pod reaches where no NetworkPolicy holds."""
        host, port = await cluster.client.find_address()
        program = REACHES.format(host=host, port=port)
        result = await sandbox.run(ShellCommand(f"exec python3 -c '{program.replace(chr(39), chr(34))}'"))
        if result.exit_code != 0:
            text = N_(
                "Pods of sandboxes reach the cluster's network ({address}): apply the NetworkPolicy of"
                " packaging/kubernetes, with a network plug-in that enforces it (docs/kubernetes.md)."
            )
            raise SandboxUnavailable(text, address=f"{host}:{port}")

    # ------------------------------------------------------------ the pool

    async def _reap_leftovers(self, idle: float) -> list[str]:
        now, cluster = time.monotonic(), await self._find_cluster()
        found, _version = await cluster.client.list_pods(f"{INSTANCE_LABEL}={cluster.instance}")
        ours = cluster.watch.names
        others = [pod for pod in found if str((pod.get("metadata") or {}).get("name")) not in ours]
        uids = {PodState.parse(pod).uid: pod for pod in others}
        self._leftovers = {uid: self._leftovers.get(uid, now) for uid in uids}
        keys = []
        for uid, since in self._leftovers.items():
            facts = uids[uid]["metadata"]
            is_ready = POOL_LABEL in (facts.get("labels") or {})
            if since <= now - (min(idle, READY_LEFT_SECONDS) if is_ready else idle):
                await cluster.client.delete_pod(str(facts["name"]), uid, 1)
                keys += [] if is_ready else [str((facts.get("annotations") or {}).get(KEY_ANNOTATION, ""))]
        await asyncio.to_thread(cluster.slots.discard_stale, ours)
        cluster.ready.begin()  # here, because only the service reaps, and `fawn check` does not
        return keys

    async def close(self) -> None:
        if self._cluster:
            await self._cluster.ready.close()
            await self._egress.close_proxy(READY_PROXY)
        await super().close()
        if self._cluster:
            await self._cluster.watch.close()
            await self._cluster.client.close()

    async def _find_cluster(self) -> _Cluster:
        async with self._lock:
            if self._cluster is None:
                options = self._settings.kubernetes
                if not options.claim:
                    text = N_("`sandbox.kubernetes.claim` is missing: the claim that holds Fawn's data.")
                    raise SandboxUnavailable(text)
                access = await asyncio.to_thread(find_access, self._settings)
                await asyncio.to_thread(self._settings.state.mkdir, 0o711, parents=True, exist_ok=True)
                root = await asyncio.to_thread(self._claim_root)
                part = await asyncio.to_thread(self._subpath, root, self._settings.state)
                instance = hashlib.sha256(f"{access.namespace}\0{options.claim}\0{part}".encode()).hexdigest()[:16]
                slots = Slots(self._settings.state / "ready", root, None if os.geteuid() else ROOTS_USER)
                if moved := await asyncio.to_thread(slots.recover):  # before anything reads those folders
                    log.warning("sandbox.moved_back count=%d", len(moved))
                client = KubernetesClient(access)
                watch = PodWatch(client, f"{INSTANCE_LABEL}={instance}")
                ready = ReadyPods(options.ready_pods, self._start_ready, self._end_ready)
                self._cluster = _Cluster(client, watch, instance, root, ready, slots)
            return self._cluster

    def _claim_root(self) -> Path:
        """Return where the claim is mounted: as configured, or the mounted volume that holds the data. Blocks."""
        if named := self._settings.kubernetes.claim_path:
            return Path(named).resolve()
        state = self._settings.state.resolve()
        root = next(place for place in (state, *state.parents) if place.is_mount())
        if root == Path("/"):
            text = N_("`sandbox.kubernetes.claim_path`: {path} is on no mounted volume, so sandboxes cannot mount it.")
            raise SandboxUnavailable(text, path=str(state))
        return root

    @staticmethod
    def _subpath(root: Path, path: Path) -> str:
        """Return where the claim has `path`. Blocks. Raises SandboxUnavailable."""
        found = path.resolve()
        if not found.is_relative_to(root):
            text = N_("`sandbox.kubernetes.claim_path`: {path} is not below {root}, so sandboxes cannot mount it.")
            raise SandboxUnavailable(text, path=str(path), root=str(root))
        return str(found.relative_to(root))

    # ------------------------------------------------------------ start and stop

    async def _start_sandbox(self, key: str, folder: Path) -> KubernetesSandbox:
        try:
            async with self._starts:
                cluster = await self._find_cluster()
                egress = await self._egress.open_proxy(key)
                await self._remove_others(cluster, key)
                if sandbox := await self._start_on_ready_pod(cluster, key, folder, egress):
                    return sandbox
                plan = await asyncio.to_thread(self._plan_pod, cluster, key, folder)
                pod = await self._create_pod(cluster, pod_manifest(self._settings, plan))
                try:
                    await self._await_running(pod)
                    return (await self._attach(cluster, pod, key, egress)).sandbox
                except BaseException:
                    await self._delete_pod(cluster, pod)
                    raise
        except BaseException:
            await self._egress.close_proxy(key)
            raise

    async def _start_on_ready_pod(
        self, cluster: _Cluster, key: str, folder: Path, egress: Path
    ) -> KubernetesSandbox | None:
        """Give the conversation a ready pod; None if there is none, or it turns out not to work."""
        if not await asyncio.to_thread(cluster.slots.fits, folder):
            return None
        while made := cluster.ready.take():
            try:
                if not await cluster.client.patch_pod(made.pod.name, claim_patch(made.pod.state.uid, key)):
                    log.info("sandbox.ready_pod_gone pod=%s", made.pod.name)  # another process has it, or it has ended
                    await made.abandon()
                    cluster.watch.forget(made.pod)
                    continue
                await asyncio.to_thread(cluster.slots.adopt, made.pod.name, folder)
                made.tunnel.assign(egress)
                if await self._sees_folders(made.sandbox, folder):
                    return made.sandbox
                cluster.ready.give_up("a pod does not see a folder that was renamed, on this volume")
            except BlockingIOError:
                log.info("sandbox.ready_pod_unused pod=%s — files are being written", made.pod.name)
            except OSError as error:
                cluster.ready.give_up(f"folders cannot be renamed: {error.strerror}")
            except SandboxError as error:
                log.warning("sandbox.ready_pod_failed pod=%s reason=%s", made.pod.name, error)
            except BaseException:
                await self._end_ready(made)
                raise
            await self._end_ready(made)
        return None

    async def _sees_folders(self, sandbox: KubernetesSandbox, folder: Path) -> bool:
        """Return whether the pod reads what the service writes into the conversation's folders now."""
        name = f".{secrets.token_hex(8)}{safe_files.DRAFT_SUFFIX}"
        try:
            for each in FOLDERS:
                await run_file_work(safe_files.write_file, folder / each, name, name.encode())
            return all([await sandbox.read(f"{ROOT}/{each}/{name}") == name.encode() for each in FOLDERS])
        except SandboxFileError:
            return False
        finally:
            for each in FOLDERS:
                await run_file_work(safe_files.remove_copies, folder / each, [name])

    async def _start_ready(self) -> _RunningPod:
        """Start a pod for whichever conversation comes next."""
        cluster = await self._find_cluster()
        name = f"fawn-ready-{secrets.token_hex(8)}"
        try:
            slot = await asyncio.to_thread(cluster.slots.make, name)
            plan = await asyncio.to_thread(self._plan_pod, cluster, "", slot)
            egress = await self._egress.open_proxy(READY_PROXY)
            pod = await self._create_pod(cluster, pod_manifest(self._settings, replace(plan, name=name)))
            try:
                await self._await_running(pod)
                return await self._attach(cluster, pod, name, egress)
            except BaseException:
                await self._delete_pod(cluster, pod)
                raise
        except BaseException:
            await asyncio.to_thread(cluster.slots.discard, name)
            raise

    async def _end_ready(self, made: _RunningPod) -> None:
        cluster = await self._find_cluster()
        await made.sandbox.close()
        await asyncio.to_thread(cluster.slots.discard, made.pod.name)

    def _plan_pod(self, cluster: _Cluster, key: str, folder: Path) -> PodPlan:
        """Make the conversation's folders and account files. Blocks."""
        root, user = cluster.root, os.geteuid() or ROOTS_USER
        safe_files.make_folders(folder, None if os.geteuid() else user)
        parts = {name: self._subpath(root, folder / name) for name in FOLDERS}
        for name, content in account_files(user, user).items():
            path = self._settings.state / f"{name}-{user}"
            if not path.exists() or path.read_text() != content:
                path.write_text(content)
                path.chmod(0o644)
            parts[name] = self._subpath(root, path)
        if self._settings.skills.is_dir():
            parts["skills"] = self._subpath(root, self._settings.skills)
        return PodPlan(pod_name(cluster.instance, key), cluster.instance, key, user, parts)

    async def _create_pod(self, cluster: _Cluster, manifest: Json) -> FollowedPod:
        """Create the pod. One with its name, left by another process, is removed first."""
        name = manifest["metadata"]["name"]
        pod = cluster.watch.follow(name)
        try:
            for _ in range(3):
                try:
                    pod.begin(PodState.parse(await cluster.client.create_pod(manifest)))
                    return pod
                except ClusterRefused as error:
                    if error.code == 403 and QUOTA_MARK in error.reason:
                        text = N_("The cluster's quota has no room for another sandbox: {reason}")
                        raise SandboxError(text, reason=error.reason) from error
                    if error.code != 409:
                        raise
                log.info("sandbox.replaced pod=%s", name)
                await self._remove_named(cluster, name)
            raise SandboxError(N_("The sandbox could not be started: its pod is being removed. Try again."))
        except BaseException:
            cluster.watch.forget(pod)
            raise

    async def _remove_others(self, cluster: _Cluster, key: str) -> None:
        """Delete the pods of this key that another process left: their programs still have its folders."""
        selector = f"{INSTANCE_LABEL}={cluster.instance},{KEY_LABEL}={key_label(key)}"
        for pod in (await cluster.client.list_pods(selector))[0]:
            log.info("sandbox.replaced pod=%s", pod["metadata"]["name"])
            await self._remove_named(cluster, str(pod["metadata"]["name"]))

    async def _remove_named(self, cluster: _Cluster, name: str) -> None:
        """Delete the pod with this name, and wait until it has ended."""
        deadline = time.monotonic() + self._end_seconds
        while True:
            late = time.monotonic() >= deadline
            await cluster.client.delete_pod(name, "", 0 if late else 1)
            try:
                await cluster.client.get_pod(name)
            except ClusterRefused as error:
                if error.code == 404:
                    return
                raise
            if late:
                return
            await asyncio.sleep(0.3)

    async def _await_running(self, pod: FollowedPod) -> None:
        """Wait until the container runs. Raises SandboxError with what the cluster waits for."""
        try:
            async with asyncio.timeout(self._settings.kubernetes.start_seconds):
                while not pod.state.runs:
                    if pod.ended.done():
                        text = N_("The sandbox did not start: {reason}")
                        said = pod.state.message or pod.state.exit_reason
                        raise SandboxError(text, reason=said or pod.ended.result())
                    reason = pod.state.waits.partition(":")[0]
                    if reason in IMAGE_REASONS:
                        text = N_("The cluster cannot pull the image {image} of `sandbox.image`: {reason}")
                        raise SandboxUnavailable(text, image=self._settings.image, reason=pod.state.waits)
                    if reason in CONFIG_REASONS:
                        raise SandboxUnavailable(N_("The pod cannot be started: {reason}"), reason=pod.state.waits)
                    pod.changed.clear()
                    await pod.changed.wait()
        except TimeoutError:
            if pod.state.unschedulable:
                text = N_("No node of the cluster has room for the sandbox: {reason}")
                raise SandboxError(text, reason=pod.state.unschedulable) from None
            text = N_("The cluster takes too long to start a sandbox: {reason}")
            raise SandboxError(text, reason=pod.state.waits or pod.state.phase) from None

    async def _attach(self, cluster: _Cluster, pod: FollowedPod, key: str, egress: Path) -> _RunningPod:
        """Start the tunnel and the command server."""
        client = cluster.client
        tunnel = EgressTunnel(await client.open_exec(pod.name, CONTAINER, with_limits(self._settings)), key, egress)
        try:
            socket = await client.open_exec(pod.name, CONTAINER, with_limits(self._settings))
        except BaseException:
            await tunnel.close()
            raise

        async def release() -> None:
            await tunnel.close()
            await self._delete_pod(cluster, pod)

        try:
            stream = PodStream(socket, key, lambda: self._explain_end(pod, stream), release)
            sandbox = KubernetesSandbox(stream, key, self._settings)
            pod.ended.add_done_callback(lambda _: stream.end())
            tunnel.on_end(stream.end)
            try:
                async with asyncio.timeout(HELLO_SECONDS):
                    await asyncio.gather(sandbox.start(), tunnel.start())
            except BaseException:
                await sandbox.close()
                raise
        except (SandboxGone, TimeoutError) as error:
            await tunnel.close()
            if pod.ended.done():
                raise SandboxError(N_("The sandbox did not start: {reason}"), reason=pod.ended.result()) from error
            text = N_("The command server does not start in the image {image}, which needs bash and python3: {reason}")
            reason = _last_line(stream.stderr or tunnel.stderr) or LazyText(NO_REASON)
            raise SandboxUnavailable(text, image=self._settings.image, reason=reason) from error
        except BaseException:
            await tunnel.close()
            raise
        stream.releases = True
        return _RunningPod(pod, stream, sandbox, tunnel)

    async def _explain_end(self, pod: FollowedPod, stream: PodStream) -> LazyText:
        """Say why the stream of a pod ended. The cluster's status comes first, if the program ended by itself."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REASON_SECONDS):
                return await asyncio.shield(pod.ended)
        return SERVER_DIED if stream.status else CONNECTION_LOST

    async def _delete_pod(self, cluster: _Cluster, pod: FollowedPod) -> None:
        """Delete a pod and wait until it has ended. That of a lost node never says so, and is only forgotten."""
        try:
            await cluster.client.delete_pod(pod.name, pod.state.uid, 1)
            try:
                async with asyncio.timeout(self._end_seconds):
                    await pod.removed.wait()
            except TimeoutError:
                await cluster.client.delete_pod(pod.name, pod.state.uid, 0)
        except SandboxError as error:
            log.warning("sandbox.left pod=%s reason=%s", pod.name, error)  # `reap` finds it
        finally:
            cluster.watch.forget(pod)

    async def _stop_sandbox(self, key: str, sandbox: KubernetesSandbox | None) -> None:
        """Delete the pod and its proxy."""
        try:
            if sandbox:
                await sandbox.close()
            elif self._cluster:
                await self._remove_others(self._cluster, key)
        except SandboxError as error:
            log.warning("sandbox.left key=%s reason=%s", key, error)
        await self._egress.close_proxy(key)


def _last_line(complaint: str) -> str:
    return sanitize_text(" ".join(complaint.strip().splitlines()[-1:]))[:200]
