"""Where this process is among the machine's control groups, version 1, version 2, or both at once."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LEAF: Final = "zubble-workers"
"""Where workers go in a version 2 group of their own: one that hands controllers down holds no process."""
_TRIES: Final = 5
"""Another worker may come into the group while this one leaves it."""
_DELEGATED: Final = ("user.delegate", "trusted.delegate")
"""What systemd writes on a group whose inside is somebody else's."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted tree of groups, of which this process is in one."""

    version: int
    mounted: frozenset[str]
    """The controllers of version 1; in version 2 each group says which it has."""
    root: Path
    """The topmost group that can be seen from here."""
    own: Path
    """The group of this process."""

    def below(self, folder: str | None) -> Path:
        """Where groups are to be made: in a group below the root, or in this process's own when None."""
        if folder is not None:
            return self.root / folder.strip("/")
        return self.own.parent if self.version == 2 and self.own.name == LEAF else self.own

    def controllers(self, group: Path) -> frozenset[str]:
        """What can be limited below a group; nothing where there is no such group."""
        if self.version == 1:
            return self.mounted
        try:
            return frozenset((group / "cgroup.controllers").read_text().split())
        except OSError:
            return frozenset()


def found() -> tuple[Hierarchy, ...]:
    """Those of this machine. Raises OSError where /proc does not say."""
    mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    groups = Path("/proc/self/cgroup").read_text("utf-8", "surrogateescape")
    return tuple(parse(mounts, groups))


def parse(mounts: str, groups: str) -> Iterator[Hierarchy]:
    """Hierarchies from the texts of /proc/self/mountinfo and /proc/self/cgroup.

    One whose mount does not show our group is left out.
    """
    memberships: dict[frozenset[str], str] = {}
    for line in groups.splitlines():
        _, names, group = line.split(":", 2)
        memberships[frozenset(name for name in names.split(",") if name)] = group
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mount_root, mount_point = map(_unescaped, before.split(" ")[3:5])
        kind, _, options = after.split(" ", 2)
        if kind not in {"cgroup", "cgroup2"}:
            continue
        controllers = frozenset[str]() if kind == "cgroup2" else _named(options, memberships)
        if controllers is None or controllers not in memberships:
            continue
        own = _seen(memberships[controllers], mount_root, Path(mount_point))
        if own is not None:
            yield Hierarchy(1 if controllers else 2, controllers, Path(mount_point), own)


def _named(options: str, memberships: Iterable[frozenset[str]]) -> frozenset[str] | None:
    given = set(options.split(","))
    return next((names for names in memberships if names and names <= given), None)


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def _seen(group: str, mount_root: str, mount_point: Path) -> Path | None:
    prefix = mount_root.rstrip("/")
    below = group == prefix or group.startswith(f"{prefix}/")
    if not below or "/../" in f"{group}/":
        return None
    return mount_point / group.removeprefix(prefix).lstrip("/")


def hand_down(group: Path, controllers: Iterable[str]) -> None:
    """Let groups below a version 2 group use controllers.

    A group may not hold processes then, so this process moves to a leaf beside the groups to come; in a group
    that was delegated to us, everybody else in it, too.

    Raises:
        OSError: the group is not ours, lacks a controller, or holds processes that are not ours to move.
    """
    leaf = group / LEAF
    for _ in range(_TRIES):
        if _handed_down(group, controllers):
            return
        leaf.mkdir(exist_ok=True)
        _move(group, leaf)
    if not _handed_down(group, controllers):
        write(group / "cgroup.procs", str(os.getpid()))
        with contextlib.suppress(OSError):  # others of us may be in it
            leaf.rmdir()
        raise OSError(errno.EBUSY, "it holds processes that are not ours to move", str(group))


def _handed_down(group: Path, controllers: Iterable[str]) -> bool:
    """False when processes are in the way."""
    missing = set(controllers) - set((group / "cgroup.subtree_control").read_text().split())
    try:
        if missing:
            write(group / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _move(group: Path, leaf: Path) -> None:
    movable = (group / "cgroup.procs").read_text().split() if _is_delegated(group) else [str(os.getpid())]
    for pid in movable:
        with contextlib.suppress(ProcessLookupError):
            write(leaf / "cgroup.procs", pid)


def _is_delegated(group: Path) -> bool:
    """Whether everything in it is ours: by systemd's word, or as the top of a container."""
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return (group / "cgroup.type").exists() and not (group.parent / "cgroup.procs").exists()


def write(file: Path, value: str) -> None:
    """One write to a file of the kernel. Raises OSError that names the file."""
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    except OSError as error:
        error.filename = str(file)
        raise
    finally:
        os.close(fd)


def write_if_there(file: Path, value: str) -> None:
    """For files that not every kernel has, as those of swap."""
    with contextlib.suppress(FileNotFoundError):
        write(file, value)
