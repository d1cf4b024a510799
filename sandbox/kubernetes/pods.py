"""Keep what is known about the pods of sandboxes: one watch follows all of them.

It says when a pod runs, and why one ended. A lost node cuts no connection, so only the watch notices it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalogue import N_, LazyText, join_lazily
from sandbox.base import SandboxError
from sandbox.inside.pod_init import TOO_MANY_EXIT_CODE
from sandbox.kubernetes.client import ClusterRefused, Json, KubernetesClient
from sandbox.wire.connection import FILES_INTACT, sanitize_text

log = logging.getLogger(__name__)

EXPIRED = 410
MAX_PAUSE_SECONDS = 30.0
# A container that waits for one of these will not start by itself soon.
IMAGE_REASONS = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
CONFIG_REASONS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff")
# Why the cluster ends a pod by itself: reasons of the condition DisruptionTarget.
DISRUPTIONS = {
    "DeletionByTaintManager": N_("The node of the sandbox does not answer."),
    "DeletionByPodGC": N_("The node of the sandbox was removed from the cluster."),
    "EvictionByEvictionAPI": N_("The node of the sandbox was drained."),
    "PreemptionByScheduler": N_("The sandbox made room for a more important pod."),
    "TerminationByKubelet": N_("The node of the sandbox was shut down."),
}
REMOVED = N_("The sandbox was removed from outside.")


@dataclass(frozen=True, slots=True)
class PodState:
    """The state of a pod, as the cluster says."""

    uid: str = ""
    phase: str = ""
    runs: bool = False  # its container
    ready: bool | None = None
    reason: str = ""
    message: str = ""
    waits: str = ""  # why its container does not start
    unschedulable: str = ""
    disruption: str = ""
    out_of_memory: bool = False
    exit_code: int = 0
    exit_reason: str = ""  # why its container could not start, or ended
    deleting: bool = False

    @classmethod
    def parse(cls, pod: Json) -> PodState:
        """Read a pod of the API."""
        facts, status = _mapping(pod.get("metadata")), _mapping(pod.get("status"))
        conditions = {str(each.get("type")): each for each in _mappings(status.get("conditions"))}
        containers = [_mapping(each.get("state")) for each in _mappings(status.get("containerStatuses"))]
        waiting = [_mapping(each["waiting"]) for each in containers if each.get("waiting")]
        ended = next((_mapping(each["terminated"]) for each in containers if each.get("terminated")), {})
        code = ended.get("exitCode")
        scheduled, ready = conditions.get("PodScheduled", {}), conditions.get("Ready", {})
        refused = scheduled.get("status") == "False"
        return cls(
            uid=str(facts.get("uid", "")),
            phase=str(status.get("phase", "")),
            runs=any(each.get("running") for each in containers),
            ready=ready.get("status") == "True" if ready else None,
            reason=str(status.get("reason") or ""),
            message=_line(status.get("message")),
            waits=next((_line(f"{each.get('reason')}: {each.get('message', '')}") for each in waiting), ""),
            unschedulable=_line(scheduled.get("message")) if refused else "",
            disruption=str(conditions.get("DisruptionTarget", {}).get("reason", "")),
            out_of_memory=ended.get("reason") == "OOMKilled",
            exit_code=code if isinstance(code, int) else 0,
            exit_reason=_line(ended.get("message")),
            deleting=bool(facts.get("deletionTimestamp")),
        )


class FollowedPod:
    """A pod that the watch follows. `ended` has the reason, once it ended."""

    def __init__(self, name: str) -> None:
        self.name, self.state = name, PodState()
        self.changed, self.removed = asyncio.Event(), asyncio.Event()
        self.ended: asyncio.Future[LazyText] = asyncio.get_running_loop().create_future()
        self._early: list[PodState] = []
        self._was_ready = False

    @property
    def begun(self) -> bool:
        """Whether the pod exists, as far as its creator knows."""
        return bool(self.state.uid)

    def begin(self, state: PodState) -> None:
        """Say which pod it is: until now, the watch may have told of another one with its name."""
        self.state = state
        for early in self._early:
            self.see(early)

    def see(self, state: PodState, *, deleted: bool = False) -> None:
        """Take in a state of the pod."""
        if not self.begun:
            self._early.append(state)
            return
        if state.uid != self.state.uid:
            return
        self.state = state
        lost = self._was_ready and state.ready is False and state.phase == "Running"
        self._was_ready = self._was_ready or state.ready is True
        if deleted:
            self.removed.set()
        if (deleted or state.phase in ("Failed", "Succeeded") or state.deleting or lost) and not self.ended.done():
            self.ended.set_result(ended_text(state, lost=lost))
        self.changed.set()


def ended_text(state: PodState, *, lost: bool = False) -> LazyText:
    """Say why a pod ended, for people."""
    if state.reason == "Evicted":
        why = LazyText(N_("The cluster evicted the sandbox: {message}"), message=state.message or state.reason)
    elif state.out_of_memory:
        why = LazyText(N_("The sandbox ran out of memory and was stopped."))
    elif state.exit_code == TOO_MANY_EXIT_CODE:
        why = LazyText(
            N_("The sandbox ran more processes and threads than `sandbox.processes` allows, and was stopped.")
        )
    elif state.reason == "DeadlineExceeded":
        why = LazyText(N_("The sandbox was stopped after a day, the longest time of one."))
    elif state.disruption in DISRUPTIONS:
        why = LazyText(DISRUPTIONS[state.disruption])
    elif lost or state.reason == "NodeLost":
        why = LazyText(DISRUPTIONS["DeletionByTaintManager"])
    else:
        why = LazyText(REMOVED)
    return join_lazily(why, LazyText(FILES_INTACT))


class PodWatch:
    """Follows the pods with the labels of `selector`, from the first `follow` to `close`."""

    def __init__(self, client: KubernetesClient, selector: str) -> None:
        self._client, self._selector = client, selector
        self._followed: dict[str, FollowedPod] = {}
        self._wanted = asyncio.Event()  # a pod waits for news, which ends a pause
        self._task: asyncio.Task[None] | None = None

    def follow(self, name: str) -> FollowedPod:
        """Follow a pod that is about to be created."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="pod-watch")
        pod = self._followed[name] = FollowedPod(name)
        self._wanted.set()
        return pod

    @property
    def names(self) -> frozenset[str]:
        """The names of the pods that are followed: those of this process."""
        return frozenset(self._followed)

    def forget(self, pod: FollowedPod) -> None:
        if self._followed.get(pod.name) is pod:
            del self._followed[pod.name]

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        """List and watch, again and again. A version that the server has forgotten means to list again."""
        pause = 1.0
        while True:
            try:
                version = await self._list()
                while version:
                    version = await self._watch(version)
                    pause = 1.0
            except SandboxError as error:
                if not (isinstance(error, ClusterRefused) and error.code == EXPIRED):
                    log.warning("sandbox.watch reason=%s", error)
                    self._wanted.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self._wanted.wait()
                    pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def _list(self) -> str:
        before = [pod for pod in self._followed.values() if pod.begun]
        found, version = await self._client.list_pods(self._selector)
        states = {state.uid: state for state in map(PodState.parse, found)}
        for pod in before:
            if pod.state.uid not in states:
                pod.see(pod.state, deleted=True)
        names = {str(_mapping(item.get("metadata")).get("name")): PodState.parse(item) for item in found}
        for name, pod in self._followed.items():
            if name in names:
                pod.see(names[name])
        return version

    async def _watch(self, version: str) -> str:
        """Take in events after `version`. Returns the last version, "" if it has expired."""
        async for kind, item in self._client.watch_pods(self._selector, version):
            facts = _mapping(item.get("metadata"))
            if kind == "ERROR":
                if item.get("code") == EXPIRED:
                    return ""
                raise ClusterRefused(int(item.get("code") or 500), str(item.get("message")))
            version = str(facts.get("resourceVersion") or version)
            pod = self._followed.get(str(facts.get("name")))
            if pod and kind in ("ADDED", "MODIFIED", "DELETED"):
                pod.see(PodState.parse(item), deleted=kind == "DELETED")
        return version


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _line(value: Any) -> str:
    return sanitize_text(" ".join(str(value or "").split()))[:400]
