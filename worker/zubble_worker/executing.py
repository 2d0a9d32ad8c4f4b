"""Runs one command in the sandbox: within its time, into the journal, known to whoever takes checkpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from zubble_queue.contracts.books import Books
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.sandbox import CommandResult, Sandbox, shell
from zubble_worker import journal
from zubble_worker.contact import Gate
from zubble_worker.protocols.structured import Action
from zubble_worker.transcript import Transcript


class Executor:
    """The one place of a run from which commands are started."""

    def __init__(
        self,
        transcript: Transcript,
        sandbox: Sandbox,
        books: Books,
        gate: Gate,
        record: Callable[..., Awaitable[Event]],
    ) -> None:
        self._talk, self._sandbox, self._books, self._gate = transcript, sandbox, books, gate
        self._record = record
        self.executing = False
        """Whether a command may be changing the work tree, or has and the events do not say so yet."""

    async def run(self, action: Action, command: str) -> CommandResult:
        """The command's end; it is in the events and in the journal then."""
        most = float(self._talk.job.envelope.sandbox.command_timeout_seconds)
        limit = min(most, max(self._books.left().seconds, 0.1))
        await self._gate.passed()
        self.executing = True
        try:
            result = await self._sandbox.exec(shell(command, timeout_seconds=limit))
            entry = journal.entry(self._talk.step, command, result, action.note, self._books.now())
            await self._record(
                "command_finished",
                step=self._talk.step,
                plan_step_id=action.plan_step_id,
                command=command,
                journal=entry.model_dump(),
                **_described(result),
            )
        finally:
            self.executing = False
        await self._books.journal(entry)
        await self._write_journal_file()
        return result

    async def _write_journal_file(self) -> None:
        """The agent's own copy; where it filled the disk or put something else there, the store's remains."""
        try:
            await self._sandbox.write(journal.JOURNAL_FILE, journal.to_file(self._talk.journal))
        except OSError as refused:
            await self._record("journal_file_refused", step=self._talk.step, reason=refused.strerror or "")


def _described(result: CommandResult) -> dict[str, Any]:
    """A command's end as its event holds it."""
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "oom": result.oom,
        "stdout": result.stdout.decode("utf-8", "replace"),
        "stderr": result.stderr.decode("utf-8", "replace"),
        "stdout_bytes": result.stdout_bytes,
        "stderr_bytes": result.stderr_bytes,
        "seconds": result.seconds,
    }
