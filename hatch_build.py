"""Builds zubble-box, the one program of the project that is not Python, for every architecture it can.

With `cc` for this machine, with the wheel `ziglang` for both. As a program, `python hatch_build.py` does the
same in a checkout. The result depends on sources and compiler only, not on when and where it is built.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
SOURCES = ROOT / "sandbox/zubble_sandbox/box"
PROGRAMS = ROOT / "sandbox/zubble_sandbox/bin"
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
"""What a machine calls itself to what the program is named after."""
FLAGS = (
    *("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-static", "-s", "-Wl,--build-id=none", "-ffile-prefix-map=.=box"),
)


def native() -> str | None:
    """The architecture of this machine; None where no sandbox runs."""
    return MACHINES.get(platform.machine().lower()) if sys.platform == "linux" else None


def compiler(arch: str) -> Sequence[str] | None:
    """The command that builds for an architecture; None when there is none here."""
    if arch == native() and (found := shutil.which(os.environ.get("CC", "cc"))):
        return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-musl")
    return None


def build(command: Sequence[str], target: Path, flags: Sequence[str] = FLAGS) -> None:
    """Compile all sources into one program, which replaces an older one at once.

    Raises:
        subprocess.CalledProcessError: the compiler said no; what it said is on standard error.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    names = sorted(path.name for path in SOURCES.glob("*.c"))
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder, target.name)
        subprocess.run([*command, *flags, *names, "-o", str(made), "-lm"], cwd=SOURCES, check=True)
        made.chmod(0o755)
        made.replace(target)


def build_all() -> list[Path]:
    """The programs that could be built here."""
    built: list[Path] = []
    for arch in sorted(set(MACHINES.values())):
        if command := compiler(arch):
            build(command, PROGRAMS / f"zubble-box-{arch}")
            built.append(PROGRAMS / f"zubble-box-{arch}")
    return built


class BoxHook(BuildHookInterface):
    """Builds before a wheel, also an editable one, is put together."""

    def dependencies(self) -> list[str]:
        """A compiler, where this Linux has none."""
        arch = native()
        return [] if arch is None or self.target_name != "wheel" or compiler(arch) else ["ziglang"]

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or not build_all():
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{native()}"


if __name__ == "__main__":
    for path in build_all():
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
