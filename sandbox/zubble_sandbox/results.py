"""From what a supervisor tells of a command to its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zubble_queue.contracts.sandbox import CommandResult

_KILLED: Final = {(b"signal", 9), (b"exit", 137)}
"""How a command ends that is killed for memory, and a shell whose child is."""


def result(fields: Sequence[bytes]) -> CommandResult:
    """Of an answer's fields; see EXEC in `box.h`."""
    kind, code, seconds, ooms, out_total, out_head, out_tail, err_total, err_head, err_tail = fields
    totals = int(out_total), int(err_total)
    kept = len(out_head) + len(out_tail), len(err_head) + len(err_tail)
    return CommandResult(
        exit_code=int(code) if kind == b"exit" else None,
        signal=int(code) if kind == b"signal" else None,
        timed_out=kind == b"timeout",
        oom=int(ooms) > 0 and (kind, int(code)) in _KILLED,
        stdout=_joined(out_head, out_tail, totals[0] - kept[0]),
        stderr=_joined(err_head, err_tail, totals[1] - kept[1]),
        stdout_bytes=totals[0],
        stderr_bytes=totals[1],
        truncated=totals != kept,
        seconds=float(seconds),
    )


def _joined(head: bytes, tail: bytes, missing: int) -> bytes:
    gap = b"\n[zubble: %d bytes left out]\n" % missing if missing else b""
    return head + gap + tail


def not_started(sentence: str) -> CommandResult:
    """Of a command that no supervisor was asked to start; the sentence is its standard error."""
    text = sentence.encode(errors="backslashreplace")
    return CommandResult(126, None, False, False, b"", text, 0, len(text), False, 0.0)
