"""A supervisor that we bring into an existing container, and take away again."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import wire
from zubble_sandbox.existing.ways import Way
from zubble_sandbox.line import Line, LineLost
from zubble_sandbox.secret import introduce, key_of

ANSWER_SECONDS: Final = 60.0
"""For each thing that a shell inside is asked to do."""
_ENVIRONMENT_BYTES: Final = 1_048_576
_LINE_BYTES: Final = 256
_OF_THE_SHELL: Final = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
_PROGRAM_MODE: Final = 0o111
_FILE_MODE: Final = 0o555
_LOOK: Final = """\
uname -m
[ -d "$1" ] && echo there || echo missing
wc -c <"/proc/$$/environ"
cat "/proc/$$/environ"
"""
_FILL: Final = """\
umask 022
mkdir -p "$1"
while read -r size mode name; do
    path=$(printf %b. "$name")
    path=${path%.}
    mkdir -p "${path%/*}" && head -c "$size" >"$path" && [ "$(wc -c <"$path")" -eq "$size" ] || exit 1
    chmod "$mode" "$path" || exit 1
    echo ok
done
"""
"""Reads "size mode name" and so many bytes, again and again; the name in octal, so that no byte of it means
anything. The next file is sent when this one is acknowledged: `head` may read further than it was told to."""
_LAUNCH: Final = '"$@" </dev/null >/dev/null 2>&1 & echo ok'
_REMOVE: Final = 'rm -rf -- "$1" && echo ok'
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a program finds that is started inside."""

    machine: str
    """As `uname -m` calls it."""
    env: Mapping[str, str]
    has_work: bool
    """Whether the folder of the work tree is there."""


@dataclass(frozen=True, slots=True)
class Guest:
    """What we have in a container: a folder of ours, and in it a supervisor behind a secret.

    Needs a shell and the usual small programs inside: `head`, `mkdir`, `chmod`, `wc`, `uname`, `rm`.
    """

    way: Way
    token: str
    secret: str
    folder: str
    """Ours, inside; it did not exist before."""

    @property
    def program(self) -> str:
        return f"{self.folder}/box"

    @property
    def tmp(self) -> str:
        """For what commands put away; it goes with us."""
        return f"{self.folder}/temporary"

    async def look_around(self, work: str) -> Surroundings:
        """Raises SandboxUnavailable."""

        async def look(line: Line) -> Surroundings:
            machine, there = await _read_line(line), await _read_line(line)
            size = int(await _read_line(line))
            if size > _ENVIRONMENT_BYTES:
                raise LineLost("its environment is too large")
            entries = os.fsdecode(await line.read_exactly(size)).split("\0")
            pairs = (entry.partition("=") for entry in entries)
            env = {name: value for name, equals, value in pairs if equals and name not in _OF_THE_SHELL}
            return Surroundings(machine, env, there == "there")

        return await self._ask("look around", _LOOK, (work,), look)

    async def bring(self, program: bytes, files: Mapping[str, bytes]) -> None:
        """Put the supervisor in our folder, and files at their absolute paths. Raises SandboxUnavailable."""
        entries = [(self.program, _PROGRAM_MODE, program)]
        entries += [(path, _FILE_MODE, data) for path, data in files.items()]

        async def fill(line: Line) -> None:
            for path, mode, data in entries:
                await line.write(_header(path, mode, len(data)) + data)
                await _expect_ok(line)

        await self._ask("write", _FILL, (self.tmp,), fill)

    async def launch(self, linger_seconds: float) -> None:
        """Start the supervisor, which then belongs to nobody. Raises SandboxUnavailable."""
        argv = (
            *(self.program, "supervise", "--listen", self._socket, "--key", key_of(self.secret)),
            *("--linger", f"{linger_seconds:g}", self.token),
        )
        await self._ask("start the supervisor", _LAUNCH, argv, _expect_ok)

    async def connect(self) -> Line:
        """Raises LineLost where another try may help, SandboxUnavailable where none will."""
        line = await self.way.run((self.program, "relay", self._socket))
        await introduce(line, self.secret)
        return line

    async def leave(self) -> None:
        """End the supervisor with all it started, and remove our folder. Raises SandboxUnavailable."""
        with contextlib.suppress(LineLost):
            line = await self.connect()
            try:
                await line.write(wire.frame(wire.LEAVE, 1))
                async with asyncio.timeout(ANSWER_SECONDS):
                    await line.read_exactly(wire.HEADER_BYTES + 1)  # as it ends, so does the line
            except TimeoutError:
                pass
            finally:
                await line.close()
        await self._ask("remove what was brought", _REMOVE, (self.folder,), _expect_ok)

    @property
    def _socket(self) -> str:
        return f"@{self.token}"

    async def _ask(
        self, what: str, script: str, arguments: Sequence[str], talk: Callable[[Line], Awaitable[_Answer]]
    ) -> _Answer:
        """Let a shell inside run a script of ours, and talk to it."""
        try:
            line = await self.way.run(("/bin/sh", "-c", script, "sh", *arguments))
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await talk(line)
            finally:
                await line.close()
        except (LineLost, TimeoutError, ValueError) as error:
            reason = str(error) or "it does not answer"
            raise SandboxUnavailable(f"The shell in the container would not {what}: {reason}.") from error


def _header(path: str, mode: int, size: int) -> bytes:
    name = b"".join(b"\\0%03o" % byte for byte in os.fsencode(path))
    return b"%d %04o %s\n" % (size, mode, name)


async def _read_line(line: Line) -> str:
    read = bytearray()
    while (byte := await line.read_exactly(1)) != b"\n":
        read += byte
        if len(read) > _LINE_BYTES:
            raise LineLost("it sent a line without an end")
    return read.decode(errors="replace").strip()


async def _expect_ok(line: Line) -> None:
    if (answer := await _read_line(line)) != "ok":
        raise LineLost(f"it said {answer!r}")
