"""Runs a command or another tool: within its time, into the journal, known to whoever takes checkpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from zubble_queue.contracts.books import Books
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.sandbox import CommandResult, Sandbox, shell
from zubble_worker import journal, view
from zubble_worker.actuators import dispatch, results
from zubble_worker.contact import Gate
from zubble_worker.protocols.base import Action
from zubble_worker.transcript import Transcript

_LEAST_SECONDS: Final = 0.1
_RUN_COMMANDS: Final = frozenset({"shell", "run_tests"})


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

    async def run(self, action: Action, tool: str, arguments: str) -> str:
        """How a command or another tool ended, for the model; it is in the events and in the journal then.

        Args:
            action: What the model asked for.
            tool: Its tool.
            arguments: The command, or the tool's arguments as JSON text.
        """
        await self._gate.passed()
        self.executing = True
        try:
            result = await self._carry_out(action, tool, arguments)
            tried = arguments if tool == "shell" else f"{tool} {arguments}"
            entry = journal.entry(
                *(self._talk.step, tried, result, action.note, self._books.now()),
                category=dispatch.CATEGORIES.get(tool),
            )
            await self._record(
                "command_finished",
                step=self._talk.step,
                plan_step_id=action.plan_step_id,
                tool=tool,
                command=arguments,
                journal=entry.model_dump(),
                **_described(result),
            )
        finally:
            self.executing = False
        await self._books.journal(entry)
        await self._write_journal_file()
        return view.describe(result) if tool in _RUN_COMMANDS else results.shown(result)

    async def _carry_out(self, action: Action, tool: str, arguments: str) -> CommandResult:
        envelope, left = self._talk.job.envelope, max(self._books.left().seconds, _LEAST_SECONDS)
        most = float(envelope.sandbox.command_timeout_seconds)
        if tool == "shell":
            return await self._sandbox.exec(shell(arguments, timeout_seconds=min(most, left)))
        place = dispatch.Place(
            self._sandbox,
            seconds=left,
            command_seconds=most,
            tests=envelope.test_command,
            tests_seconds=float(envelope.verify.timeout_seconds),
            ready=self._gate.passed,
        )
        return await dispatch.call(tool, action.arguments or {}, place)

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
