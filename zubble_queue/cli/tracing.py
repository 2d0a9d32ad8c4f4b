"""What `zubble task trace` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from zubble_queue import long_strings
from zubble_queue.cli import views
from zubble_queue.cli.installation import installation
from zubble_queue.cli.report import Exit, Report, duration, plain, usd
from zubble_queue.cli.tasks import events_of
from zubble_queue.contracts.ending import MICRO
from zubble_queue.trajectories.branch import kept_branch
from zubble_queue.trajectories.run import Run, RunStep, fold

if TYPE_CHECKING:
    from zubble_queue.contracts.record import TaskView
    from zubble_queue.settings import Settings

_SHOWN_LINES: Final = 12
_SHOWN_CHARS: Final = 2_000
_HARNESS: Final = "[harness]"


async def trace(settings: Settings, task: str, batch: str | None, report: Report, *, whole: bool) -> Exit:
    async with installation(settings) as place:
        view = await place.store.find(task, batch)
        events = [
            await long_strings.whole(event, place.artifacts) async for event in events_of(place, view, 0)
        ]
    run = fold(kept_branch(events))
    for line in lines(view, run, whole=whole):
        report.say(line)
    report.result({**views.task_values(view), "steps": [values(step) for step in run.steps]})
    return Exit.DONE


def lines(view: TaskView, run: Run, *, whole: bool) -> Iterator[str]:
    """The run for people, harmless to a terminal."""
    yield f"Task {view.task_id} ({plain(view.source_id)}) of batch {view.batch}, model {plain(view.model)}"
    restarts = list(run.restarts)
    for at, step in enumerate(run.steps):
        while restarts and restarts[0][0] <= at:
            yield f"\n{_shown(restarts.pop(0)[2], whole=whole)}"
        yield ""
        yield from _step(step, whole=whole)
    for _, _, text in restarts:
        yield f"\n{_shown(text, whole=whole)}"
    for check in run.checks:
        yield f"\nCheck: {_check(check)}"
    yield ""
    yield from _ending(view)


def _step(step: RunStep, *, whole: bool) -> Iterator[str]:
    seconds = sum(reply.seconds for reply in step.replies)
    spent = f"{step.usage.tokens} tokens, {usd(step.usage.spend_micro_usd / MICRO)}, {duration(seconds)}"
    yield f"Step {step.number}: {plain(step.kind)} ({spent})"
    for reason in step.format_errors:
        yield f"  not understood: {plain(reason)}"
    for reply in step.replies:
        if reply.finish != "stop":
            yield f"  reply ended by {plain(reply.finish)}, {reply.tokens_saved} tokens saved"
        if reply.repetition:
            reached = ", ".join(str(rung.get("threshold")) for rung in reply.repetition)
            yield f"  in-stream detector: {plain(reached)}"
    yield from _action(step, whole=whole)
    for signal in step.signals:
        yield (
            f"  detector {plain(str(signal['detector']))}: {signal['count']:g} of {signal['threshold']:g}, "
            + (plain(str(signal["measure"])))
        )
    yield from _nudges(step)
    for check in step.checks:
        yield f"  check: {_check(check)}"
    if step.reset:
        yield f"  context cleared: {plain(str(step.reset['reason']))}"


def _action(step: RunStep, *, whole: bool) -> Iterator[str]:
    action = step.action or {}
    for number, text in enumerate(action.get("revised_plan") or action.get("steps") or (), 1):
        yield f"  plan {number}. {plain(str(text))}"
    for name in ("reasoning", "note", "question", "report"):
        if action.get(name):
            yield f"  {name}: {_shown(str(action[name]), whole=whole)}"
    yield from _questions(step, whole=whole)
    if not step.tool:
        return
    prompt = "$" if step.tool == "shell" else plain(step.tool)
    yield f"  {prompt} {_shown(step.arguments, whole=whole)}"
    if step.denied:
        yield f"  denied: {plain(step.denied)}"
    elif step.verdict != "allow":
        yield "  refused: the same again"
    elif step.result is None:
        yield "  no result"
    else:
        yield from _result(step.result, whole=whole)


def _questions(step: RunStep, *, whole: bool) -> Iterator[str]:
    for asked in step.questions:
        yield f"  a person is asked: {_shown(str(asked['text']), whole=whole)}"
        if (answer := asked["answer"]) is None:
            yield "  not answered"
            continue
        said = {True: "allowed", False: "denied"}.get(answer["allowed"], "answered")
        text = f": {_shown(str(answer['text']), whole=whole)}" if answer["text"] else ""
        yield f"  {said} by {plain(str(answer['by']))} after {duration(answer['seconds'])}{text}"


def _result(result: dict[str, Any], *, whole: bool) -> Iterator[str]:
    output = f"{result.get('stdout', '')}{result.get('stderr', '')}".strip("\n")
    if output:
        yield f"  {_shown(output, whole=whole)}"
    code = "timed out" if result.get("timed_out") else f"exit code {result.get('exit_code')}"
    yield f"  {code} after {duration(result.get('seconds', 0.0))}"


def _nudges(step: RunStep) -> Iterator[str]:
    """What the harness told the model beside the result."""
    for part in () if step.reset else step.told.split("\n\n"):
        if part.startswith(_HARNESS):
            yield f"  nudge: {plain(part.removeprefix(_HARNESS).strip())}"


def _check(check: dict[str, Any]) -> str:
    reward = check.get("reward")
    worth = f", reward {reward:g}" if isinstance(reward, int | float) and reward not in {0, 1} else ""
    return f"{plain(str(check['verdict']))}{worth} after {duration(check['seconds'])}"


def _ending(view: TaskView) -> Iterator[str]:
    if view.ending is None:
        yield f"Not sealed yet: {view.state.value}, {usd(view.usage.spend_micro_usd / MICRO)} so far"
        return
    ending = view.ending
    yield f"Ended {plain(ending.outcome)} (stop {ending.stop.value}, verdict {ending.verdict.value})"
    if ending.reason:
        yield f"  {plain(ending.reason)}"
    yield (
        f"  {ending.iterations_used} steps, {ending.usage.calls} calls, {ending.usage.tokens} tokens, "
        f"{usd(ending.spend_usd)}; {ending.tokens_saved} tokens saved by cuts"
    )


def _shown(text: str, *, whole: bool) -> str:
    """Its lines below each other, cut unless all of it is wanted."""
    kept = text if whole else text[:_SHOWN_CHARS]
    rows = kept.split("\n")
    rows = rows if whole else rows[:_SHOWN_LINES]
    left = len(text) - len("\n".join(rows))
    more = [f"… {left} more characters (--whole shows them)"] if left > 0 else []
    return "\n    ".join(plain(row) for row in [*rows, *more])


def values(step: RunStep) -> dict[str, Any]:
    """A step as JSON."""
    return {
        "step": step.number,
        "time": step.time,
        "action": step.action,
        "replies": [
            {
                "kind": reply.kind,
                "finish": reply.finish,
                "text": reply.text,
                "reasoning": reply.reasoning,
                "repetition": list(reply.repetition),
                "seconds": reply.seconds,
                "tokens_saved": reply.tokens_saved,
            }
            for reply in step.replies
        ],
        "format_errors": step.format_errors,
        "tool": step.tool or None,
        "arguments": step.arguments or None,
        "verdict": step.verdict,
        "questions": step.questions,
        "denied": step.denied or None,
        "result": step.result,
        "checks": step.checks,
        "signals": step.signals,
        "observation": step.told,
        "context_reset": step.reset,
        "tokens": views.tokens(step.usage),
        "spend_usd": step.usage.spend_micro_usd / MICRO,
    }
