"""A tool's result in the form of a command's, so that record, journal and observers treat both alike."""

from __future__ import annotations

from typing import Final

from zubble_queue.contracts.sandbox import CommandResult

RESULT_BYTES: Final = 20_000
"""Of one result (F11)."""


def said(text: str) -> CommandResult:
    """The tool did it."""
    return _result(0, stdout=text.encode("utf-8", "replace"))


def refused(text: str) -> CommandResult:
    """The tool did not; the text says why."""
    return _result(1, stderr=text.encode("utf-8", "replace"))


def shown(result: CommandResult) -> str:
    """As the model reads it."""
    if result.exit_code == 0:
        return result.stdout.decode("utf-8", "replace")
    return f"error: {result.stderr.decode('utf-8', 'replace')}"


def _result(exit_code: int, *, stdout: bytes = b"", stderr: bytes = b"") -> CommandResult:
    return CommandResult(
        exit_code=exit_code,
        signal=None,
        timed_out=False,
        oom=False,
        stdout=stdout,
        stderr=stderr,
        stdout_bytes=len(stdout),
        stderr_bytes=len(stderr),
        truncated=False,
        seconds=0.0,
    )
