"""The program that is pid 1 of every sandbox: a static file for each architecture, built from the C here.

What it does and how it is spoken to is written at the top of `box.h`; the worker's half of that is `wire`.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

from zubble_queue.errors import SandboxUnavailable

_PROGRAMS: Final = Path(__file__).parent.parent / "bin"
_ARCHITECTURES: Final = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def binary(arch: str | None = None) -> Path:
    """The program for an architecture; this machine's when None.

    Args:
        arch: As a machine, Docker or Kubernetes calls it: x86_64 or amd64, aarch64 or arm64.

    Raises:
        SandboxUnavailable: this installation has none for it; the message says what to do.
    """
    wanted = arch or platform.machine()
    name = _ARCHITECTURES.get(wanted.lower())
    if name is None:
        raise SandboxUnavailable(
            f"Sandboxes run on {' and '.join(sorted(set(_ARCHITECTURES.values())))}, not on {wanted}."
        )
    program = _PROGRAMS / f"zubble-box-{name}"
    if not os.access(program, os.X_OK):
        raise SandboxUnavailable(
            f"The program {program.name} was not built: install a C compiler or `pip install ziglang`, and "
            "then zubble-queue again (in a checkout: python hatch_build.py)."
        )
    return program
