"""Pure: what an engine is asked for. Nothing here reads the machine or talks to anybody."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from zubble_queue.contracts.sandbox import MIB, WORK_DIR, SandboxSpec
from zubble_queue.errors import JobError
from zubble_sandbox import egress, seccomp
from zubble_sandbox.commands import HOSTNAME
from zubble_sandbox.engine.options import DockerOptions

Config = dict[str, Any]

BOX_DIR: Final = "/.zubble"
BOX: Final = f"{BOX_DIR}/box"
SOCKET: Final = "@zubble"
"""An abstract one: no command can take its place while the supervisor, which no command can end, holds it."""
TMP_DIR: Final = "/tmp"  # noqa: S108 - the sandbox's own
OPEN_NETWORK: Final = "bridge"
"""The engine's own, from which everything can be reached that its machine can reach."""
SHM_DIR: Final = "/dev/shm"  # noqa: S108 - the sandbox's own
PROGRAM_MODE: Final = 0o111
"""Executable, not readable: the kernel keeps such a process from being traced, from its first instruction."""
FILE_MODE: Final = 0o555
"""Also of the supervisor where a runtime is named: gVisor's loader reads it with the sandbox's own rights."""
OWN_PIDS: Final = 1
"""The relay; the supervisor counts as one of the task's, as in every backend."""

_OWN_BYTES: Final = 32 * MIB
"""For the same, and for the kernel's accounting."""
_NO_CORE_BYTES: Final = 1
"""See `spawner`: with 0 a crash still starts a handler on the host."""
_LEAST_FILES: Final = 1_024
_FILE_BYTES: Final = 4_096
"""A tmpfs may hold a file for each so many bytes of its size."""
_LEAST_INODES: Final = 1_024
_MASKED: Final = (
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/block", "/sys/bus"),
    *("/sys/class", "/sys/dev", "/sys/devices", "/sys/firmware", "/sys/hypervisor", "/sys/kernel"),
    *("/sys/module", "/sys/power"),
)
"""Empty inside: what engines mask, and of /sys all but /sys/fs, where the kernel counts OOM kills."""
_SYSTEM_DIRS: Final = ("/dev", "/proc", "/sys", BOX_DIR, egress.INSIDE_FOLDER)


@dataclass(frozen=True, slots=True)
class Image:
    """What counts of an image."""

    id: str
    env: Mapping[str, str]
    volumes: tuple[str, ...]
    """Folders that an engine would put on disk, without a limit, if nothing else were mounted there."""
    work_dir: str
    """Empty where it names none."""
    architecture: str
    """As in amd64."""

    @classmethod
    def of(cls, inspected: Mapping[str, Any]) -> Self:
        config = inspected.get("Config") or {}
        pairs = (entry.partition("=") for entry in config.get("Env") or ())
        return cls(
            id=str(inspected["Id"]),
            env={name: value for name, _, value in pairs},
            volumes=tuple(sorted(config.get("Volumes") or ())),
            work_dir=str(config.get("WorkingDir") or ""),
            architecture=str(inspected["Architecture"]),
        )


def work_dir(spec: SandboxSpec, image: Image) -> str:
    """Where the work tree is. Raises JobError for a place where none can be."""
    work = spec.work_dir or image.work_dir.rstrip("/") or WORK_DIR
    parts = work.split("/")
    if not work.startswith("/") or {"", ".", ".."} & set(parts[1:]) or {":", ",", "\0"} & set(work):
        raise JobError(f"The work tree cannot be at {work!r}: it must be an absolute path without '..'.")
    if any(f"{work}/".startswith(f"{folder}/") for folder in _SYSTEM_DIRS):
        raise JobError(f"The work tree cannot be at {work!r}, which is the sandbox's own.")
    return work


@dataclass(frozen=True, slots=True)
class Plan:
    """One container to be made."""

    spec: SandboxSpec
    image: Image
    """Present on the engine."""
    argv: Sequence[str]
    """Of the supervisor."""
    labels: Mapping[str, str]
    uid: int
    """Of the supervisor and of every command."""
    way_out: Path | None = None
    """On the host: the folder with the socket of the sandbox's proxy."""

    @property
    def work(self) -> str:
        return work_dir(self.spec, self.image)

    @property
    def scratch(self) -> tuple[str, ...]:
        """Folders that begin empty."""
        return tuple(sorted({TMP_DIR, SHM_DIR, *self.image.volumes, *self.spec.scratch} - {self.work}))


def container_config(plan: Plan, options: DockerOptions) -> Config:
    """The body of the request that creates a container."""
    return {
        "Image": plan.image.id,
        "Entrypoint": list(plan.argv),
        "Cmd": [],
        "User": f"{plan.uid}:{plan.uid}",
        "WorkingDir": "/",
        "Hostname": HOSTNAME,
        "Labels": dict(plan.labels),
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(plan, options),
    }


def _host_config(plan: Plan, options: DockerOptions) -> Config:
    spec = plan.spec
    memory = spec.memory_bytes + spec.work_bytes + len(plan.scratch) * spec.tmp_bytes + _OWN_BYTES
    cpus = spec.cpus or options.cpus
    return {
        "NetworkMode": OPEN_NETWORK if spec.network == "open" else "none",
        "IpcMode": "none",
        "CgroupnsMode": "private",
        "Init": False,
        "Privileged": False,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "MaskedPaths": [*_MASKED],
        "SecurityOpt": ["no-new-privileges", f"seccomp={json.dumps(seccomp.docker_profile())}"],
        "PidsLimit": spec.pids + OWN_PIDS,
        "Memory": memory,
        "MemorySwap": memory,
        **({} if cpus is None else {"NanoCpus": int(cpus * 1_000_000_000)}),
        "Ulimits": [
            _ulimit("core", _NO_CORE_BYTES),
            _ulimit("fsize", max(spec.work_bytes, spec.tmp_bytes)),
            _ulimit("nofile", max(spec.open_files, _LEAST_FILES)),
        ],
        "Tmpfs": {
            plan.work: _tmpfs(spec.work_bytes, f"mode=0700,uid={plan.uid},gid={plan.uid}"),
            **{folder: _tmpfs(spec.tmp_bytes, "mode=1777") for folder in plan.scratch},
        },
        "Mounts": list(_mounts(plan)),
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "64k", "max-file": "1"}},
        **({} if options.runtime is None else {"Runtime": options.runtime}),
    }


def _mounts(plan: Plan) -> Sequence[Config]:
    """Files of the verify phase belong to root, and nobody inside is; without any, nothing is stored."""
    verify = plan.spec.verify_dir
    nothing = {"SizeBytes": _FILE_BYTES, "Mode": 0o555}
    mounts = [
        _volume(BOX_DIR),
        _volume(verify)
        if plan.spec.readonly_files
        else {"Type": "tmpfs", "Target": verify, "ReadOnly": True, "TmpfsOptions": nothing},
    ]
    if plan.way_out is not None:
        folder, source = egress.INSIDE_FOLDER, str(plan.way_out)
        mounts.append({"Type": "bind", "Source": source, "Target": folder, "ReadOnly": True})
    return mounts


def _volume(folder: str) -> Config:
    """Filled from outside before the container starts, and removed with it."""
    return {"Type": "volume", "Target": folder, "VolumeOptions": {"NoCopy": True}}


def _tmpfs(size: int, owner: str) -> str:
    inodes = max(size // _FILE_BYTES, _LEAST_INODES)
    return f"rw,exec,nosuid,nodev,size={size},nr_inodes={inodes},{owner}"


def _ulimit(name: str, value: int) -> Config:
    return {"Name": name, "Soft": value, "Hard": value}


def archive(files: Mapping[str, bytes], mode: int) -> bytes:
    """A tar of files that belong to root, with the folders on their way."""
    made: set[str] = set()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(files.items()):
            parts = path.split("/")
            for folder in ("/".join(parts[:end]) for end in range(1, len(parts))):
                if folder not in made:
                    made.add(folder)
                    tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o755))
            entry = _entry(path, tarfile.REGTYPE, mode)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return file.getvalue()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry
