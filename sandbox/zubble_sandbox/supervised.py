"""A living sandbox whose pid 1 is our supervisor: the same for every backend."""

from __future__ import annotations

import asyncio
import builtins
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from zubble_queue.contracts.sandbox import (
    MIB,
    WORK_DIR,
    Command,
    CommandResult,
    FileInfo,
    HostUse,
    SandboxSpec,
)
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.channel import Channel
from zubble_sandbox.supervisor import wire

GRACE_SECONDS: Final = 5.0
"""How much later than its deadline a command may be reported before the sandbox counts as lost."""
SETUP_SECONDS: Final = 60.0
FILE_SECONDS: Final = 300.0
"""For one file operation; a snapshot of 256 MiB takes about a second."""
_LISTING_BYTES: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class Setup:
    """What the supervisor is told once, before anything else."""

    mode: str
    """`namespace` when it is pid 1 of its own pid namespace, else `tree`."""
    folders: Mapping[str, str]
    """Name in absolute paths (work, tmp, verify) to the folder as the supervisor sees it."""
    env: Mapping[str, str]
    """The sandbox's own small environment."""

    def fields(self, spec: SandboxSpec) -> list[bytes]:
        numbers = (spec.max_life_seconds, spec.pids, spec.open_files, spec.work_bytes, spec.memory_bytes)
        folders = [os.fsencode(text) for pair in self.folders.items() for text in pair]
        return [self.mode.encode(), *(b"%a" % number for number in numbers), *folders]


class SupervisedSandbox:
    """Implements `zubble_queue.contracts.sandbox.Sandbox`.

    One command at a time: `exec` and `restore` wait for each other, because the end of a command is the end
    of everything in the sandbox. The other methods also work while a command runs. A frozen sandbox starts
    no command; the time a command was frozen is not counted against it. A command that could not be started
    is a result with exit code 127 (not found) or 126 (anything else) and one sentence on standard error.
    """

    def __init__(
        self, spec: SandboxSpec, setup: Setup, channel: Channel, release: Callable[[], Awaitable[None]]
    ) -> None:
        self._spec, self._setup, self._channel, self._release = spec, setup, channel, release
        self._turn = asyncio.Lock()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._frozen_at: float | None = None
        self._frozen_before = 0.0
        self._destroying: asyncio.Task[None] | None = None

    @classmethod
    async def begin(
        cls, spec: SandboxSpec, setup: Setup, channel: Channel, release: Callable[[], Awaitable[None]]
    ) -> Self:
        """Set the supervisor up. Raises SandboxUnavailable; what was started is the caller's to end."""
        async with asyncio.timeout(SETUP_SECONDS):
            await channel.call(wire.SETUP, *setup.fields(spec))
        return cls(spec, setup, channel, release)

    @property
    def spec(self) -> SandboxSpec:
        return self._spec

    @property
    def handle(self) -> str | None:
        return None

    @property
    def host_uses(self) -> tuple[HostUse, ...]:
        return ()

    async def exec(self, command: Command) -> CommandResult:
        try:
            fields = self._command_fields(command)
        except ValueError as error:
            return _not_started(f"zubble: cannot start the command: {error}\n")
        async with self._turn:
            await self._thawed.wait()
            return await self._run(command, fields)

    async def read(self, path: str, *, max_bytes: int = 10 * MIB) -> bytes:
        return await self._file(path, wire.READ, os.fsencode(path), b"%d" % max_bytes, limit=max_bytes)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        await self._file(path, wire.WRITE, os.fsencode(path), b"%d" % executable, body=data)

    async def list(self, path: str = ".", *, limit: int = 10_000) -> builtins.list[FileInfo]:
        data = await self._file(path, wire.LIST, os.fsencode(path), b"%d" % limit, limit=_LISTING_BYTES)
        fields = wire.unpack(data)
        return [
            FileInfo(path=os.fsdecode(name), kind=kind.decode(), size=int(size), mode=int(mode))
            for name, kind, size, mode in zip(
                fields[::4], fields[1::4], fields[2::4], fields[3::4], strict=True
            )
        ]

    async def fingerprint(self) -> str:
        return (await self._file(WORK_DIR, wire.FINGERPRINT, limit=1_024)).decode()

    async def snapshot(self, *, max_bytes: int = 256 * MIB) -> bytes:
        return await self._file(WORK_DIR, wire.SNAPSHOT, b"%d" % max_bytes, limit=max_bytes)

    async def restore(self, snapshot: bytes) -> None:
        async with self._turn:
            await self._file(WORK_DIR, wire.RESTORE, body=snapshot)

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

    async def ping(self) -> None:
        """Raises SandboxUnavailable when the supervisor does not answer."""
        await self._file(WORK_DIR, wire.PING)

    async def destroy(self) -> None:
        if self._destroying is None:
            self._destroying = asyncio.create_task(self._end())
        await asyncio.shield(self._destroying)

    async def _end(self) -> None:
        await self._channel.close()
        self._thawed.set()  # whoever waits to run a command now hears that the sandbox is gone
        await self._release()

    def _command_fields(self, command: Command) -> builtins.list[bytes]:
        if not command.argv:
            raise ValueError("it is empty")
        env = {**self._setup.env, **command.env}
        texts = [*command.argv, *(text for pair in env.items() for text in pair)]
        head = [b"%f" % command.timeout_seconds, os.fsencode(command.cwd), b"%d" % len(command.argv)]
        fields = [*head, *map(os.fsencode, texts)]
        if sum(len(field) + 4 for field in fields) > wire.MAX_FRAME_BYTES:
            raise ValueError("its arguments are too long")
        return fields

    async def _run(self, command: Command, fields: builtins.list[bytes]) -> CommandResult:
        answer = asyncio.ensure_future(self._channel.call(wire.EXEC, *fields))
        deadline = time.monotonic() - self._frozen_seconds() + command.timeout_seconds + GRACE_SECONDS
        try:
            while not answer.done():
                left = deadline + self._frozen_seconds() - time.monotonic()
                if left <= 0:
                    raise await self._lost("did not report a command after its deadline")
                await asyncio.wait({answer}, timeout=left)
            return _result(answer.result()[0])
        finally:
            if not answer.done():
                answer.cancel()
                self._channel.tell(wire.KILL)

    async def _file(
        self, path: str, kind: int, *fields: bytes, body: bytes | None = None, limit: int = 0
    ) -> bytes:
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


def _result(fields: builtins.list[bytes]) -> CommandResult:
    kind, code, seconds, out_total, out_head, out_tail, err_total, err_head, err_tail = fields
    totals = int(out_total), int(err_total)
    kept = len(out_head) + len(out_tail), len(err_head) + len(err_tail)
    return CommandResult(
        exit_code=int(code) if kind == b"exit" else None,
        signal=int(code) if kind == b"signal" else None,
        timed_out=kind == b"timeout",
        oom=False,
        stdout=_joined(out_head, out_tail, totals[0] - kept[0]),
        stderr=_joined(err_head, err_tail, totals[1] - kept[1]),
        stdout_bytes=totals[0],
        stderr_bytes=totals[1],
        truncated=totals != kept,
        seconds=float(seconds),
    )


def _joined(head: bytes, tail: bytes, missing: int) -> bytes:
    gap = b"\n[zubble: %d bytes left out]\n" % missing if missing else b""
    return head + gap + tail


def _not_started(sentence: str) -> CommandResult:
    text = sentence.encode(errors="backslashreplace")
    return CommandResult(126, None, False, False, b"", text, 0, len(text), False, 0.0)
