"""A hostile command and the host that watches: what the attacks share."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.docker_engine import TOOLS_IMAGE
from zubble_queue.contracts.sandbox import MIB, Command, SandboxSpec, shell
from zubble_sandbox.bubblewrap import BubblewrapProvider
from zubble_sandbox.docker_engine import DockerProvider
from zubble_sandbox.engine.options import DockerOptions
from zubble_sandbox.records import Records, runtime_dir

SYSCALLS = {
    "x86_64": {
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308,
        "clone": 56, "ptrace": 101, "process_vm_readv": 310, "keyctl": 250, "add_key": 248,
        "request_key": 249, "bpf": 321,
        "perf_event_open": 298, "userfaultfd": 323, "open_by_handle_at": 304, "name_to_handle_at": 303,
        "settimeofday": 164, "clock_settime": 227, "personality": 135, "kexec_load": 246, "reboot": 169,
        "init_module": 175, "swapon": 167, "sethostname": 170, "quotactl": 179, "acct": 163, "syslog": 103,
        "getpid": 39,
    },
    "aarch64": {
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "unshare": 97, "setns": 268, "clone": 220,
        "ptrace": 117, "process_vm_readv": 270, "keyctl": 219, "add_key": 217, "request_key": 218, "bpf": 280,
        "perf_event_open": 241, "userfaultfd": 282, "open_by_handle_at": 265, "name_to_handle_at": 264,
        "settimeofday": 170, "clock_settime": 112, "personality": 92, "kexec_load": 104, "reboot": 142,
        "init_module": 105, "swapon": 224, "sethostname": 161, "quotactl": 60, "acct": 89, "syslog": 116,
        "getpid": 172,
    },
}[platform.machine()] | {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "fspick": 433, "clone3": 435,
    "mount_setattr": 442, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "pidfd_getfd": 438, "process_madvise": 440, "memfd_secret": 447,
}  # fmt: skip

PRELUDE = """
import ctypes, errno, os, signal, socket, sys, time
_libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = _libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return errno.errorcode.get(ctypes.get_errno(), "?") if result == -1 else "ok"
def tried(function, *arguments):
    try:
        return "ok", function(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, "?"), None
"""

_numbers = itertools.count(1)


class Box:
    """A sandbox, with the host's view of it."""

    def __init__(self, sandbox, tokens) -> None:
        self.sandbox, self._tokens = sandbox, tokens

    def __getattr__(self, name):
        return getattr(self.sandbox, name)

    async def sh(self, text, **options):
        return await self.sandbox.exec(shell(text, **{"timeout_seconds": 60.0, **options}))

    async def out(self, text) -> str:
        """Standard output of a shell command that must succeed."""
        result = await self.sh(text)
        assert result.ok, result
        return result.stdout.decode(errors="replace")

    async def python(self, code, *arguments, **options):
        """Run Python in the sandbox; what it prints as JSON."""
        program = PRELUDE + f"SYSCALLS = {SYSCALLS!r}\n" + code
        command = Command(
            ("python3", "-I", "-S", "-c", program, *arguments), **{"timeout_seconds": 60.0, **options}
        )
        result = await self.sandbox.exec(command)
        assert result.ok, result
        return json.loads(result.stdout)

    @property
    def token(self) -> str:
        return self._tokens()[self.sandbox.spec.name]

    @property
    def supervisor(self) -> int:
        """Pid 1 of the sandbox as the host counts it."""
        marked = {pid: Host.arguments(pid)[0] for pid in Host.marked(self.token)}
        return next(pid for pid, program in marked.items() if program.startswith(SUPERVISORS))

    @property
    def processes(self) -> list[int]:
        """Every process of the sandbox, pid 1 included, as the host counts them."""
        return [self.supervisor, *Host.descendants(self.supervisor)]


class Host:
    """What can be seen from outside, whatever the sandbox says."""

    @staticmethod
    def pids() -> list[int]:
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]

    @staticmethod
    def arguments(pid: int) -> list[bytes]:
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return []

    @staticmethod
    def marked(token: str) -> list[int]:
        """Processes that carry a sandbox's mark: bwrap and its supervisor."""
        return [pid for pid in Host.pids() if token.encode() in Host.arguments(pid)]

    @staticmethod
    def descendants(root: int) -> list[int]:
        children: dict[int, list[int]] = {}
        for pid in Host.pids():
            children.setdefault(Host.parent(pid), []).append(pid)
        found, waiting = [], [root]
        while waiting:
            waiting += (own := children.get(waiting.pop(), []))
            found += own
        return found

    @staticmethod
    def parent(pid: int) -> int:
        try:
            return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            return -1

    @staticmethod
    async def wait_until(condition, what: str, seconds: float = 30.0) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"never happened: {what}"
            await asyncio.sleep(0.02)

    @staticmethod
    def spec(**changes) -> SandboxSpec:
        base = SandboxSpec(
            name=f"abuse-{os.getpid()}-{next(_numbers)}",
            owner=f"abuse-{os.getpid()}",
            work_bytes=32 * MIB,
            tmp_bytes=8 * MIB,
            max_life_seconds=300.0,
        )
        return replace(base, **changes)

    @staticmethod
    async def start_worker(name, *arguments, env=None, **options):
        """Start a program beside these tests that opens sandboxes of its own."""
        return await asyncio.create_subprocess_exec(
            sys.executable, PROGRAMS / name, *arguments, env={**os.environ, **(env or {})}, **options
        )


PROGRAMS = Path(__file__).parent / "programs"
BACKENDS = ("bubblewrap", "docker")
SUPERVISORS = (b"/proc/self/fd/", b"/.zubble/box")
"""How a supervisor was started: by descriptor, or in a container."""


def pytest_collection_modifyitems(config, items):
    """What is about one backend is not asked of another."""
    alien = [item for item in items if _backend_of(item) not in _meant(item)]
    if alien:
        config.hook.pytest_deselected(items=alien)
        items[:] = [item for item in items if item not in alien]


def _backend_of(item) -> str | None:
    """None for what is no attack of these, or needs no backend."""
    callspec = getattr(item, "callspec", None)
    ours = item.path.is_relative_to(Path(__file__).parent)
    return callspec.params.get("provider") if callspec and ours else None


def _meant(item) -> set[str | None]:
    only = {mark.name for mark in item.iter_markers()} & {"bubblewrap"}
    return {None, *(only or BACKENDS)}


@pytest.fixture
def host():
    return Host


@pytest.fixture
def syscalls():
    """Numbers of the system calls on this machine."""
    return SYSCALLS


@pytest.fixture(scope="session", params=["bubblewrap", pytest.param("docker", marks=pytest.mark.slow)])
def provider(request, missing_part):
    """Each backend that isolates; a test that is about one of them is marked with its name."""
    if request.param == "docker":
        engine = request.getfixturevalue("docker_engine")
        options = DockerOptions(host=engine.host, image=TOOLS_IMAGE, min_free_mb=100)
        provider = DockerProvider(options)
    else:
        provider = BubblewrapProvider()
    probe = asyncio.run(provider.probe())
    if not (probe.available and probe.isolated):
        missing_part(f"{request.param} does not isolate here: {'; '.join(probe.problems)}")
    yield provider
    if request.param == "docker":
        provider.close()


@pytest.fixture
def tokens(provider, request):
    """A function: the names of the sandboxes that are open, and their marks."""
    if provider.name == "docker":
        engine = request.getfixturevalue("docker_engine")
        with contextlib.closing(engine.client()) as client:
            yield lambda: {
                found["Labels"]["zubble.name"]: found["Labels"]["zubble.sandbox"]
                for found in client.containers(all=True, filters={"label": "zubble.sandbox"})
            }
    else:
        records = Records(runtime_dir())
        yield lambda: {record.name: record.token for record in records}


@pytest.fixture
async def open_box(provider, tokens):
    """Opens sandboxes that are destroyed at the end of the test."""
    boxes = []

    async def open_box(provider=provider, **changes):
        box = Box(await provider.open(Host.spec(**changes)), tokens)
        boxes.append(box)
        return box

    yield open_box
    for box in boxes:
        await box.destroy()


@pytest.fixture
async def box(open_box):
    return await open_box()
