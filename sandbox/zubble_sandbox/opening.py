"""Starting a supervisor and ending it again: the life of the host's side of a sandbox, for every local backend."""

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
from zubble_sandbox.bundle import memory_file
from zubble_sandbox.channel import Channel
from zubble_sandbox.records import Record, Records, kill_marked
from zubble_sandbox.supervisor.tree import empty
from zubble_sandbox.supervised import Setup, SupervisedSandbox

END_SECONDS: Final = 2.0
"""How long a sandbox may take to end by itself before it is killed."""
COMPLAINT_BYTES: Final = 600


@dataclass(frozen=True, slots=True)
class Plan:
    """One sandbox to be opened."""

    record: Record
    setup: Setup
    code: bytes
    """The supervisor's bundle."""
    argv: Callable[[int], Sequence[str]]
    """Makes the command line once the number of the control descriptor is known."""
    pass_fds: Sequence[int]
    after: Callable[[], None]
    """Called once, after the last process has ended or when nothing could be started."""


async def open_sandbox(spec: SandboxSpec, records: Records, plan: Plan) -> SupervisedSandbox:
    """Raises SandboxUnavailable with what the program complained about; nothing is left behind then."""
    box = _Box(records, plan)
    try:
        records.add(plan.record)
        channel = await box.start()
        return await SupervisedSandbox.begin(spec, plan.setup, channel, box.end)
    except (SandboxUnavailable, OSError, TimeoutError) as error:
        await box.end()
        raise SandboxUnavailable(
            f"A {plan.record.backend} sandbox could not be opened: {box.complaint or error or 'no answer'}"
        ) from error
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(box.end()))
        raise


class _Box:
    """The process of one sandbox and what must be given back after it."""

    def __init__(self, records: Records, plan: Plan) -> None:
        self._records, self._plan = records, plan
        self._process: spawner.Process | None = None
        self._channel: Channel | None = None
        self._output = memory_file(b"", "output")
        self.complaint = ""

    async def start(self) -> Channel:
        ours, theirs = socket.socketpair()
        code = memory_file(self._plan.code, "code")
        try:
            launch = spawner.Launch(
                argv=self._plan.argv(theirs.fileno()),
                stdin_fd=code,
                output_fd=self._output,
                pass_fds=(theirs.fileno(), *self._plan.pass_fds),
            )
            self._process = await spawner.start(launch)
            self._channel = await Channel.over(ours)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(code)
        return self._channel

    async def end(self) -> None:
        """Close the line, on which a supervisor ends all and itself; kill what does not."""
        if self._channel is not None:
            await self._channel.close()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), END_SECONDS)
            self._process.kill()
            await self._process.wait()
            self._process.close()
        kill_until_gone(self._plan.record.token)
        self.complaint = os.pread(self._output, COMPLAINT_BYTES, 0).decode(errors="replace").strip()
        os.close(self._output)
        self._plan.after()
        self._records.remove(self._plan.record.token)


def reap_orphans(records: Records, backend: str, keep_owners: frozenset[str]) -> int:
    """End what workers that are gone left open; how many sandboxes still had a process or a folder."""
    found = 0
    for record in records.orphans(backend, keep_owners):
        alive = kill_until_gone(record.token)
        found += remove_folder(record.folder) or alive
        records.remove(record.token)
    return found


def kill_until_gone(token: str) -> bool:
    """Kill a sandbox by its mark; True when there was something to kill."""
    alive = False
    while kill_marked(token):
        alive = True
        time.sleep(0.01)
    return alive


def remove_folder(folder: str | None) -> bool:
    """Remove a folder of ours whatever a command made of it; True when there was one."""
    if folder is None:
        return False
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        empty(fd)
    finally:
        os.close(fd)
    os.rmdir(folder)
    return True
