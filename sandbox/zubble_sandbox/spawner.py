"""Starting processes from one thread that lives as long as the worker.

Linux ties `--die-with-parent` to the thread that started a process, not to its program: a sandbox started
from a thread of a pool is killed when that thread ends. So every sandbox of a program is started by one
daemon thread, whatever event loop or thread asked for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import queue
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

NO_CORE_BYTES: Final = 1


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. Only the named descriptors are inherited beside 0 to 2, and no environment."""

    argv: Sequence[str]
    output_fd: int
    """Standard output and standard error."""
    pass_fds: Sequence[int] = ()


class Process:
    """A child known by its pidfd, so that no signal of ours can hit a stranger that got its number."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._pidfd = os.pidfd_open(popen.pid)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def reap(self) -> int:
        """Wait, blocking, for a process that was killed; its return code as `subprocess` counts it."""
        return self._popen.wait()

    async def wait(self) -> int:
        """The return code, as `subprocess` counts it."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        watched = os.dup(self._pidfd)
        loop.add_reader(watched, _set_once, ended)
        try:
            await ended
        finally:
            loop.remove_reader(watched)
            os.close(watched)
        return self._popen.wait()

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _set_once(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Spawner:
    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Launch, concurrent.futures.Future[Process]]] = queue.SimpleQueue()
        self.pid = os.getpid()
        threading.Thread(target=self._run, name="zubble-spawner", daemon=True).start()

    def start(self, launch: Launch) -> concurrent.futures.Future[Process]:
        future: concurrent.futures.Future[Process] = concurrent.futures.Future()
        self._jobs.put((launch, future))
        return future

    def _run(self) -> None:
        while True:
            launch, future = self._jobs.get()
            try:
                future.set_result(_start(launch))
            except BaseException as error:  # noqa: BLE001 - the thread must outlive every failed start
                future.set_exception(error)


def _start(launch: Launch) -> Process:
    with _no_core_dumps():
        return Process(
            subprocess.Popen(
                launch.argv,
                stdin=subprocess.DEVNULL,
                stdout=launch.output_fd,
                stderr=launch.output_fd,
                pass_fds=launch.pass_fds,
                env={},
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the worker, which decides about its sandboxes
            )
        )


@contextlib.contextmanager
def _no_core_dumps() -> Iterator[None]:
    """Let the child inherit a core limit of one byte.

    To Linux that means "no dump at all"; with 0 it still starts a crash handler such as apport on the host.
    Inside, the seccomp filter keeps the limit as it is. A hard limit of 0 cannot be raised and stays.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (NO_CORE_BYTES if hard else 0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


_lock: Final = threading.Lock()
_spawner: _Spawner | None = None


def _current() -> _Spawner:
    """One for each process: a thread does not survive a fork."""
    global _spawner  # noqa: PLW0603 - the thread belongs to the process, as its signal handlers do
    with _lock:
        if _spawner is None or _spawner.pid != os.getpid():
            _spawner = _Spawner()
        return _spawner


async def start(launch: Launch) -> Process:
    """Start a process; it does not outlive a caller that is cancelled meanwhile. Raises OSError."""
    future = _current().start(launch)
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        future.add_done_callback(_discard)
        raise


def _discard(future: concurrent.futures.Future[Process]) -> None:
    if future.exception() is None:
        process = future.result()
        process.kill()
        process.reap()
        process.close()
