"""Where commands run: the promises every backend keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

WORK_DIR: Final = "/work"
"""The work tree inside every sandbox; `local` maps it to a temporary folder."""
VERIFY_DIR: Final = "/verify"
"""Read-only files of the verify phase."""
OUTPUT_HEAD_BYTES: Final = 65_536
OUTPUT_TAIL_BYTES: Final = 65_536
MIB: Final = 1_048_576

NetworkMode = Literal["none", "allowlist", "open"]
NETWORKS: Final[tuple[NetworkMode, ...]] = ("none", "allowlist", "open")
WEB_PORTS: Final = (80, 443)
Strength = Literal["none", "namespaces", "limits", "kernel"]
"""What holds a command in, each including the ones before it.

none: nothing does (local, attached); namespaces: the kernel's namespaces and a system call filter, limits for
each process only; limits: also memory, processes and processor time of the sandbox as a whole; kernel: a
kernel of its own (gVisor, Kata).
"""
STRENGTHS: Final[tuple[Strength, ...]] = ("none", "namespaces", "limits", "kernel")
"""Weakest first."""


def holds(found: Strength, demanded: Strength) -> bool:
    """Whether a sandbox is strong enough."""
    return STRENGTHS.index(found) >= STRENGTHS.index(demanded)


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What to open. The owner and the name are how an orphan is recognised."""

    name: str
    """Opaque and unique: `<task_id>.<epoch>.<purpose>`; also carried by processes for reaping."""
    owner: str
    """The worker that opened it."""
    memory_bytes: int = 1_024 * MIB
    work_bytes: int = 256 * MIB
    tmp_bytes: int = 64 * MIB
    pids: int = 256
    open_files: int = 1_024
    cpus: float | None = None
    """Processor time a second, over all processes; None for as much as there is."""
    image: str | None = None
    """The root file system, by name or digest; None for the host's /usr, or the backend's own default."""
    container: str | None = None
    """An existing container or pod to run in (`attached` only); a pod as `namespace/pod` or
    `namespace/pod/container`."""
    network: NetworkMode = "none"
    allowed_hosts: tuple[str, ...] = ()
    """Names that may be reached when the network is `allowlist`; `*.name` means every name below it."""
    allowed_ports: tuple[int, ...] = WEB_PORTS
    """On those hosts."""
    background: bool = False
    """Whether processes that a command leaves behind live on until the sandbox ends."""
    linger_seconds: float = 0.0
    """How long the sandbox outlives the connection to its worker, to be adopted by `attach`."""
    work_dir: str | None = WORK_DIR
    """Where commands find the work tree; None for the image's own working directory, /work without one. What
    the image holds there is what the work tree begins with. In `cwd` and in paths /work means it anyhow."""
    verify_dir: str = VERIFY_DIR
    readonly_files: Mapping[str, bytes] = field(default_factory=dict)
    """Absolute path below `verify_dir` to content; commands cannot change them, but may run them."""
    scratch: tuple[str, ...] = ()
    """Further folders that begin empty and that commands may write to, `tmp_bytes` each; no part of the work
    tree. Their files can be read by their absolute path."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of every command."""
    max_life_seconds: float = 7_200.0
    """The sandbox ends itself after this, whatever became of its worker."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command; a fresh process in a living sandbox, standard input at end of file."""

    argv: tuple[str, ...]
    """A shell command is ("/bin/sh", "-c", text)."""
    timeout_seconds: float = 30.0
    cwd: str = WORK_DIR
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the sandbox's own small environment (PATH, HOME, LANG, TERM)."""


def shell(text: str, *, timeout_seconds: float = 30.0, cwd: str = WORK_DIR) -> Command:
    """The command a model writes, handed to /bin/sh as one argument."""
    return Command(argv=("/bin/sh", "-c", text), timeout_seconds=timeout_seconds, cwd=cwd)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. Exactly one of exit_code and signal is set, unless it timed out."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    oom: bool
    stdout: bytes
    """The first and last 64 KiB, with a line between that says how much is missing."""
    stderr: bytes
    stdout_bytes: int
    """How much was written, whatever was kept."""
    stderr_bytes: int
    truncated: bool
    seconds: float

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing."""

    path: str
    """Relative to the listed folder; undecodable bytes as surrogate escapes."""
    kind: str
    """file, directory, symlink or other."""
    size: int
    mode: int
    """Permission bits."""


@dataclass(frozen=True, slots=True)
class TreeDiff:
    """What differs between a snapshot and the work tree, as paths below it.

    Of files, folders and links; sorted, undecodable bytes as surrogate escapes.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Of another kind, with other permission bits, another target or other content; times do not count."""
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """What isolation is really there, found by doing it."""

    backend: str
    available: bool
    isolated: bool
    """True when model-written bytes may run here by default."""
    strength: Strength = "none"
    problems: tuple[str, ...] = ()
    """What is missing and what to do about it, one sentence each."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """As in {"bwrap": "0.8.0 /usr/bin/bwrap", "seccomp": "yes", "limits": "rlimits (degraded)"}."""
    networks: tuple[NetworkMode, ...] = NETWORKS
    """What it can keep; a sandbox with another one is not opened."""


@dataclass(frozen=True, slots=True)
class HostUse:
    """What became of a sandbox's requests for one host, where it has an allow-list."""

    host: str
    """As it was asked for, made printable; `-` where no name could be read."""
    allowed: int = 0
    denied: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    reasons: tuple[str, ...] = ()
    """Why requests were denied, a word each: host, port, address, sni, …"""


class Sandbox(Protocol):
    """A living place for one attempt.

    Every method raises SandboxUnavailable when the sandbox itself failed; a command that fails, is killed
    or times out is a CommandResult. Paths are relative to the work tree or absolute inside the sandbox;
    no symbolic link is followed out of it.
    """

    @property
    def spec(self) -> SandboxSpec: ...

    @property
    def handle(self) -> str | None:
        """What `SandboxProvider.attach` adopts it by while it lingers; None when it ends with its worker."""

    @property
    def host_uses(self) -> tuple[HostUse, ...]:
        """What was asked of an allow-list so far, by host; empty where there is none."""

    async def exec(self, command: Command) -> CommandResult:
        """Run to its end or its deadline; then everything it started is killed."""

    async def read(self, path: str, *, max_bytes: int = 10 * MIB) -> bytes:
        """A regular file's content. Raises FileNotFoundError, IsADirectoryError, ValueError (too large)."""

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Create or replace a file in the work tree, making folders as needed. Raises OSError when full."""

    async def list(self, path: str = ".", *, limit: int = 10_000) -> list[FileInfo]:
        """All entries below a folder, sorted by path, at most `limit`."""

    async def fingerprint(self) -> str:
        """A hash that changes when the work tree does (paths, sizes, modes, times)."""

    async def snapshot(self, *, max_bytes: int = 256 * MIB) -> bytes:
        """The work tree as a tar with regular files, folders and symbolic links only, .zubble left out.

        Everything in the sandbox stands still meanwhile. What else commands may write to, such as /tmp, is in
        no snapshot: nothing there is judged or kept. Raises ValueError when it is larger than max_bytes.
        """

    async def diff(self, snapshot: bytes) -> TreeDiff:
        """What became of the work tree since a snapshot, by content; everything stands still meanwhile.

        Works on trees that are too large for another snapshot. Raises ValueError for what is no snapshot, and
        for a tree with more entries than a snapshot may hold.
        """

    async def restore(self, snapshot: bytes) -> None:
        """Make the work tree what the snapshot holds; entries are checked, never extracted blindly."""

    async def freeze(self) -> None:
        """Stop every process of the sandbox, the supervisor excepted."""

    async def thaw(self) -> None: ...

    async def destroy(self) -> None:
        """Kill and remove everything; never fails on a sandbox that is already gone."""


class SandboxProvider(Protocol):
    """Opens sandboxes of one kind."""

    @property
    def name(self) -> str: ...

    async def probe(self) -> Probe: ...

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """Raises SandboxUnavailable; never falls back to something weaker."""

    async def attach(self, handle: str) -> Sandbox:
        """Adopt a living sandbox whose worker is gone. Raises SandboxUnavailable when it has ended."""

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        """Destroy what dead workers left behind, and return how many that were."""
