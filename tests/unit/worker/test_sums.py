"""Whatever a run meets, its calls add up to its record (C31)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import ModelUnavailable
from zubble_queue.testing import MemoryBooks
from zubble_queue.testing import structured_reply as say

TURNS: list[Any] = [
    say("plan", steps=["make the file", "submit"]),
    say("run", command="true", plan_step_id=2),
    say("run", command="false", plan_step_id=1),
    say("submit", report="done"),
    say("ask", question="why?"),
    "no object at all",
    {"text": "truncated " * 600},
    {"text": say("run", command="true"), "usage": False},
    {"text": say("run", command="true"), "fault": {"kind": "reset", "after_tokens": 3}},
]
BUDGETS = st.builds(LoopBudget, max_iterations=st.integers(1, 12), max_tokens=st.integers(1_000, 100_000))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.sampled_from(TURNS), min_size=1, max_size=12), budget=BUDGETS)
async def test_the_sum_of_the_calls_is_the_record(drive, turns, budget):
    books = MemoryBooks(budget)
    with suppress(ModelUnavailable):  # three broken streams in a row: what they cost is on the books, too
        await drive(*turns, then="cycle", budget=budget, opinion="false", books=books)

    calls = [*books.of_type("call_finished"), *books.of_type("opinion")]
    paid = Usage()
    for call in calls:
        paid = paid.plus(Usage.model_validate(call["usage"]))
    assert paid == books.usage
    assert len({call["call_id"] for call in calls}) == len(calls)
    assert books.usage.tokens <= budget.max_tokens + 16_000, "at most one call more than the limit"
