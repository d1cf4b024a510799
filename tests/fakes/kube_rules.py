"""What the Kubernetes API server refuses, for the fake cluster and for the manifests in packaging/kubernetes.

`kube_schema.json` is an extract of the OpenAPI document of release 1.37: the fields, types and required fields of the
objects used here, as the official Python client (PyPI `kubernetes` 37.0.2) has them in its models. Other sources:

- a strict decoding error: `fieldValidation=Strict` of kubernetes.io/docs/reference/using-api/api-concepts
- Pod Security `restricted`, and its words: kubernetes.io/docs/concepts/security/pod-security-standards, and
  k8s.io/pod-security-admission/policy
- names, labels, mounts and resources: kubernetes/kubernetes, pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("kube_schema.json").read_text())
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|Ki|Mi|Gi|Ti|k|M|G|T)?")
UNITS = {"": 1, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
PLAIN: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "datetime": str,
    "float": (int, float),
}


class Refused(Exception):
    """The API server answers with this status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


def model_of(document: dict[str, Any]) -> str:
    """Return the schema's name of a document's kind."""
    return f"V1{document.get('kind')}"


def decode_strictly(document: Any, model: str) -> None:
    """Check fields and types. Raises Refused, as with `fieldValidation=Strict`."""
    kind = model.removeprefix("V1")
    faults = list(_faults(document, model, ""))
    if faults:
        version = document.get("apiVersion", "v1") if isinstance(document, dict) else "v1"
        message = (
            f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {", ".join(faults)}'
        )
        raise Refused(400, "BadRequest", message)


def missing_fields(document: Any, model: str, path: str = "") -> Iterator[str]:
    """Yield the required fields that are missing."""
    if not isinstance(document, dict) or model not in SCHEMA:
        return
    known = SCHEMA[model]
    for name in known["required"]:
        if name not in document:
            yield f"{path}{name}: Required value"
    for name, value in document.items():
        kind = known["fields"].get(name, "")
        if inner := re.fullmatch(r"List\[(\w+)\]", kind):
            for i, each in enumerate(value or ()):
                yield from missing_fields(each, inner[1], f"{path}{name}[{i}].")
        else:
            yield from missing_fields(value, kind, f"{path}{name}.")


def _faults(value: Any, kind: str, path: str) -> Iterator[str]:
    if value is None or kind == "object":  # an IntOrString, or any JSON
        return
    if inner := re.fullmatch(r"List\[(\w+)\]", kind):
        if not isinstance(value, list):
            yield f"{path}: wrong type, a list is wanted"
            return
        for i, each in enumerate(value):
            yield from _faults(each, inner[1], f"{path}[{i}]")
    elif inner := re.fullmatch(r"Dict\[str, (\w+)\]", kind):
        if not isinstance(value, dict):
            yield f"{path}: wrong type, a map is wanted"
            return
        for name, each in value.items():
            if inner[1] != "object" and not isinstance(each, str):
                yield f"{path}.{name}: wrong type, text is wanted"
    elif kind in PLAIN:
        if not isinstance(value, PLAIN[kind]) or (kind == "int" and isinstance(value, bool)):
            yield f"{path}: wrong type, {kind} is wanted"
    elif not isinstance(value, dict):
        yield f"{path}: wrong type, {kind} is wanted"
    else:
        for name, each in value.items():
            where = f"{path}.{name}" if path else name
            if name not in SCHEMA[kind]["fields"]:
                yield f'unknown field "{where}"'
            else:
                yield from _faults(each, SCHEMA[kind]["fields"][name], where)


def quantity(text: str) -> float:
    """Return the number of a quantity. Raises Refused."""
    found = QUANTITY.fullmatch(str(text))
    if not found:
        raise Refused(400, "BadRequest", f"quantities must match the regular expression: {text!r}")
    return float(found[1]) * UNITS[found[2] or ""]


def check_names(metadata: dict[str, Any], kind: str) -> None:
    """Check the name and the labels of an object. Raises Refused."""
    name, faults = str(metadata.get("name", "")), []
    if not SUBDOMAIN.fullmatch(name) or len(name) > 253:
        faults.append(f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of …')
    for label, value in (metadata.get("labels") or {}).items():
        prefix, _, last = label.rpartition("/")
        if (prefix and not SUBDOMAIN.fullmatch(prefix)) or not LABEL_NAME.fullmatch(last):
            faults.append(f'metadata.labels: Invalid value: "{label}"')
        if value and not LABEL_NAME.fullmatch(value):
            faults.append(f'metadata.labels: Invalid value: "{value}": a valid label must be an empty string or …')
    if sum(len(k) + len(v.encode()) for k, v in (metadata.get("annotations") or {}).items()) > 256 << 10:
        faults.append("metadata.annotations: Too long: may not be more than 262144 bytes")
    if faults:
        raise Refused(422, "Invalid", f'{kind} "{name}" is invalid: {"; ".join(faults)}')


def check_pod_spec(spec: dict[str, Any], name: str) -> None:
    """Check what the schema cannot say about a pod. Raises Refused."""
    faults = list(missing_fields(spec, "V1PodSpec", "spec."))
    volumes = [volume.get("name") for volume in spec.get("volumes") or ()]
    for volume in spec.get("volumes") or ():
        if len(volume) != 2:
            faults.append(f"spec.volumes[{volume.get('name')}]: Required value: must specify one volume type")
    for i, container in enumerate([*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]):
        where = f"spec.containers[{i}]"
        if not container.get("image"):
            faults.append(f"{where}.image: Required value")
        places = [mount.get("mountPath") for mount in container.get("volumeMounts") or ()]
        faults += [
            f'{where}.volumeMounts: Invalid value: "{p}": must be unique' for p in set(places) if places.count(p) > 1
        ]
        for j, mount in enumerate(container.get("volumeMounts") or ()):
            part = mount.get("subPath", "")
            if mount.get("name") not in volumes:
                faults.append(f'{where}.volumeMounts[{j}].name: Not found: "{mount.get("name")}"')
            if part.startswith("/"):
                faults.append(f'{where}.volumeMounts[{j}].subPath: Invalid value: "{part}": must be a relative path')
            if ".." in part.split("/"):
                faults.append(f"{where}.volumeMounts[{j}].subPath: Invalid value: \"{part}\": must not contain '..'")
        resources = container.get("resources") or {}
        for kind, asked in (resources.get("requests") or {}).items():
            limit = (resources.get("limits") or {}).get(kind)
            if limit is not None and quantity(asked) > quantity(limit):
                wrong = f'Invalid value: "{asked}": must be less than or equal to {kind} limit of {limit}'
                faults.append(f"{where}.resources.requests: {wrong}")
    if faults:
        raise Refused(422, "Invalid", f'Pod "{name}" is invalid: {"; ".join(faults)}')


def check_restricted(spec: dict[str, Any], name: str) -> None:
    """Check the Pod Security level `restricted`. Raises Refused."""
    faults = restricted_faults(spec)
    if faults:
        message = f'pods "{name}" is forbidden: violates PodSecurity "restricted:latest": {", ".join(faults)}'
        raise Refused(403, "Forbidden", message)


def restricted_faults(spec: dict[str, Any]) -> list[str]:
    """List what the level `restricted` forbids in a pod."""
    pod, faults = spec.get("securityContext") or {}, []
    faults += [f"host namespaces ({name}=true)" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    good = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    for volume in spec.get("volumes") or ():
        if kinds := set(volume) - {"name"} - good:
            faults.append(f'restricted volume types (volume "{volume["name"]}" uses restricted volume type {kinds})')
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        own, name = container.get("securityContext") or {}, container.get("name")
        if own.get("privileged"):
            faults.append(f'privileged (container "{name}" must not set securityContext.privileged=true)')
        if own.get("allowPrivilegeEscalation") is not False:
            faults.append(
                f'allowPrivilegeEscalation != false (container "{name}" must set'
                " securityContext.allowPrivilegeEscalation=false)"
            )
        capabilities = own.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()) or set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
            faults.append(
                f'unrestricted capabilities (container "{name}" must set securityContext.capabilities.drop=["ALL"])'
            )
        if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
            faults.append(
                f'runAsNonRoot != true (pod or container "{name}" must set securityContext.runAsNonRoot=true)'
            )
        if own.get("runAsUser", pod.get("runAsUser")) == 0:
            faults.append(f'runAsUser=0 (container "{name}" must not set runAsUser=0)')
        profile = (own.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type")
        if profile not in ("RuntimeDefault", "Localhost"):
            faults.append(
                f'seccompProfile (pod or container "{name}" must set securityContext.seccompProfile.type to'
                ' "RuntimeDefault" or "Localhost")'
            )
        faults += [f"hostPort ({port['hostPort']})" for port in container.get("ports") or () if port.get("hostPort")]
    return faults
