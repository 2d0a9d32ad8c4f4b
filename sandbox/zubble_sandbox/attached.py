"""Running in an existing container or pod: no sandbox, but the place that a task is about.

It isolates nothing that the container does not, and what commands change stays. So only a worker whose
settings name the container does it. A supervisor is brought in and taken away again; the promises about
commands are those of every backend.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from zubble_queue.contracts.sandbox import WORK_DIR, Probe, Sandbox, SandboxSpec
from zubble_queue.errors import JobError, OperatorError, SandboxUnavailable
from zubble_sandbox import box, commands, notes
from zubble_sandbox.channel import RECONNECT_SECONDS, Channel
from zubble_sandbox.engine.options import AttachedOptions
from zubble_sandbox.existing.guest import Guest, Surroundings
from zubble_sandbox.existing.ways import way_into
from zubble_sandbox.line import LineLost
from zubble_sandbox.records import Record, Records, runtime_dir
from zubble_sandbox.secret import new_secret
from zubble_sandbox.supervised import GRACE_SECONDS, Setup, SupervisedSandbox


class AttachedProvider:
    """Implements `zubble_queue.contracts.sandbox.SandboxProvider` in places that are there already.

    A command sees the work tree under its real name, and verify files below $ZUBBLE_VERIFY; `/work` and the
    spec's `verify_dir` mean them in `cwd` and in file operations. Sizes and process limits of the spec are
    the container's own affair, and so is its network.

    Args:
        options: What the settings say.
        folder: For records; `records.runtime_dir()` when None.
    """

    name: Final = "attached"
    Options: Final = AttachedOptions

    def __init__(self, options: AttachedOptions | None = None, *, folder: Path | None = None) -> None:
        self.options = options or AttachedOptions()
        self._folder = folder

    @classmethod
    def from_options(cls, options: AttachedOptions) -> AttachedProvider:
        return cls(options)

    async def probe(self) -> Probe:
        """Nothing is tried out: which container it will be, each task says."""
        allowed = self._allowed()
        if not allowed:
            problem = "No container is allowed: name some in sandboxes.attached.allow."
            return Probe(self.name, available=False, isolated=False, problems=(problem,))
        problem = "Nothing is isolated beyond the container: for commands that are not trusted, use docker."
        facts = {"containers": " ".join(allowed), "isolation": "none", "limits": "the container's own"}
        return Probe(self.name, True, False, "none", (problem,), facts, networks=("none", "open"))

    async def open(self, spec: SandboxSpec) -> Sandbox:
        container = self._checked(spec)
        record = Record.new(backend=self.name, spec=spec)
        folder = f"{self.options.tools.rstrip('/')}/{record.token}"
        told = {"container": container, "secret": new_secret(), "folder": folder, "spec": notes.note(spec)}
        record = replace(record, note=json.dumps(told))
        visit = await self._visit(record)
        try:
            return await self._open(spec, visit)
        except (SandboxUnavailable, LineLost, OSError, TimeoutError) as error:
            await visit.end()
            reason = str(error) or "its supervisor does not answer"
            raise SandboxUnavailable(f"The container {container!r} could not be entered: {reason}") from error
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(visit.end()))
            raise

    async def attach(self, handle: str) -> Sandbox:
        record = self._records().adopt(handle, self.name)
        spec = notes.recalled(_told(record)["spec"])
        try:
            visit = await self._visit(record)
        except JobError as gone:
            raise SandboxUnavailable(f"The sandbox {handle} has ended: {gone}") from gone
        try:
            channel = Channel(await visit.guest.connect(), visit.guest.connect)
            around = await visit.guest.look_around(self._work(spec))
            setup = self._setup(spec, visit.guest, around)
            return await SupervisedSandbox.adopt(spec, setup, channel, visit.end, handle)
        except (SandboxUnavailable, LineLost, TimeoutError) as error:
            await visit.end()
            raise SandboxUnavailable(f"The sandbox {handle} has ended: {error}.") from error
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(visit.end()))
            raise

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        """A container that cannot be asked keeps what was brought, and its record, until the next time."""
        records, count = self._records(), 0
        for record in await asyncio.to_thread(records.orphans, self.name, keep_owners):
            try:
                visit = await self._visit(record) if records.claim(record) else None
            except JobError:  # the container is gone, and with it all that was brought
                records.remove(record.token)
                continue
            except (SandboxUnavailable, OperatorError):
                continue
            if visit is not None:
                await visit.end()
                count += 1
        return count

    async def _visit(self, record: Record) -> _Visit:
        """The way into a container, and a record of it. Raises JobError where there is none."""
        told = _told(record)
        way = await way_into(told["container"], self.options)
        records = self._records()
        records.add(record)
        return _Visit(Guest(way, record.token, told["secret"], told["folder"]), records)

    async def _open(self, spec: SandboxSpec, visit: _Visit) -> Sandbox:
        guest, work = visit.guest, self._work(spec)
        around = await guest.look_around(work)
        if not around.has_work:
            raise JobError(f"There is no folder {work!r} to work in in the container {spec.container!r}.")
        program = await asyncio.to_thread(box.binary(around.machine).read_bytes)
        files = {_mirrored(guest, path): data for path, data in spec.readonly_files.items()}
        await guest.bring(program, files)
        await guest.launch(_linger_seconds(spec))
        channel = Channel(await guest.connect(), guest.connect)
        setup, handle = self._setup(spec, guest, around), guest.token if spec.linger_seconds else None
        try:
            return await SupervisedSandbox.begin(spec, setup, channel, visit.end, handle)
        except BaseException:
            await channel.close()
            raise

    def _setup(self, spec: SandboxSpec, guest: Guest, around: Surroundings) -> Setup:
        work, top = self._work(spec), _top(spec.verify_dir)
        own = {"TMPDIR": guest.tmp, "ZUBBLE_WORK": work, "ZUBBLE_VERIFY": _mirrored(guest, spec.verify_dir)}
        verify = {top: _mirrored(guest, f"/{top}")} if spec.readonly_files else {}
        return Setup(
            mode="tree",
            folders={_top(work): f"/{_top(work)}", **verify, "work": work, "tmp": guest.tmp},
            env={**commands.BASE_ENV, **around.env, **own},
            limits=False,
            grace_seconds=GRACE_SECONDS + RECONNECT_SECONDS,
            linger_seconds=_linger_seconds(spec),
        )

    def _work(self, spec: SandboxSpec) -> str:
        return self.options.work or spec.work_dir or WORK_DIR

    def _allowed(self) -> tuple[str, ...]:
        """Patterns of names."""
        own = () if self.options.container is None else (self.options.container,)
        return (*self.options.allow, *own)

    def _checked(self, spec: SandboxSpec) -> str:
        """The container's name, where this worker's settings allow it (invariant 3). Raises JobError."""
        commands.check_readonly_files(spec)
        container = spec.container or self.options.container
        if container is None:
            raise JobError("The task names no container to run in (sandbox.container).")
        if not any(fnmatchcase(container, pattern) for pattern in self._allowed()):
            allowed = ", ".join(self._allowed()) or "none"
            raise JobError(f"The container {container!r} is not allowed on this worker (allowed: {allowed}).")
        if spec.network == "allowlist" or spec.scratch or spec.image:
            raise JobError(
                "An attached container has its own network, image and folders; no task chooses them."
            )
        return container

    def _records(self) -> Records:
        return Records(self._folder or runtime_dir())


class _Visit:
    """A guest on record, from its coming to its leaving."""

    def __init__(self, guest: Guest, records: Records) -> None:
        self.guest, self._records = guest, records

    async def end(self) -> None:
        """What cannot be removed now stays on record, for whoever reaps."""
        try:
            await self.guest.leave()
            self._records.remove(self.guest.token)
        except SandboxUnavailable:
            pass
        finally:
            await self.guest.way.close()


def _told(record: Record) -> Mapping[str, Any]:
    told: Mapping[str, Any] = json.loads(record.note)
    return told


def _linger_seconds(spec: SandboxSpec) -> float:
    """How long the supervisor waits for a line: for its worker to open another, or for another worker."""
    return spec.linger_seconds or RECONNECT_SECONDS


def _top(path: str) -> str:
    return path.split("/")[1]


def _mirrored(guest: Guest, path: str) -> str:
    """Where a file is that has an absolute path in other backends."""
    return f"{guest.folder}/files{path}"
