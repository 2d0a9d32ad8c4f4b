"""read, write, edit, list: files of the work tree, through the sandbox and never past it."""

from __future__ import annotations

from typing import Final

from zubble_queue.contracts.sandbox import MIB, Command, Sandbox
from zubble_worker.actuators.arguments import Edit, List, Read, ToolError, Write, inside
from zubble_worker.actuators.results import RESULT_BYTES

LISTED: Final = 200
"""Entries of one listing (F11)."""
_FILE_BYTES: Final = 10 * MIB
_ENTRIES: Final = 10_000
_IS_PROGRAM: Final = 'test -f "$1" && test -x "$1"'


async def read(sandbox: Sandbox, asked: Read) -> str:
    """Whole lines from the offset, as many as fit into a result; then where to go on."""
    path = inside(asked.path, sandbox.spec.work_dir)
    lines = (
        (await sandbox.read(path, max_bytes=_FILE_BYTES)).decode("utf-8", "replace").splitlines(keepends=True)
    )
    if not lines:
        return f"({asked.path} is empty)"
    if asked.offset > len(lines):
        raise ToolError(f"offset: {asked.path} has only {len(lines)} lines")
    page: list[str] = []
    size = 0
    for line in lines[asked.offset - 1 : asked.offset - 1 + asked.limit]:
        size += len(line.encode())
        if page and size > RESULT_BYTES:
            break
        page.append(line)
    last = asked.offset + len(page) - 1
    text = _within("".join(page))
    if asked.offset == 1 and last == len(lines):
        return text
    more = "" if last == len(lines) else f"; go on with offset {last + 1}"
    return f"{text.rstrip()}\n[lines {asked.offset} to {last} of {len(lines)}{more}]"


async def write(sandbox: Sandbox, asked: Write) -> str:
    """Create or replace; a program stays one."""
    path, data = inside(asked.path, sandbox.spec.work_dir), asked.content.encode("utf-8", "replace")
    await sandbox.write(path, data, executable=await _is_program(sandbox, path))
    return f"wrote {len(data)} bytes to {asked.path}"


async def edit(sandbox: Sandbox, asked: Edit) -> str:
    """Replace the one place where `old` stands, to the letter."""
    path = inside(asked.path, sandbox.spec.work_dir)
    try:
        text = (await sandbox.read(path, max_bytes=_FILE_BYTES)).decode("utf-8")
    except UnicodeDecodeError as binary:
        raise ToolError(f"{asked.path} is not UTF-8 text") from binary
    found = _occurrences(text, asked.old)
    if found != 1:
        hint = "copy the text exactly as it stands there" if not found else "add lines around it"
        raise ToolError(f"old: {found} matches in {asked.path}, must be exactly 1; {hint}")
    data = text.replace(asked.old, asked.new).encode("utf-8", "replace")
    await sandbox.write(path, data, executable=await _is_program(sandbox, path))
    return f"replaced 1 match in {asked.path}"


async def listing(sandbox: Sandbox, asked: List) -> str:
    """Files and folders below a folder; symbolic links are left out (F11)."""
    path = inside(asked.path, sandbox.spec.work_dir)
    entries = await sandbox.list(path, limit=_ENTRIES)
    lines = [
        f"{info.path}/" if info.kind == "directory" else f"{info.path} ({info.size} bytes)"
        for info in entries
        if info.kind in {"file", "directory"}
    ]
    if not lines:
        return f"({asked.path} holds no files)"
    shown = _within("\n".join(lines[:LISTED]))
    left = len(lines) - LISTED
    at_least = "at least " if len(entries) == _ENTRIES else ""
    return shown if left <= 0 else f"{shown}\n[{at_least}{left} more; list a folder below]"


def _occurrences(text: str, part: str) -> int:
    """Overlapping ones too: where they overlap, which is meant is not certain."""
    count, at = 0, text.find(part)
    while at >= 0:
        count, at = count + 1, text.find(part, at + 1)
    return count


async def _is_program(sandbox: Sandbox, path: str) -> bool:
    asked = Command(("/bin/sh", "-c", _IS_PROGRAM, "sh", f"./{path}"))
    return (await sandbox.exec(asked)).ok


def _within(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= RESULT_BYTES:
        return text
    left = len(data) - RESULT_BYTES
    return f"{data[:RESULT_BYTES].decode('utf-8', 'ignore')}\n[... {left} bytes left out ...]\n"
