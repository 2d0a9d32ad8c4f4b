"""Tells Kubernetes which worker's pod to delete first: the one with the fewest running agents.

The leading dispatcher does it for all workers, so that no worker needs a right in the cluster for it: whoever
may patch pods may change their image, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

import httpx
import structlog

from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.errors import CannotStart, StoreUnavailable

ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Read by the ReplicaSet's controller; higher is kept longer, none is 0."""
ROUND_SECONDS: Final = 5.0
MOST_A_ROUND: Final = 50
"""Pods patched in a round: what a thousand workers that begin at once cost the API server."""
_ANSWER_SECONDS: Final = 5.0
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The API server that this process runs under, and the namespace of its pods."""

    url: str
    namespace: str
    token_file: Path
    """Its content changes."""
    tls: ssl.SSLContext | bool = True
    """Whose certificate is believed."""

    @classmethod
    def around(cls, environment: Mapping[str, str], account: Path = _ACCOUNT) -> Self:
        """Raises CannotStart outside of a cluster, or without a service account's token."""
        host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        if not host:
            raise CannotStart("--pod-deletion-cost works in a pod of a cluster only.")
        try:
            namespace = (account / "namespace").read_text("utf-8").strip()
            (account / "token").read_bytes()
            tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        except OSError as missing:
            needed = "a service account whose token is mounted (automountServiceAccountToken: true)"
            raise CannotStart(f"--pod-deletion-cost needs {needed}; in {account}: {missing}.") from missing
        name = f"[{host}]" if ":" in host else host
        return cls(f"https://{name}:{port or 443}", namespace, account / "token", tls)

    def client(self) -> httpx.AsyncClient:
        """Without its token, which is read before each request."""
        return httpx.AsyncClient(base_url=self.url, verify=self.tls, timeout=_ANSWER_SECONDS, trust_env=False)


class DeletionCosts:
    """Keeps the annotation of every worker's pod at the number of its running agents.

    Args:
        cluster: Where the pods are; a worker's host is the name of its pod.
        workers: The living workers; raises StoreUnavailable.
        leads: Whether this process is the one to do it.
    """

    def __init__(
        self,
        cluster: Cluster,
        workers: Callable[[], Awaitable[Sequence[WorkerInfo]]],
        leads: Callable[[], bool],
    ) -> None:
        self._cluster, self._workers, self._leads = cluster, workers, leads
        self._told: dict[str, int] = {}
        self._elsewhere: set[str] = set()
        self._refused = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; never lets an error out."""
        async with self._cluster.client() as client:
            while not stop.is_set():
                if self._leads():
                    await self.round(client)
                else:
                    self._told.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), ROUND_SECONDS)

    async def round(self, client: httpx.AsyncClient) -> None:
        """Patch the pods whose number changed, as many as fit a round; the others are next."""
        try:
            busy = _by_pod(await self._workers())
        except StoreUnavailable:
            return
        self._told = {pod: cost for pod, cost in self._told.items() if pod in busy}
        self._elsewhere &= busy.keys()
        due = [pod for pod in busy if self._told.get(pod) != busy[pod] and pod not in self._elsewhere]
        for pod in sorted(due, key=lambda pod: busy[pod])[:MOST_A_ROUND]:
            if not await self._tell(client, pod, busy[pod]):
                return

    async def _tell(self, client: httpx.AsyncClient, pod: str, cost: int) -> bool:
        """Whether the API server can be asked for another one."""
        try:
            answer = await client.patch(
                f"/api/v1/namespaces/{self._cluster.namespace}/pods/{pod}",
                json={"metadata": {"annotations": {ANNOTATION: str(cost)}}},
                headers={
                    "Content-Type": "application/merge-patch+json",
                    "Authorization": f"Bearer {self._token()}",
                },
            )
        except (httpx.HTTPError, OSError) as silent:
            return self._failed(type(silent).__name__)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            self._elsewhere.add(pod)
        elif answer.is_success:
            self._told[pod], self._refused = cost, ""
        else:
            return self._failed(f"HTTP {answer.status_code}")
        return True

    def _token(self) -> str:
        return self._cluster.token_file.read_text("utf-8").strip()

    def _failed(self, cause: str) -> bool:
        if cause != self._refused:
            _log.warning(
                "pods are not told apart for scale-in; is `patch` on pods granted?",
                action="deletion_cost_failed",
                cause=cause,
            )
        self._refused = cause
        return False


def _by_pod(workers: Iterable[WorkerInfo]) -> dict[str, int]:
    """Running agents by host: a pod may hold several workers."""
    busy: dict[str, int] = {}
    for worker in workers:
        busy[worker.host] = busy.get(worker.host, 0) + worker.busy
    return busy
