"""A Kubernetes API server with one namespace, whose pods are containers of the Docker engine.

It refuses what `kube_rules` lists, and what the role of the service does not allow. Facts and their sources:

- exec: a WebSocket with `v5.channel.k8s.io` or `v4.channel.k8s.io`; the first byte of a frame is the channel, and a
  Status on channel 3 ends it (k8s.io/apimachinery/pkg/util/remotecommand, k8s.io/client-go/tools/remotecommand). An
  unknown protocol is refused. The program outlives its connection; its stdin ends.
- exec needs `get pods/exec` for the upgrade and, since 1.35, `create pods/exec` (the feature gate
  AuthorizePodWebsocketUpgradeCreatePermission).
- watch: one JSON document per line, `BOOKMARK` where allowed, and an `ERROR` with a Status of code 410 and reason
  `Expired` for a version that is forgotten (kubernetes.io/docs/reference/using-api/api-concepts).
- eviction, node loss and disruptions: kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction,
  .../workloads/pods/disruptions (`DisruptionTarget`), and pkg/controller/nodelifecycle (`Ready` becomes False; the pod
  of a node that does not answer keeps existing with a deletionTimestamp until it is deleted by force).
- a subPath that does not exist is created by the kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from aiohttp import WSMsgType, web

from tests.fakes.kube_rules import Refused, check_names, check_pod_spec, check_restricted, decode_strictly, quantity
from tests.support.ports import hold_port

Json = dict[str, Any]
RIGHTS = {(verb, "pods") for verb in ("create", "get", "list", "watch", "delete", "patch")}
RIGHTS |= {("get", "pods/exec"), ("create", "pods/exec"), ("get", "persistentvolumeclaims")}
PODS = "/api/v1/namespaces/{namespace}/pods"


class FakeKube:
    """Start it with `async with`. `claims` are the folders of persistent volume claims by name."""

    def __init__(self, claims: dict[str, Path], namespace: str = "fawn", tls: ssl.SSLContext | None = None) -> None:
        self.claims, self.namespace, self._tls = claims, namespace, tls
        self.rights, self.named_claims = set(RIGHTS), frozenset(claims)
        self.tokens = {"token-1"}
        self.protocols: tuple[str, ...] = ("v5.channel.k8s.io", "v4.channel.k8s.io")
        self.images = {"fawn-sandbox:test"}
        self.runtime_classes: set[str] = set()
        self.enforces_policies = True
        self.has_room = True
        self.max_pods = 1000
        self.mounts_follow_renames = True  # SMB looks a path up again
        self.pids_of_node = 4000  # what the kubelet's podPidsLimit leaves a pod
        self.pods: dict[str, Json] = {}
        self.created: list[Json] = []
        self.calls: list[str] = []
        self.patches = asyncio.Event()  # cleared: they are slow
        self.patches.set()
        self.streams: list[web.WebSocketResponse] = []  # of execs, in the order in which they were opened
        self.hostile_exec: Callable[[web.WebSocketResponse], Awaitable[None]] | None = None  # answers instead
        self._containers: dict[str, str] = {}  # by uid
        self._lost: set[str] = set()
        self._version, self._oldest = 100, 0
        self._events: list[tuple[int, str, Json]] = []
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._held = hold_port()
        await self._listen()
        return self

    async def _listen(self) -> None:
        app = web.Application(middlewares=[self._guard])
        app.router.add_post(PODS, self._create)
        app.router.add_get(PODS, self._list)
        app.router.add_get(PODS + "/{name}", self._get)
        app.router.add_delete(PODS + "/{name}", self._delete)
        app.router.add_patch(PODS + "/{name}", self._patch)
        app.router.add_get(PODS + "/{name}/exec", self._exec)
        app.router.add_get("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}", self._claim)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, *self._held.getsockname(), ssl_context=self._tls, reuse_address=True)
        await site.start()
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{self._runner.addresses[0][1]}"

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._runner.cleanup()
        self._held.close()
        for container in self._containers.values():
            await docker("rm", "-f", container)

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig with the token."""
        named = {"clusters": "cluster", "users": "user", "contexts": "context"}
        values: Json = {
            "cluster": {"server": self.url},
            "user": {"token": next(iter(self.tokens))},
            "context": {"cluster": "fake", "user": "fake", "namespace": self.namespace},
        }
        document = {kind: [{"name": "fake", part: values[part]}] for kind, part in named.items()}
        path.write_text(json.dumps(document | {"apiVersion": "v1", "kind": "Config", "current-context": "fake"}))
        return path

    # ------------------------------------------------------------ what happens to a cluster

    async def evict(self, name: str, message: str = "The node was low on resource: memory. ") -> None:
        """The kubelet evicts the pod: it fails, its processes end, its object stays."""
        pod = self.pods[name]
        pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": message}
        self._note("MODIFIED", pod)
        await docker("rm", "-f", self._containers.pop(pod["metadata"]["uid"]))

    def lose_node(self, name: str) -> None:
        """The node stops to answer: connections stay open and silent, and the pod is not ready any more."""
        pod = self.pods[name]
        self._lost.add(pod["metadata"]["uid"])
        self._set_condition(pod, "Ready", "False")
        self._note("MODIFIED", pod)

    async def drain(self, name: str) -> None:
        """The eviction API deletes the pod."""
        pod = self.pods[name]
        self._set_condition(pod, "DisruptionTarget", "True", "EvictionByEvictionAPI")
        self._note("MODIFIED", pod)
        await self._end(pod, 1)

    async def delete(self, name: str) -> None:
        """Somebody deletes the pod."""
        await self._end(self.pods[name], 1)

    async def stop(self) -> None:
        """The API server stops to listen, and ends its connections. Pods run on."""
        await self._runner.cleanup()

    async def resume(self) -> None:
        """The API server is back at its address."""
        await self._listen()

    def forget_versions(self) -> None:
        """Forget the events so far: a watch from an older version is refused with 410, and open ones end."""
        self._version += 1  # another object has changed meanwhile
        self._oldest = self._version
        self._events.clear()
        self._changed.set()
        self._changed = asyncio.Event()

    # ------------------------------------------------------------ the API

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.calls.append(f"{request.method} {request.path}")
        try:
            signed = request.transport and request.transport.get_extra_info("peercert")  # of one that this side knows
            if not signed and request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
                raise Refused(401, "Unauthorized", "Unauthorized")
            namespace = request.match_info.get("namespace", self.namespace)
            if namespace != self.namespace:
                raise Refused(403, "Forbidden", f'pods is forbidden: User "fawn" cannot do this in "{namespace}"')
            return await handler(request)  # type: ignore[no-any-return]  # aiohttp's handlers are untyped here
        except Refused as error:
            return web.json_response(_status(error), status=error.code)

    def _need(self, verb: str, resource: str, name: str = "") -> None:
        if (verb, resource) not in self.rights:
            what = " ".join(filter(None, (resource.partition("/")[0], f'"{name}"' if name else "")))
            user = f"system:serviceaccount:{self.namespace}:fawn"
            can = f'cannot {verb} resource "{resource}" in API group "" in the namespace "{self.namespace}"'
            raise Refused(403, "Forbidden", f'{what} is forbidden: User "{user}" {can}')

    async def _create(self, request: web.Request) -> web.Response:
        self._need("create", "pods")
        pod: Json = json.loads(await request.read())
        if request.query.get("fieldValidation") == "Strict":
            decode_strictly(pod, "V1Pod")
        name, spec = pod["metadata"].get("name", ""), pod["spec"]
        check_names(pod["metadata"], "Pod")
        check_pod_spec(spec, name)
        check_restricted(spec, name)
        if name in self.pods:
            raise Refused(409, "AlreadyExists", f'pods "{name}" already exists')
        if (runtime := spec.get("runtimeClassName")) and runtime not in self.runtime_classes:
            raise Refused(
                403, "Forbidden", f'pods "{name}" is forbidden: pod rejected: RuntimeClass "{runtime}" not found'
            )
        if len(self.pods) >= self.max_pods:
            message = (
                f'pods "{name}" is forbidden: exceeded quota: sandboxes, requested: pods=1, used: pods={self.max_pods}'
            )
            raise Refused(403, "Forbidden", f"{message}, limited: pods={self.max_pods}")
        pod["metadata"] |= {"namespace": self.namespace, "uid": secrets.token_hex(16), "creationTimestamp": _now()}
        pod["status"] = {"phase": "Pending", "conditions": []}
        self.pods[name] = pod
        self.created.append(json.loads(json.dumps(pod)))
        self._note("ADDED", pod)
        self._run(self._start(pod))
        return web.json_response(pod, status=201)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        selector = dict(part.split("=") for part in request.query.get("labelSelector", "").split(",") if part)
        if request.query.get("watch") in ("true", "1"):
            self._need("watch", "pods")
            return await self._watch(request, selector)
        self._need("list", "pods")
        items = [pod for pod in self.pods.values() if _selected(pod, selector)]
        facts = {"resourceVersion": str(self._version)}
        return web.json_response({"kind": "PodList", "apiVersion": "v1", "metadata": facts, "items": items})

    async def _watch(self, request: web.Request, selector: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        seen = int(request.query["resourceVersion"])
        deadline = time.monotonic() + float(request.query.get("timeoutSeconds", "1800"))

        async def send(kind: str, item: Json) -> None:
            await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")

        with contextlib.suppress(ConnectionError):
            while time.monotonic() < deadline:
                changed = self._changed
                if seen < self._oldest:
                    gone = Refused(410, "Expired", f"too old resource version: {seen} ({self._oldest})")
                    await send("ERROR", _status(gone))
                    break
                for version, kind, pod in [event for event in self._events if event[0] > seen]:
                    seen = version
                    if _selected(pod, selector):
                        await send(kind, pod)
                if request.query.get("allowWatchBookmarks") == "true":
                    await send("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(seen)}})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                        await changed.wait()
        return response

    async def _get(self, request: web.Request) -> web.Response:
        self._need("get", "pods")
        return web.json_response(self._named(request))

    async def _delete(self, request: web.Request) -> web.Response:
        self._need("delete", "pods")
        pod, body = self._named(request), json.loads(await request.read() or b"{}")
        decode_strictly(body, "V1DeleteOptions")
        if (uid := (body.get("preconditions") or {}).get("uid")) and uid != pod["metadata"]["uid"]:
            raise Refused(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        seconds = body.get("gracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
        self._run(self._end(pod, seconds))
        await asyncio.sleep(0)  # the object is marked before the answer
        return web.json_response(pod)

    async def _patch(self, request: web.Request) -> web.Response:
        """Apply a JSON patch (RFC 6902) to the metadata: all of it, or nothing."""
        await self.patches.wait()
        self._need("patch", "pods", request.match_info["name"])
        if request.content_type != "application/json-patch+json":
            raise Refused(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        pod = self._named(request)
        facts = json.loads(json.dumps(pod["metadata"]))
        for step in json.loads(await request.read()):
            _apply(step, facts)
        check_names(facts, "Pod")
        pod["metadata"] = facts
        self._note("MODIFIED", pod)
        return web.json_response(pod)

    async def _claim(self, request: web.Request) -> web.Response:
        self._need("get", "persistentvolumeclaims")
        name = request.match_info["name"]
        if name not in self.claims:
            raise Refused(404, "NotFound", f'persistentvolumeclaims "{name}" not found')
        spec = {"accessModes": ["ReadWriteMany"]}
        facts = {"name": name, "namespace": self.namespace}
        return web.json_response(
            {"kind": "PersistentVolumeClaim", "metadata": facts, "spec": spec, "status": {"phase": "Bound"}}
        )

    async def _review(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        decode_strictly(body, "V1SelfSubjectAccessReview")
        asked = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource", ""))))
        allowed = (asked["verb"], resource) in self.rights and asked.get("namespace") == self.namespace
        if resource == "persistentvolumeclaims":  # the role names it (`resourceNames`)
            allowed = allowed and asked.get("name") in self.named_claims
        return web.json_response(body | {"status": {"allowed": allowed}}, status=201)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        self._need("get", "pods/exec", request.match_info["name"])
        self._need("create", "pods/exec", request.match_info["name"])
        pod, query = self._named(request), request.query
        offered = {each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")}
        if not offered & set(self.protocols):
            raise Refused(400, "BadRequest", f"unable to upgrade: no protocol of {sorted(offered)} is supported")
        names = [container["name"] for container in pod["spec"]["containers"]]
        if query.get("container", names[0]) not in names:
            raise Refused(
                400, "BadRequest", f"container {query['container']} is not valid for pod {pod['metadata']['name']}"
            )
        if not (container := self._containers.get(pod["metadata"]["uid"])) or pod["status"]["phase"] != "Running":
            raise Refused(500, "InternalError", f'container not found ("{names[0]}")')
        socket = web.WebSocketResponse(protocols=self.protocols, max_msg_size=0)
        await socket.prepare(request)
        self.streams.append(socket)
        if self.hostile_exec:
            with contextlib.suppress(ConnectionError):
                await self.hostile_exec(socket)
            return socket
        await self._carry(socket, pod["metadata"]["uid"], container, query.getall("command"))
        return socket

    async def _carry(self, socket: web.WebSocketResponse, uid: str, container: str, command: list[str]) -> None:
        """Run the program, and carry its streams."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "docker", "exec", "-i", container, *command, stdin=pipe, stdout=pipe, stderr=pipe
        )
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin
        assert stdout
        assert stderr
        for channel in (1, 2, 3):  # the server opens each channel with an empty frame
            await socket.send_bytes(bytes((channel,)))

        async def outgoing(stream: asyncio.StreamReader, channel: int) -> None:
            while data := await stream.read(32 << 10):
                if uid not in self._lost:
                    await socket.send_bytes(bytes((channel,)) + data)

        async def incoming() -> None:
            async for message in socket:
                if message.type is WSMsgType.BINARY and uid not in self._lost:
                    if message.data[:1] == b"\0":
                        stdin.write(message.data[1:])
                        await stdin.drain()
                    elif message.data == b"\xff\0" and socket.ws_protocol == "v5.channel.k8s.io":
                        stdin.close()

        reading = asyncio.create_task(incoming())
        streams = [asyncio.create_task(outgoing(*each)) for each in ((stdout, 1), (stderr, 2))]
        try:
            pending = {reading, *streams}
            while pending and not reading.done() and not all(task.done() for task in streams):
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if uid in self._lost:
                await reading  # the connection stays
            elif not reading.done():
                await socket.send_bytes(b"\3" + json.dumps(_exit_status(await process.wait())).encode())
        except ConnectionError:
            pass
        finally:
            for task in (reading, *streams):
                task.cancel()
            if process.returncode is None:
                process.kill()  # the client of the engine: the program lives on, and its stdin ends
            await process.wait()
            await asyncio.wait({reading, *streams})
            await socket.close()

    # ------------------------------------------------------------ the kubelet

    async def _start(self, pod: Json) -> None:
        spec, facts = pod["spec"], pod["metadata"]
        container = spec["containers"][0]
        claims = [
            v["persistentVolumeClaim"]["claimName"] for v in spec.get("volumes", []) if "persistentVolumeClaim" in v
        ]
        missing = [name for name in claims if name not in self.claims]
        if missing or not self.has_room:
            why = (
                f'persistentvolumeclaim "{missing[0]}" not found'
                if missing
                else "0/3 nodes are available: 3 Insufficient memory."
            )
            self._set_condition(pod, "PodScheduled", "False", "Unschedulable", why)
            self._note("MODIFIED", pod)
            return
        self._set_condition(pod, "PodScheduled", "True")
        if container["image"] not in self.images:
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}
            pod["status"]["containerStatuses"] = [{"name": container["name"], "state": {"waiting": waiting}}]
            self._note("MODIFIED", pod)
            return
        command = await asyncio.to_thread(self._engine_command, spec, container)
        code, out = await docker(*command)
        if code:
            waiting = {"reason": "CreateContainerError", "message": out[-300:]}
            pod["status"]["containerStatuses"] = [{"name": container["name"], "state": {"waiting": waiting}}]
        else:
            self._containers[facts["uid"]] = out.strip()
            pod["status"]["containerStatuses"] = [
                {"name": container["name"], "state": {"running": {"startedAt": _now()}}}
            ]
            pod["status"]["phase"] = "Running"
            self._set_condition(pod, "Ready", "True")
            self._run(self._await_exit(pod, out.strip()))
        self._note("MODIFIED", pod)

    def _engine_command(self, spec: Json, container: Json) -> list[str]:
        """Return the arguments of `docker` for a pod's container."""
        context, own = spec["securityContext"], container["securityContext"]
        limits = container["resources"]["limits"]
        words = ["run", "-d", "--label", "fawn.test=kube", "--network", "none" if self.enforces_policies else "host"]
        words += ["--cpus", f"{quantity(limits['cpu']):g}"]
        words += ["--pids-limit", str(self.pids_of_node)]
        words += ["--user", f"{context['runAsUser']}:{context['runAsGroup']}", "--workdir", container["workingDir"]]
        words += [
            "--memory",
            f"{int(quantity(limits['memory']))}",
            "--memory-swap",
            f"{int(quantity(limits['memory']))}",
        ]
        words += [f"--cap-drop={name}" for name in own["capabilities"]["drop"]]
        words += ["--security-opt", "no-new-privileges:true"] if own["allowPrivilegeEscalation"] is False else []
        words += ["--read-only"] if own.get("readOnlyRootFilesystem") else []
        words += [] if not self.enforces_policies else ["--hostname", spec.get("hostname", "pod")]
        for variable in container.get("env", []):
            words += ["--env", f"{variable['name']}={variable['value']}"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            words += self._mount(volumes[mount["name"]], mount)
        command = container["command"]
        return [*words, "--entrypoint", command[0], container["image"], *command[1:]]

    def _mount(self, volume: Json, mount: Json) -> list[str]:
        if memory := volume.get("emptyDir"):
            size = int(quantity(memory["sizeLimit"]))
            return ["--tmpfs", f"{mount['mountPath']}:rw,nosuid,nodev,exec,size={size},mode=1777"]
        root = self.claims[volume["persistentVolumeClaim"]["claimName"]].resolve()
        source = (root / mount.get("subPath", "")).resolve()
        if not source.is_relative_to(root):
            raise AssertionError("a link leads out of the volume")
        if not source.exists():
            source.mkdir(parents=True)
        if not self.mounts_follow_renames and "/ready/" in f"/{mount.get('subPath', '')}":
            source = source.parent / f"{source.name}-of-smb"  # as if the name was looked up again, and is not there
            source.mkdir(exist_ok=True)
        flag = ",readonly" if mount.get("readOnly") else ""
        return ["--mount", f"type=bind,source={source},target={mount['mountPath']}{flag}"]

    async def _await_exit(self, pod: Json, container: str) -> None:
        """Note that the container ended by itself."""
        await docker("wait", container)
        if pod["metadata"]["uid"] in self._containers and pod["status"]["phase"] == "Running":
            for _ in range(20):  # the engine may hear of the kernel's kill after it heard of the end
                code, out = await docker("inspect", "-f", "{{.State.OOMKilled}} {{.State.ExitCode}}", container)
                killed = code == 0 and out.startswith("true")
                if killed or "137" not in out:
                    break
                await asyncio.sleep(0.05)
            ended = {
                "exitCode": int(out.split()[1]) if code == 0 else 137,
                "reason": "OOMKilled" if killed else "Error",
            }
            pod["status"]["containerStatuses"] = [{"name": "sandbox", "state": {"terminated": ended}}]
            pod["status"]["phase"] = "Failed"
            self._note("MODIFIED", pod)

    async def _end(self, pod: Json, seconds: int) -> None:
        """Delete a pod: its object goes when its processes have ended, by force at once."""
        facts = pod["metadata"]
        lost = facts["uid"] in self._lost
        if seconds == 0:
            self._remove(pod)
        elif "deletionTimestamp" not in facts:
            facts |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": seconds}
            self._note("MODIFIED", pod)
        if container := self._containers.pop(facts["uid"], None):
            await docker("rm", "-f", container)
        if not lost:
            self._remove(pod)

    def _remove(self, pod: Json) -> None:
        if self.pods.get(pod["metadata"]["name"]) is pod:
            del self.pods[pod["metadata"]["name"]]
            self._note("DELETED", pod)

    # ------------------------------------------------------------ small parts

    def _named(self, request: web.Request) -> Json:
        name = request.match_info["name"]
        if name not in self.pods:
            raise Refused(404, "NotFound", f'pods "{name}" not found')
        return self.pods[name]

    def _note(self, kind: str, pod: Json) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, kind, json.loads(json.dumps(pod))))
        self._changed.set()
        self._changed = asyncio.Event()

    @staticmethod
    def _set_condition(pod: Json, kind: str, status: str, reason: str = "", message: str = "") -> None:
        others = [each for each in pod["status"]["conditions"] if each["type"] != kind]
        pod["status"]["conditions"] = [*others, {"type": kind, "status": status, "reason": reason, "message": message}]

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def docker(*words: str) -> tuple[int, str]:
    """Run the engine's client."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("docker", *words, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    try:
        out, _ = await process.communicate()
    except asyncio.CancelledError:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    return process.returncode or 0, out.decode("utf-8", "replace")


def _apply(step: Json, facts: Json) -> None:
    """Apply a step of a JSON patch to an object's metadata. Raises Refused, as k8s.io/apiserver does it."""
    place, *path, last = (each.replace("~1", "/").replace("~0", "~") for each in step["path"].split("/")[1:])
    if place != "metadata":
        raise AssertionError("only the metadata is patched here")
    part = facts
    for name in path:
        part = part[name]
    is_wrong = step["op"] in ("test", "remove") and last not in part
    if is_wrong or (step["op"] == "test" and part[last] != step["value"]):
        raise Refused(422, "Invalid", "the server rejected our request due to an error in our request")
    if step["op"] == "remove":
        del part[last]
    elif step["op"] == "add":
        part[last] = step["value"]


def _selected(pod: Json, selector: dict[str, str]) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in selector.items())


def _status(error: Refused) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"} | {
        "reason": error.reason, "message": error.message, "code": error.code
    }  # fmt: skip


def _exit_status(code: int) -> Json:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": message,
        "details": {"causes": causes},
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
