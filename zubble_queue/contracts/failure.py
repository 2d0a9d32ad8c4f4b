"""Whose failure it was, and what follows from that: the one place that decides about trying again.

agent            it gave up, or what it submitted does not pass       -> sealed; again if the batch asks
limit            a budget or a ceiling                                -> sealed, or paused at a ceiling
loop             it repeated itself                                   -> as agent
parse            it was not understood, also after its repair         -> as agent
verify           the check itself could not be run to its end         -> as agent
infra_transient  endpoint, sandbox or our own code failed this time   -> released, with a growing delay
infra_permanent  key refused, no such model, a web page for an answer -> sealed `infra` at once
operator         a task that cannot be run as it is, or was cancelled -> sealed
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.errors import BudgetExceededError, JobError, ModelUnavailable, OperatorError


class Fault(StrEnum):
    """Whose it is."""

    AGENT = "agent"
    LIMIT = "limit"
    LOOP = "loop"
    PARSE = "parse"
    VERIFY = "verify"
    INFRA_TRANSIENT = "infra_transient"
    INFRA_PERMANENT = "infra_permanent"
    OPERATOR = "operator"


_BY_STOP: Final = {
    Stop.SUBMITTED: Fault.AGENT,
    Stop.GAVE_UP: Fault.AGENT,
    Stop.MODEL_STOP: Fault.AGENT,
    Stop.LIMIT_ITERATIONS: Fault.LIMIT,
    Stop.LIMIT_TOKENS: Fault.LIMIT,
    Stop.LIMIT_WALLCLOCK: Fault.LIMIT,
    Stop.LIMIT_SPEND: Fault.LIMIT,
    Stop.LIMIT_ALLOWED_TOOLS: Fault.LIMIT,
    Stop.LIMIT_CONTEXT: Fault.LIMIT,
    Stop.LIMIT_MAX_STEPS: Fault.LIMIT,
    Stop.LIMIT_MAX_TURN_SECS: Fault.LIMIT,
    Stop.LIMIT_BATCH_SPEND: Fault.LIMIT,
    Stop.LIMIT_TENANT_SPEND: Fault.LIMIT,
    Stop.LOOP_TEXT: Fault.LOOP,
    Stop.LOOP_ACTION: Fault.LOOP,
    Stop.LOOP_STALL: Fault.LOOP,
    Stop.PARSE_ERROR: Fault.PARSE,
    Stop.BLOCKED: Fault.OPERATOR,
    Stop.STUCK: Fault.INFRA_PERMANENT,
    Stop.INFRA: Fault.INFRA_PERMANENT,
    Stop.INVALID: Fault.OPERATOR,
    Stop.CANCELLED: Fault.OPERATOR,
}
_TRIED_AGAIN: Final = frozenset({Fault.AGENT, Fault.LOOP, Fault.PARSE, Fault.VERIFY})
_LIMITS_OF_ONE_ATTEMPT: Final = frozenset(
    {Stop.LIMIT_ITERATIONS, Stop.LIMIT_CONTEXT, Stop.LIMIT_MAX_STEPS, Stop.LIMIT_MAX_TURN_SECS}
)
"""The other limits hold over all attempts, so a second one would meet them at once."""


def of_ending(ending: Ending) -> Fault | None:
    """Whose failure an ending is; None where it is verified."""
    if ending.verdict is Verdict.PASSED:
        return None
    if ending.verdict is Verdict.ERROR and _BY_STOP[ending.stop] is Fault.AGENT:
        return Fault.VERIFY
    return _BY_STOP[ending.stop]


def of_error(error: BaseException) -> Fault:
    """Whose failure an exception is; what nobody foresaw is ours, and may be over next time."""
    match error:
        case BudgetExceededError():
            return Fault.LIMIT
        case JobError() | OperatorError():
            return Fault.OPERATOR
        case ModelUnavailable(permanent=True):
            return Fault.INFRA_PERMANENT
    return Fault.INFRA_TRANSIENT


def may_be_tried_again(ending: Ending) -> bool:
    """Whether another attempt, where the batch asks for retries, may end better than this one did."""
    return of_ending(ending) in _TRIED_AGAIN or (
        of_ending(ending) is Fault.LIMIT and ending.stop in _LIMITS_OF_ONE_ATTEMPT
    )
