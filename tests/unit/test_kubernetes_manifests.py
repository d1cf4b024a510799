"""The manifests of packaging/kubernetes against the schema and the rules of the API server, and the Helm chart."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.config.loader import load_config
from sandbox.kubernetes.provider import CLAIM_RIGHT, READY_RIGHT, RIGHTS
from sandbox.kubernetes.spec import APP, NAME_LABEL
from tests.fakes.kube_rules import (
    check_names,
    check_pod_spec,
    decode_strictly,
    missing_fields,
    model_of,
    restricted_faults,
)
from tests.support.engines import need_module, need_program

PLACE = Path(__file__).parents[2] / "packaging/kubernetes"
CHART = PLACE / "chart"
Json = dict[str, Any]


def check(document: Json) -> None:
    """Check a document as the API server does. Raises Refused, AssertionError."""
    model = model_of(document)
    decode_strictly(document, model)
    assert list(missing_fields(document, model)) == []
    check_names(document["metadata"], document["kind"])
    if document["kind"] == "StatefulSet":
        spec = document["spec"]["template"]["spec"]
        check_pod_spec(spec, "fawn")
        assert restricted_faults(spec) == []
        selector, labels = (
            document["spec"]["selector"]["matchLabels"],
            document["spec"]["template"]["metadata"]["labels"],
        )
        assert selector.items() <= labels.items()


def check_whole(documents: list[Json], folder: Path) -> None:
    """Check that the documents belong together and do what the provider needs."""
    kinds = {document["kind"]: document for document in documents}
    rules = kinds["Role"]["rules"]
    granted = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert granted == {*RIGHTS, READY_RIGHT, CLAIM_RIGHT}, "what the provider asks for, and no more"
    stateful = kinds["StatefulSet"]["spec"]
    assert stateful["replicas"] == 1
    pod = stateful["template"]["spec"]
    assert pod["serviceAccountName"] == kinds["ServiceAccount"]["metadata"]["name"]
    [container] = pod["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    claim = next(v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v)
    assert kinds["PersistentVolumeClaim"]["metadata"]["name"] == claim
    assert [claim] in [rule.get("resourceNames") for rule in rules]

    (folder / "config.yaml").write_text(kinds["ConfigMap"]["data"]["config.yaml"])
    config = load_config(folder / "config.yaml", {"OPENAI_API_KEY": "sk-1"})
    assert config.sandbox.provider == "kubernetes"
    assert config.sandbox.kubernetes.claim == claim
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"] if "subPath" not in mount}
    assert config.sandbox.kubernetes.claim_path == mounts["data"]

    policies = [document["spec"] for document in documents if document["kind"] == "NetworkPolicy"]
    sandbox_policies = [each for each in policies if covers(each, {NAME_LABEL: APP})]
    assert sandbox_policies
    for each in sandbox_policies:
        assert sorted(each["policyTypes"]) == ["Egress", "Ingress"]
        assert "ingress" not in each
        assert "egress" not in each


def covers(policy: Json, labels: dict[str, str]) -> bool:
    return (policy["podSelector"].get("matchLabels") or {}).items() <= labels.items()


def base_documents() -> Iterator[Json]:
    for name in yaml.safe_load((PLACE / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((PLACE / name).read_text())


def test_the_manifests_are_what_an_api_server_takes(tmp_path: Path) -> None:
    documents = list(base_documents())
    for document in documents:
        check(document)
    check_whole(documents, tmp_path)
    namespace = next(each for each in documents if each["kind"] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {each["metadata"].get("namespace", "fawn") for each in documents} == {"fawn"}


def test_every_manifest_is_in_the_kustomization() -> None:
    named = yaml.safe_load((PLACE / "kustomization.yaml").read_text())["resources"]
    assert sorted(named) == sorted(each.name for each in PLACE.glob("*.yaml") if each.name != "kustomization.yaml")


def test_kustomize_builds_the_base() -> None:
    need_program("kubectl", "kubernetes-client")
    built = subprocess.run(["kubectl", "kustomize", str(PLACE)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    documents = list(yaml.safe_load_all(built.stdout))
    assert len(documents) == len(list(base_documents()))
    stateful = next(each for each in documents if each["kind"] == "StatefulSet")
    assert stateful["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.com/fawn:0.1.0"


# ---------------------------------------------------------------- the chart


def test_each_value_of_the_chart_is_used_and_each_used_one_exists() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    used = {
        tuple(found[1].split("."))
        for template in (CHART / "templates").iterdir()
        for found in re.finditer(r"\.Values\.([A-Za-z.]+)", template.read_text())
    }
    for path in used:
        part: Any = values
        for step in path:
            assert step in part, path
            part = part[step]
    leaves = {
        (name, *rest)
        for name, value in values.items()
        for rest in ([(k,) for k in value] if value and isinstance(value, dict) else [()])
    }
    assert all(any(leaf[: len(path)] == path for path in used) for leaf in leaves), leaves


CASES: list[Json] = [
    {},
    {"sandbox": {"runtimeClass": "gvisor"}, "imagePullSecret": "registry", "persistence": {"storageClass": "fast"}},
    {
        "config": {
            "sandbox": {"memory_mb": 512},
            "models": [{"name": "one", "model": "gpt-5", "api_key": "$OPENAI_API_KEY"}],
        }
    },
]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="Helm's wheel is one of x86-64")
@pytest.mark.parametrize("values", CASES)
def test_helm_renders_the_chart(tmp_path: Path, values: Json) -> None:
    helm = need_module("helm_python", "pip install --no-deps -r .ci/helm.lock")
    with helm.Chart.load(str(CHART)) as chart:
        rendered = chart.render(values, name="fawn", namespace="agents")
    documents = [each for text in rendered.values() for each in yaml.safe_load_all(text) if each]
    for document in documents:
        check(document)
    check_whole(documents, tmp_path)
    pod = next(each for each in documents if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "fawn"}}]
    written = yaml.safe_load(next(each for each in documents if each["kind"] == "ConfigMap")["data"]["config.yaml"])
    assert written["sandbox"]["kubernetes"]["runtime_class"] == values.get("sandbox", {}).get("runtimeClass", "")
    assert written["sandbox"].get("memory_mb") == values.get("config", {}).get("sandbox", {}).get("memory_mb")
