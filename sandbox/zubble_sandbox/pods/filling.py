"""Bringing the supervisor and the verify files into a pod before its sandbox starts.

The pod's image tells what kind of machine it runs on and which environment it brings, and what it holds in
the place of the work tree becomes the work tree's beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_sandbox.kube_exec import ExecLine
from zubble_sandbox.line import LineLost
from zubble_sandbox.pods.layout import SEED_DIR, Layout
from zubble_sandbox.pods.manifests import FILLED, PROGRAM, PROGRAM_MODE

MAX_ENVIRONMENT_BYTES: Final = 131_072
_SCRIPT: Final = r"""
set -e
umask 022
mkdir -p @folders
if [ -d @work ]; then
    cd @work
    find . ! -name . -prune -exec sh -c 'cp -R -P -p "$@" @seed/' sh {} +
fi
uname -m
env -0 | od -An -v -tx1 | tr -d ' \n'
echo
while read -r size mode name; do
    if [ "$size" = end ]; then echo done; : >@filled; exit; fi
    path=$(printf %b. "$name")
    path=${path%.}
    new=$path.$$
    mkdir -p "${path%/*}"
    head -c "$size" >"$new"
    [ "$(wc -c <"$new")" -eq "$size" ] || { rm "$new"; exit 1; }
    chmod "$mode" "$new"
    mv -f "$new" "$path"
    echo ok
done
exit 1
"""
"""Reads "size mode name" and so many bytes, again and again. The next file is sent when this one is
acknowledged, because `head` may read further than it was told to. A stream that broke may leave a shell
behind that still runs when the next one comes: each has files of its own until they are whole."""
_END_SECONDS: Final = 10.0
"""Whoever closes the stream before the shell has ended may end the shell."""
_FILE_MODE: Final = "0555"
_NOT_THE_IMAGES: Final = frozenset({"HOME", "HOSTNAME", "OLDPWD", "PWD", "SHLVL", "TERM", "_"})
_CLUSTERS: Final = "KUBERNETES_"
"""Names of variables that every pod of a cluster gets begin so."""


@dataclass(frozen=True, slots=True)
class Filling:
    """What a pod needs before it starts.

    Args:
        spec: Whose files it gets.
        layout: Where they go.
        program: Finds the supervisor for a machine, as `uname -m` calls it; None where an image brings it.
    """

    spec: SandboxSpec
    layout: Layout
    program: Callable[[str], Path] | None

    @property
    def command(self) -> list[str]:
        """What is to be started in the fill container."""
        words = {
            "folders": " ".join(map(shlex.quote, (SEED_DIR, *self.layout.scratch))),
            "work": shlex.quote(self.layout.work.path),
            "seed": SEED_DIR,
            "filled": FILLED,
        }
        script = _SCRIPT
        for name, text in words.items():
            script = script.replace(f"@{name}", text)
        return ["/bin/sh", "-c", script]

    async def pour(self, line: ExecLine) -> dict[str, str]:
        """Send all over a stream to `command`; returns the image's environment.

        Raises:
            LineLost: the stream broke; the same pod may be filled again.
            SandboxUnavailable: there is no supervisor for that machine.
        """
        machine = (await line.read_line()).decode(errors="replace").strip()
        environment = _environment(await line.read_line(limit=2 * MAX_ENVIRONMENT_BYTES))
        for path, mode, data in self._entries(machine):
            await line.write(_header(path, mode, len(data)) + data)
            if await line.read_line() != b"ok":
                raise LineLost(f"{path} was not written")
        await line.write(b"end\n")
        if await line.read_line() != b"done":
            raise LineLost("the pod did not say that it is filled")
        with contextlib.suppress(LineLost, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await line.read_exactly(1)  # the stream ends when the container does
        return environment

    def _entries(self, machine: str) -> Iterator[tuple[str, str, bytes]]:
        if self.program is not None:
            yield PROGRAM, PROGRAM_MODE, self.program(machine).read_bytes()
        for path, data in self.spec.readonly_files.items():
            yield path, _FILE_MODE, data


def _header(path: str, mode: str, size: int) -> bytes:
    """The name in octal, so that no byte of it means anything to a shell."""
    name = b"".join(b"\\0%03o" % byte for byte in path.encode("utf-8", "surrogateescape"))
    return b"%d %s %s\n" % (size, mode.encode(), name)


def _environment(told: bytes) -> dict[str, str]:
    """Of the image, without what the shell and the cluster add. Raises LineLost for what is none."""
    try:
        entries = bytes.fromhex(told.decode("ascii")).split(b"\0")
    except ValueError as error:
        raise LineLost("the pod did not tell its environment") from error
    pairs = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in entries if entry)
    return {
        name: value
        for name, _, value in pairs
        if name and name not in _NOT_THE_IMAGES and not name.startswith(_CLUSTERS)
    }
