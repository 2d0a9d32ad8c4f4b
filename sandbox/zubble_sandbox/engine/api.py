"""One Docker engine, asked from an event loop: few requests, each in a thread of ours, each with an end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import docker
import requests
from docker.constants import MINIMUM_DOCKER_API_VERSION

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.engine.line import DockerLine, ExecRefused
from zubble_sandbox.line import LineLost

DEFAULT_HOST: Final = "unix:///var/run/docker.sock"
REQUEST_SECONDS: Final = 120.0
"""For one request, and for the silence between two pieces of one that streams."""
_CONNECT_SECONDS: Final = 30.0
_THREADS: Final = 16
"""Requests at the same time; the engine does no more than that at once on any machine of ours."""
_NOT_FOUND: Final = 404
_PORT: Final = 2375
_COMPLAINT_LINES: Final = 20
_Answer = TypeVar("_Answer")


class EngineRefused(SandboxUnavailable):
    """The engine answered with an error; `status` is that of HTTP, `said` the engine's own words."""

    def __init__(self, what: str, said: str, status: int = 0) -> None:
        super().__init__(f"The Docker engine would not {what}: {said}.")
        self.said, self.status = said, status

    @property
    def not_found(self) -> bool:
        return self.status == _NOT_FOUND


class Engine:
    """Every method raises SandboxUnavailable when the engine does not answer, EngineRefused when it refuses.

    Args:
        host: `unix:///path` or `tcp://name:port`; $DOCKER_HOST, then the usual socket, when None.
    """

    def __init__(self, host: str | None = None) -> None:
        self.host = host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="zubble-docker")
        self._client: docker.APIClient | None = None

    async def info(self) -> Mapping[str, Any]:
        """What the engine says about itself and its machine."""
        return await self._ask("describe itself", lambda api: api.info())

    async def networks(self) -> frozenset[str]:
        """The names of its networks."""
        listed = await self._ask("list networks", lambda api: api.networks())
        return frozenset(str(each["Name"]) for each in listed)

    async def image(self, name: str) -> Mapping[str, Any] | None:
        """None when it is not there."""
        try:
            return await self._ask("look at an image", lambda api: api.inspect_image(name))
        except EngineRefused as refused:
            if refused.not_found:
                return None
            raise

    async def pull(self, name: str) -> None:
        """Get an image from its registry, however long that takes while it goes on."""

        def pull(api: docker.APIClient) -> None:
            for step in api.pull(name, stream=True, decode=True):
                if "error" in step:
                    raise EngineRefused(f"pull {name}", str(step["error"]))

        await self._ask(f"pull {name}", pull)

    def create(self, name: str, config: Mapping[str, Any]) -> asyncio.Future[str]:
        """A container that is not started; a future, so that a caller who is cancelled can wait for it."""

        def create(api: docker.APIClient) -> str:
            return str(api.create_container_from_config(dict(config), name)["Id"])

        return asyncio.ensure_future(self._ask("create a container", create))

    async def put(self, container: str, folder: str, archive: bytes) -> None:
        """Unpack a tar into a folder that can be written to from outside."""
        await self._ask("copy into a container", lambda api: api.put_archive(container, folder, archive))

    async def get(self, container: str, path: str, *, max_bytes: int) -> bytes:
        """A file or folder as a tar whose names begin with its last part.

        Raises ValueError when it is larger than max_bytes.
        """

        def get(api: docker.APIClient) -> bytes:
            pieces, data = api.get_archive(container, path)[0], bytearray()
            for piece in pieces:
                data += piece
                if len(data) > max_bytes:
                    raise ValueError(f"{path} of the image is larger than {max_bytes} bytes")
            return bytes(data)

        return await self._ask("copy out of a container", get)

    async def start(self, container: str) -> None:
        await self._ask("start a container", lambda api: api.start(container))

    async def run(self, container: str, argv: Sequence[str], *, user: str) -> DockerLine:
        """A program in a running container, with its standard streams."""
        exec_id = await self._prepare(container, argv, user)
        version = await self._ask("say its version", lambda api: str(api.api_version))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await DockerLine.take_over(*await self._connect(), version, exec_id)
        except ExecRefused as refused:
            raise EngineRefused("run a program", str(refused)) from refused
        except (OSError, LineLost, TimeoutError) as error:
            raise SandboxUnavailable(self._silence(error)) from error

    async def run_detached(self, container: str, argv: Sequence[str], *, user: str) -> None:
        """A program in a running container that is left alone."""
        exec_id = await self._prepare(container, argv, user)
        await self._ask("start a program", lambda api: api.exec_start(exec_id, detach=True))

    async def state(self, container: str) -> Mapping[str, Any] | None:
        """What `docker inspect` prints; None when there is no such container."""
        try:
            return await self._ask("look at a container", lambda api: api.inspect_container(container))
        except EngineRefused as refused:
            if refused.not_found:
                return None
            raise

    async def complaint(self, container: str) -> str:
        """The last lines that its first process printed."""

        def logs(api: docker.APIClient) -> bytes:
            return bytes(api.logs(container, tail=_COMPLAINT_LINES))

        return (await self._ask("read a log", logs)).decode(errors="replace").strip()

    async def rename(self, container: str, name: str) -> None:
        await self._ask("rename a container", lambda api: api.rename(container, name))

    async def labelled(self, label: str) -> Sequence[Mapping[str, Any]]:
        """All containers with a label, or with `label=value`; ended ones too."""
        return await self._ask(
            "list containers", lambda api: api.containers(all=True, filters={"label": label})
        )

    async def remove(self, container: str) -> bool:
        """Kill and remove with its own volumes; False when it was gone or somebody else does it now."""

        def remove(api: docker.APIClient) -> None:
            api.remove_container(container, v=True, force=True)

        try:
            await self._ask("remove a container", remove)
        except EngineRefused as refused:
            if refused.not_found or "already in progress" in str(refused):
                return False
            raise
        return True

    def close(self) -> None:
        """Give up connections and threads; nothing of the engine's."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            self._client.close()

    async def _prepare(self, container: str, argv: Sequence[str], user: str) -> str:
        def prepare(api: docker.APIClient) -> str:
            return str(api.exec_create(container, list(argv), stdin=True, user=user)["Id"])

        return await self._ask("run a program", prepare)

    @property
    def is_here(self) -> bool:
        """Whether it shares this machine's files."""
        return urlsplit(self.host).scheme == "unix"

    async def _ask(self, what: str, request: Callable[[docker.APIClient], _Answer]) -> _Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._request, what, request)

    def _request(self, what: str, request: Callable[[docker.APIClient], _Answer]) -> _Answer:
        try:
            self._knock()
            if self._client is None:
                self._client = self._connected()
            return request(self._client)
        except docker.errors.APIError as error:
            said = str(error.explanation or error).strip().rstrip(".")
            raise EngineRefused(what, said, int(error.status_code or 0)) from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise SandboxUnavailable(self._silence(error)) from error

    def _knock(self) -> None:
        """Raises OSError where nobody listens: the library leaves a socket open then."""
        parts = urlsplit(self.host)
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
                knocking.connect(parts.path)
        elif parts.scheme == "tcp":
            socket.create_connection((parts.hostname, parts.port or _PORT), _CONNECT_SECONDS).close()
        else:
            raise SandboxUnavailable(
                f"The Docker engine {self.host!r} cannot be used: it must be unix:///path or tcp://name:port."
            )

    def _connected(self) -> docker.APIClient:
        with contextlib.closing(self._client_of(MINIMUM_DOCKER_API_VERSION)) as api:
            version = str(api.version(api_version=False)["ApiVersion"])
        client = self._client_of(version)
        weakref.finalize(self, client.close)
        return client

    def _client_of(self, version: str) -> docker.APIClient:
        """Nothing is asked yet."""
        return docker.APIClient(self.host, version=version, timeout=REQUEST_SECONDS, max_pool_size=_THREADS)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self.host)
        if parts.scheme == "unix":
            return await asyncio.open_unix_connection(parts.path)
        return await asyncio.open_connection(parts.hostname, parts.port or _PORT)

    def _silence(self, error: BaseException) -> str:
        reason = _cause(error) or str(error).strip() or type(error).__name__
        return (
            f"The Docker engine at {self.host} does not answer ({reason}): start it, or say where it is in "
            "sandboxes.docker.host."
        )


def _cause(error: BaseException | None) -> str:
    """What the system said, at the bottom of what libraries made of it."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        error = error.__cause__ or error.__context__
    return ""
