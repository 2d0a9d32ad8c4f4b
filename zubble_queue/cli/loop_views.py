"""The limits of a loop, and its record for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from zubble_queue.cli.report import Exit, duration, plain, usd
from zubble_queue.contracts.ending import MICRO
from zubble_queue.contracts.model import SMALLEST_CALL_TOKENS
from zubble_queue.contracts.task import LoopBudget

if TYPE_CHECKING:
    from zubble_queue.cli.loop_order import Order
    from zubble_queue.cli.loop_record import Iteration, LoopRecord

_CODES: Final = {
    "verified": Exit.DONE,
    "stuck": Exit.NOT_ALL_VERIFIED,
    "blocked": Exit.NOT_ALL_VERIFIED,
    "invalid": Exit.BAD_INPUT,
    "infra": Exit.INFRASTRUCTURE,
    "cancelled": Exit.DETACHED,
}
_REPORT_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a whole loop; `each` is the most that one iteration gets of it."""

    max_iterations: int
    max_attempts: int
    """Iterations in a row without evidence of progress."""
    max_tokens: int
    max_seconds: float
    max_spend_usd: float
    each: LoopBudget

    def reached(self, record: LoopRecord) -> str | None:
        """What leaves no room for another iteration; None where nothing does."""
        if record.fruitless >= self.max_attempts:
            return "stuck"
        if len(record.counted) >= self.max_iterations:
            return "limit:iterations"
        if self.max_tokens - record.tokens < SMALLEST_CALL_TOKENS:
            return "limit:tokens"
        if self.max_seconds - record.seconds < 1:
            return "limit:wallclock"
        return "limit:spend" if self.max_spend_usd - record.spend_usd < 1 / MICRO else None

    def budget(self, record: LoopRecord) -> LoopBudget:
        """Of the next iteration: what is left, and no more than one may have."""
        each = self.each
        return LoopBudget(
            max_iterations=each.max_iterations,
            max_tokens=max(1, min(each.max_tokens, self.max_tokens - record.tokens)),
            max_wallclock_seconds=max(
                1, min(each.max_wallclock_seconds, int(self.max_seconds - record.seconds))
            ),
            max_spend_usd=max(1 / MICRO, min(each.max_spend_usd, self.max_spend_usd - record.spend_usd)),
        )


def code(outcome: str) -> Exit:
    """What the end of a loop means to a script."""
    return Exit.CEILING if outcome.startswith("limit:") else _CODES[outcome]


def iteration_line(iteration: Iteration) -> str:
    progress = ", ".join(iteration.progress) or "none"
    said = plain(iteration.report)[:_REPORT_CHARS]
    return (
        f"  {iteration.number:3} {iteration.kind}, {iteration.outcome}, progress: {progress}, "
        f"{iteration.steps} steps, {usd(iteration.spend_micro_usd / MICRO)}  {said}"
    ).rstrip()


def lines(record: LoopRecord, order: Order) -> Iterator[str]:
    yield f"Loop {record.name} in {plain(str(order.work))}: {record.outcome}"
    yield from map(iteration_line, record.iterations)
    yield f"  {record.tokens} tokens, {usd(record.spend_usd)}, {duration(record.seconds)}"
    match record.outcome:
        case "verified":
            return
        case "stuck":
            said = f"{record.fruitless} iterations in a row brought nothing new; change task or plan, then"
        case "limit:iterations" | "limit:tokens" | "limit:wallclock" | "limit:spend":
            said = "Raise the limit, then"
        case "blocked":
            said = "A guard stopped it; see what it saw with `zubble task show`, then"
        case _:
            said = "Go on with"
    yield f"{said}: {order.again}"


def values(record: LoopRecord, order: Order) -> dict[str, Any]:
    return {
        "loop": record.name,
        "work": str(order.work),
        "plan": order.plan,
        "outcome": record.outcome,
        "iterations": [_iteration_values(each) for each in record.iterations],
        "fruitless": record.fruitless,
        "tokens": record.tokens,
        "spend_usd": record.spend_usd,
        "wallclock_seconds": round(record.seconds, 6),
        "resume": None if record.outcome == "verified" else order.again,
    }


def _iteration_values(iteration: Iteration) -> dict[str, Any]:
    values = iteration.model_dump(mode="json", exclude={"spend_micro_usd", "seconds"})
    return {
        **values,
        "spend_usd": iteration.spend_micro_usd / MICRO,
        "wallclock_seconds": round(iteration.seconds, 6),
    }
