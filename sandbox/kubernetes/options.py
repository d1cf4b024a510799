"""The settings of the Kubernetes provider."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandbox.settings import SandboxSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings(SandboxSettings):
    """Settings of the Kubernetes provider. `state` is the service's folder for sandboxes; the claim has it, too.
    `service_account` has what the cluster mounts into the service's own pod."""

    state: Path
    image: str = "fawn-sandbox"
    service_account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    server: str = "https://kubernetes.default.svc"
