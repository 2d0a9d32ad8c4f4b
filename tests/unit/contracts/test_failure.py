import pytest

from zubble_queue.contracts import failure
from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.contracts.failure import Fault
from zubble_queue.errors import (
    BadInput,
    BudgetExceededError,
    JobError,
    ModelUnavailable,
    SandboxUnavailable,
    StoreUnavailable,
)


@pytest.mark.parametrize("stop", Stop)
def test_every_way_to_stop_is_somebodys(stop):
    assert isinstance(failure.of_ending(Ending(stop=stop)), Fault)


@pytest.mark.parametrize("stop", [Stop.SUBMITTED, Stop.LIMIT_TOKENS, Stop.LOOP_TEXT])
def test_what_is_verified_is_nobodys_failure(stop):
    ending = Ending(stop=stop, verdict=Verdict.PASSED)

    assert failure.of_ending(ending) is None
    assert not failure.may_be_tried_again(ending)


@pytest.mark.parametrize(
    ("stop", "verdict", "fault"),
    [
        (Stop.GAVE_UP, Verdict.FAILED, Fault.AGENT),
        (Stop.SUBMITTED, Verdict.ERROR, Fault.VERIFY),
        (Stop.LIMIT_BATCH_SPEND, Verdict.FAILED, Fault.LIMIT),
        (Stop.LIMIT_SPEND, Verdict.ERROR, Fault.LIMIT),
        (Stop.LOOP_ACTION, Verdict.FAILED, Fault.LOOP),
        (Stop.PARSE_ERROR, Verdict.FAILED, Fault.PARSE),
        (Stop.INFRA, Verdict.NOT_RUN, Fault.INFRA_PERMANENT),
        (Stop.CANCELLED, Verdict.NOT_RUN, Fault.OPERATOR),
        (Stop.INVALID, Verdict.NOT_RUN, Fault.OPERATOR),
    ],
)
def test_an_ending_is_the_failure_of(stop, verdict, fault):
    assert failure.of_ending(Ending(stop=stop, verdict=verdict)) is fault


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (BudgetExceededError("tokens", "x"), Fault.LIMIT),
        (JobError("x"), Fault.OPERATOR),
        (BadInput(["x"]), Fault.OPERATOR),
        (ModelUnavailable("x", permanent=True), Fault.INFRA_PERMANENT),
        (ModelUnavailable("x"), Fault.INFRA_TRANSIENT),
        (SandboxUnavailable("x"), Fault.INFRA_TRANSIENT),
        (StoreUnavailable("x"), Fault.INFRA_TRANSIENT),
        (KeyError("nobody foresaw it"), Fault.INFRA_TRANSIENT),
    ],
)
def test_an_error_is_the_failure_of(error, fault):
    assert failure.of_error(error) is fault


@pytest.mark.parametrize(
    ("stop", "again"),
    [
        (Stop.GAVE_UP, True),
        (Stop.LOOP_TEXT, True),
        (Stop.PARSE_ERROR, True),
        (Stop.LIMIT_ITERATIONS, True),
        (Stop.LIMIT_TOKENS, False),
        (Stop.LIMIT_WALLCLOCK, False),
        (Stop.LIMIT_BATCH_SPEND, False),
        (Stop.LIMIT_ALLOWED_TOOLS, False),
        (Stop.CANCELLED, False),
        (Stop.INFRA, False),
        (Stop.BLOCKED, False),
    ],
)
def test_another_attempt_is_made_only_where_it_may_end_better(stop, again):
    assert failure.may_be_tried_again(Ending(stop=stop, verdict=Verdict.FAILED)) is again
