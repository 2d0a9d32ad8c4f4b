"""Limits of a sandbox as a whole: a control group for each, named by its token.

What works here is found by doing it: a group is made, a program in it is let run into its limits, and the
group is removed again.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from zubble_queue.contracts.sandbox import MIB
from zubble_sandbox import box, commands, groups, hierarchies
from zubble_sandbox.groups import Group
from zubble_sandbox.hierarchies import write, write_if_there
from zubble_sandbox.records import new_token

PERIOD_MICROSECONDS: Final = 100_000
"""Over which processor time is counted out; the kernel's default."""
_MIN_QUOTA_MICROSECONDS: Final = 1_000
"""The least the kernel takes."""
_NEEDED: Final = ("memory", "pids")
STALE_SECONDS: Final = 300.0
"""After which a group that nobody has entered is not going to be."""
_TRIAL_SECONDS: Final = 30.0
_TRIAL_PIDS: Final = 4
_TRIAL_BYTES: Final = 48 * MIB
_TRIAL: Final = f"""
import os, time
made = 0
try:
    while made < {4 * _TRIAL_PIDS}:
        if not os.fork():
            time.sleep({_TRIAL_SECONDS})
            os._exit(0)
        made += 1
except OSError:
    pass
os.write(1, b"%d" % made)
bytearray({2 * _TRIAL_BYTES})
"""


class NoLimits(Exception):
    """No group holds here; the message says why, as a sentence."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of all processes of a sandbox together."""

    memory_bytes: int
    pids: int
    cpus: float | None = None
    """Processor time a second."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of one hierarchy in which groups are made."""

    version: int
    controllers: frozenset[str]
    folder: Path

    def takes_groups(self) -> bool:
        """Whether one can be made here, by making it."""
        trial = self.folder / new_token()
        try:
            trial.mkdir()
            trial.rmdir()
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where groups are made: a way that was seen to work."""

    memory: Place
    pids: Place
    cpu: Place | None
    """None where processor time cannot be limited."""
    kill: Place | None
    """A version 2 hierarchy, whose groups can be killed at once; None without one."""

    @classmethod
    def find(cls, folder: str | None = None) -> Self:
        """Blocks for about a tenth of a second.

        Args:
            folder: A group of every hierarchy, below its root, in which groups may be made. When None: the
                group of this process, and for root also the root.

        Raises:
            NoLimits: nothing works.
        """
        try:
            candidates = _candidates(hierarchies.found(), folder)
        except (OSError, ValueError) as error:
            raise NoLimits(f"The machine does not show its control groups: {error}.") from error
        reasons: list[str] = []
        for places in candidates:
            try:
                cgroups = cls.at(places).tried_out()
            except (OSError, NoLimits) as error:
                reasons.append(_said(error))
            else:
                cgroups.sweep()
                return cgroups
        raise NoLimits(f"No control group holds here: {'; '.join(dict.fromkeys(reasons))}.")

    @classmethod
    def at(cls, places: Sequence[Place]) -> Self:
        """Take each controller where groups can be made.

        Raises:
            OSError: a version 2 group does not hand its controllers down.
            NoLimits: memory or pids cannot be had.
        """
        unified = next((place for place in places if place.version == 2), None)
        if unified is not None and (wanted := unified.controllers & {*_NEEDED, "cpu"}):
            hierarchies.hand_down(unified.folder, wanted)
        usable = [place for place in places if place.takes_groups()]
        by_name = {name: place for place in usable for name in place.controllers}
        missing = [name for name in _NEEDED if name not in by_name]
        if missing:
            raise NoLimits(f"no group that limits {' and '.join(missing)} can be made{_among(places)}")
        kill = unified if unified in usable else None
        return cls(memory=by_name["memory"], pids=by_name["pids"], cpu=by_name.get("cpu"), kill=kill)

    def folders(self, token: str) -> tuple[Path, ...]:
        """What `make` makes. In a group of the processor, many processes get no larger share than few."""
        used = {self.memory, self.pids, self.kill, self.cpu}
        return tuple(sorted(place.folder / token for place in used if place is not None))

    def make(self, token: str, limits: Limits) -> Group:
        """A new group without anybody in it. Raises OSError, and leaves nothing behind then."""
        if limits.cpus is not None and self.cpu is None:
            raise OSError("processor time cannot be limited here: there is no controller for it")
        folders = self.folders(token)
        try:
            for folder in folders:
                folder.mkdir()
            self._limit(token, limits)
        except BaseException:
            groups.end(folders)
            raise
        oom_file = "memory.events" if self.memory.version == 2 else "memory.oom_control"
        return Group(folders, self.memory.folder / token / oom_file)

    def _limit(self, token: str, limits: Limits) -> None:
        memory = self.memory.folder / token
        if self.memory.version == 2:
            write(memory / "memory.max", str(limits.memory_bytes))
            write_if_there(memory / "memory.swap.max", "0")
        else:
            write(memory / "memory.limit_in_bytes", str(limits.memory_bytes))
            write_if_there(memory / "memory.memsw.limit_in_bytes", str(limits.memory_bytes))
        write(self.pids.folder / token / "pids.max", str(limits.pids))
        if limits.cpus is not None:
            assert self.cpu is not None
            _limit_cpu(self.cpu.folder / token, self.cpu.version, limits.cpus)

    def sweep(self) -> None:
        """Remove groups without anybody in them that a killed trial left; the kernel keeps all others."""
        for place in {self.memory, self.pids, self.cpu, self.kill} - {None}:
            assert place is not None
            for folder in place.folder.glob("zubble-*"):
                with contextlib.suppress(OSError):
                    if time.time() - folder.stat().st_ctime > STALE_SECONDS:
                        folder.rmdir()

    def tried_out(self) -> Self:
        """As it is, or without the processor, whose groups take no real-time process. Raises as `try_out`."""
        try:
            self.try_out()
        except (OSError, NoLimits):
            if self.cpu is None:
                raise
            return replace(self, cpu=None).tried_out()
        return self

    def try_out(self) -> None:
        """Let a program run into both limits. Raises OSError, or NoLimits when one did not hold."""
        cpus = None if self.cpu is None else 1.0
        group = self.make(new_token(), Limits(_TRIAL_BYTES, _TRIAL_PIDS, cpus))
        output = os.memfd_create("output", os.MFD_CLOEXEC)
        try:
            ended = _run_trial(group, output)
            printed = os.pread(output, 300, 0).decode(errors="replace").strip()
            if printed != str(_TRIAL_PIDS - 1):
                raise NoLimits(f"processes are not limited in {self.pids.folder}: {printed or ended}")
            if ended != -signal.SIGKILL or not group.oom_kills():
                raise NoLimits(f"memory is not limited in {self.memory.folder}")
        finally:
            os.close(output)
            groups.end(group.folders)


def _limit_cpu(folder: Path, version: int, cpus: float) -> None:
    quota = max(_MIN_QUOTA_MICROSECONDS, math.ceil(cpus * PERIOD_MICROSECONDS))
    if version == 2:
        write(folder / "cpu.max", f"{quota} {PERIOD_MICROSECONDS}")
    else:
        write(folder / "cpu.cfs_period_us", str(PERIOD_MICROSECONDS))
        write(folder / "cpu.cfs_quota_us", str(quota))


def _run_trial(group: Group, output: int) -> int:
    """Its return code. The children it leaves are the group's to end."""
    process = subprocess.Popen(
        commands.entered(
            str(box.binary()),
            [sys.executable, "-I", "-S", "-c", _TRIAL],
            groups=map(str, group.folders),
        ),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={},
        cwd="/",
    )
    try:
        return process.wait(_TRIAL_SECONDS)
    except subprocess.TimeoutExpired:
        raise NoLimits("a program that ran into its limits did not end") from None
    finally:
        process.kill()
        process.wait()


def _candidates(found: Sequence[hierarchies.Hierarchy], folder: str | None) -> list[list[Place]]:
    def places(where: Callable[[hierarchies.Hierarchy], Path]) -> list[Place]:
        return [Place(each.version, each.controllers(where(each)), where(each)) for each in found]

    own = places(lambda each: each.below(folder))
    if folder is not None or os.geteuid() != 0:
        return [own]
    top = places(lambda each: each.root)
    return [own] if own == top else [own, top]


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _among(places: Iterable[Place]) -> str:
    named = [str(place.folder) for place in places if place.version == 2 or place.controllers & {*_NEEDED}]
    return f" in {' or '.join(named)}" if named else ""
