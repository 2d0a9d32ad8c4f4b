"""Pure: what is written on command lines. Nothing here reads the machine or starts anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zubble_queue.contracts.sandbox import VERIFY_DIR, WORK_DIR, SandboxSpec
from zubble_queue.errors import JobError
from zubble_sandbox.egress import INSIDE_FOLDER

BOX_UID: Final = 1000
HOSTNAME: Final = "box"
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

_ETC: Final[Mapping[str, bytes]] = {
    "/etc/passwd": b"box:x:1000:1000:box:/tmp:/bin/sh\n",
    "/etc/group": b"box:x:1000:\n",
    "/etc/hosts": b"127.0.0.1 localhost box\n::1 localhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}


_WITH_DNS: Final = b"passwd: files\ngroup: files\nhosts: files dns\n"


@dataclass(frozen=True, slots=True)
class HostRoot:
    """One of /bin, /lib, /lib64, /sbin of the host: a link into /usr, or a folder of its own."""

    path: str
    link: str | None


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


def environment(spec: SandboxSpec) -> dict[str, str]:
    """What every command gets before its spec adds to it."""
    return {**BASE_ENV, "ZUBBLE_WORK": work_dir(spec), "ZUBBLE_VERIFY": spec.verify_dir}


def placed_files(spec: SandboxSpec, resolver: bytes = b"") -> dict[str, bytes]:
    """Path to content of all files that are placed read-only: a small /etc, then the verify files.

    Args:
        spec: With an open network names are looked up as the host does.
        resolver: The host's /etc/resolv.conf.
    """
    opened = {} if spec.network != "open" else {"/etc/resolv.conf": resolver, "/etc/nsswitch.conf": _WITH_DNS}
    return {**_ETC, **opened, **spec.readonly_files}


def bwrap_options(
    spec: SandboxSpec,
    roots: Iterable[HostRoot],
    file_fds: Iterable[tuple[str, int]],
    seccomp_fd: int,
    egress_fd: int | None = None,
) -> list[str]:
    """The options behind `--args`.

    Args:
        spec: Sizes come from here; no text of a task does.
        roots: How the host's top folders look.
        file_fds: Path in the sandbox and descriptor of each read-only file. They are copied into the root
            file system, which is then made read-only: no owner's right brings the write bit back.
        seccomp_fd: The compiled filter.
        egress_fd: The folder with the socket of the egress proxy, where there is one.
    """
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
        *("--ro-bind", "/usr", "/usr"),
        *(option for root in roots for option in _root(root)),
        *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
        *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *(option for path in _trusted(spec) for option in ("--ro-bind-try", path, path)),
        *(() if egress_fd is None else ("--ro-bind-fd", str(egress_fd), INSIDE_FOLDER)),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
        *_tmpfs("/dev/shm", spec.tmp_bytes),  # noqa: S108 - the sandbox's own
        *_tmpfs("/tmp", spec.tmp_bytes),  # noqa: S108 - the sandbox's own
        *(option for path in spec.scratch for option in _tmpfs(path, spec.tmp_bytes)),
        *_tmpfs(work_dir(spec), spec.work_bytes),
        *(() if work_dir(spec) == WORK_DIR else ("--symlink", work_dir(spec), WORK_DIR)),
        *("--dir", spec.verify_dir, "--dir", "/etc"),
        *(option for path, fd in file_fds for option in ("--perms", "0555", "--file", str(fd), path)),
        *("--seccomp", str(seccomp_fd)),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"),
    ]


def _trusted(spec: SandboxSpec) -> Sequence[str]:
    """Where distributions keep the certificates by which programs trust a host."""
    return () if spec.network == "none" else ("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust")


def _root(root: HostRoot) -> Sequence[str]:
    if root.link is not None:
        return ("--symlink", root.link, root.path)
    return ("--ro-bind", root.path, root.path)


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
