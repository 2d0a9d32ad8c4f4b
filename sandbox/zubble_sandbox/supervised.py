"""A living sandbox whose pid 1 is our supervisor: the same for every backend."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Self, TypeVar

from zubble_queue.contracts.sandbox import (
    MIB,
    WORK_DIR,
    Command,
    CommandResult,
    FileInfo,
    HostUse,
    SandboxSpec,
    TreeDiff,
)
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import archive, differences, results, wire
from zubble_sandbox.channel import Body, Channel
from zubble_sandbox.egress import Egress

GRACE_SECONDS: Final = 5.0
"""How much later than its deadline a command may be reported before the sandbox counts as lost."""
SETUP_SECONDS: Final = 60.0
LEAVE_SECONDS: Final = 2.0
"""For a supervisor to say that it is going to end."""
FILE_SECONDS: Final = 300.0
"""For one file operation; a snapshot of 256 MiB takes about a second."""
MAX_ENTRIES: Final = 200_000
"""Of one listing or fingerprint; the supervisor looks at no more."""
_LISTING_BYTES: Final = 256 * MIB
_MUCH_BYTES: Final = MIB
"""What is larger is looked through beside the event loop."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the supervisor is told once, before anything else."""

    mode: str
    """`namespace` when it is pid 1 of its own pid namespace, else `tree`."""
    folders: Mapping[str, str]
    """Name in absolute paths (work, tmp, verify) to the folder as the supervisor sees it."""
    env: Mapping[str, str]
    """The sandbox's own small environment."""
    grouped: bool = False
    """Whether a control group limits memory and processes of all together, in place of each one's rlimits."""
    limits: bool = True
    """Whether every command gets the spec's limits as rlimits; `tree` has that of open files only."""
    oom: str = ""
    """Where the kernel counts processes killed for memory: the number of an inherited descriptor, or paths of
    `memory.events` or `memory.oom_control` inside with ':' between, the first that is there."""
    forward: tuple[int, str] = (0, "")
    """A port on 127.0.0.1 inside, and the Unix socket its connections are carried to; port 0 for none."""
    grace_seconds: float = GRACE_SECONDS
    """For each command; longer where a lost line is opened again."""
    linger_seconds: float = 0.0
    """The least time a lost line is waited for, whatever the spec says."""

    def fields(self, spec: SandboxSpec) -> list[bytes]:
        capped = self.limits and self.mode == "namespace"
        numbers = (
            spec.max_life_seconds,
            spec.pids if capped and not self.grouped else 0,
            spec.open_files,
            spec.work_bytes if capped else 0,
            spec.memory_bytes if capped and not self.grouped else 0,
            max(spec.linger_seconds, self.linger_seconds),
            int(spec.background),
        )
        folders = [os.fsencode(text) for pair in self.folders.items() for text in pair]
        port, path = self.forward
        return [
            self.mode.encode(),
            *(b"%a" % number for number in numbers),
            *(self.oom.encode(), b"%d" % port, os.fsencode(path)),
            *folders,
        ]


class SupervisedSandbox:
    """Implements `zubble_queue.contracts.sandbox.Sandbox`.

    One command at a time: `exec` and `restore` wait for each other, because the end of a command is the end
    of everything in the sandbox, unless its spec allows background processes. The other methods also work
    while a command runs. A frozen sandbox starts no command; the time a command was frozen is not counted
    against it. A command that could not be started is a result with exit code 127 (not found) or 126
    (anything else) and one sentence on standard error.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        setup: Setup,
        channel: Channel,
        release: Callable[[], Awaitable[None]],
        handle: str | None = None,
    ) -> None:
        self._spec, self._setup, self._channel, self._release = spec, setup, channel, release
        self._handle = handle
        self._turn, self._looking = asyncio.Lock(), asyncio.Lock()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._frozen_at: float | None = None
        self._frozen_before = 0.0
        self._destroying: asyncio.Task[None] | None = None
        self.renamed: Callable[[SandboxSpec], object] = lambda _: None
        """Called when it is handed over."""
        self.way_out: Egress | None = None
        """Its own, which ends with it."""
        self._killing: asyncio.Task[object] | None = None

    @classmethod
    async def begin(
        cls,
        spec: SandboxSpec,
        setup: Setup,
        channel: Channel,
        release: Callable[[], Awaitable[None]],
        handle: str | None = None,
    ) -> Self:
        """Set the supervisor up. Raises SandboxUnavailable; what was started is the caller's to end.

        Args:
            spec: What it is.
            setup: What the supervisor is told of it.
            channel: To the supervisor; closed with the sandbox.
            release: Called once when the sandbox is destroyed, with the channel closed.
            handle: What the backend adopts it by; None when it ends with its channel.
        """
        async with asyncio.timeout(SETUP_SECONDS):
            await channel.call(wire.SETUP, *setup.fields(spec))
        return cls(spec, setup, channel, release, handle)

    @classmethod
    async def adopt(
        cls,
        spec: SandboxSpec,
        setup: Setup,
        channel: Channel,
        release: Callable[[], Awaitable[None]],
        handle: str,
    ) -> Self:
        """Go on with a sandbox that was set up by another worker: thawed, its last command ended.

        Takes and raises what `begin` does, and TimeoutError.
        """
        async with asyncio.timeout(SETUP_SECONDS):
            await channel.call(wire.KILL, b"")
            await channel.call(wire.THAW)
        return cls(spec, setup, channel, release, handle)

    @property
    def spec(self) -> SandboxSpec:
        return self._spec

    @property
    def handle(self) -> str | None:
        return self._handle

    @property
    def host_uses(self) -> tuple[HostUse, ...]:
        return () if self.way_out is None else self.way_out.uses()

    async def exec(self, command: Command) -> CommandResult:
        try:
            fields = self._command_fields(command)
        except ValueError as error:
            return results.not_started(f"zubble: cannot start the command: {error}\n")
        async with self._turn:
            await self._thawed.wait()
            if self._killing is not None:
                await asyncio.shield(self._killing)
            return await self._run(command, fields)

    async def read(self, path: str, *, max_bytes: int = 10 * MIB) -> bytes:
        return bytes(await self._file(path, wire.READ, os.fsencode(path), b"%d" % max_bytes, limit=max_bytes))

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        await self._file(path, wire.WRITE, os.fsencode(path), b"%d" % executable, body=(data,))

    async def list(self, path: str = ".", *, limit: int = 10_000) -> builtins.list[FileInfo]:
        data = await self._listing(path, skip_private=False)
        records = await _beside(data, archive.records)
        records.sort(key=lambda record: record.path)
        return [
            FileInfo(os.fsdecode(record.path), record.kind_name, record.size, record.mode)
            for record in records[:limit]
        ]

    async def fingerprint(self) -> str:
        data = await self._listing(WORK_DIR, skip_private=True)
        return (await _beside(data, hashlib.sha256)).hexdigest()

    async def snapshot(self, *, max_bytes: int = 256 * MIB) -> bytes:
        async with self._standing_still():
            data = await self._file(WORK_DIR, wire.SNAPSHOT, b"%d" % max_bytes, limit=max_bytes)
        return await _beside(data, lambda saved: archive.tar(saved, max_bytes))

    async def diff(self, snapshot: bytes) -> TreeDiff:
        async with self._standing_still():
            listing = await self._listing(WORK_DIR, skip_private=True)
            found = await _beside(snapshot, partial(differences.by_listing, listing=listing))
            return found.diff(await self._changed(found.undecided))

    async def restore(self, snapshot: bytes) -> None:
        self._channel.ensure_whole()
        body = await _beside(snapshot, archive.checked)
        async with self._turn:
            await self._file(WORK_DIR, wire.RESTORE, body=body)

    async def freeze(self) -> None:
        if self._frozen_at is None:
            self._frozen_at = time.monotonic()
            self._thawed.clear()
            await self._file(WORK_DIR, wire.FREEZE)

    async def thaw(self) -> None:
        if self._frozen_at is not None:
            await self._file(WORK_DIR, wire.THAW)
            self._frozen_before = self._frozen_seconds()
            self._frozen_at = None
            self._thawed.set()

    async def hand_over(self, spec: SandboxSpec) -> None:
        """Become the sandbox of a spec that differs in its name only; its life begins now."""
        await self._file(WORK_DIR, wire.SETUP, *self._setup.fields(spec))
        self.renamed(spec)
        self._spec = spec

    async def ping(self) -> None:
        """Raises SandboxUnavailable when the supervisor does not answer."""
        await self._file(WORK_DIR, wire.PING)

    async def destroy(self) -> None:
        if self._destroying is None:
            self._destroying = asyncio.create_task(self._end())
        await asyncio.shield(self._destroying)

    async def _end(self) -> None:
        if self._handle is not None:  # a closed line alone would be waited for
            with contextlib.suppress(SandboxUnavailable, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._channel.call(wire.LEAVE)
        await self._channel.close()
        self._thawed.set()  # whoever waits to run a command now hears that the sandbox is gone
        try:
            if self.way_out is not None:
                await self.way_out.close()
        finally:
            await self._release()  # the record is the last to go

    def _command_fields(self, command: Command) -> builtins.list[bytes]:
        if not command.argv:
            raise ValueError("it is empty")
        env = {**self._setup.env, **self._spec.env, **command.env}
        if not all(env) or any("=" in name for name in env):
            raise ValueError("the name of a variable is empty or holds '='")
        texts = [*command.argv, *(f"{name}={value}" for name, value in env.items())]
        head = [secrets.token_hex(8).encode(), b"%f" % command.timeout_seconds]
        head += [os.fsencode(command.cwd), b"%d" % len(command.argv)]
        fields = [*head, *map(os.fsencode, texts)]
        if any(b"\0" in field for field in fields):
            raise ValueError("a text of it holds NUL")
        if sum(len(field) + 4 for field in fields) > wire.MAX_FRAME_BYTES:
            raise ValueError("its arguments are too long")
        return fields

    async def _run(self, command: Command, fields: builtins.list[bytes]) -> CommandResult:
        answer = asyncio.ensure_future(self._channel.call(wire.EXEC, *fields))
        deadline = time.monotonic() - self._frozen_seconds() + command.timeout_seconds
        deadline += self._setup.grace_seconds
        try:
            while not answer.done():
                left = deadline + self._frozen_seconds() - time.monotonic()
                if left <= 0:
                    raise await self._lost("did not report a command after its deadline")
                await asyncio.wait({answer}, timeout=left)
            return results.result(answer.result()[0])
        finally:
            if not answer.done():
                answer.cancel()
                self._killing = asyncio.create_task(self._kill(fields[0]))

    async def _kill(self, command_id: bytes) -> None:
        """Of a command nobody waits for any more; what goes wrong is met again by the next call."""
        with contextlib.suppress(SandboxUnavailable):
            await self._file(WORK_DIR, wire.KILL, command_id)

    async def _listing(self, path: str, *, skip_private: bool) -> bytearray:
        fields = os.fsencode(path), b"%d" % MAX_ENTRIES, b"%d" % skip_private
        return await self._file(path, wire.LIST, *fields, limit=_LISTING_BYTES)

    async def _changed(self, files: Sequence[tuple[bytes, memoryview]]) -> Sequence[bytes]:
        """Those whose content is another than the given one, or cannot be read."""
        changed = []
        for path, content in files:
            try:
                if await self.read(os.fsdecode(path), max_bytes=len(content)) == content:
                    continue
            except (OSError, ValueError):
                pass
            changed.append(path)
        return changed

    @contextlib.asynccontextmanager
    async def _standing_still(self) -> AsyncIterator[None]:
        """As `freeze` and `thaw`, unless it is frozen anyhow, or frozen meanwhile."""
        async with self._looking:
            if self._frozen_at is None:
                await self._file(WORK_DIR, wire.FREEZE)
            try:
                yield
            finally:
                if self._frozen_at is None:
                    await self._file(WORK_DIR, wire.THAW)

    async def _file(
        self, path: str, kind: int, *fields: bytes, body: Body | None = None, limit: int = 0
    ) -> bytearray:
        try:
            async with asyncio.timeout(FILE_SECONDS):
                return (await self._channel.call(kind, *fields, body=body, limit=limit))[1]
        except TimeoutError as error:
            raise await self._lost("did not answer") from error
        except OSError as error:
            error.filename = path
            raise

    def _frozen_seconds(self) -> float:
        """Of its whole life, until now."""
        now = 0.0 if self._frozen_at is None else time.monotonic() - self._frozen_at
        return self._frozen_before + now

    async def _lost(self, what: str) -> SandboxUnavailable:
        await self.destroy()
        return SandboxUnavailable(f"The sandbox {self._spec.name} {what}; it was destroyed.")


_Data = TypeVar("_Data", bytes, bytearray)
_Made = TypeVar("_Made")


async def _beside(data: _Data, work: Callable[[_Data], _Made]) -> _Made:
    """Work on data without holding up the event loop when it is much."""
    return work(data) if len(data) < _MUCH_BYTES else await asyncio.to_thread(work, data)
