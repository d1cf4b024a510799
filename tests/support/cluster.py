"""A Kubernetes provider on a fake cluster, whose pods are containers of the Docker engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox.kubernetes.provider import KubernetesProvider
from sandbox.kubernetes.spec import KubernetesSettings
from sandbox.network.service import EgressService
from sandbox.settings import KubernetesOptions
from tests.fakes.kube import FakeKube
from tests.support.engines import IMAGE, need_docker

CLAIM = "fawn-data"


def kubernetes_settings(kube: FakeKube, folder: Path, **more: Any) -> KubernetesSettings:
    """Return settings with data below `folder`, which is what the claim holds."""
    options = {"claim": CLAIM, "claim_path": str(folder), "start_seconds": 60.0, **more.pop("options", {})}
    options.setdefault("kubeconfig", str(kube.kubeconfig(folder / "kubeconfig")))
    return KubernetesSettings(
        folder / "skills", state=folder / "state", image=IMAGE, kubernetes=KubernetesOptions(**options), **more
    )


@asynccontextmanager
async def kubernetes_provider(
    folder: Path, egress: EgressService | None = None, end_seconds: float = 10.0, **more: Any
) -> AsyncIterator[tuple[KubernetesProvider, FakeKube]]:
    """Yield a provider and its cluster, which holds nothing afterwards."""
    need_docker()
    async with FakeKube({CLAIM: folder}) as kube:
        made = KubernetesProvider(kubernetes_settings(kube, folder, **more), egress, end_seconds)
        try:
            yield made, kube
        finally:
            await made.close()
