"""Pure: which folders a sandbox pod has, how large they are, and who may write to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from zubble_queue.contracts.sandbox import MIB, SandboxSpec
from zubble_queue.errors import JobError
from zubble_sandbox import commands

PROGRAM_DIR: Final = "/.zubble"
GATE_DIR: Final = "/.zubble-gate"
SEED_DIR: Final = "/.zubble-seed"
TMP_DIR: Final = "/tmp"  # noqa: S108 - the sandbox's own
_SHM_DIR: Final = "/dev/shm"  # noqa: S108 - the sandbox's own
_PROGRAM_BYTES: Final = 4 * MIB
_PAGE_BYTES: Final = 4_096
_SYSTEM: Final = frozenset(
    {
        "bin",
        "boot",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "proc",
        "run",
        "sbin",
        "sys",
        "usr",
        *(folder[1:] for folder in (PROGRAM_DIR, GATE_DIR, SEED_DIR)),
    }
)
"""First parts of paths that no folder of a sandbox may cover."""


@dataclass(frozen=True, slots=True)
class Volume:
    """One emptyDir."""

    name: str
    size: int
    path: str
    """Where commands find it, or nobody does."""
    writable: bool = True
    """By commands."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The volumes of one sandbox, and the names the supervisor finds its folders by."""

    work: Volume
    verify: Volume
    program: Volume
    gate: Volume
    others: tuple[Volume, ...]
    """The ones for temporary files, shared memory and scratch."""
    scratch: tuple[str, ...]
    folders: Mapping[str, str]

    @classmethod
    def of(cls, spec: SandboxSpec) -> Self:
        """Raises JobError when a folder cannot be had."""
        if spec.work_dir is None:
            raise JobError("A pod cannot be asked for its image's working directory: the task must name one.")
        work, verify = _checked(spec.work_dir), _checked(spec.verify_dir)
        tops = sorted({_top(_checked(path)) for path in spec.scratch} - {"tmp"})
        apart = _top(work) not in {*tops, "tmp"} and _top(verify) not in {*tops, "tmp"}
        if not apart or _inside(verify, work) or _inside(work, verify):
            folders = ", ".join((work, verify, *spec.scratch))
            raise JobError(f"Work tree, verify files and scratch must lie apart, and not in /tmp: {folders}.")
        scratch = [Volume(f"scratch-{at}", spec.tmp_bytes, f"/{top}") for at, top in enumerate(tops)]
        return cls(
            work=Volume("work", spec.work_bytes, work),
            verify=Volume("verify", _verify_bytes(spec.readonly_files), verify, writable=False),
            program=Volume("program", _PROGRAM_BYTES, PROGRAM_DIR, writable=False),
            gate=Volume("gate", MIB, GATE_DIR),
            others=(
                Volume("tmp", spec.tmp_bytes, TMP_DIR),
                Volume("shm", spec.tmp_bytes, _SHM_DIR),
                *scratch,
            ),
            scratch=tuple(sorted(spec.scratch)),
            folders={
                **{_top(path): f"/{_top(path)}" for path in (work, verify, *spec.scratch)},
                "tmp": TMP_DIR,
                "work": work,
            },
        )

    @property
    def seen(self) -> tuple[Volume, ...]:
        """By commands."""
        return (self.work, self.verify, self.program, *self.others)

    def bytes_in_memory(self, *, work_on_disk: bool) -> int:
        """Of a sandbox whose volumes are full."""
        whole = sum(volume.size for volume in (*self.seen, self.gate))
        return whole - self.work.size if work_on_disk else whole


def check(spec: SandboxSpec) -> None:
    """Raises JobError for what no pod can be."""
    if spec.container is not None:
        raise JobError("The pod backend makes its own pods; the backend `attached` runs in existing ones.")
    commands.check_readonly_files(spec)
    Layout.of(spec)


def _checked(path: str) -> str:
    parts = path.removeprefix("/").split("/")
    if not path.startswith("/") or "\0" in path or ":" in path or {"", ".", ".."} & set(parts):
        raise JobError(f"The folder {path!r} must be an absolute path without '..', ':' or empty parts.")
    if parts[0] in _SYSTEM:
        raise JobError(f"The folder {path!r} would cover a folder of the system.")
    return path


def _top(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]


def _inside(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _verify_bytes(files: Mapping[str, bytes]) -> int:
    """Whole pages, and one for each folder on the way."""
    return MIB + sum(len(data) + _PAGE_BYTES * (1 + path.count("/")) for path, data in files.items())
