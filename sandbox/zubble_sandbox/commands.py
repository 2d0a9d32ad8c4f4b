"""Pure: what is written on command lines. Nothing here reads the machine or starts anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zubble_queue.contracts.sandbox import MIB, VERIFY_DIR, WORK_DIR, SandboxSpec
from zubble_queue.errors import JobError
from zubble_sandbox.egress import INSIDE_FOLDER

BOX_UID: Final = 1000
HOSTNAME: Final = "box"
_PAGE_BYTES: Final = 65_536
"""The largest that Linux uses; a file takes whole ones."""
BASE_ENV: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108 - the sandbox's own
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "ZUBBLE_WORK": WORK_DIR,
    "ZUBBLE_VERIFY": VERIFY_DIR,
}
"""What every command gets. ZUBBLE_WORK and ZUBBLE_VERIFY name the work tree and the verify files in every
backend, so that a check also runs where they are not /work and /verify."""
_HOSTS_OWN: Final = "/usr/"
"""Without an image this is the host's, and nothing can be made in it."""

RESOLVER: Final = "/etc/resolv.conf"
_SWITCH: Final = "/etc/nsswitch.conf"
_WITH_DNS: Final = b"passwd: files\ngroup: files\nhosts: files dns\n"
_OURS: Final = frozenset({"HOME", "TERM", "ZUBBLE_WORK", "ZUBBLE_VERIFY"})
"""Variables that no image sets."""


@dataclass(frozen=True, slots=True)
class Top:
    """Something at the top of the root: a link, a path of the host, or an open one of an image."""

    path: str
    link: str | None = None
    fd: int | None = None


@dataclass(frozen=True, slots=True)
class Root:
    """A root file system as it was found, and what of ours goes into it."""

    tops: tuple[Top, ...]
    etc: Mapping[str, bytes]
    """Path to content of the files of ours in /etc."""
    covered: frozenset[str] | None = None
    """Those of an image over which ours can be laid: no others can be placed. None where /etc is all ours."""
    nested: frozenset[str] = frozenset()
    """Folders of the image on which a file system of ours is mounted."""


def check_readonly_files(spec: SandboxSpec) -> None:
    """Raises JobError when one would not be below the folder of the check."""
    for path in spec.readonly_files:
        parts = path.removeprefix(f"{spec.verify_dir}/").split("/")
        if not path.startswith(f"{spec.verify_dir}/") or "\0" in path or {"", ".", ".."} & set(parts):
            raise JobError(f"The read-only file {path!r} must be below {spec.verify_dir}.")


def check_folders(spec: SandboxSpec) -> None:
    """Raises JobError when one cannot be made in the file system of the host's programs."""
    for path in (work_dir(spec), spec.verify_dir, *spec.scratch):
        if spec.image is None and path.startswith(_HOSTS_OWN):
            raise JobError(
                f"The folder {path!r} cannot be made without an image: {_HOSTS_OWN} is the host's."
            )


def work_dir(spec: SandboxSpec) -> str:
    """Where the work tree is."""
    return spec.work_dir or WORK_DIR


def folders(spec: SandboxSpec) -> dict[str, str]:
    """What a path may begin with, to the folder that is meant: for the supervisor."""
    own = {path.lstrip("/"): path for path in (work_dir(spec), spec.verify_dir, *spec.scratch)}
    return {**own, "work": work_dir(spec), "tmp": "/tmp", "verify": spec.verify_dir}  # noqa: S108 - its own


def environment(spec: SandboxSpec, image_env: Mapping[str, str] | None = None) -> dict[str, str]:
    """What every command gets before its spec adds to it; an image has its own search path and more."""
    theirs = {name: value for name, value in (image_env or {}).items() if name not in _OURS}
    return {**BASE_ENV, **theirs, "ZUBBLE_WORK": work_dir(spec), "ZUBBLE_VERIFY": spec.verify_dir}


def placed_files(spec: SandboxSpec, root: Root, resolver: bytes = b"") -> dict[str, bytes]:
    """Path to content of all files that are made read-only: a small /etc, then the verify files.

    Args:
        spec: With an open network names are looked up as the host does.
        root: Where they are placed.
        resolver: The host's /etc/resolv.conf.
    """
    own = _etc(spec, root, resolver) if root.covered is None else {}
    return {**own, **spec.readonly_files}


def covering_files(spec: SandboxSpec, root: Root, resolver: bytes = b"") -> dict[str, bytes]:
    """Path to content of the files that are laid over those of an image."""
    covered = root.covered or frozenset()
    return {path: data for path, data in _etc(spec, root, resolver).items() if path in covered}


def _etc(spec: SandboxSpec, root: Root, resolver: bytes) -> dict[str, bytes]:
    opened = {RESOLVER: resolver, _SWITCH: _WITH_DNS} if spec.network == "open" else {}
    return {**root.etc, **opened}


def bwrap_options(
    spec: SandboxSpec,
    root: Root,
    file_fds: Iterable[tuple[str, int]],
    seccomp_fd: int,
    *,
    egress_fd: int | None = None,
    cover_fds: Iterable[tuple[str, int]] = (),
) -> list[str]:
    """The options behind `--args`.

    Args:
        spec: Sizes come from here; no text of a task does.
        root: What is mounted, read-only.
        file_fds: Path in the sandbox and descriptor of each read-only file. They are copied into the root
            file system, which is then made read-only: no owner's right brings the write bit back.
        seccomp_fd: The compiled filter.
        egress_fd: The folder with the socket of the egress proxy, where there is one.
        cover_fds: Path and descriptor of each file that is laid over one of an image.
    """
    on_image = spec.verify_dir in root.nested
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--new-session"),
        *(() if spec.linger_seconds else ("--die-with-parent",)),
        *(("--share-net",) if spec.network == "open" else ()),
        *(
            "--as-pid-1",
            "--hostname",
            HOSTNAME,
            "--uid",
            str(BOX_UID),
            "--gid",
            str(BOX_UID),
            "--cap-drop",
            "ALL",
        ),
        *(option for top in root.tops for option in _top(top)),
        *(option for path in _trusted(spec) for option in ("--ro-bind-try", path, path)),
        *(() if egress_fd is None else ("--ro-bind-fd", str(egress_fd), INSIDE_FOLDER)),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
        *_tmpfs("/dev/shm", spec.tmp_bytes),  # noqa: S108 - the sandbox's own
        *_tmpfs("/tmp", spec.tmp_bytes),  # noqa: S108 - the sandbox's own
        *(option for path in spec.scratch for option in _tmpfs(path, spec.tmp_bytes)),
        *_tmpfs(work_dir(spec), spec.work_bytes),
        *(("--symlink", work_dir(spec), WORK_DIR) if _needs_link(spec, root) else ()),
        *(_tmpfs(spec.verify_dir, _verify_bytes(spec)) if on_image else ("--dir", spec.verify_dir)),
        *(("--dir", "/etc") if root.covered is None else ()),
        *(option for path, fd in file_fds for option in ("--perms", "0555", "--file", str(fd), path)),
        *(
            option
            for path, fd in cover_fds
            for option in ("--perms", "0444", "--ro-bind-data", str(fd), path)
        ),
        *(("--remount-ro", spec.verify_dir) if on_image else ()),
        *("--seccomp", str(seccomp_fd)),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"),
    ]


def _trusted(spec: SandboxSpec) -> Sequence[str]:
    """Where distributions keep the certificates by which programs trust a host; an image has its own."""
    if spec.network == "none" or spec.image is not None:
        return ()
    return ("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust")


def _needs_link(spec: SandboxSpec, root: Root) -> bool:
    """So that /work means the work tree wherever that is, unless an image has something there."""
    return work_dir(spec) != WORK_DIR and all(top.path != WORK_DIR for top in root.tops)


def _top(top: Top) -> Sequence[str]:
    if top.link is not None:
        return ("--symlink", top.link, top.path)
    if top.fd is not None:
        return ("--ro-bind-fd", str(top.fd), top.path)
    return ("--ro-bind", top.path, top.path)


def _verify_bytes(spec: SandboxSpec) -> int:
    """What the files of a check take in memory, with room for their folders."""
    return MIB + sum(len(data) + _PAGE_BYTES for data in spec.readonly_files.values())


def _tmpfs(path: str, size: int) -> Sequence[str]:
    return ("--size", str(size), "--tmpfs", path)


def nul_separated(options: Sequence[str]) -> bytes:
    """The form that `--args` reads: it hides paths and sizes from every list of processes."""
    return b"".join(option.encode("utf-8", "surrogateescape") + b"\0" for option in options)


def bwrap_argv(bwrap: str, args_fd: int, program: Sequence[str]) -> list[str]:
    return [bwrap, "--args", str(args_fd), "--", *program]


def entered(
    box: str, argv: Sequence[str], *, uid: int | None = None, groups: Iterable[str] = ()
) -> list[str]:
    """Join control groups and give up root for good before a program starts, by zubble-box."""
    joined = [option for folder in groups for option in ("--cgroup", folder)]
    become = [] if uid is None else ["--uid", str(uid)]
    return [box, "enter", *joined, *become, "--", *argv] if joined or become else [*argv]
