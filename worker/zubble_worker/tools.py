"""What a worker works with, made from its settings; whatever cannot be had stops it before it starts."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from zubble_queue import __version__, registry, sandboxes
from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.books import Listener
from zubble_queue.contracts.model import Model
from zubble_queue.contracts.record import Claim, WorkerInfo
from zubble_queue.contracts.sandbox import WEB_PORTS, NetworkMode, SandboxProvider, Strength
from zubble_queue.errors import CannotStart, NoKey, OperatorError
from zubble_queue.settings import LeaseSettings, Settings
from zubble_queue.stores.redis import RedisStore
from zubble_worker.metrics import WorkerMetrics
from zubble_worker.parking import Bell
from zubble_worker.provider import Provider

_log = structlog.get_logger(__name__)


class Spans(Listener, Protocol):
    """What becomes spans of one attempt."""

    def end(self, how: str, outcome: str | None) -> None:
        """The attempt was left."""


class Tracing(Protocol):
    """Sends spans somewhere."""

    def attempt(self, claim: Claim) -> Spans:
        """Those of an attempt that begins."""

    def flush(self) -> None:
        """Send what there is; may wait for long."""


class Warm(SandboxProvider, Protocol):
    """A provider that has sandboxes open before anybody asks."""

    async def aclose(self) -> None:
        """Destroy them."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What an attempt works with; the same for all attempts of a worker."""

    worker_id: str
    store: RedisStore
    artifacts: ArtifactStore
    models: Mapping[str, Model]
    providers: Mapping[str, SandboxProvider]
    """Only those the worker's settings allow."""
    lease: LeaseSettings
    strengths: Mapping[str, Strength] = field(default_factory=dict)
    """Backend to what its probe found here."""
    networks: tuple[NetworkMode, ...] = ("none",)
    """What the worker's settings let a task ask for."""
    network_ports: tuple[int, ...] = WEB_PORTS
    """On the hosts of an allow-list."""
    limits: Mapping[str, Provider] = field(default_factory=dict)
    """By model: what the provider's limits allow, shared with all other workers."""
    bell: Bell = field(default_factory=Bell)
    warm: tuple[Warm, ...] = ()
    """Those of the providers that open sandboxes ahead."""
    metrics: WorkerMetrics = field(default_factory=WorkerMetrics)
    tracing: Tracing | None = None

    async def cool(self) -> None:
        """Destroy what is open ahead; from now on sandboxes are opened when somebody asks for one."""
        for provider in self.warm:
            await provider.aclose()


async def build(settings: Settings) -> tuple[Tools, WorkerInfo]:
    """Sandboxes that work here, models that can be called, a store that answers.

    Raises:
        OperatorError: One of them is not to be had; the message says which and what to do.
    """
    probed, strengths = await _providers(settings)
    warm = _warmed(settings, probed)
    models = _models(settings)
    info = _info(settings, models, strengths)
    store = await connect(settings)
    metrics = WorkerMetrics(pools=info.pools, models=models)
    tools = Tools(
        worker_id=info.worker_id,
        store=store,
        artifacts=ArtifactStore(settings.artifacts_url),
        models=models,
        providers={**probed, **warm},
        warm=tuple(warm.values()),
        lease=settings.lease,
        strengths=strengths,
        networks=settings.worker.networks,
        network_ports=settings.worker.network_ports,
        limits={name: Provider(store, name, settings.models[name], on_try=metrics.tried) for name in models},
        metrics=metrics,
        tracing=_tracing(settings, info),
    )
    return tools, info


async def connect(settings: Settings) -> RedisStore:
    """The store these settings name. Raises CannotStart."""
    if settings.redis_url is None:
        raise CannotStart("No Redis is configured: set redis_url in zubble.toml or ZUBBLE_REDIS_URL.")
    return await RedisStore.connect(
        settings.redis_url.get_secret_value(),
        namespace=settings.namespace,
        lease_seconds=settings.lease.lease_seconds,
        max_attempts=settings.max_attempts,
        record_ttl_seconds=settings.record_ttl_seconds,
    )


async def _providers(settings: Settings) -> tuple[dict[str, SandboxProvider], dict[str, Strength]]:
    """The sandboxes this worker allows; each must work here, or the worker does not start (invariant 3)."""
    providers: dict[str, SandboxProvider] = {}
    strengths: dict[str, Strength] = {}
    for name in settings.worker.sandboxes:
        provider = sandboxes.provider(settings, name)
        probe = await provider.probe()
        if not probe.available:
            raise CannotStart(f"Sandbox {name!r} does not work here: {' '.join(probe.problems)}")
        await provider.reap()
        providers[name], strengths[name] = provider, probe.strength
    return providers, strengths


def _warmed(settings: Settings, providers: Mapping[str, SandboxProvider]) -> dict[str, Warm]:
    size = settings.worker.warm_sandboxes
    if not size:
        return {}
    in_front_of: Callable[[SandboxProvider, int], Warm] = registry.load("service", "warm-sandboxes")
    return {name: in_front_of(provider, size) for name, provider in providers.items()}


def _tracing(settings: Settings, info: WorkerInfo) -> Tracing | None:
    if not settings.worker.traces:
        return None
    made: Tracing = registry.load("service", "traces")(info.worker_id)
    return made


def _models(settings: Settings) -> dict[str, Model]:
    """Those that can be called; one whose key is not here is left to other workers."""
    if not settings.models:
        raise OperatorError("No model is defined: add a [models.NAME] table to zubble.toml.")
    models: dict[str, Model] = {}
    missing: list[str] = []
    for name, config in settings.models.items():
        try:
            models[name] = registry.load("model", config.backend).from_config(name, config)
        except NoKey as none:
            missing.append(str(none))
            _log.warning("not offered", action="model_not_offered", model=name, cause=str(none))
    if not models:
        raise CannotStart(f"No model can be offered. {' '.join(missing)}")
    return models


def _info(settings: Settings, models: Mapping[str, Model], strengths: Mapping[str, Strength]) -> WorkerInfo:
    host = socket.gethostname()
    return WorkerInfo(
        worker_id=f"{host}-{os.getpid()}-{secrets.token_hex(3)}",
        version=__version__,
        host=host,
        pid=os.getpid(),
        slots=settings.worker.slots,
        busy=0,
        pools=settings.worker.pools,
        models={name: settings.models[name].public_hash() for name in models},
        sandboxes=tuple(strengths),
        strengths=strengths,
        networks=settings.worker.networks,
        feeder=settings.worker.feeder,
        started_at=time.time(),
    )
