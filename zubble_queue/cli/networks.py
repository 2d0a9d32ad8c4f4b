"""What tasks ask to be let to: in words, phase by phase, and whether living workers grant it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from zubble_queue.contracts.envelope import SandboxRequest, TaskEnvelope
    from zubble_queue.contracts.record import WorkerInfo
    from zubble_queue.contracts.sandbox import NetworkMode


@dataclass(frozen=True, slots=True)
class Reach:
    """What the commands of a phase may reach, of tasks that ask for the same."""

    phase: Literal["sandbox", "verify"]
    network: NetworkMode
    allowed_hosts: tuple[str, ...]

    def words(self, tasks: int) -> str:
        who = "Commands" if self.phase == "sandbox" else "Checks"
        of = "1 task" if tasks == 1 else f"{tasks} tasks"
        if self.network == "open":
            return f"{who} of {of} may reach the whole network of their worker."
        return (
            f"{who} of {of} may reach {', '.join(self.allowed_hosts) or 'nothing: the allow-list is empty'}."
        )


def reaches(envelopes: Iterable[TaskEnvelope]) -> Counter[Reach]:
    """Every reach beyond nothing, and how many tasks ask for it."""
    return Counter(reach for envelope in envelopes for reach in _of(envelope) if reach.network != "none")


def values(found: Counter[Reach]) -> list[dict[str, Any]]:
    return [
        {
            "phase": reach.phase,
            "network": reach.network,
            "allowed_hosts": list(reach.allowed_hosts),
            "tasks": tasks,
        }
        for reach, tasks in found.items()
    ]


def sandboxes(envelopes: Iterable[TaskEnvelope]) -> Iterator[SandboxRequest]:
    """What is asked of a sandbox in every phase of every task."""
    for envelope in envelopes:
        yield envelope.sandbox
        if (verify := envelope.verify).network != envelope.sandbox.network:
            changes = {"network": verify.network, "allowed_hosts": verify.allowed_hosts}
            yield envelope.sandbox.model_copy(update=changes)


def ungranted(envelopes: Iterable[TaskEnvelope], workers: Iterable[WorkerInfo]) -> Iterator[str]:
    """A sentence for each network that a worker would have to refuse, because it may be given such a task."""
    asked = {(envelope.need.key, reach.network) for envelope in envelopes for reach in _of(envelope)}
    short = {
        (worker.host, network)
        for worker in workers
        for _, network in asked.intersection(product(worker.needs, ("allowlist", "open")))
        if network not in worker.networks
    }
    for host, network in sorted(short):
        yield (
            f"a worker on {host!r} does not allow network {network!r} and seals what asks for it as invalid: "
            "add it to worker.networks there"
        )


def _of(envelope: TaskEnvelope) -> tuple[Reach, Reach]:
    sandbox, verify = envelope.sandbox, envelope.verify
    return (
        Reach("sandbox", sandbox.network, sandbox.allowed_hosts),
        Reach("verify", verify.network, verify.allowed_hosts),
    )
