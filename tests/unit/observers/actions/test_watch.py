"""The observers together: what is stopped, what is let through, and what survives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_queue.contracts.ending import Stop
from zubble_worker.observers.actions.facts import Call, End, StepFacts, ViolationType
from zubble_worker.observers.actions.watch import Judgement, Watch


@dataclass
class Act:
    """One call of a made-up run."""

    command: str
    output: str = ""
    end: End = "ok"
    changes: bool = False
    """Whether the tree is another one afterwards."""
    tool: str = "shell"


@dataclass
class Outcome:
    """What the watch said to a run."""

    judgements: list[Judgement] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    """Steps whose call was not let through."""
    tree: int = 0
    """Number of the tree at the end."""

    def measures(self) -> list[tuple[int, str, str]]:
        return [
            (signal.step, signal.detector, signal.measure)
            for judgement in self.judgements
            for signal in judgement.signals
        ]

    def resets(self) -> list[int]:
        return [at for at, judgement in enumerate(self.judgements, 1) if judgement.measure == "reset"]


def play(acts: Iterable[Act], watch: Watch | None = None, *, first: int = 1, tree: int = 0) -> Outcome:
    """Show a run to a watch; `first` and `tree` are where the rest of one begins."""
    watch, outcome = watch or Watch(), Outcome()
    for number, act in enumerate(acts, first):
        call = Call(act.command, f"tree {tree}", act.tool)
        verdict = watch.before(call)
        ran = verdict.kind == "allow"
        if not ran:
            outcome.refused.append(number)
        facts = StepFacts(
            number,
            end=act.end if ran else "refused",
            call=call,
            text=json.dumps({"action": "run", "command": act.command}),
            output=act.output if ran else "",
        )
        outcome.judgements.append(watch.after(facts, verdict))
        tree += act.changes and ran
    outcome.tree = tree
    return outcome


def paging() -> Iterator[Act]:
    """A long file, read to its end page by page, between two edits."""
    yield Act("echo '# reading' > notes.md", changes=True)
    for page in range(20):
        text = f"def function_{page}(): return {page}"
        yield Act(f"sed -n '{40 * page + 1},{40 * page + 40}p' src/big.py", text)


def checking_after_each_edit() -> Iterator[Act]:
    for number in range(15):
        yield Act(f"sed -i 's/{number}/{number + 1}/' src/app.py", changes=True)
        yield Act("python -m pytest -q", f"{15 - number} failed, {number} passed in 0.{number}s", "failed")


def polling_with_wait() -> Iterator[Act]:
    yield Act("make all > build.log 2>&1 &", changes=True)
    for number in range(12):
        yield Act('{"seconds": 30}', tool="wait")
        yield Act("tail -1 build.log", f"[{8 * number}%] Building object {number}.o")


def polling_with_sleep() -> Iterator[Act]:
    for number in range(12):
        yield Act("sleep 20 && tail -1 build.log", f"[{8 * number}%] Building object {number}.o")


def building_now_and_then() -> Iterator[Act]:
    for number in range(34):
        yield Act(f"cat src/module_{number}.py", f"class Module{number}: ...")
        yield Act(f"sed -i 's/a/b/' src/module_{number}.py", changes=True)
        yield Act("cargo build", "Finished dev profile in 0.31s")


def moving_files_one_by_one() -> Iterator[Act]:
    for number in range(25):
        yield Act(f"mv old/part_{number}.csv new/", changes=True)


def memory_read_before_each_query() -> Iterator[Act]:
    for number in range(12):
        yield Act("cat memory.md", "remember the milk")
        yield Act(f"sqlite3 shop.db 'select * from orders_{number}'", f"{number} rows, total {number * 17}")


@pytest.mark.parametrize(
    "run",
    [
        paging,
        checking_after_each_edit,
        polling_with_wait,
        polling_with_sleep,
        building_now_and_then,
        moving_files_one_by_one,
        memory_read_before_each_query,
    ],
)
def test_work_that_only_looks_like_a_loop_is_let_through(run: Callable[[], Iterator[Act]]) -> None:
    outcome = play(run())

    assert outcome.refused == []
    assert outcome.resets() == []
    assert {name for _, name, measure in outcome.measures() if measure == "nudge"} <= {"excessive-steps"}


def the_same_error_from_other_arguments() -> Iterator[Act]:
    for number in range(30):
        yield Act(f"deploy --region r{number} --retry {number}", "error: not authorised", "failed")


def a_footer_that_counts() -> Iterator[Act]:
    for number in range(12):
        yield Act("search TODO", f"nothing found\n[call {number} of 100, took {number}.2s]")


def a_clock_in_the_output() -> Iterator[Act]:
    for number in range(12):
        yield Act("status", f"2026-11-30 10:{number:02d}:07 still idle, pid {4000 + number}")


def a_list_and_then_another_list() -> Iterator[Act]:
    yield from (Act("ls", "a b") for _ in range(6))
    yield from (Act("ls -la", "a b c") for _ in range(5))


def paging_for_ever() -> Iterator[Act]:
    for page in range(164):
        yield Act(f"sed -n '{40 * page + 1},{40 * page + 40}p' big.log", f"entry {page * 31}: value {page}")


def an_edit_that_is_taken_back() -> Iterator[Act]:
    for _ in range(8):
        yield Act("sed -i 's/a/b/' x.py", changes=True)
        yield Act("pytest -q", "1 failed in 0.2s", "failed")
        yield Act("git checkout x.py", changes=True)


@pytest.mark.parametrize(
    ("run", "latest", "detector"),
    [
        (the_same_error_from_other_arguments, 4, "no-success"),
        (a_footer_that_counts, 3, "tool-cycle"),
        (a_clock_in_the_output, 3, "tool-cycle"),
        (a_list_and_then_another_list, 3, "tool-cycle"),
        (paging_for_ever, 31, "reading"),
        (an_edit_that_is_taken_back, 12, "churn"),
    ],
)
def test_loops_that_other_harnesses_miss_are_told(
    run: Callable[[], Iterator[Act]], latest: int, detector: str
) -> None:
    told = [(step, name) for step, name, measure in play(run()).measures() if measure in {"nudge", "refuse"}]

    assert any(step <= latest and name == detector for step, name in told)


def thrash() -> Iterator[Act]:
    """About 185 calls as V3 tells them: 12 % fail with exit 124, one file is edited 17 times."""
    edits = iter(range(1, 18))
    for number in range(185):
        match number % 8:
            case 0 if (edit := next(edits, None)) is not None:
                yield Act(f"sed -i 's/timeout={edit}/timeout={edit + 1}/' src/server.py", changes=True)
            case 7:
                yield Act("timeout 60 python -m pytest -x -q", "", "timeout")
            case place:
                yield Act(f"grep -n timeout src/server.py | head -{place + 1}", f"{place}: timeout={number}")


def test_the_thrash_that_was_killed_after_90_minutes_is_told_and_then_stopped() -> None:
    calls = list(thrash())
    outcome = play(calls)

    assert len(calls) == 185
    assert sum(act.changes for act in calls) == 17
    assert 0.11 < sum(act.end != "ok" for act in calls) / len(calls) < 0.13
    churn = [(step, measure) for step, name, measure in outcome.measures() if name == "churn"]
    assert [measure for _, measure in churn[:3]] == ["nudge", "nudge", "reset"]
    assert outcome.resets()[0] == 64
    assert len(outcome.resets()) > 3, "more than there are resets by default, so the run is stopped"
    assert outcome.judgements[63].stop is Stop.LOOP_STALL


def test_reworded_commands_that_bring_nothing_are_seen_though_each_succeeds() -> None:
    words = ("Explaining", "Answering", "Responding about", "Describing", "Just explaining", "Telling of")
    acts = [Act(f"echo '{word} part {n}'", f"{word} part {n}\n") for n in range(3) for word in words]

    outcome = play(acts)

    assert [(step, measure) for step, name, measure in outcome.measures() if name == "no-progress"][:3] == [
        (6, "nudge"),
        (9, "refuse"),
        (12, "reset"),
    ]
    assert outcome.refused == [10]


def test_after_a_refusal_a_call_with_a_new_target_is_let_through() -> None:
    idle = [Act(f"echo {word}", word) for word in "abcdefghi"]

    outcome = play([*idle, Act("cat elsewhere.txt", "something")])

    assert outcome.refused == []


def test_waiting_without_an_end_is_a_stall() -> None:
    outcome = play(Act("sleep 5") for _ in range(40))

    assert outcome.refused
    assert outcome.refused[0] > 10
    assert outcome.resets()


def test_a_call_whose_result_always_differs_is_let_through_ten_times() -> None:
    outcome = play(Act("head -c 4 /dev/random | od -c", f"value {number * 7919}") for number in range(20))

    assert outcome.refused[0] in range(11, 16)


def test_failures_of_the_machinery_are_nobodys_failure() -> None:
    outcome = play(Act("make", end="infra", changes=True) for _ in range(30))

    assert outcome.measures() == []


def test_one_step_makes_one_note_with_the_strongest_first() -> None:
    outcome = play(Act("pytest", "boom", "failed", changes=True) for _ in range(4))
    last = outcome.judgements[-1]

    assert [signal.detector for signal in last.signals][:2] == ["churn", "no-success"]
    assert last.note.count("\n") == 1
    assert last.note.startswith("This command has failed 4 times in exactly the same way")


def test_a_guarded_critical_signal_blocks() -> None:
    outcome = play((Act("ls", "a") for _ in range(3)), Watch(guards=("tool-cycle",)))

    assert outcome.judgements[1].blocked is None
    assert outcome.judgements[2].blocked is not None
    assert outcome.judgements[2].blocked.detector == "tool-cycle"


def test_without_a_guard_the_same_signal_does_not_block() -> None:
    assert all(judgement.blocked is None for judgement in play(Act("ls", "a") for _ in range(9)).judgements)


def test_a_dominant_tool_is_critical_to_whoever_guards_it() -> None:
    acts = [Act(f"cat file{number}", f"{number}!") for number in range(5)]

    assert play(acts).judgements[-1].blocked is None
    assert play(acts, Watch(guards=("tool-dominance",))).judgements[-1].blocked is not None


def test_the_four_violations_have_their_type() -> None:
    watch = Watch()
    seen = [
        signal
        for judgement in play((Act("ls", "a") for _ in range(3)), watch).judgements
        for signal in judgement.signals
    ]
    seen += watch.after(StepFacts(4, format_errors=1, prompt_share=0.9)).signals

    types = {signal.violation.type for signal in seen if signal.violation}

    assert types == set(ViolationType)


def test_the_same_loop_gets_no_fresh_three_in_a_fresh_context() -> None:
    watch = Watch()
    play((Act("ls", "a") for _ in range(4)), watch)
    watch.reset("context")

    assert play((Act("ls", "a") for _ in range(2)), watch).refused == [1, 2]


def test_a_new_task_has_no_past() -> None:
    watch = Watch()
    play((Act("ls", "a", "failed") for _ in range(7)), watch)
    watch.reset("task")

    assert watch == Watch()


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 9"):
        Watch.from_state({**Watch().state(), "version": 9})


ACTS = st.builds(
    Act,
    command=st.sampled_from(["ls", "cat a", "pytest", "sleep 5", "echo hi", "sed -i s/a/b/ f", "\ud800"]),
    output=st.sampled_from(["", "hi", "1 failed in 2s", "x" * 50]),
    end=st.sampled_from(["ok", "failed", "timeout", "denied", "infra"]),
    changes=st.booleans(),
)


@given(acts=st.lists(ACTS, max_size=40), cut=st.integers(0, 40))
def test_another_worker_goes_on_from_the_state(acts: list[Act], cut: int) -> None:
    whole = play(acts)
    first = Watch()
    before = play(acts[:cut], first)
    second = Watch.from_state(json.loads(json.dumps(first.state())))

    assert second == first
    ahead = play(acts[cut:], second, first=len(acts[:cut]) + 1, tree=before.tree)
    assert before.refused + ahead.refused == whole.refused
    assert [j.signals for j in before.judgements + ahead.judgements] == [j.signals for j in whole.judgements]
