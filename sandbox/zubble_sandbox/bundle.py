"""The supervisor as one blob of byte code for the Python that runs it.

It is compiled once per interpreter and reaches the sandbox as an anonymous file on descriptor 0: no path of
the host, nothing a command could rewrite, and 15 ms less than compiling the source for each sandbox.
"""

from __future__ import annotations

import marshal
import os
import subprocess
from functools import cache
from importlib import resources
from typing import Final

from zubble_queue.errors import SandboxUnavailable

_MODULES: Final = ("wire", "tree", "files", "archive", "family", "running", "main")
"""In the order of their imports."""
_PORTABLE_MARSHAL: Final = 2
"""Readable by every Python 3; used for strings only."""
_COMPILE_SECONDS: Final = 60.0
_COMPILE: Final = (
    "import marshal,sys;"
    "marshal.dump([(n,compile(s,n,'exec',dont_inherit=True)) for n,s in marshal.load(sys.stdin.buffer)],"
    "sys.stdout.buffer)"
)
_BOOT: Final = """\
import marshal,sys
def module(name):
    made=sys.modules[name]=type(sys)(name)
    made.__path__=[]
    parent,_,own=name.rpartition('.')
    if parent:setattr(sys.modules[parent],own,made)
    return made.__dict__
module('zubble_sandbox');module('zubble_sandbox.supervisor')
with open(0,'rb',closefd=False) as file:
    for name,code in marshal.load(file):exec(code,module(name))
sys.modules['zubble_sandbox.supervisor.main'].main(int(sys.argv[1]))
"""


def launch(python: str, control_fd: int, token: str) -> list[str]:
    """The command line of a supervisor whose standard input is the bundle; `token` marks its processes."""
    return [python, "-I", "-S", "-c", _BOOT, str(control_fd), token]


@cache
def compiled(python: str) -> bytes:
    """The bundle for an interpreter of this host; blocks. Raises SandboxUnavailable when it cannot."""
    package = resources.files("zubble_sandbox.supervisor")
    sources = [
        (f"zubble_sandbox.supervisor.{name}", (package / f"{name}.py").read_text("utf-8"))
        for name in _MODULES
    ]
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", _COMPILE],
            input=marshal.dumps(sources, _PORTABLE_MARSHAL),
            capture_output=True,
            env={},
            timeout=_COMPILE_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        complaint = error.stderr.decode(errors="replace").strip()[-300:]
        raise SandboxUnavailable(f"{python} cannot compile the supervisor: {complaint}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"{python} cannot compile the supervisor: {error}.") from error
    return done.stdout


def memory_file(data: bytes, name: str) -> int:
    """A descriptor of an anonymous file, at its start; the caller closes it."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(data)
        file.seek(0)
    return fd
