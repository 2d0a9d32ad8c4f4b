"""A cluster in one process: an HTTP server for the requests of the pod backend, and real containers.

Exec streams are real websockets into them. What a kubelet adds (images, policies, quotas, evictions) is
missing; tests/cluster has it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from pathlib import Path

from aiohttp import web

from tests.integration.pods.containers import Container, kill_child, new_ground
from tests.integration.pods.streams import Faults, Stream

NAMESPACE = "sandboxes"
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
REACHED, NOT_REACHED = 0, 10
"""What a canary's exit code says."""


class OneProcessCluster:
    """Pods, leases and exec streams of one namespace; `async with` it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = folder / "image"
        """What every image holds in /held."""
        self.image.mkdir()
        self.objects: dict[str, dict[str, dict]] = {"pods": {}, "leases": {}}
        self.faults = Faults()
        self.requests: list[tuple[str, str]] = []
        self.verbs: set[tuple[str, str]] = set()
        """What a Role must allow for the requests so far."""
        self.failures: list[tuple[str, str, int]] = []
        """(method, collection, status) to answer with, once each."""
        self.streams = 0
        self.policy_enforced = True
        self.address_reachable = True
        self._containers: dict[str, Container] = {}
        self._open: set[Stream] = set()
        self._grounds: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: set[asyncio.Task] = set()
        self._versions = itertools.count(1)

    async def __aenter__(self):
        app = web.Application(client_max_size=1 << 24)
        base = f"/{{group:api/v1|apis/coordination.k8s.io/v1}}/namespaces/{NAMESPACE}/{{collection}}"
        app.router.add_get(f"{base}/{{name}}/exec", self._exec)
        app.router.add_get(base, self._list)
        app.router.add_post(base, self._create)
        app.router.add_get(f"{base}/{{name}}", self._get)
        app.router.add_put(f"{base}/{{name}}", self._put)
        app.router.add_patch(f"{base}/{{name}}", self._patch)
        app.router.add_delete(f"{base}/{{name}}", self._delete)
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        for name in list(self._grounds):
            await self._end(name)
        await self._runner.cleanup()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.02)  # pipes are closed by the loop, in its next turns

    def kubeconfig(self) -> Path:
        path = self.folder / "kubeconfig"
        cluster = {"name": "one", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "one", "context": {"cluster": "one", "user": "worker"}}
        user = {"name": "worker", "user": {"token": "a-token"}}
        path.write_text(
            json.dumps(
                {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "one"}
            )
        )
        return path

    def container(self, pod: str) -> Container:
        return self._containers[f"{pod}/box"]

    def abort_streams(self) -> None:
        for stream in self._open:
            stream.abort()

    def stall_streams(self) -> None:
        """Those that are open take and give nothing any more, and answer no ping."""
        for stream in self._open:
            stream.stall()

    async def end_relays(self) -> None:
        """The programs at the other end of the open streams."""
        ending = set(self._open)
        for stream in ending:
            kill_child(stream.process.pid)
        while ending & self._open:  # noqa: ASYNC110 - whoever serves them says nothing else
            await asyncio.sleep(0.01)

    # --- requests -----------------------------------------------------------------------------------------

    def _begin(self, request):
        collection = request.match_info["collection"]
        self.requests.append((request.method, collection))
        verb = "list" if request.method == "GET" and "name" not in request.match_info else request.method
        self.verbs.add((_VERBS.get(verb, verb), collection))
        assert request.headers["Authorization"] == "Bearer a-token"
        for failure in self.failures:
            if failure[:2] == (request.method, collection):
                self.failures.remove(failure)
                return None, _refused(failure[2])
        return self.objects[collection], None

    async def _list(self, request):
        objects, refused = self._begin(request)
        if refused:
            return refused
        wanted = dict(term.split("=") for term in request.query.get("labelSelector", "").split(",") if term)
        items = [o for o in objects.values() if wanted.items() <= o["metadata"].get("labels", {}).items()]
        if "PartialObjectMetadataList" in request.headers.get("Accept", ""):
            items = [{"metadata": item["metadata"]} for item in items]
        return web.json_response({"items": items})

    async def _create(self, request):
        objects, refused = self._begin(request)
        if refused:
            return refused
        made = await request.json()
        metadata = made["metadata"]
        if metadata["name"] in objects:
            return _refused(409)
        metadata |= {"uid": str(uuid.uuid4()), "resourceVersion": str(next(self._versions))}
        objects[metadata["name"]] = made
        if made["kind"] == "Pod":
            made["status"] = {"phase": "Pending"}
            self._start(self._run(made))
        return web.json_response(made, status=201)

    async def _get(self, request):
        objects, refused = self._begin(request)
        found = None if refused else objects.get(request.match_info["name"])
        return refused or (web.json_response(found) if found else _refused(404))

    async def _put(self, request):
        objects, refused = self._begin(request)
        if refused:
            return refused
        made, name = await request.json(), request.match_info["name"]
        if name not in objects:
            return _refused(404)
        if made["metadata"]["resourceVersion"] != objects[name]["metadata"]["resourceVersion"]:
            return _refused(409)
        made["metadata"]["resourceVersion"] = str(next(self._versions))
        objects[name] = made
        return web.json_response(made)

    async def _patch(self, request):
        objects, refused = self._begin(request)
        name = request.match_info["name"]
        if refused or name not in objects:
            return refused or _refused(404)
        _merge(objects[name], json.loads(await request.text()))
        return web.json_response(objects[name])

    async def _delete(self, request):
        objects, refused = self._begin(request)
        if refused:
            return refused
        name, body = request.match_info["name"], await request.json()
        found = objects.get(name)
        if found is None:
            return _refused(404)
        if body.get("preconditions", {}).get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
            return _refused(409)
        self.delete(request.match_info["collection"], name)
        return web.json_response({"kind": "Status", "status": "Success"})

    def delete(self, collection: str, name: str) -> None:
        """As the API server does, with everything that the object owns."""
        gone = self.objects[collection].pop(name)
        if collection == "pods":
            self._start(self._end(name))
        for pod in list(self.objects["pods"].values()):
            if any(owner["uid"] == gone["metadata"]["uid"] for owner in pod["metadata"]["ownerReferences"]):
                self.delete("pods", pod["metadata"]["name"])

    # --- pods ---------------------------------------------------------------------------------------------

    def _start(self, work) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, pod) -> None:
        name, spec, status = pod["metadata"]["name"], pod["spec"], pod["status"]
        if spec["containers"][0]["name"] == "canary":
            await self._run_canary(pod)
            return
        folder = self.folder / name
        ground = self._grounds[name] = await new_ground(folder, spec["volumes"])
        for kind in ("initContainers", "containers"):
            for one in spec[kind]:
                container = Container(one, spec, folder, ground.pid)
                self._containers[f"{name}/{one['name']}"] = container
                told = {"name": one["name"], "restartCount": 0, "state": {"running": {}}}
                await container.start()
                status.setdefault(f"{kind[:-1]}Statuses", []).append(told)
                if one.get("restartPolicy") == "Always":
                    continue
                if kind == "containers":
                    status["phase"] = "Running"
                code = await container.wait()
                told["state"] = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
                if code:
                    status["phase"] = "Failed"
                    return
        status["phase"] = "Succeeded"

    async def _end(self, name: str) -> None:
        for key in [key for key in self._containers if key.startswith(f"{name}/")]:
            await self._containers.pop(key).kill()
        if ground := self._grounds.pop(name, None):
            ground.kill()
            await ground.wait()
            ground._transport.close()

    async def _run_canary(self, pod) -> None:
        free = pod["metadata"]["labels"]["zubble-queue/network"] == "open"
        reached = self.address_reachable and (free or not self.policy_enforced)
        code = REACHED if reached else NOT_REACHED
        ended = {"name": "canary", "state": {"terminated": {"exitCode": code}}}
        pod["status"] = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}

    # --- exec ---------------------------------------------------------------------------------------------

    async def _exec(self, request):
        name, container = request.match_info["name"], request.query["container"]
        self.verbs.add(("get", "pods/exec"))
        if self.faults.refusals:
            return _refused(self.faults.refusals.pop(0))
        running = self._containers.get(f"{name}/{container}")
        if running is None or not running.alive:
            return _refused(404 if name not in self.objects["pods"] else 500)
        assert self.faults.protocol in request.headers["Sec-WebSocket-Protocol"]
        socket = web.WebSocketResponse(protocols=(self.faults.protocol,))
        await socket.prepare(request)
        self.streams += 1
        cut = self.faults.cuts.pop(0) if self.faults.cuts else (1 << 60, 1 << 60)
        stream = Stream(socket, self.faults, *cut)
        self._open.add(stream)
        try:
            await stream.serve(running, request.query.getall("command"))
        finally:
            self._open.discard(stream)
        return socket


def _merge(into: dict, patch: dict) -> None:
    """RFC 7386."""
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def _refused(status: int):
    return web.json_response({"kind": "Status", "message": f"refused with {status}"}, status=status)
