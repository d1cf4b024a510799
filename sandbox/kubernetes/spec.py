"""The pod of a sandbox: limits, locks and mounts. It meets the Pod Security level `restricted`.

The settings of the Kubernetes provider.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.base import FOLDERS, ROOT, SKILLS, WORKSPACE
from sandbox.inside.environment import HOME
from sandbox.rules import SOCKET_FOLDER
from sandbox.settings import MAX_DESCRIPTORS, SandboxSettings
from sandbox.wire.connection import INSIDE, SERVER_COMMAND


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings(SandboxSettings):
    """Settings of the Kubernetes provider. `state` is the service's folder for sandboxes; the claim has it, too.
    `service_account` has what the cluster mounts into the service's own pod."""

    state: Path
    image: str = "fawn-sandbox"
    service_account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    server: str = "https://kubernetes.default.svc"


CONTAINER = "sandbox"
NAME_LABEL, INSTANCE_LABEL, KEY_LABEL = "app.kubernetes.io/name", "fawn/instance", "fawn/key"
POOL_LABEL, READY = "fawn/pool", "ready"  # of a pod that waits for a conversation
KEY_ANNOTATION = "fawn/key"  # the key itself: a label's value has 63 bytes and few characters
APP = "fawn-sandbox"
NICENESS = 10
OWN_PROCESSES = 16  # of PID 1, the command server and the tunnel, with their helpers
LIFE_SECONDS = 86_400  # if the service never comes back
NODE_SECONDS = 30  # a pod is given up when its node has not answered for so long
LOGS_MB = 64


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What differs between the pods of a service. `subpaths` are parts of the claim by name. A pod that waits for a
    conversation has no key."""

    name: str
    instance: str
    key: str
    user: int
    subpaths: Mapping[str, str]


def pod_name(instance: str, key: str) -> str:
    """Name the pod of a key: of two services that start it, the API server refuses one."""
    return "fawn-" + hashlib.sha256(f"{instance}\0{key}".encode()).hexdigest()[:20]


def key_label(key: str) -> str:
    """Return the label's value for a key."""
    return hashlib.sha256(key.encode()).hexdigest()[:20]


def claim_patch(uid: str, key: str) -> list[dict[str, Any]]:
    """Return the JSON patch that gives a ready pod to a key. It fails if the pod is not that one, or not ready."""

    def at(kind: str, name: str) -> str:
        return f"/metadata/{kind}/{name.replace('~', '~0').replace('/', '~1')}"

    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": at("labels", POOL_LABEL), "value": READY},
        {"op": "remove", "path": at("labels", POOL_LABEL)},
        {"op": "add", "path": at("labels", KEY_LABEL), "value": key_label(key)},
        {"op": "add", "path": at("annotations", KEY_ANNOTATION), "value": key},
    ]


def with_limits(settings: KubernetesSettings) -> tuple[str, ...]:
    """Return the command of the command server and the tunnel. A pod cannot limit files and descriptors, so a shell
    does. All that they start runs below the priority of PID 1, which could not count a fork bomb otherwise."""
    limits = f"ulimit -c 0 -n {MAX_DESCRIPTORS} -f {settings.file_mb << 10}"
    return ("bash", "-c", f'{limits} && exec nice -n {NICENESS} "$@"', "server", *SERVER_COMMAND)


def init_command(settings: KubernetesSettings) -> tuple[str, ...]:
    """Return the command of PID 1, which limits the processes."""
    source = (INSIDE / "pod_init.py").read_text("utf-8")
    return ("python3", "-I", "-S", "-c", source, str(settings.processes + OWN_PROCESSES))


def pod_manifest(settings: KubernetesSettings, plan: PodPlan) -> dict[str, Any]:
    """Build the pod to create."""
    options = settings.kubernetes
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": "sandbox",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": LIFE_SECONDS,
        "tolerations": [
            {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
            | {"tolerationSeconds": NODE_SECONDS}
            for state in ("not-ready", "unreachable")
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": plan.user,
            "runAsGroup": plan.user,
            "fsGroup": plan.user,
            "fsGroupChangePolicy": "OnRootMismatch",  # the claim is the service's: its files are right already
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings, plan)],
        "volumes": _volumes(settings),
    }
    if options.runtime_class:
        spec["runtimeClassName"] = options.runtime_class
    if options.pull_secret:
        spec["imagePullSecrets"] = [{"name": options.pull_secret}]
    if options.node_selector:
        spec["nodeSelector"] = dict(options.node_selector)
    labels = {NAME_LABEL: APP, INSTANCE_LABEL: plan.instance}
    labels |= {KEY_LABEL: key_label(plan.key)} if plan.key else {POOL_LABEL: READY}
    facts = {"name": plan.name, "labels": labels, "annotations": {KEY_ANNOTATION: plan.key}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": facts, "spec": spec}


def _container(settings: KubernetesSettings, plan: PodPlan) -> dict[str, Any]:
    options = settings.kubernetes
    places = {name: (f"{ROOT}/{name}", False) for name in FOLDERS} | {"skills": (SKILLS, True)}
    places |= {name: (f"/etc/{name}", True) for name in ("passwd", "group")}
    mounts: list[dict[str, Any]] = [
        {"name": "data", "subPath": part, "mountPath": places[name][0], "readOnly": places[name][1]}
        for name, part in sorted(plan.subpaths.items())
    ]
    mounts += [{"name": name, "mountPath": place} for name, place, _ in _scratch(settings)]
    logs = f"{LOGS_MB}Mi"
    limits = {"cpu": f"{settings.cpus:g}", "memory": f"{settings.memory_mb}Mi", "ephemeral-storage": logs}
    request = min(options.memory_request_mb, settings.memory_mb)
    requests = {"cpu": f"{min(options.cpu_request, settings.cpus):g}", "memory": f"{request}Mi"}
    return {
        "name": CONTAINER,
        "image": settings.image,
        "command": list(init_command(settings)),
        "workingDir": WORKSPACE,
        "env": [{"name": name, "value": value} for name, value in settings.network.environment().items()],
        "resources": {"requests": requests | {"ephemeral-storage": logs}, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _scratch(settings: KubernetesSettings) -> list[tuple[str, str, int]]:
    """List what is in memory, and counts as such: the name, the place and MiB."""
    part = max(1, settings.tmp_mb // 4)
    return [
        ("tmp", "/tmp", settings.tmp_mb),  # noqa: S108  inside the pod
        ("home", HOME, part),
        ("shm", "/dev/shm", part),  # noqa: S108  inside the pod
        ("egress", SOCKET_FOLDER, 4),
    ]


def _volumes(settings: KubernetesSettings) -> list[dict[str, Any]]:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": settings.kubernetes.claim}}
    scratch = [
        {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": f"{size}Mi"}}
        for name, _place, size in _scratch(settings)
    ]
    return [claim, *scratch]
