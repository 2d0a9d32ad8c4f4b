"""The system calls that no command may make: a filter for `bwrap --seccomp`, a profile for Docker.

A denylist in the manner of Flatpak's, on top of namespaces and dropped capabilities: what reaches other
processes, the kernel's larger attack surfaces, mounts and namespaces, keyrings, and sockets beyond UNIX,
INET, INET6 and routing netlink. Calls of a foreign architecture kill the process.
"""

from __future__ import annotations

import errno
import importlib
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Literal

from zubble_queue.errors import SandboxUnavailable

_DENIED: Final = (
    # other processes and their descriptors
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    # keyrings are the worker's
    *("keyctl", "add_key", "request_key"),
    # large and rarely needed surfaces
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("fanotify_init", "lookup_dcookie", "vmsplice", "modify_ldt", "vm86", "vm86old", "memfd_secret"),
    # mounts, old and new interface
    *("mount", "umount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("move_mount", "open_tree", "open_tree_attr", "mount_setattr", "statmount", "listmount"),
    # namespaces and handles that lead out of them
    *("setns", "unshare", "open_by_handle_at", "name_to_handle_at"),
    # the machine
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon"),
    *("swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "iopl", "ioperm", "nfsservctl", "vhangup"),
    *("sethostname", "setdomainname", "uselib", "personality", "_sysctl"),
    *(
        "settimeofday",
        "stime",
        "clock_settime",
        "clock_settime64",
        "clock_adjtime",
        "clock_adjtime64",
        "adjtimex",
    ),
    # memory of other nodes and processes
    *("mbind", "set_mempolicy", "get_mempolicy", "migrate_pages", "move_pages", "set_mempolicy_home_node"),
)
_NUMBERS: Final = {
    "move_mount": 429,
    "open_tree": 428,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "set_mempolicy_home_node": 450,
    "statmount": 457,
    "listmount": 458,
    "open_tree_attr": 467,
}
"""Since Linux 5.1 new calls have one number everywhere; for libraries older than the call."""
_UNKNOWN: Final = -1
"""Other negative numbers stand for calls that this architecture does not have; the library skips those."""
_CLONE_NEW: Final = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_RLIMIT_CORE: Final = 4
"""Kept at one byte, see `spawner`: at any other value a crash may start a handler on the host."""
_FAMILIES: Final = frozenset({1, 2, 10, 16})
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
_LAST_FAMILY: Final = 16
_DOCKER_TESTS: Final = {"equal": "SCMP_CMP_EQ", "unequal": "SCMP_CMP_NE", "greater": "SCMP_CMP_GT"}


@dataclass(frozen=True, slots=True)
class Condition:
    """On one argument of a call. `masked`: argument & mask == value."""

    argument: int
    test: Literal["equal", "unequal", "greater", "masked"]
    value: int
    mask: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """A call that fails with an errno when all conditions hold."""

    call: str
    errno: int
    conditions: tuple[Condition, ...] = ()


def rules() -> Iterator[Rule]:
    """What is denied; everything else is allowed."""
    for name in _DENIED:
        yield Rule(name, errno.EPERM)
    for flag in _CLONE_NEW:
        yield Rule("clone", errno.EPERM, (Condition(0, "masked", flag, mask=flag),))
    yield Rule("clone3", errno.ENOSYS)  # its flags are behind a pointer; the C library then uses clone
    for request in (_TIOCSTI, _TIOCLINUX):
        yield Rule("ioctl", errno.EPERM, (Condition(1, "masked", request, mask=0xFFFFFFFF),))
    core = Condition(0, "masked", _RLIMIT_CORE, mask=0xFFFFFFFF)
    yield Rule("setrlimit", errno.EPERM, (core,))
    core = Condition(1, "masked", _RLIMIT_CORE, mask=0xFFFFFFFF)
    yield Rule("prlimit64", errno.EPERM, (core, Condition(2, "unequal", 0)))
    for name in ("socket", "socketpair"):
        yield Rule(name, errno.EAFNOSUPPORT, (Condition(0, "greater", _LAST_FAMILY),))
        for family in range(_LAST_FAMILY + 1):
            if family not in _FAMILIES:
                yield Rule(name, errno.EAFNOSUPPORT, (Condition(0, "equal", family),))
        other_netlink = (Condition(0, "equal", socket.AF_NETLINK), Condition(2, "unequal", 0))
        yield Rule(name, errno.EAFNOSUPPORT, other_netlink)


def docker_profile() -> dict[str, Any]:
    """The same rules as a profile for `--security-opt seccomp=`.

    An engine leaves out the calls that its libseccomp does not know. Those are newer than it, and what is
    denied of them needs capabilities that no process in a sandbox has.
    """
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {
                "names": [rule.call],
                "action": "SCMP_ACT_ERRNO",
                "errnoRet": rule.errno,
                "args": [_docker_argument(condition) for condition in rule.conditions],
            }
            for rule in rules()
        ],
    }


def _docker_argument(condition: Condition) -> dict[str, Any]:
    if condition.test == "masked":
        numbers = {"value": condition.mask, "valueTwo": condition.value, "op": "SCMP_CMP_MASKED_EQ"}
    else:
        numbers = {"value": condition.value, "valueTwo": 0, "op": _DOCKER_TESTS[condition.test]}
    return {"index": condition.argument, **numbers}


def filter_program() -> bytes:
    """The filter as classic BPF for this machine. Raises SandboxUnavailable when it cannot be built."""
    pyseccomp = _library()
    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    try:
        for rule in rules():
            number = _number(pyseccomp, rule.call)
            if number is not None:
                conditions = [_library_argument(pyseccomp, condition) for condition in rule.conditions]
                program.add_rule(pyseccomp.ERRNO(rule.errno), number, *conditions)
        return _exported(program)
    except OSError as error:
        raise SandboxUnavailable(f"The seccomp filter cannot be built: {error}.") from error


def _library_argument(lib: ModuleType, condition: Condition) -> object:
    if condition.test == "masked":
        return lib.Arg(condition.argument, lib.MASKED_EQ, condition.mask, condition.value)
    test = {"equal": lib.EQ, "unequal": lib.NE, "greater": lib.GT}[condition.test]
    return lib.Arg(condition.argument, test, condition.value)


def _library() -> ModuleType:
    if sys.platform != "linux":
        raise SandboxUnavailable("Sandboxes need Linux.")
    try:
        return importlib.import_module("pyseccomp")
    except ModuleNotFoundError as error:
        raise SandboxUnavailable("pyseccomp is not installed: pip install 'zubble-queue[worker]'.") from error
    except (RuntimeError, OSError) as error:
        raise SandboxUnavailable("libseccomp is missing: install the package libseccomp2.") from error


def _number(lib: ModuleType, name: str) -> int | None:
    """None for a call that this machine does not have."""
    number: int = lib.resolve_syscall(lib.Arch.NATIVE, name)
    return _NUMBERS.get(name) if number == _UNKNOWN else number


def _exported(program: object) -> bytes:
    fd = os.memfd_create("filter", os.MFD_CLOEXEC)
    with os.fdopen(fd, "w+b") as file:
        program.export_bpf(file)  # type: ignore[attr-defined]
        file.seek(0)
        return file.read()
