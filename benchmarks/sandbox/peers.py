"""What others do with containers: one that stays, and a `docker exec` for each command."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import docker

from benchmarks.docker_engine import TOOLS_IMAGE, DockerEngine
from zubble_queue.contracts.sandbox import Command, SandboxSpec

_IDLE = ["/bin/sleep", "100000"]


@dataclass(frozen=True)
class Outcome:
    """Of a command; nothing but whether it went well."""

    ok: bool


class ByApi:
    """Three requests a command, as SDKs do it."""

    def __init__(self, client: docker.APIClient) -> None:
        self._client = client

    async def open(self, spec: SandboxSpec) -> ApiContainer:
        return await asyncio.to_thread(self._open, spec.name)

    def _open(self, name: str) -> ApiContainer:
        plain = self._client.create_host_config(network_mode="none")
        self._client.create_container(TOOLS_IMAGE, command=_IDLE, name=name, host_config=plain)
        self._client.start(name)
        return ApiContainer(self._client, name)


class ApiContainer:
    def __init__(self, client: docker.APIClient, name: str) -> None:
        self._client, self._name = client, name

    async def exec(self, command: Command) -> Outcome:
        return await asyncio.to_thread(self._exec, list(command.argv))

    def _exec(self, argv: list[str]) -> Outcome:
        prepared = self._client.exec_create(self._name, argv)["Id"]
        self._client.exec_start(prepared)
        return Outcome(self._client.exec_inspect(prepared)["ExitCode"] == 0)

    async def destroy(self) -> None:
        await asyncio.to_thread(self._client.remove_container, self._name, force=True)


class ByProgram(ByApi):
    """The program `docker` for each command, as scripts do it."""

    def __init__(self, client: docker.APIClient, host: str) -> None:
        super().__init__(client)
        self._host = host

    async def open(self, spec: SandboxSpec) -> ProgramContainer:
        await super().open(spec)
        return ProgramContainer(self._client, spec.name, self._host)


class ProgramContainer(ApiContainer):
    def __init__(self, client: docker.APIClient, name: str, host: str) -> None:
        super().__init__(client, name)
        self._prefix = ("docker", "--host", host, "exec", name)

    async def exec(self, command: Command) -> Outcome:
        process = await asyncio.create_subprocess_exec(*self._prefix, *command.argv)
        return Outcome(await process.wait() == 0)


@contextlib.contextmanager
def standing_container(engine: DockerEngine) -> Iterator[str]:
    """The name of a container that is there already, with a folder to work in."""
    name = "standing"
    with contextlib.closing(engine.client()) as client:
        apart = client.create_host_config(network_mode="none")
        client.create_container(TOOLS_IMAGE, command=_IDLE, name=name, host_config=apart)
        client.start(name)
        client.exec_start(client.exec_create(name, ["/bin/mkdir", "-p", "/tmp", "/work"])["Id"])
        yield name
        client.remove_container(name, force=True)


@contextlib.contextmanager
def docker_peers(engine: DockerEngine) -> Iterator[Mapping[str, ByApi]]:
    """By name; the second one only where the program is."""
    with contextlib.closing(engine.client()) as client:
        peers = {"docker exec (API)": ByApi(client)}
        if shutil.which("docker"):
            peers["docker exec (CLI)"] = ByProgram(client, engine.host)
        yield peers
