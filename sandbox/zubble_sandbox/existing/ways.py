"""How a program is started in an existing container or pod, with its streams as a line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from zubble_queue.errors import JobError, MissingExtra, SandboxUnavailable
from zubble_sandbox.engine.options import AttachedOptions
from zubble_sandbox.line import Line, LineLost

_CONFLICT = 409
_FOREVER = frozenset({401, 403, 404})


class Way(Protocol):
    """Into one container, which is known by more than its name: another under that name is another place."""

    async def run(self, argv: Sequence[str]) -> Line:
        """Raises LineLost where another try may help, SandboxUnavailable where none will."""

    async def close(self) -> None: ...


async def way_into(name: str, options: AttachedOptions) -> Way:
    """The way into a container, or with a slash in its name into a pod.

    Raises:
        JobError: there is none of that name, or it does not run.
        SandboxUnavailable: who could say so does not answer.
        MissingExtra: what is needed to ask is not installed.
    """
    if "/" in name:
        return await _PodWay.into(name, options)
    return await _DockerWay.into(name, options)


class _DockerWay:
    def __init__(self, engine: Any, container: str, user: str) -> None:
        self._engine, self._container, self._user = engine, container, user

    @classmethod
    async def into(cls, name: str, options: AttachedOptions) -> _DockerWay:
        try:
            from zubble_sandbox.engine.api import Engine  # noqa: PLC0415 - only whoever asks for one needs it
        except ModuleNotFoundError as missing:
            raise MissingExtra(f"Docker (it needs {missing.name})", "docker") from missing
        engine = Engine(options.host)
        try:
            found = await engine.state(name)
        except BaseException:
            engine.close()
            raise
        if found is None or not found["State"]["Running"]:
            engine.close()
            raise JobError(f"The container {name!r} {'does not run' if found else 'does not exist'}.")
        return cls(engine, str(found["Id"]), options.user)

    async def run(self, argv: Sequence[str]) -> Line:
        try:
            line: Line = await self._engine.run(self._container, argv, user=self._user)
        except SandboxUnavailable as refused:
            if getattr(refused, "status", 0) in {*_FOREVER, _CONFLICT}:
                raise
            raise LineLost(str(refused)) from refused
        return line

    async def close(self) -> None:
        self._engine.close()


class _PodWay:
    def __init__(self, api: Any, pod: str, container: str, uid: str) -> None:
        self._api, self._pod, self._container, self._uid = api, pod, container, uid

    @classmethod
    async def into(cls, name: str, options: AttachedOptions) -> _PodWay:
        try:
            from zubble_sandbox.pods.access import Access  # noqa: PLC0415 - as above
            from zubble_sandbox.pods.api import Api  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            raise MissingExtra(f"Kubernetes (it needs {missing.name})", "kubernetes") from missing
        namespace, pod, container, *_ = *name.split("/", 2), ""
        access = await asyncio.to_thread(Access.load, options.kubeconfig_file, options.context)
        api = Api(access, namespace)
        try:
            found = await api.find("pods", pod) or {}
            return cls(api, pod, _container_of(found, name, container), found["metadata"]["uid"])
        except BaseException:
            await api.__aexit__()
            raise

    async def run(self, argv: Sequence[str]) -> Line:
        try:
            found = await self._api.find("pods", self._pod)
            line: Line = await self._api.exec_line(self._pod, self._container, argv)
        except SandboxUnavailable as refused:
            if getattr(refused, "status", 0) in _FOREVER:
                raise
            raise LineLost(str(refused)) from refused
        if found is None or found["metadata"]["uid"] != self._uid:
            await line.close()
            raise SandboxUnavailable(f"The pod {self._pod!r} was made anew.")
        return line

    async def close(self) -> None:
        await self._api.__aexit__()


def _container_of(pod: Any, name: str, wanted: str) -> str:
    """The container that is meant, by default the first one. Raises JobError."""
    if not pod:
        raise JobError(f"The pod {name!r} does not exist.")
    names = [str(each["name"]) for each in pod["spec"]["containers"]]
    if wanted and wanted not in names:
        raise JobError(f"The pod {name!r} has no such container (it has: {', '.join(names)}).")
    return wanted or names[0]
