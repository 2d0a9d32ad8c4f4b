"""Starting a supervisor and ending it again: the host's side of a sandbox, for every local backend."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import egress, groups, notes, spawner, wire
from zubble_sandbox.channel import Channel
from zubble_sandbox.groups import Group
from zubble_sandbox.line import LineLost, SocketLine
from zubble_sandbox.records import Record, Records, kill_marked, marked
from zubble_sandbox.removal import remove_folder
from zubble_sandbox.supervised import Setup, SupervisedSandbox

END_SECONDS: Final = 2.0
"""How long a sandbox may take to end by itself before it is killed."""
COMPLAINT_BYTES: Final = 600


@dataclass(frozen=True, slots=True)
class Plan:
    """One sandbox to be opened."""

    record: Record
    setup: Setup
    argv: Callable[[Sequence[str]], Sequence[str]]
    """Makes the command line from the arguments of zubble-box."""
    pass_fds: Sequence[int]
    after: Callable[[], object] = lambda: None
    """Called once, after the last process has ended or when nothing could be started."""
    kept_fds: Sequence[int] = ()
    """Locks: the supervisor of a sandbox that may outlive its worker holds them until its end."""
    make_group: Callable[[], Group] | None = None
    """Makes the control groups that the record names; None without any."""


async def open_sandbox(spec: SandboxSpec, records: Records, plan: Plan) -> SupervisedSandbox:
    """Its record is there already (`Records.opening`), and goes with the sandbox.

    Raises SandboxUnavailable with what the program complained about; nothing is left behind then.
    """
    box = _Box(records, plan.record, plan.after)
    try:
        channel = await box.start(plan)
        handle = plan.record.token if plan.record.linger_seconds else None
        setup = replace(plan.setup, oom=box.oom)
        sandbox = await SupervisedSandbox.begin(spec, setup, channel, box.end, handle)
        sandbox.renamed = box.rename
        return sandbox
    except (SandboxUnavailable, LineLost, OSError, TimeoutError) as error:
        reason = box.complaint() or str(error) or "it did not answer"
        await box.end()
        raise SandboxUnavailable(f"A {plan.record.backend} sandbox could not be opened: {reason}") from error
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(box.end()))
        raise


async def adopt_sandbox(
    records: Records,
    record: Record,
    setup: Callable[[SandboxSpec], Setup],
    after: Callable[[], object] = lambda: None,
) -> SupervisedSandbox:
    """Go on with a sandbox that `Records.adopt` gave us; what its last command still does is ended.

    Raises SandboxUnavailable when it has ended; nothing is left of it then.
    """
    box = _Box(records, record, after)
    try:
        spec = notes.recalled(record.note)
        return await SupervisedSandbox.adopt(spec, setup(spec), await box.rejoin(), box.end, record.token)
    except (SandboxUnavailable, LineLost, TimeoutError) as error:
        await box.end()
        raise SandboxUnavailable(f"The sandbox {record.token} has ended: {error}.") from error
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(box.end()))
        raise


class _Box:
    """The process of one sandbox and what must be given back after it."""

    def __init__(self, records: Records, record: Record, after: Callable[[], object]) -> None:
        self._records, self._record, self._after = records, record, after
        self._process: spawner.Process | None = None
        self._channel: Channel | None = None
        self._fds = contextlib.ExitStack()
        self._output: int | None = None
        self.oom = ""
        """The descriptor, in the supervisor, of what counts its processes killed for memory."""

    async def start(self, plan: Plan) -> Channel:
        self._output = memory_file(b"", "output")
        self._fds.callback(os.close, self._output)
        with contextlib.ExitStack() as passed:
            oom_fds = () if plan.make_group is None else (_oom_counter(plan.make_group(), passed),)
            self.oom = "".join(map(str, oom_fds))
            control, ours = self._listen(passed) if self._record.linger_seconds else _pair(passed)
            kept = [option for fd in plan.kept_fds for option in ("--keep", str(fd))]
            launch = spawner.Launch(
                argv=plan.argv(("supervise", *control, *kept, self._record.token)),
                output_fd=self._output,
                pass_fds=(int(control[1]), *oom_fds, *plan.kept_fds, *plan.pass_fds),
            )
            self._process = await spawner.start(launch)
            line = await (SocketLine.over(ours) if ours else self._connect())
        self._channel = Channel(line)
        return self._channel

    def rename(self, spec: SandboxSpec) -> None:
        """Put the name of another spec into the record."""
        self._record = self._record.renamed(spec)
        self._records.add(self._record)

    async def rejoin(self) -> Channel:
        """Raises LineLost when nobody listens any more."""
        self._channel = Channel(await self._connect())
        return self._channel

    def _listen(self, passed: contextlib.ExitStack) -> tuple[Sequence[str], None]:
        listening = socket.socket(socket.AF_UNIX)
        passed.callback(listening.close)
        with reachable(self._records.socket(self._record.token)) as path:
            listening.bind(path)
        listening.listen()
        linger = f"{self._record.linger_seconds}"
        return ("--listen-fd", str(listening.fileno()), "--linger", linger), None

    async def _connect(self) -> SocketLine:
        with reachable(self._records.socket(self._record.token)) as path:
            return await SocketLine.to(path)

    def complaint(self) -> str:
        """The end of what the program, not a command, wrote."""
        if self._output is None:
            return ""
        size = os.fstat(self._output).st_size
        text = os.pread(self._output, COMPLAINT_BYTES, max(0, size - COMPLAINT_BYTES))
        return text.decode(errors="replace").strip()

    async def end(self) -> None:
        """Close the line, on which a supervisor ends all and itself; kill what does not."""
        try:
            if self._channel is not None:
                await self._channel.close()
            if self._process is not None:
                await self._end_process(self._process)
            else:
                await asyncio.to_thread(end_marked, self._record.token)
        finally:
            if left := groups.remove(map(Path, self._record.groups)):
                await asyncio.to_thread(groups.end, left)
            self._fds.close()
            self._after()
            self._records.remove(self._record.token)

    async def _end_process(self, process: spawner.Process) -> None:
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            await asyncio.to_thread(kill_until_gone, self._record.token)
        process.close()


def _oom_counter(group: Group, passed: contextlib.ExitStack) -> int:
    fd = os.open(group.oom_file, os.O_RDONLY | os.O_CLOEXEC)
    passed.callback(os.close, fd)
    return fd


def _pair(passed: contextlib.ExitStack) -> tuple[Sequence[str], socket.socket]:
    ours, theirs = socket.socketpair()
    passed.callback(theirs.close)
    passed.push(lambda kind, *_: ours.close() if kind else None)
    return ("--fd", str(theirs.fileno())), ours


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A name for a socket that the kernel takes, however long its path is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def reap_orphans(records: Records, backend: str, keep_owners: frozenset[str]) -> int:
    """End what workers that are gone left open; how many sandboxes still had a process or a folder."""
    found = 0
    records.sweep()
    for record in records.orphans(backend, keep_owners):
        if not records.claim(record):
            continue
        if record.linger_seconds:
            _tell_to_leave(records.socket(record.token))
        alive = end_marked(record.token) if record.linger_seconds else kill_until_gone(record.token)
        alive = groups.end(map(Path, record.groups)) or alive
        try:
            found += remove_folder(record.folder) or alive
        except OSError:  # something inside cannot be removed yet: the next try will have to
            continue
        egress.forget(record.token)
        records.remove(record.token)
    return found


def _tell_to_leave(path: Path) -> None:
    """A supervisor knows best what there is to end."""
    with contextlib.suppress(OSError), reachable(path) as name, socket.socket(socket.AF_UNIX) as line:
        line.settimeout(END_SECONDS)
        line.connect(name)
        line.sendall(wire.frame(wire.LEAVE, 1))
        line.recv(wire.HEADER_BYTES)


def end_marked(token: str) -> bool:
    """Wait for a sandbox that was told to end, and kill it when it does not; True when there was one."""
    deadline = time.monotonic() + END_SECONDS
    alive = False
    while marked(token):
        alive = True
        if time.monotonic() > deadline:
            kill_until_gone(token)
            break
        time.sleep(0.01)
    return alive


def kill_until_gone(token: str) -> bool:
    """Kill a sandbox by its mark, blocking up to END_SECONDS; True when there was something to kill."""
    deadline = time.monotonic() + END_SECONDS
    alive = False
    while kill_marked(token) and time.monotonic() < deadline:
        alive = True
        time.sleep(0.01)
    return alive


def memory_file(data: bytes, name: str) -> int:
    """A descriptor of an anonymous file, at its start; the caller closes it."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(data)
        file.seek(0)
    return fd
