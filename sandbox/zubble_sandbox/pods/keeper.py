"""One process' hold on its pods: the session with the API server, the Lease that owns them, and the sweep."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import structlog

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.pods import leases, names
from zubble_sandbox.pods.access import Access
from zubble_sandbox.pods.api import Api, ApiError, Object
from zubble_sandbox.pods.manifests import Owner, identity, owner_reference
from zubble_sandbox.pods.options import PodOptions
from zubble_sandbox.records import new_token

_log = structlog.get_logger(__name__)
SWEEP_SECONDS: Final = 300.0
"""Between two sweeps of one worker; each lists the labels of all sandbox pods of the namespace."""
_MANAGED: Final = {names.MANAGED_BY: names.MANAGER}


class Keeper:
    """Lives in the event loop that it was started in; everything it holds goes when its task is cancelled."""

    def __init__(self, options: PodOptions) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._lease: Object | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._pods: set[str] = set()
        """Ours that are open, or about to be."""
        self._acquiring = asyncio.Lock()
        self.looking = asyncio.Lock()
        """Held while canaries are out: one pair is enough."""
        self._api: asyncio.Future[Api] = self._loop.create_future()
        self._running = asyncio.create_task(self._run())

    @property
    def usable(self) -> bool:
        """Whether it is of the running event loop, and alive."""
        return self._loop is asyncio.get_running_loop() and not self._running.done()

    async def api(self) -> Api:
        """Raises SandboxUnavailable when no cluster is configured."""
        return await asyncio.shield(self._api)

    async def owner(self) -> Owner:
        """The Lease, made when it is first needed. Raises SandboxUnavailable."""
        api = await self.api()
        async with self._acquiring:
            if self._lease is None:
                made = leases.manifest(new_token(), api.namespace, datetime.now(UTC))
                self._lease = await api.create("leases", made)
            metadata = self._lease["metadata"]
        return Owner(metadata["name"], metadata["uid"])

    def opening(self, pod: str) -> None:
        """Keep the sweep from a pod that is about to be made."""
        self._pods.add(pod)

    def closed(self, pod: str) -> None:
        """It is not ours, or no longer."""
        self._pods.discard(pod)

    def renamed(self, pod: str, spec: SandboxSpec) -> None:
        """Say in the cluster what a pod is for now; nobody waits for that."""
        telling = asyncio.create_task(self._tell(pod, spec))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def adopt(self, pod: Object) -> None:
        """Make a pod ours that has outlived its worker, before its old Lease takes it along.

        Raises SandboxUnavailable when that worker lives, or the pod's time to be adopted is over.
        """
        api, owner = await self.api(), await self.owner()
        name = pod["metadata"]["name"]
        lease = await api.find("leases", names.label(pod, names.LEASE))
        silent = leases.abandoned_seconds(lease, datetime.now(UTC), skew=0) if lease else math.inf
        if not silent:
            raise SandboxUnavailable(f"The sandbox {name} cannot be adopted: its worker is alive.")
        if silent > linger_seconds(pod):
            raise SandboxUnavailable(f"The sandbox {name} cannot be adopted any more: its time is over.")
        metadata = {
            "uid": pod["metadata"]["uid"],
            "labels": {names.LEASE: owner.lease},
            "ownerReferences": [owner_reference(owner)],
        }
        await api.patch("pods", name, {"metadata": metadata})

    async def remove(self, pod: str) -> None:
        """Delete a pod of ours, and with the last one the Lease; what cannot be is left to a sweep."""
        self._pods.discard(pod)
        try:
            api = await self.api()
            await api.delete("pods", pod)
            await self._give_up_lease(api)
        except ApiError as error:
            _log.warning("a sandbox pod was left behind", action="pod_left", pod=pod, error=str(error))

    async def sweep(self, keep_owners: frozenset[str]) -> int:
        """Delete what nobody owns any more, and our own Lease while it owns nothing; how many pods it was.

        Pods are listed before leases: the Lease of every pod in the list was there before it.
        """
        api = await self.api()
        pods = await api.listed("pods", _MANAGED)
        held = {lease["metadata"]["name"]: lease for lease in await api.listed("leases", leases.LABELS)}
        now, ours = datetime.now(UTC), self._lease["metadata"]["name"] if self._lease else None
        abandoned = {
            name: leases.abandoned_seconds(lease, now) for name, lease in held.items() if name != ours
        }
        doomed, spared = [], {ours}
        for pod in pods:
            lease = names.label(pod, names.LEASE)
            orphan = pod["metadata"]["name"] not in self._pods if lease == ours else _orphaned(pod, abandoned)
            if _expired(pod) or (orphan and names.note(pod, names.OWNER_NOTE) not in keep_owners):
                doomed.append(pod["metadata"])
            else:
                spared.add(lease)
        deleted = [await api.delete("pods", pod["name"], pod["uid"]) for pod in doomed]
        for name, seconds in abandoned.items():
            if seconds and name not in spared:
                await api.delete("leases", name, held[name]["metadata"]["uid"])
        await self._give_up_lease(api)
        return sum(deleted)

    async def close(self) -> None:
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def _run(self) -> None:
        options = self._options
        try:
            access = await asyncio.to_thread(Access.load, options.kubeconfig_file, options.context)
        except BaseException as error:
            self._api.set_exception(error if isinstance(error, SandboxUnavailable) else _not_made())
            self._api.exception()  # so that the loop does not report it: whoever asks hears of it
            if isinstance(error, SandboxUnavailable):
                return
            raise
        async with Api(access, self._options.namespace) as api:
            self._api.set_result(api)
            swept = time.monotonic()
            pause = SWEEP_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311 - spreads the workers' sweeps
            while True:
                await asyncio.sleep(leases.RENEW_SECONDS)
                if self._lease is not None:
                    await self._renew(api)
                if self._pods and time.monotonic() > swept + pause:
                    await self._sweep_quietly()
                    swept = time.monotonic()

    async def _renew(self, api: Api) -> None:
        """Trouble with the API server ends nothing here: sandboxes go on, and the next try may succeed."""
        async with self._acquiring:
            assert self._lease is not None
            name = self._lease["metadata"]["name"]
            try:
                self._lease = await api.replace("leases", leases.renewed(self._lease, datetime.now(UTC)))
            except ApiError as error:
                if error.status == 404:  # somebody took us for dead; the pods that it owned are gone with it
                    self._lease = None
                elif error.status == 409:
                    self._lease = await api.find("leases", name)
                _log.warning(
                    "the lease of the sandbox pods was not renewed", action="lease", error=str(error)
                )

    async def _tell(self, pod: str, spec: SandboxSpec) -> None:
        try:
            await (await self.api()).patch("pods", pod, {"metadata": identity(spec)})
        except ApiError as error:
            _log.warning("a pod has the labels it had", action="pod_renamed", pod=pod, error=str(error))

    async def _give_up_lease(self, api: Api) -> None:
        """Unless something is open."""
        async with self._acquiring:
            if self._lease is not None and not self._pods:
                lease, self._lease = self._lease["metadata"], None
                await api.delete("leases", lease["name"], lease["uid"])

    async def _sweep_quietly(self) -> None:
        try:
            if found := await self.sweep(frozenset()):
                _log.info("sandbox pods without an owner were deleted", action="pods_swept", pods=found)
        except SandboxUnavailable as error:
            _log.warning("sandbox pods could not be swept", action="pods_swept", error=str(error))


def _not_made() -> SandboxUnavailable:
    return SandboxUnavailable("The connection to the cluster was given up before it was made.")


def _orphaned(pod: Object, abandoned: Mapping[str, float]) -> bool:
    """Whether its owner is gone, and for longer than the pod was to wait for another worker."""
    lease = names.label(pod, names.LEASE)
    return lease not in abandoned or abandoned[lease] > linger_seconds(pod)


def linger_seconds(pod: Object) -> float:
    """How long it may be without its worker."""
    told = names.note(pod, names.LINGER_NOTE)
    return float(told) if told.isdigit() else 0.0


def _expired(pod: Object) -> bool:
    expires = names.label(pod, names.EXPIRES)
    return expires.isdigit() and int(expires) < time.time()
