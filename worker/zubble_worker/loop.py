"""The agent loop: limits, model, detectors, action, record; until something passes or something stops it.

It knows contracts and pure objects only; where commands run, who pays and what is kept is behind Protocols.
Each way out is one `Stopped`; an expected end is never an exception to the caller (C11).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from zubble_queue.contracts.books import Books
from zubble_queue.contracts.checking import Checker
from zubble_queue.contracts.decisions import Deny
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.model import Admission, Model
from zubble_queue.contracts.question import Human
from zubble_queue.contracts.sandbox import Sandbox
from zubble_queue.errors import BudgetExceededError
from zubble_worker import journal, view
from zubble_worker.actuators.dispatch import calls
from zubble_worker.bounds import Bounds
from zubble_worker.caller import Caller
from zubble_worker.contact import Gate
from zubble_worker.deciding import Deciding, Policy
from zubble_worker.executing import Executor
from zubble_worker.measures import clear, enforce, note
from zubble_worker.observers.actions.facts import Call
from zubble_worker.observers.repetition import WARNING
from zubble_worker.permission import Permission
from zubble_worker.protocols.base import Action, NotUnderstood
from zubble_worker.questions import Questions
from zubble_worker.stopping import Stopped, Stopping
from zubble_worker.transcript import Transcript

_PREMATURE_STOPS: Final = 2
_WORTH_CLEARING: Final = 2
"""Turns; a context that was just cleared has one."""
_CURABLE: Final = frozenset({Stop.LOOP_TEXT, Stop.LOOP_ACTION, Stop.LOOP_STALL, Stop.LIMIT_CONTEXT})
"""By a fresh context; the same detectors then go on from where they were (C37)."""


class AgentLoop:
    """One attempt at one task; the transcript is empty, or folded from the events of an attempt that died."""

    def __init__(
        self,
        transcript: Transcript,
        *,
        model: Model,
        sandbox: Sandbox,
        books: Books,
        checker: Checker,
        call_prefix: str,
        decisions: Policy | None = None,
        human: Human | None = None,
        gate: Gate | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._talk, self._envelope = transcript, transcript.job.envelope
        self._sandbox, self._books, self._checker = sandbox, books, checker
        deciding, self._gate = Deciding(decisions), gate or Gate()
        self._questions = Questions(transcript, human, self._record)
        self._permission = Permission(transcript, books, deciding, self._questions)
        self._bounds = Bounds(transcript, books, model, self._questions)
        self._executor = Executor(transcript, sandbox, books, self._gate, self._record)
        self._caller = Caller(
            transcript,
            model,
            books,
            deciding,
            call_prefix=call_prefix,
            gate=self._gate,
            admission=admission,
        )

    @property
    def executing(self) -> bool:
        """Whether a command may be changing the work tree, or has and the events do not say so yet."""
        return self._executor.executing

    async def run(self) -> Stopped:
        """Let the model act until it submits what passes, gives up, or is stopped."""
        try:
            while True:
                if stopped := await self._iterate():
                    return stopped
        except Stopping as ending:
            return ending.stopped
        except BudgetExceededError as reached:
            return Stopped(Stop(f"limit:{reached.limit}"), reached.reason)

    async def _iterate(self) -> Stopped | None:
        try:
            if met := self._talk.inquiry.met:
                await clear(met, self._questions)
            if due := self._talk.inquiry.due:  # it was put off for a question
                return await self._carry_out(Action.model_validate(due))
            self._bounds.before_step()
            await self._permission.to_step()
            action = await self._next_action()
            return await self._act(action) if action else None
        except Stopping as ending:
            if not self._may_start_anew(ending.stopped.stop):
                raise
            await self._reset_context(ending.stopped)
            return None

    def _may_start_anew(self, stop: Stop) -> bool:
        """After a loop, or in a full context, while resets and every limit allow another iteration."""
        if stop not in _CURABLE or self._talk.resets >= self._envelope.max_context_resets:
            return False
        if stop is Stop.LIMIT_CONTEXT and len(self._talk.turns) < _WORTH_CLEARING:
            return False
        try:
            self._bounds.before_step()
            self._bounds.check_caps()
        except BudgetExceededError:
            return False
        return self._permission.not_refused()

    async def _reset_context(self, loop: Stopped) -> None:
        """Go on from ledger and journal alone; nothing of the loop is in a later prompt (Z21, Z24)."""
        self._caller.nudges.clear()
        await note(self._talk.watching.close(), self._record)
        await self._record(
            "context_reset",
            step=self._talk.step,
            cause=loop.stop.value,
            reason=loop.reason,
            evidence=loop.evidence,
            text=view.fresh_start(self._talk.step, loop.reason, journal.render(self._talk.journal)),
        )
        await self._books.step_done(self._sandbox)

    async def _next_action(self) -> Action | None:
        """One iteration's turn, with one targeted repair (Z11); None where a failed one is borne."""
        step, reason = self._talk.step + 1, ""
        for kind in ("step", "repair"):
            await self._bounds.before_call()
            reply = await self._caller.ask(step, kind)
            self._bounds.check_tools([name for name, _ in reply.tool_calls])
            try:
                return self._talk.job.protocol.parse(reply.text)
            except NotUnderstood as error:
                reason = str(error)
                await self._record("format_error", step=step, kind=kind, reason=reason)
        await note(self._talk.watching.close(), self._record)
        if self._talk.watching.format_errors >= self._talk.job.protocol.format_error_limit:
            raise Stopping(Stop.PARSE_ERROR, reason)
        return None

    async def _act(self, action: Action) -> Stopped | None:
        await self._record("action", step=self._talk.step, **action.model_dump(exclude_none=True))
        if self._talk.warning:  # before anything is carried out (Z9)
            await self._record("diverged", step=self._talk.step, text=self._talk.warning)
        return await self._carry_out(action)

    async def _carry_out(self, action: Action) -> Stopped | None:
        match action.action:
            case "plan":
                await self._observe("The plan is noted. Run the first step.")
            case "ask":
                await self._observe(await self._questions.ask(action.question or ""))
            case "run" | "tool":
                return await self._use_tool(action)
            case "submit" | "report" as kind:
                return await self._wants_to_stop(kind, action.report or "")
        return None

    async def _wants_to_stop(self, kind: Literal["submit", "report"], report: str) -> Stopped | None:
        """Done is a claim: only the check makes it true, and a rejected one means going on (Z10, C7)."""
        answer = await self._permission.to_stop(kind, report)
        if isinstance(answer, Deny):
            await self._record("premature_stop", step=self._talk.step, reason=answer.reason)
            if self._talk.premature_stops > _PREMATURE_STOPS:
                return Stopped(Stop.MODEL_STOP, answer.reason, report)
            await self._observe(f"Not yet: {answer.reason}")
            return None
        if kind == "report":
            return Stopped(Stop.GAVE_UP, "the agent gave up", report)
        if await self._passes():
            return Stopped(Stop.SUBMITTED, report=report)
        await self._observe(
            "The submission was checked and does not meet the success criteria. Keep working."
        )
        return None

    async def _passes(self) -> bool:
        result = await self._checker.check()
        await self._record("verify_finished", step=self._talk.step, **result.as_dict())
        return result.passed

    async def _use_tool(self, action: Action) -> Stopped | None:
        """The gate, then the observers, then the sandbox."""
        asked = calls(action)
        self._bounds.check_tools([tool for tool, _ in asked])
        if denied := await self._permission.denied(asked):
            await self._record("denied", step=self._talk.step, **denied)
            await self._observe(f"This command was not run: {denied['reason']}")
            return None
        tool, command = asked[0]
        fingerprint = await self._sandbox.fingerprint()
        verdict = self._talk.watching.judge(Call(command, fingerprint, tool))
        await self._record(
            "dispatch",
            step=self._talk.step,
            tool=tool,
            command=command,
            fingerprint=fingerprint,
            doom_loop=verdict.kind,
        )
        if verdict.kind == "stop":
            raise Stopping(Stop.LOOP_ACTION, verdict.text, dict(verdict.evidence))
        if verdict.kind == "refuse":
            await self._observe(verdict.text)
            return None
        await self._observe(await self._executor.run(action, tool, command))
        if self._envelope.verify_each_step and await self._passes():
            return Stopped(Stop.SUBMITTED, "the check passed after a step")
        return None

    async def _observe(self, text: str) -> None:
        """Tell the model, with whatever else is due, in one message (C25); the step is complete then."""
        judgement = self._talk.watching.close()
        await note(judgement, self._record)
        enforce(judgement)
        notes = filter(None, (judgement.note, self._talk.warning, *self._caller.nudges))
        ordered = sorted(notes, key=lambda due: due != WARNING)  # it is the strongest
        whole = "\n\n".join([*(f"[harness] {due}" for due in ordered), text])
        self._caller.nudges.clear()
        await self._record("observation", step=self._talk.step, text=whole)
        await self._books.step_done(self._sandbox)

    async def _record(self, type_: str, /, **data: Any) -> Event:
        event = await self._books.record(type_, **data)
        self._talk.apply(event)
        return event
