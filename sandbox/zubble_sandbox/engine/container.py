"""One container of ours, from its creation to its removal, and the way into it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.egress import Egress
from zubble_sandbox.engine.api import Engine, EngineRefused
from zubble_sandbox.engine.containers import BOX, SOCKET, Config
from zubble_sandbox.engine.labels import Record, Worker
from zubble_sandbox.line import Line, LineLost
from zubble_sandbox.secret import introduce

_CONFLICT: Final = 409
_PAUSES: Final = (0.1, 1.0, 3.0)
_REMOVE_TRIES: Final = 5
_REMOVE_PAUSE_SECONDS: Final = 1.0


class Container:
    """What a sandbox holds of an engine.

    Args:
        engine: Where it is.
        record: Its token, and the secret that opens its supervisor.
        way_out: Its proxy, which ends with it.
    """

    def __init__(self, engine: Engine, record: Record, way_out: Egress | None = None) -> None:
        self._engine, self._record, self._way_out = engine, record, way_out
        self._name = Worker.this().name_of(record.token)
        self._relay_user = f"{record.uid + 1}:{record.uid + 1}"
        """Another one than the commands', so that none of them can signal or stop the relay."""
        self._creating: asyncio.Future[str] | None = None

    async def create(self, config: Config, archives: Mapping[str, bytes]) -> None:
        """Create it and fill its volumes: folder to tar. Raises SandboxUnavailable."""
        self._creating = self._engine.create(self._name, config)
        await asyncio.shield(self._creating)
        for folder, archive in archives.items():
            await self._engine.put(self._name, folder, archive)

    async def adopt(self, container: str) -> None:
        """Make one ours that is there. Raises SandboxUnavailable."""
        await self._engine.rename(container, self._name)
        self._creating = asyncio.get_running_loop().create_future()
        self._creating.set_result(container)

    async def content(self, folder: str, *, max_bytes: int) -> bytes | None:
        """The tar of a folder of its image; None when there is no such folder. Raises ValueError."""
        try:
            return await self._engine.get(self._name, folder, max_bytes=max_bytes)
        except EngineRefused as refused:
            if refused.not_found:
                return None
            raise

    async def start(self) -> None:
        await self._engine.start(self._name)

    async def connect(self) -> Line:
        """A line to its supervisor. Raises LineLost where another try may help, else SandboxUnavailable."""
        try:
            line = await self._engine.run(self._name, (BOX, "relay", SOCKET), user=self._relay_user)
        except EngineRefused as refused:
            if refused.not_found or refused.status == _CONFLICT:
                raise SandboxUnavailable(await self._fate()) from refused
            raise LineLost(str(refused)) from refused
        except SandboxUnavailable as silent:
            raise LineLost(str(silent)) from silent
        await introduce(line, self._record.secret)
        return line

    async def first_line(self) -> Line:
        """The same, with some patience for a supervisor that has just been started."""
        for pause in _PAUSES:
            try:
                return await self.connect()
            except LineLost:
                await asyncio.sleep(pause)
        return await self.connect()

    async def fate(self) -> str:
        """What became of it, as a sentence, now that nobody answers in it."""
        try:
            return await self._fate()
        except SandboxUnavailable as silent:
            return str(silent)

    async def end(self) -> None:
        """Kill and remove it; one that the engine cannot remove now is left to whoever reaps."""
        try:
            if self._creating is not None:
                await self._remove(self._creating)
        finally:
            if self._way_out is not None:
                await self._way_out.close()

    async def _remove(self, creating: asyncio.Future[str]) -> None:
        with contextlib.suppress(SandboxUnavailable):
            await creating
        for _ in range(_REMOVE_TRIES):
            with contextlib.suppress(SandboxUnavailable):
                await self._engine.remove(self._name)
                return
            await asyncio.sleep(_REMOVE_PAUSE_SECONDS)

    async def _fate(self) -> str:
        found = await self._engine.state(self._name)
        if found is None:
            return "The container is gone: somebody removed it."
        state: Mapping[str, Any] = found["State"]
        if state.get("Running"):
            return "The container runs, but its supervisor does not answer."
        if state.get("OOMKilled"):
            return "The sandbox as a whole used up its memory, and its supervisor was killed."
        said = state.get("Error") or await self._engine.complaint(self._name)
        return f"The container ended with exit code {state.get('ExitCode')}{f': {said}' if said else ''}."
