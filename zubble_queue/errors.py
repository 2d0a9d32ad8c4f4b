"""The error tree; the class decides who reacts.

ZubbleError
  OperatorError            somebody must change something      -> the CLI prints it, exit code 2, no traceback
    BadInput               files, flags or fields are wrong; carries every problem found, one sentence each
    UnknownName            says which names are installed
    MissingExtra           says what to install
    NoKey                  a model's key is not where its table says; workers do without the model
    CannotStart            a server, folder or program that is needed is not to be had
  InfraError               not the agent's fault                -> the queue retries; the model never sees it
    StoreUnavailable       Redis does not answer
    SandboxUnavailable     the sandbox, not the command, failed
    ModelUnavailable       the provider failed after its retries
    ParkedTooLong          others left no room for so long
  JobError                 the job itself is at fault           -> sealed `invalid`, never retried
  LeaseLost                this attempt no longer owns its task -> stop at once, write nothing
  AwaitingHuman            a person is asked                      -> given back, until there is an answer
  CeilingReached           batch or tenant spent all it may       -> given back as it is, until it is raised
  BudgetExceededError      a kill switch tripped (B4; also a RuntimeError)

A command that fails or times out is a CommandResult, never an exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class ZubbleError(Exception):
    """Something went wrong in a way we know."""


class OperatorError(ZubbleError):
    """Somebody must change something before this can work."""


class BadInput(OperatorError):
    """The input is wrong; `problems` holds one sentence per problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class UnknownName(OperatorError):
    """No such name; the message lists the known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        names = ", ".join(self.known) or "none"
        super().__init__(f"Unknown {kind} {name!r}; known: {names}.")


class MissingExtra(OperatorError):
    """A part that is not installed was asked for."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: pip install 'zubble-queue[{extra}]'.")


class NoKey(OperatorError):
    """A model's key is not where its table says, or is none."""


class CannotStart(OperatorError):
    """A server, folder or program that is needed is not to be had."""


class InfraError(ZubbleError):
    """The machinery failed, not the agent; the queue tries again."""


class StoreUnavailable(InfraError):
    """Redis does not answer."""


class SandboxUnavailable(InfraError):
    """The sandbox, not the command in it, failed."""


class ModelUnavailable(InfraError):
    """The provider failed after its retries.

    Args:
        message: One sentence for the record.
        permanent: True when another try cannot help (401, 404, HTML instead of JSON).
        retries: The tries before the last one, as `contracts.model.Retry` records.
        usage: A `contracts.ending.Usage` for tries that delivered nothing but may be billed; None where no
            try can be.
    """

    def __init__(
        self, message: str, *, permanent: bool = False, retries: tuple[Any, ...] = (), usage: Any = None
    ) -> None:
        self.permanent, self.retries, self.usage = permanent, retries, usage
        super().__init__(message)


class ParkedTooLong(InfraError):
    """Others left no room for a call, at a ceiling or at the provider, for as long as one may wait."""


class JobError(ZubbleError):
    """The job itself is at fault; it is sealed `invalid` and never retried."""


class LeaseLost(ZubbleError):
    """This attempt no longer owns its task."""


class AwaitingHuman(ZubbleError):
    """A question of this attempt waits for a person; another attempt goes on with the answer."""


class CeilingReached(ZubbleError):
    """Batch or tenant has spent all it may, and its tasks are to wait until the ceiling is raised."""


class BudgetExceededError(ZubbleError, RuntimeError):
    """A kill switch tripped.

    Args:
        limit: Which one, as in the stop `limit:<limit>`.
        reason: For the record, as in `max_iterations=20 exceeded`.
    """

    def __init__(self, limit: str, reason: str) -> None:
        self.limit, self.reason = limit, reason
        super().__init__(reason)
