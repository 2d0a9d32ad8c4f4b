"""Starting a supervisor and ending it again: the host's side of a sandbox, for every local backend."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import spawner
from zubble_sandbox.channel import Channel
from zubble_sandbox.line import SocketLine
from zubble_sandbox.records import Record, Records, kill_marked
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
    after: Callable[[], object]
    """Called once, after the last process has ended or when nothing could be started."""


async def open_sandbox(spec: SandboxSpec, records: Records, plan: Plan) -> SupervisedSandbox:
    """Raises SandboxUnavailable with what the program complained about; nothing is left behind then."""
    box = _Box(records, plan)
    try:
        channel = await box.start()
        return await SupervisedSandbox.begin(spec, plan.setup, channel, box.end)
    except (SandboxUnavailable, OSError, TimeoutError) as error:
        reason = box.complaint() or str(error) or "it did not answer"
        await box.end()
        raise SandboxUnavailable(f"A {plan.record.backend} sandbox could not be opened: {reason}") from error
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(box.end()))
        raise


class _Box:
    """The process of one sandbox and what must be given back after it."""

    def __init__(self, records: Records, plan: Plan) -> None:
        self._records, self._plan = records, plan
        self._process: spawner.Process | None = None
        self._channel: Channel | None = None
        self._fds = contextlib.ExitStack()
        self._output: int | None = None

    async def start(self) -> Channel:
        self._records.add(self._plan.record)
        self._output = memory_file(b"", "output")
        self._fds.callback(os.close, self._output)
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as passed:
            passed.callback(theirs.close)
            passed.push(lambda kind, *_: ours.close() if kind else None)
            arguments = ("supervise", "--fd", str(theirs.fileno()), self._plan.record.token)
            launch = spawner.Launch(
                argv=self._plan.argv(arguments),
                output_fd=self._output,
                pass_fds=(theirs.fileno(), *self._plan.pass_fds),
            )
            self._process = await spawner.start(launch)
            self._channel = Channel(await SocketLine.over(ours))
        return self._channel

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
        finally:
            self._fds.close()
            self._plan.after()
            self._records.remove(self._plan.record.token)

    async def _end_process(self, process: spawner.Process) -> None:
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            await asyncio.to_thread(kill_until_gone, self._plan.record.token)
        process.close()


def reap_orphans(records: Records, backend: str, keep_owners: frozenset[str]) -> int:
    """End what workers that are gone left open; how many sandboxes still had a process or a folder."""
    found = 0
    for record in records.orphans(backend, keep_owners):
        alive = kill_until_gone(record.token)
        try:
            found += remove_folder(record.folder) or alive
        except OSError:  # another worker reaps it right now, or the next try will have to
            continue
        records.remove(record.token)
    return found


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
