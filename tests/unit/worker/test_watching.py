"""The observers in the loop: what is recorded, what is told, what ends a run, and what is folded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.testing import structured_reply as say
from zubble_worker.observers.actions.facts import Call
from zubble_worker.transcript import Job, Transcript

PLAN = say("plan", steps=["mend the server", "submit"])
GIVE_UP = say("report", report="cannot be done")
MANY = LoopBudget(max_iterations=100, max_tokens=500_000, max_spend_usd=50.0)


def thrash() -> list[str]:
    """Edits of one file, looks at it, and a test that never ends: the run that was killed at last."""
    turns = [PLAN]
    for edit in range(1, 18):
        turns.append(say("run", command=f"echo timeout={edit} >> server.py", plan_step_id=1))
        turns += [say("run", command=f"grep -c timeout server.py | tail -{n + 1}") for n in range(3)]
        turns.append(say("run", command="exit 124", note="the tests hang"))
    return turns


async def test_a_thrash_is_told_and_then_stopped_with_its_work_kept(drive):
    run = await drive(*thrash(), budget=MANY, max_context_resets=0)

    assert run.stopped.stop is Stop.LOOP_STALL
    assert run.stopped.evidence["detector"] == "churn"
    assert run.transcript.step == 1 + 8 * 5, "at the eighth equal failure"
    assert sum("has failed 4 times in exactly the same way" in prompt for prompt in run.prompts) > 0
    assert "server.py" in run.files
    assert len(run.books.entries) == len(run.books.of_type("command_finished")) == 40


@pytest.mark.slow
async def test_a_thrash_gets_fresh_contexts_first_and_ends_before_half_of_its_185_calls(drive):
    run = await drive(*thrash(), budget=MANY)

    assert (run.stopped.stop, run.transcript.resets) == (Stop.LOOP_STALL, 3)
    assert run.transcript.step < 185 / 2
    assert "server.py" in run.files


async def test_every_signal_is_an_event_with_its_numbers_and_counts_for_the_ending(drive):
    run = await drive(PLAN, *[say("run", command=f"false {n}") for n in range(4)], GIVE_UP)
    signals = run.books.of_type("signal")

    assert [(data["detector"], data["step"], data["count"], data["threshold"]) for data in signals] == [
        ("error-cascade", 4, 3, 3.0),
        ("no-success", 5, 4, 4.0),
    ]
    assert run.transcript.watching.watch.fired["error-cascade"] == 1
    assert json.loads(json.dumps(signals)) == signals


async def test_what_is_due_is_told_in_one_note_before_the_result(drive):
    run = await drive(PLAN, *[say("run", command=f"false {n}") for n in range(4)], GIVE_UP)
    told = run.prompts[5].split("TASK")[1]

    assert told.count("tool calls in a row have brought no success") == 1
    assert told.index("have brought no success") < told.rindex("exit code 1")


async def test_the_warning_to_stop_comes_before_what_the_actions_deserve(drive):
    failing = [say("run", command=f"false {number}") for number in range(2)]
    stuttering = say("run", command="false 3", reasoning="truncated " * 1_200)
    run = await drive(PLAN, *failing, stuttering, GIVE_UP, opinion="false", budget=MANY)

    (told,) = [data["text"] for data in run.books.of_type("observation") if "STOP!" in data["text"]]
    assert told.startswith(
        "[harness] STOP! Restart with fresh context or you will be terminated.\n\n[harness]"
    )
    assert told.count("[harness]") == 3, "the failures and the repetition follow, in one message"


async def test_a_guard_ends_the_run_as_blocked_with_its_evidence(drive):
    run = await drive(say("run", command="ls"), guards=("tool-cycle",))

    assert run.stopped.stop is Stop.BLOCKED
    assert run.stopped.evidence["detector"] == "tool-cycle"
    assert run.stopped.evidence["call"] == "shell: ls"
    assert len(run.books.of_type("command_finished")) == 2


@pytest.mark.parametrize("cap", [1, 3])
async def test_a_cap_on_model_calls_ends_the_run_with_its_work_kept(drive, cap):
    run = await drive(*[say("run", command=f"echo {n} > file{n}") for n in range(9)], max_steps=cap)

    assert run.stopped.stop is Stop.LIMIT_MAX_STEPS
    assert run.stopped.reason == f"max_steps={cap} exceeded"
    assert run.books.usage.calls == cap
    assert len([file for file in run.files if file.startswith("file")]) == cap


async def test_a_repair_counts_as_a_model_call(drive):
    run = await drive("no JSON", PLAN, GIVE_UP, max_steps=1)

    assert run.stopped.stop is Stop.LIMIT_MAX_STEPS
    assert run.books.usage.calls == 1


async def test_a_cap_on_seconds_ends_the_run_before_the_next_call(drive):
    run = await drive(PLAN, say("run", command="sleep 1.1; echo kept > file"), GIVE_UP, max_turn_secs=1)

    assert run.stopped.stop is Stop.LIMIT_MAX_TURN_SECS
    assert run.books.usage.calls == 2
    assert "file" in run.files


async def test_a_full_window_loses_old_results_and_keeps_the_last_ones(drive):
    small = ModelConfig(
        backend="scripted", script="in-python.json", price="free", context=20_000, retry_base_seconds=0
    )
    wide = [say("run", command=f"yes 'a b c d e {n}' | head -300 | tee page{n}") for n in range(12)]

    run = await drive(PLAN, *wide, GIVE_UP, config=small, budget=MANY)

    assert run.stopped.stop is Stop.GAVE_UP
    compacted = run.books.of_type("view_compacted")
    assert compacted
    assert compacted[0]["share"] >= 0.8
    assert "An older observation was left out" in run.prompts[-1]
    assert "a b c d e 11" in run.prompts[-1]
    assert len(run.books.of_type("command_finished")) == 12, "the record is whole"


async def test_a_rejected_claim_is_told_to_simplify_at_the_third(drive):
    run = await drive(
        PLAN, *[t for n in range(3) for t in (say("run", command=f"touch {n}"), say("submit"))], GIVE_UP
    )

    assert "Simplify" in run.prompts[7]
    assert not any("Simplify" in prompt for prompt in run.prompts[:7])


async def test_a_run_folded_from_any_point_on_is_the_run(drive):
    run = await drive(
        PLAN,
        *[say("run", command=command) for command in ("ls", "ls", "ls", "ls", "false", "ls", "sleep 0.1")],
        *[say("run", command="ls") for _ in range(3)],
        budget=MANY,
    )
    again = Transcript(run.transcript.job)
    for event in run.books.events:
        again.apply(Event.model_validate_json(event.model_dump_json()))

    assert run.books.of_type("context_reset")
    assert again.watching == run.transcript.watching
    assert again.watching.watch.state() == run.transcript.watching.watch.state()


class Log:
    """A run without model and sandbox: judged live, as the loop does it, and written down."""

    def __init__(self, job: Job, kinds: list[str]) -> None:
        self.talk = Transcript(job)
        self.events: list[Event] = []
        for step, kind in enumerate(kinds, 1):
            self._step(step, kind)

    def _step(self, step: int, kind: str) -> None:
        self._write("call_started", step=step, kind="step")
        command, tree = kind.partition("@")[::2]
        verdict = self.talk.watching.judge(Call(command, tree))
        self._write("dispatch", step=step, command=command, fingerprint=tree, doom_loop=verdict.kind)
        if verdict.kind == "allow":
            self._write("command_finished", **_finished(step, command))
        judgement = self.talk.watching.close()
        for signal in judgement.signals:
            self._write("signal", **signal.as_dict())
        if verdict.kind == "stop" or judgement.measure == "reset":
            self._write("context_reset", step=step, cause="loop:stall", text="cleared")
        else:
            self._write("observation", step=step, text="seen")

    def _write(self, type_: str, /, **data: Any) -> None:
        event = Event(seq=len(self.events) + 1, time=0.0, attempt=1, type=type_, data=data)
        self.talk.apply(event)
        self.events.append(event.model_validate_json(event.model_dump_json()))


def _finished(step: int, command: str) -> dict[str, Any]:
    code = {"true": 0, "sleep 9": 124}.get(command, 1)
    entry = {"step": step, "command": command, "exit_code": code, "result_summary": "", "time": 0.0}
    return {
        "step": step, "plan_step_id": None, "command": command, "exit_code": code, "timed_out": False,
        "stdout": "", "stderr": "", "seconds": 0.1,
        "journal": {**entry, "category": "diagnostic", "model_note": None},
    }  # fmt: skip


KINDS = st.lists(
    st.sampled_from(["true@a", "true@b", "false@a", "sleep 9@a", "make@a", "make@b"]), max_size=40
)


@settings(deadline=None)
@given(kinds=KINDS)
def test_a_reset_never_loses_a_journal_entry(job: Job, kinds: list[str]) -> None:
    log, talk = Log(job, kinds), Transcript(job)
    for event in log.events:
        before = list(talk.journal)
        talk.apply(event)
        assert talk.journal[: len(before)] == before

    ran = [event.data["step"] for event in log.events if event.type == "command_finished"]
    assert [entry.step for entry in talk.journal] == ran
    assert talk.resets == sum(event.type == "context_reset" for event in log.events)


@settings(deadline=None)
@given(kinds=KINDS, cut=st.integers(0, 40))
def test_whoever_takes_a_run_up_goes_on_as_if_it_had_never_moved(
    job: Job, kinds: list[str], cut: int
) -> None:
    whole, begun, folded = Log(job, kinds), Log(job, kinds[:cut]), Transcript(job)
    folded.replay(whole.events[: len(begun.events)])

    assert begun.events == whole.events[: len(begun.events)]
    assert folded == begun.talk
    assert folded.watching.watch.state() == begun.talk.watching.watch.state()
