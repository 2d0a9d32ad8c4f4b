"""What a sandbox has as its root, the programs of the host or an image: found and opened, not yet mounted."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from zubble_queue.contracts import places
from zubble_queue.contracts.sandbox import WORK_DIR, SandboxSpec
from zubble_queue.errors import JobError
from zubble_sandbox import archive, commands, wire
from zubble_sandbox.commands import Root, Top
from zubble_sandbox.images import beneath, trees
from zubble_sandbox.images.entries import Entry
from zubble_sandbox.images.store import Held

MAX_TOPS: Final = 100
"""Each needs a descriptor while a sandbox opens."""
_NEVER: Final = frozenset({"proc", "dev", "sys", "tmp", "run"})
"""Of an image: these are the sandbox's own."""
_HOST_FOLDERS: Final = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
_HOST_ETC: Final = ("/etc/alternatives", "/etc/ld.so.cache")
_USERS: Final = {"/etc/passwd": b"box:x:1000:1000:box:/tmp:/bin/sh\n", "/etc/group": b"box:x:1000:\n"}
_HOSTS: Final = {"/etc/hosts": b"127.0.0.1 localhost box\n::1 localhost\n"}
_ETC: Final = {
    **_USERS,
    **_HOSTS,
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}
_MAX_ETC_BYTES: Final = 262_144
_MAX_BEGINNING_BYTES: Final = 2**40
"""With headers; the content is bounded before."""
_NANOSECONDS: Final = 1_000_000_000


def host_root() -> Root:
    """The host's /usr, with the links and caches of its programs, and a small /etc of ours."""
    tops = [Top("/usr")]
    for path in map(Path, _HOST_FOLDERS):
        if path.is_symlink():
            tops.append(Top(str(path), link=str(path.readlink())))
        elif path.is_dir():
            tops.append(Top(str(path)))
    tops += [Top(path) for path in _HOST_ETC if Path(path).exists()]
    return Root(tuple(tops), _ETC)


def resolved(spec: SandboxSpec, held: Held | None) -> SandboxSpec:
    """The spec with the image's own working directory, where that is left to the image and can be had."""
    if spec.work_dir is not None:
        return spec
    suggested = (held and held.image.working_dir) or WORK_DIR
    try:
        return replace(spec, work_dir=places.folder(suggested))
    except ValueError:
        return replace(spec, work_dir=WORK_DIR)


def image_root(held: Held, spec: SandboxSpec, fds: ExitStack) -> Root:
    """What an image has, without what the sandbox has of its own.

    Args:
        held: The image.
        spec: With its folders, resolved.
        fds: Takes the descriptors of the image's folders, which are needed until the sandbox is started.

    Raises:
        JobError: it has no place for one of the folders.
    """
    assert spec.work_dir is not None
    own = (spec.work_dir, spec.verify_dir, *spec.scratch)
    replaced = {path.lstrip("/") for path in own} | _NEVER
    names = [name for name in map(os.fsdecode, beneath.names(held.root_fd)) if name not in replaced]
    if len(names) > MAX_TOPS:
        raise JobError(f"The image {spec.image!r} has more than {MAX_TOPS} entries at its top.")
    nested = frozenset(path for path in own if _is_nested(path, names))
    for path in sorted(nested):
        if not _is(held.root_fd, path, stat.S_ISDIR):
            raise JobError(
                f"The image {spec.image!r} has no folder {path!r} and none can be made in it: choose one "
                "that it has, or one that begins with a new name."
            )
    tops = tuple(_top(held.root_fd, name, fds) for name in names)
    if not any(top.path == "/etc" for top in tops):
        return Root(tops, _ETC, nested=nested)
    covered = {
        path for path in (*_USERS, *_HOSTS, commands.RESOLVER) if _is(held.root_fd, path, stat.S_ISREG)
    }
    return Root(tops, _image_etc(held.root_fd, covered), frozenset(covered), nested)


def _is_nested(path: str, tops: Collection[str]) -> bool:
    first, _, rest = path.lstrip("/").partition("/")
    return bool(rest) and first in tops


def _top(root_fd: int, name: str, fds: ExitStack) -> Top:
    if stat.S_ISLNK(os.stat(name, dir_fd=root_fd, follow_symlinks=False).st_mode):
        return Top(f"/{name}", link=os.readlink(name, dir_fd=root_fd))
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
    fds.callback(os.close, fd)
    return Top(f"/{name}", fd=fd)


def _image_etc(root_fd: int, covered: Collection[str]) -> dict[str, bytes]:
    """The names of this machine, and the image's own users with one more."""
    users = {
        path: _with_user(_content(root_fd, path), line) for path, line in _USERS.items() if path in covered
    }
    return {**_HOSTS, **users}


def _with_user(content: bytes, line: bytes) -> bytes:
    number = line.split(b":")[2]
    if any(number == other.split(b":")[2:3][0] for other in content.splitlines() if other.count(b":") >= 2):
        return content
    return content + (b"" if content.endswith(b"\n") or not content else b"\n") + line


def _content(root_fd: int, path: str) -> bytes:
    fd = beneath.opened(root_fd, os.fsencode(path.lstrip("/")), os.O_RDONLY, beneath.NO_LINKS)
    with os.fdopen(fd, "rb") as file:
        return file.read(_MAX_ETC_BYTES)


def _is(root_fd: int, path: str, kind: Callable[[int], bool]) -> bool:
    """Whether it is there, reached without a link."""
    try:
        fd = beneath.opened(root_fd, os.fsencode(path.lstrip("/")), os.O_PATH, beneath.NO_LINKS)
    except OSError:
        return False
    try:
        return kind(os.fstat(fd).st_mode)
    finally:
        os.close(fd)


def beginning(held: Held, spec: SandboxSpec) -> bytes | None:
    """A snapshot of what an image holds where the work tree will be; None where that is nothing; blocks.

    Raises JobError when it is larger than the work tree may be.
    """
    assert spec.work_dir is not None
    path = os.fsencode(spec.work_dir.lstrip("/"))
    try:
        fd = beneath.opened(held.root_fd, path, os.O_PATH | os.O_DIRECTORY, beneath.NO_LINKS)
    except OSError:
        return None
    saved: list[bytes] = []
    size = 0
    try:
        for entry in trees.walk(Path(f"/proc/self/fd/{fd}")):
            size += entry.size
            if size > spec.work_bytes:
                raise JobError(
                    f"The image {spec.image!r} holds more in {spec.work_dir} than the {spec.work_bytes} "
                    "bytes of the work tree."
                )
            if entry.parts[0] != archive.PRIVATE:
                saved += (_record(entry), *entry.pieces())
    finally:
        os.close(fd)
    return archive.tar(b"".join(saved), _MAX_BEGINNING_BYTES) if saved else None


def _record(entry: Entry) -> bytes:
    """As a supervisor tells of it."""
    kind = {"file": b"f", "folder": b"d", "symlink": b"l"}[entry.kind]
    text = b"%s %o %d %d" % (kind, entry.mode, entry.size, entry.mtime * _NANOSECONDS)
    return wire.pack(entry.path, text, entry.target)
