"""Every threshold, one below it, at it and one above; and the table of them in the documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from zubble_worker.observers.actions import table
from zubble_worker.observers.actions.extent import (
    BudgetWarnings,
    ExcessiveSteps,
    QualityDrop,
    ToolDominance,
    Unfinished,
)
from zubble_worker.observers.actions.facts import Call, Detector, Progress, StepFacts
from zubble_worker.observers.actions.failures import ErrorCascade, NoSuccess, Timeouts
from zubble_worker.observers.actions.stalls import Churn, NoProgress, Reading
from zubble_worker.observers.actions.texts import (
    ContextPressure,
    FormatErrors,
    TextRepetition,
    similarity,
)

DOCS = Path(__file__).parents[4] / "docs" / "detectors.md"
NOTHING = Progress()


def fired(detector: Detector, steps: Sequence[StepFacts], progress: Progress = NOTHING) -> list[str]:
    """The measure at each step, `-` where nothing was said."""
    found = [detector.after(step, progress) for step in steps]
    return [signals[0].measure if signals else "-" for signals in found]


def steps(count: int, **facts: object) -> list[StepFacts]:
    return [StepFacts(number, **facts) for number in range(1, count + 1)]  # type: ignore[arg-type]


def in_changing_trees(count: int) -> list[StepFacts]:
    return [
        StepFacts(number, "failed", Call("pytest", f"tree {number}"), output="1 failed")
        for number in range(1, count + 1)
    ]


@pytest.mark.parametrize(
    ("detector", "many", "threshold", "measure"),
    [
        (ErrorCascade(), steps(4, end="failed"), 3, "nudge"),
        (NoSuccess(), steps(5, end="failed"), 4, "nudge"),
        (Timeouts(), steps(4, end="timeout"), 3, "nudge"),
        (TextRepetition(), steps(4, text="I will look at it once more"), 3, "nudge"),
        (NoProgress(), steps(7, end="ok"), 6, "nudge"),
        (Reading(), steps(31, end="ok"), 30, "nudge"),
        (Churn(), in_changing_trees(5), 4, "nudge"),
        (Unfinished(), steps(4, unfinished=True), 3, "nudge"),
        (ExcessiveSteps(), steps(22, end="ok"), 21, "nudge"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "after") else "",
)
def test_a_count_fires_at_its_threshold_and_neither_before_nor_right_after(
    detector: Detector, many: list[StepFacts], threshold: int, measure: str
) -> None:
    found = fired(detector, many)

    assert found == ["-"] * (threshold - 1) + [measure] + ["-"] * (len(many) - threshold)


def test_the_thresholds_are_those_of_the_table() -> None:
    counts = (table.CASCADE, table.FRUITLESS, table.TIMEOUTS, table.SAME_TEXT, table.STALL)

    assert [threshold.count for threshold in counts] == [3, 4, 3, 3, 6]
    assert (table.EXCESS.count, table.READING.count, table.CHURN.count) == (20, 30, 4)


@pytest.mark.parametrize(
    ("detector", "many", "ladder"),
    [
        (NoProgress(), steps(15, end="ok"), {6: "nudge", 9: "refuse", 12: "reset", 15: "reset"}),
        (NoSuccess(), steps(16, end="failed"), {4: "nudge", 8: "nudge", 12: "reset", 16: "reset"}),
        (Timeouts(), steps(12, end="timeout"), {3: "nudge", 6: "nudge", 9: "reset", 12: "reset"}),
        (Churn(), in_changing_trees(10), {4: "nudge", 6: "nudge", 8: "reset", 10: "reset"}),
        (TextRepetition(), steps(9, text="again and again"), {3: "nudge", 6: "nudge", 9: "reset"}),
        (ExcessiveSteps(), steps(90, end="ok"), {21: "nudge", 41: "nudge", 81: "nudge"}),
        (ErrorCascade(), steps(12, end="failed"), {3: "nudge"}),
        (Reading(), steps(120, end="ok"), {30: "nudge", 60: "nudge"}),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "after") else "",
)
def test_what_goes_on_climbs_its_ladder(
    detector: Detector, many: list[StepFacts], ladder: dict[int, str]
) -> None:
    found = fired(detector, many)

    assert {at: measure for at, measure in enumerate(found, 1) if measure != "-"} == ladder


@pytest.mark.parametrize(("share", "measures"), [(0.79, "-"), (0.8, "nudge"), (0.81, "nudge"), (1.0, "none")])
def test_a_limit_is_warned_of_once_at_its_share(share: float, measures: str) -> None:
    assert fired(BudgetWarnings(), steps(2, spent={"tokens": share})) == [measures, "-"]


def test_each_limit_is_warned_of_on_its_own() -> None:
    signals = BudgetWarnings().after(StepFacts(1, spent={"spend": 0.9, "tokens": 0.85}), NOTHING)

    assert [signal.evidence["limit"] for signal in signals] == ["spend", "tokens"]


@pytest.mark.parametrize(("share", "measure"), [(0.799, "-"), (0.8, "none"), (0.801, "none")])
def test_a_full_window_is_noted_when_it_becomes_full(share: float, measure: str) -> None:
    assert fired(ContextPressure(), steps(2, prompt_share=share)) == [measure, "-"]


def test_a_window_that_fills_up_again_is_noted_again() -> None:
    shares = [StepFacts(at, prompt_share=share) for at, share in enumerate((0.9, 0.4, 0.9), 1)]

    assert fired(ContextPressure(), shares) == ["none", "-", "none"]


@pytest.mark.parametrize(("score", "measure"), [(0.56, "-"), (0.55, "nudge"), (0.57, "-")])
def test_worse_work_is_told_where_there_is_a_score(score: float, measure: str) -> None:
    scored = [StepFacts(1, score=0.8), StepFacts(2), StepFacts(3, score=score)]

    assert fired(QualityDrop(), scored) == ["-", "-", measure]


def test_without_a_score_quality_is_silent() -> None:
    assert set(fired(QualityDrop(), steps(10))) == {"-"}


@pytest.mark.parametrize(
    ("programs", "measure"),
    [
        ("ls ls ls cat cat", "-"),
        ("ls ls ls ls", "-"),
        ("ls ls ls ls cat", "none"),
        ("ls ls ls cat ls", "none"),
    ],
)
def test_one_program_dominates_above_its_share_from_five_calls_on(programs: str, measure: str) -> None:
    calls = [StepFacts(at, "ok", Call(name, "t")) for at, name in enumerate(programs.split(), 1)]

    assert fired(ToolDominance(), calls)[-1] == measure


@pytest.mark.parametrize(("count", "said"), [(0, "-"), (1, "none"), (2, "none")])
def test_a_failed_repair_is_a_format_error(count: int, said: str) -> None:
    assert fired(FormatErrors(), [StepFacts(1, format_errors=count)]) == [said]


WORDS = [f"word{number}" for number in range(22)]
"""Twenty trigrams; each new last word changes one of them."""


@pytest.mark.parametrize(("changed", "alike"), [(1, True), (2, True), (3, False)])
def test_texts_are_nearly_the_same_from_four_fifths_of_their_trigrams_on(
    changed: int, *, alike: bool
) -> None:
    other = [*WORDS[:-changed], *(f"other{number}" for number in range(changed))]
    likeness = similarity(" ".join(WORDS), " ".join(other))

    assert likeness == (20 - changed) / (20 + changed)
    assert (likeness >= table.NEAR_TEXT.value) is alike


def test_nearly_the_same_text_counts_like_the_same() -> None:
    said = [f"{' '.join(WORDS)} try{number}" for number in range(3)]
    turns = [StepFacts(at, text=text) for at, text in enumerate(said, 1)]

    assert fired(TextRepetition(), turns) == ["-", "-", "nudge"]


@pytest.mark.parametrize(
    "progress",
    [Progress(changed=True), Progress(new_result=True), Progress(new_target=True), Progress(waiting=True)],
)
def test_the_same_text_with_something_new_is_work(progress: Progress) -> None:
    assert set(fired(TextRepetition(), steps(12, text="make the next page"), progress)) == {"-"}


@pytest.mark.parametrize(("failures", "measure"), [(23, "-"), (24, "reset"), (25, "-")])
def test_even_failures_that_are_each_new_end_somewhere(failures: int, measure: str) -> None:
    assert fired(NoSuccess(), steps(failures, end="failed"), Progress(new_result=True))[-1] == measure


def test_failures_that_say_something_new_are_nudged_twice_and_then_left_alone() -> None:
    found = fired(NoSuccess(), steps(20, end="failed"), Progress(new_result=True))

    assert {at: measure for at, measure in enumerate(found, 1) if measure != "-"} == {4: "nudge", 8: "nudge"}


@pytest.mark.parametrize("detector", [ErrorCascade(), NoSuccess()])
def test_one_success_begins_the_count_anew(detector: Detector) -> None:
    run = [*steps(2, end="failed"), StepFacts(3, "ok"), *steps(2, end="failed")]

    assert set(fired(detector, run)) == {"-"}


@pytest.mark.parametrize("end", ["refused", "denied"])
def test_a_call_that_was_not_let_through_has_failed(end: str) -> None:
    assert fired(ErrorCascade(), steps(3, end=end))[-1] == "nudge"


def test_another_failure_of_the_same_command_is_another_matter() -> None:
    run = [
        StepFacts(at, "failed", Call("pytest", f"tree {at}"), output=f"{at} failed") for at in range(1, 20)
    ]

    assert set(fired(Churn(), run)) == {"-"}


def test_a_command_that_succeeds_again_and_again_does_not_churn() -> None:
    run = [StepFacts(at, "ok", Call("make", f"tree {at}"), output="done") for at in range(1, 40)]

    assert set(fired(Churn(), run)) == {"-"}


def test_a_cleared_context_forgets_texts_and_keeps_failures() -> None:
    texts, failures = TextRepetition(), NoSuccess()
    fired(texts, steps(2, text="the same")), fired(failures, steps(3, end="failed"))
    texts.reset("context"), failures.reset("context")

    assert fired(texts, steps(1, text="the same")) == ["-"]
    assert fired(failures, steps(1, end="failed")) == ["nudge"]


def test_the_documents_show_the_table() -> None:
    shown = DOCS.read_text(encoding="utf-8")

    for threshold in table.ALL:
        row = f"| {threshold.name} | {threshold.value:g} | {threshold.unit} | {threshold.source} |"
        assert row in shown, row
