"""A sandbox pod that was made, and the way to its supervisor: again and again, as long as it is the same."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Self

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import egress
from zubble_sandbox.line import Line, LineLost
from zubble_sandbox.pods import names
from zubble_sandbox.pods.api import Api, ApiError, Object
from zubble_sandbox.pods.manifests import BOX_CONTAINER, PROGRAM, RELAY_CONTAINER, SOCKET
from zubble_sandbox.pods.waiting import fate, restarts, running
from zubble_sandbox.secret import introduce

_PAUSES: Final = (0.0, 0.1, 0.3, 1.0, 2.0)
"""Before each try to reach a supervisor that has just been started."""
_FINAL: Final = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class Place:
    """One pod, known by its uid: a pod that was made anew under its name is another place."""

    api: Api
    name: str
    uid: str
    secret: str

    @classmethod
    def of(cls, api: Api, pod: Object) -> Self:
        """Raises SandboxUnavailable for a pod that is none of ours."""
        metadata, secret = pod["metadata"], names.note(pod, names.SECRET_NOTE)
        if not secret:
            raise SandboxUnavailable(f"The pod {metadata['name']} is no sandbox of ours.")
        return cls(api, metadata["name"], metadata["uid"], secret)

    async def first_line(self) -> Line:
        """Raises SandboxUnavailable when the supervisor cannot be reached soon after the pod has started."""
        why = ""
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            try:
                return await self.line()
            except LineLost as error:
                why = str(error)
        raise SandboxUnavailable(f"The supervisor in the pod {self.name} does not answer: {why}.")

    async def line(self) -> Line:
        """Through a relay of its own, after a look at the pod.

        Raises:
            LineLost: not now; another try may succeed.
            SandboxUnavailable: never again: the pod is gone, was made anew, or its container was restarted.
        """
        line = await self._beside("relay", SOCKET)
        await introduce(line, self.secret)
        return line

    async def carrier(self) -> Line:
        """To a carrier of connections to the sandbox's egress proxy. Raises what `line` does."""
        return await self._beside("carry", f"{egress.PORT}")

    async def _beside(self, *arguments: str) -> Line:
        """To our program in the sidecar."""
        try:
            self._check(await self.api.find("pods", self.name))
            return await self.api.exec_line(self.name, RELAY_CONTAINER, [PROGRAM, *arguments])
        except ApiError as error:
            if error.status in _FINAL:
                raise
            raise LineLost(str(error)) from error

    def _check(self, pod: Object | None) -> None:
        if pod is not None and pod["metadata"]["uid"] != self.uid:
            pod = None
        if pod is None or not running(pod, BOX_CONTAINER):
            raise SandboxUnavailable(f"The sandbox {self.name} is gone: {fate(pod)}.")
        if restarts(pod, BOX_CONTAINER):
            raise SandboxUnavailable(f"The sandbox {self.name} is gone: its container was restarted.")
