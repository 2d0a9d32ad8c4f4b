"""Wrong wall clocks: a preloaded library that shifts what a process reads, built where it is needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("skew.c")
_TOLERANCE_SECONDS: Final = 5.0


class Unskewable(Exception):
    """One sentence: why no process here can be given a wrong clock."""


def build(folder: Path) -> Path:
    """Compile the library, and see that it works. Raises Unskewable."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise Unskewable("there is no C compiler to build the clock shim (Debian: apt-get install gcc)")
    library = folder / "skew.so"
    command = (compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE))
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise Unskewable(f"the clock shim does not compile: {built.stderr[:200]}")
    if not _shifts(library):
        raise Unskewable("the preloaded clock shim has no effect here")
    return library


def environment(library: Path, seconds: int) -> dict[str, str]:
    """Of a process whose wall clock, and only that, is wrong by so much."""
    return {"LD_PRELOAD": str(library), "SKEW_SECONDS": str(seconds)} if seconds else {}


def _shifts(library: Path) -> bool:
    program = "import time; print(time.time())"
    plain, shifted = (
        float(subprocess.check_output((sys.executable, "-c", program), env=environment(library, seconds)))
        for seconds in (0, 600)
    )
    return abs(shifted - plain - 600) < _TOLERANCE_SECONDS
