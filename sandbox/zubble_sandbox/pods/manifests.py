"""Pure: what is sent to the API server. Nothing here reads the machine or the cluster."""

from __future__ import annotations

import math
import shlex
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zubble_queue.contracts.sandbox import MIB, SandboxSpec
from zubble_sandbox import notes
from zubble_sandbox.commands import HOSTNAME
from zubble_sandbox.pods import names
from zubble_sandbox.pods.layout import GATE_DIR, PROGRAM_DIR, SEED_DIR, Layout, Volume
from zubble_sandbox.pods.options import PodOptions

Manifest = dict[str, Any]

BOX_CONTAINER: Final = "box"
COPY_CONTAINER: Final = "copy"
FILL_CONTAINER: Final = "fill"
RELAY_CONTAINER: Final = "relay"
"""A sidecar: it shares the network of the sandbox, and with it the supervisor's socket, but neither processes
nor files that commands may write. None of them can see, signal or trace the relay that is started there."""
CANARY_CONTAINER: Final = "canary"
PROGRAM: Final = f"{PROGRAM_DIR}/box"
SOCKET: Final = "@zubble"
"""An abstract one: no command can take its place while the supervisor, which no command can end, holds it."""
FILLED: Final = f"{GATE_DIR}/filled"
"""The fill container ends when this appears; until then files are brought in by exec."""
PROGRAM_MODE: Final = "0111"
"""Executable and not readable: such a process cannot be traced, from its first instruction on."""

START_SECONDS: Final = 600
"""Added to the life of a pod, for the time before its supervisor runs."""
_GRACE_SECONDS: Final = 1
_OVERHEAD_BYTES: Final = 32 * MIB
"""The supervisor or a relay, and the kernel's own accounting."""
_DISK_BYTES: Final = 64 * MIB
"""Ephemeral storage for logs, of which there are none but the supervisor's complaints."""
_CANARY_SECONDS: Final = 120
_CANARY_CPUS: Final = 0.1
_RELAY_CPUS: Final = 0.05
_NO_NAMES: Final[Manifest] = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}
"""A look-up fails at once instead of after the resolver's patience."""
_STAY: Final = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
_WAIT: Final = f"until [ -e {FILLED} ]; do sleep 0.1 2>/dev/null || sleep 1; done"


@dataclass(frozen=True, slots=True)
class Owner:
    """The Lease of the process that makes the pods."""

    lease: str
    uid: str


@dataclass(frozen=True, slots=True)
class Ticket:
    """What is chosen anew for each pod."""

    token: str
    """Its name, and the mark of its processes."""
    secret: str
    """Opens the supervisor's socket."""
    command: Sequence[str]
    """The supervisor's arguments; they show a hash of the secret only."""
    image: str
    expires: int
    """Seconds since 1970."""


def sandbox_pod(
    spec: SandboxSpec, layout: Layout, options: PodOptions, owner: Owner, ticket: Ticket
) -> Manifest:
    """One sandbox: what is not granted here is denied by the Pod Security level `restricted`."""
    cpus, on_disk = spec.cpus or options.cpus, options.work_medium == "disk"
    memory = layout.bytes_in_memory(work_on_disk=on_disk) + _OVERHEAD_BYTES
    disk = _DISK_BYTES + (spec.work_bytes if on_disk else 0)
    filling = _alike(cpus, memory, disk)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(spec, options, owner, ticket),
        "spec": {
            **_pod(options, spec.network, _uid(options, ticket.token)),
            "activeDeadlineSeconds": math.ceil(spec.max_life_seconds) + START_SECONDS,
            "volumes": [_empty_dir(volume, options) for volume in (*layout.seen, layout.gate)],
            "initContainers": [
                *_copy(layout, options, filling),
                {
                    **_container(FILL_CONTAINER, ticket.image, ["/bin/sh", "-c", _WAIT], options),
                    "resources": filling,
                    "volumeMounts": _fill_mounts(layout, options),
                },
                {
                    **_container(
                        RELAY_CONTAINER, options.box_image or ticket.image, ["/bin/sh", "-c", _STAY], options
                    ),
                    "restartPolicy": "Always",  # makes it a sidecar, which ends with the sandbox
                    "resources": _alike(_RELAY_CPUS, _OVERHEAD_BYTES, _DISK_BYTES),
                    "volumeMounts": [_mount(layout.program, read_only=True)],
                },
            ],
            "containers": [
                {
                    **_container(BOX_CONTAINER, ticket.image, [PROGRAM, *ticket.command], options),
                    "resources": _alike(cpus, spec.memory_bytes + memory, disk),
                    "volumeMounts": [_mount(volume, read_only=not volume.writable) for volume in layout.seen],
                }
            ],
        },
    }


def canary_pod(name: str, network: str, script: str, *, options: PodOptions, owner: Owner) -> Manifest:
    """A pod that tries to reach something and says by its exit code whether it could."""
    image = options.box_image or options.image or ""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": options.namespace,
            "labels": {**_labels("canary", owner), names.NETWORK: network},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            **_pod(options, "none", options.uid_base),
            "activeDeadlineSeconds": _CANARY_SECONDS + math.ceil(options.start_seconds),
            "containers": [
                {
                    **_container(CANARY_CONTAINER, image, ["/bin/sh", "-c", script], options),
                    "resources": _alike(_CANARY_CPUS, _OVERHEAD_BYTES, _DISK_BYTES),
                }
            ],
        },
    }


def owner_reference(owner: Owner) -> Manifest:
    """In the same namespace: one from another counts as absent, and its pod is collected."""
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": owner.lease, "uid": owner.uid}


def identity(spec: SandboxSpec) -> Manifest:
    """The labels and annotations that say what a sandbox is for; they change when it is handed over."""
    task, attempt = names.task_and_attempt(spec.name)
    return {
        "labels": {
            names.TASK: names.label_value(task),
            names.ATTEMPT: names.label_value(attempt),
            names.WORKER: names.label_value(spec.owner),
        },
        "annotations": {
            names.NAME_NOTE: spec.name,
            names.OWNER_NOTE: spec.owner,
            names.LINGER_NOTE: str(math.ceil(spec.linger_seconds)),
            names.SPEC_NOTE: notes.note(spec),
        },
    }


def _metadata(spec: SandboxSpec, options: PodOptions, owner: Owner, ticket: Ticket) -> Manifest:
    told = identity(spec)
    return {
        "name": ticket.token,
        "namespace": options.namespace,
        "labels": {
            **_labels("sandbox", owner),
            **told["labels"],
            names.NETWORK: spec.network,
            names.TOKEN: ticket.token,
            names.EXPIRES: str(ticket.expires),
        },
        "annotations": {
            **told["annotations"],
            names.SECRET_NOTE: ticket.secret,
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        },
        "ownerReferences": [owner_reference(owner)],
    }


def _labels(part: str, owner: Owner) -> dict[str, str]:
    return {names.MANAGED_BY: names.MANAGER, names.PART: part, names.LEASE: owner.lease}


def _pod(options: PodOptions, network: str, uid: int) -> Manifest:
    """No fsGroup: an emptyDir is open to all uids, and folders would inherit the setgid bit it brings."""
    chosen: Manifest = {
        "runtimeClassName": options.runtime_class,
        "priorityClassName": options.priority_class,
        "nodeSelector": dict(options.node_selector),
        "tolerations": [toleration.model_dump(exclude_none=True) for toleration in options.tolerations],
        "imagePullSecrets": [{"name": name} for name in options.pull_secrets],
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "serviceAccountName": options.service_account,
        "hostname": HOSTNAME,
        **({"hostUsers": False} if options.user_namespaces else {}),
        **({} if network == "open" else _NO_NAMES),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": uid,
            "runAsGroup": uid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **{field: value for field, value in chosen.items() if value},
    }


def _container(name: str, image: str, command: Sequence[str], options: PodOptions) -> Manifest:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": options.pull_policy,
        "command": list(command),
        "workingDir": "/",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _copy(layout: Layout, options: PodOptions, resources: Manifest) -> Iterable[Manifest]:
    """The supervisor from an image that is trusted, before any other container of the pod runs."""
    if options.box_image is not None:
        copy = f"cp {shlex.quote(options.box_path)} {PROGRAM} && chmod {PROGRAM_MODE} {PROGRAM}"
        yield {
            **_container(COPY_CONTAINER, options.box_image, ["/bin/sh", "-c", copy], options),
            "resources": resources,
            "volumeMounts": [_mount(layout.program)],
        }


def _fill_mounts(layout: Layout, options: PodOptions) -> list[Manifest]:
    """The work tree elsewhere, so that what the image has in its place can be copied into it."""
    program = () if options.box_image else (layout.program,)
    mounts = [_mount(volume) for volume in (layout.verify, layout.gate, *layout.others, *program)]
    return [{**_mount(layout.work), "mountPath": SEED_DIR}, *mounts]


def _empty_dir(volume: Volume, options: PodOptions) -> Manifest:
    on_disk = volume.name == "work" and options.work_medium == "disk"
    medium = {} if on_disk else {"medium": "Memory"}
    return {"name": volume.name, "emptyDir": {"sizeLimit": str(volume.size), **medium}}


def _mount(volume: Volume, *, read_only: bool = False) -> Manifest:
    return {
        "name": volume.name,
        "mountPath": volume.path,
        **({"readOnly": True} if read_only else {}),
    }


def _alike(cpus: float, memory: int, disk: int) -> Manifest:
    """Requests equal to limits: the class Guaranteed, and no overcommitment."""
    amounts = {"cpu": f"{math.ceil(cpus * 1_000)}m", "memory": str(memory), "ephemeral-storage": str(disk)}
    return {"requests": dict(amounts), "limits": amounts}


def _uid(options: PodOptions, token: str) -> int:
    return options.uid_base + zlib.crc32(token.encode()) % options.uid_count
