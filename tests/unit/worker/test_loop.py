"""The agent loop: every way in which a run goes on, and every way in which it stops."""

from __future__ import annotations

import pytest

from zubble_queue.contracts.decisions import Allow, Decisions, Deny
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import ModelUnavailable
from zubble_queue.testing import structured_reply as say
from zubble_worker.transcript import Transcript

PLAN = say("plan", steps=["make the file", "submit"])
MAKE = say("run", command="echo made > done.txt", plan_step_id=1)
SUBMIT = say("submit", report="done.txt is there")
GIVE_UP = say("report", report="cannot be done")


async def test_a_submission_that_passes_ends_the_run(drive):
    run = await drive(PLAN, MAKE, SUBMIT)

    assert run.stopped.stop is Stop.SUBMITTED
    assert run.stopped.report == "done.txt is there"
    assert run.transcript.step == 3
    assert [event.type for event in run.books.events] == [
        "call_started", "call_finished", "action", "observation",
        "call_started", "call_finished", "action", "dispatch", "command_finished", "observation",
        "call_started", "call_finished", "action", "verify_finished",
    ]  # fmt: skip


async def test_a_rejected_submission_means_going_on(drive):
    run = await drive(PLAN, SUBMIT, MAKE, SUBMIT)

    assert run.stopped.stop is Stop.SUBMITTED
    assert "does not meet the success criteria" in run.prompts[2]
    assert [data["verdict"] for data in run.books.of_type("verify_finished")] == ["failed", "passed"]


async def test_giving_up_ends_the_run_with_the_report(drive):
    run = await drive(PLAN, GIVE_UP)

    assert (run.stopped.stop, run.stopped.report) == (Stop.GAVE_UP, "cannot be done")


async def test_one_bad_reply_is_repaired(drive):
    run = await drive("Sure, I will do it!", PLAN, MAKE, SUBMIT)

    assert run.stopped.stop is Stop.SUBMITTED
    assert run.transcript.step == 3
    assert "could not be used: invalid JSON" in run.prompts[1]
    assert len(run.books.of_type("format_error")) == 1


async def test_a_failed_repair_is_a_parse_error_with_the_parsers_reason(drive):
    run = await drive("Sure!", "Of course!")

    assert run.stopped.stop is Stop.PARSE_ERROR
    assert "invalid JSON" in run.stopped.reason
    assert run.books.usage.calls == 2


async def test_iterations_are_counted_and_end_the_run(drive):
    run = await drive(say("ask", question="?"), budget=LoopBudget(max_iterations=3))

    assert run.stopped.stop is Stop.LIMIT_ITERATIONS
    assert run.stopped.reason == "max_iterations=3 exceeded"
    assert run.books.usage.calls == 3


async def test_tokens_end_the_run_before_a_call_that_could_not_be_useful(drive):
    run = await drive(say("ask", question="?"), budget=LoopBudget(max_tokens=1_500))

    assert run.stopped.stop is Stop.LIMIT_TOKENS
    assert 0 < run.books.usage.tokens <= 1_500


async def test_money_ends_the_run_before_it_is_overspent(drive):
    run = await drive(say("ask", question="?"), budget=LoopBudget(max_spend_usd=0.012))

    assert run.stopped.stop is Stop.LIMIT_SPEND
    assert 0 < run.books.usage.spend_micro_usd <= 12_000


async def test_a_free_model_is_not_stopped_by_money(drive):
    config = ModelConfig(backend="scripted", script="in-python.json", price="free", context=32_000)

    run = await drive(PLAN, MAKE, SUBMIT, config=config, budget=LoopBudget(max_spend_usd=0.000001))

    assert run.stopped.stop is Stop.SUBMITTED
    assert run.books.usage.spend_micro_usd == 0


async def test_the_wall_clock_cuts_a_silent_stream(drive):
    stalled = {"text": PLAN, "fault": {"kind": "stall", "after_tokens": 3}}

    run = await drive(stalled, budget=LoopBudget(max_wallclock_seconds=1))

    assert run.stopped.stop is Stop.LIMIT_WALLCLOCK
    assert run.books.usage.estimated_calls == 1
    assert run.books.usage.spend_micro_usd > 0


async def test_the_wall_clock_cuts_a_command(drive):
    run = await drive(say("run", command="sleep 600"), budget=LoopBudget(max_wallclock_seconds=1))

    assert run.stopped.stop is Stop.LIMIT_WALLCLOCK
    assert run.books.of_type("command_finished")[0]["timed_out"] is True


async def test_a_command_is_not_run_when_the_shell_is_not_allowed(drive):
    run = await drive(PLAN, MAKE, tools=("read",))

    assert run.stopped.stop is Stop.LIMIT_ALLOWED_TOOLS
    assert "done.txt" not in run.files


async def test_a_native_call_of_an_unlisted_tool_trips_the_switch(drive):
    run = await drive({"tool_calls": [{"name": "browser", "arguments": "{}"}]})

    assert run.stopped.stop is Stop.LIMIT_ALLOWED_TOOLS
    assert "'browser'" in run.stopped.reason


async def test_a_word_said_for_ever_is_cut_and_never_shown_again(drive):
    run = await drive({"text": [{"repeat": "truncated ", "times": 7_303}]}, max_context_resets=0)

    assert run.stopped.stop is Stop.LOOP_TEXT
    call = run.books.of_type("call_finished")[0]
    assert call["finish"] == "cut"
    assert call["usage"]["estimated_calls"] == 1
    assert call["tokens_saved"] >= 4_000 - 3_300
    assert [fired["threshold"] for fired in call["repetition"]] == [50, 500, 1000, 1500, 3000]
    assert not any("truncated" in turn.content for turn in run.transcript.turns)


async def test_a_loop_clears_the_context_and_the_run_goes_on_from_ledger_and_journal(drive):
    loop = {"text": [{"repeat": "truncated ", "times": 7_303}]}

    run = await drive(PLAN, MAKE, loop, fresh=[SUBMIT])

    assert run.stopped.stop is Stop.SUBMITTED
    assert [data["cause"] for data in run.books.of_type("context_reset")] == ["loop:text"]
    assert not any("truncated" in prompt for prompt in run.prompts)
    assert "context was cleared at step 3" in run.prompts[-1]
    assert "[Previous attempts in this task — try a different approach]" in run.prompts[-1]
    assert "1. [PENDING] make the file" in run.prompts[-1]


async def test_a_run_that_loops_after_every_reset_is_stopped(drive):
    loop = {"text": [{"repeat": "truncated ", "times": 7_303}]}

    run = await drive(loop, max_context_resets=2)

    assert run.stopped.stop is Stop.LOOP_TEXT
    assert len(run.books.of_type("context_reset")) == 2
    assert len(run.prompts) == 3


async def test_the_loop_of_an_earlier_context_is_not_allowed_again(drive):
    run = await drive(say("run", command="ls"))

    assert run.stopped.stop is Stop.LOOP_ACTION
    assert len(run.books.of_type("context_reset")) == 3
    assert len(run.books.of_type("command_finished")) == 2


async def test_a_loop_that_max_tokens_ended_first_is_a_loop_all_the_same(drive):
    looping = {"text": [{"repeat": "truncated ", "times": 7_303}]}

    run = await drive(looping, budget=LoopBudget(max_tokens=3_000))

    assert run.stopped.stop is Stop.LOOP_TEXT
    call = run.books.of_type("call_finished")[0]
    assert (call["finish"], call["view"], call["tokens_saved"]) == ("length", "", 0)


async def test_a_loop_that_the_wall_clock_ended_first_is_a_loop_all_the_same(drive):
    looping = {"text": [{"repeat": "truncated ", "times": 7_303}], "token_seconds": 0.001}

    run = await drive(looping, budget=LoopBudget(max_wallclock_seconds=2))

    assert run.stopped.stop is Stop.LOOP_TEXT
    assert run.books.of_type("call_finished")[0]["finish"] == "deadline"


async def test_a_long_reply_that_max_tokens_ended_is_no_loop(drive):
    counting = " ".join(f"word{number}" for number in range(5_000))

    run = await drive(counting, counting, budget=LoopBudget(max_tokens=5_000))

    assert run.stopped.stop is Stop.LIMIT_TOKENS
    assert run.books.of_type("call_finished")[0]["finish"] == "length"


async def test_a_short_repetition_is_told_to_the_model_in_its_next_turn(drive):
    stutter = say("run", command="true", reasoning="again and " * 100)

    run = await drive(stutter, GIVE_UP)

    assert run.stopped.stop is Stop.GAVE_UP
    assert "[harness]" in run.prompts[1].split("exit code 0")[0]


async def test_a_cycle_of_commands_is_refused_and_then_stopped(drive):
    turns = say("run", command="ls"), say("run", command="cat x")
    run = await drive(*turns, then="cycle", max_context_resets=0)

    assert run.stopped.stop is Stop.LOOP_ACTION
    assert len(run.books.of_type("command_finished")) < 7
    assert {data["doom_loop"] for data in run.books.of_type("dispatch")} >= {"refuse", "stop"}


async def test_leaving_the_plan_is_warned_about(drive):
    run = await drive(PLAN, say("run", command="true", plan_step_id=2), GIVE_UP)

    assert "step 1 (make the file) is still pending" in run.prompts[2]
    assert "divergence: yes" in run.prompts[2]
    types = [event.type for event in run.books.events]
    assert types.index("diverged") < types.index("dispatch"), "before the command runs"
    assert types.count("command_finished") == 1, "a warning, not a block"


async def test_a_question_is_answered_when_nobody_is_there(drive):
    run = await drive(say("ask", question="which one?"), GIVE_UP)

    assert "No human is available" in run.prompts[1]


async def test_every_prompt_ends_with_the_session_memory(drive):
    run = await drive(PLAN, MAKE, SUBMIT, budget=LoopBudget(max_iterations=7))

    assert all(prompt.count("SESSION MEMORY") == 1 for prompt in run.prompts)
    assert "1. [PENDING] make the file" in run.prompts[1]
    assert "LEFT: 6 iterations after this one" in run.prompts[1]


async def test_each_trial_is_kept_in_the_journal_and_in_the_work_tree(drive):
    run = await drive(PLAN, MAKE, SUBMIT)

    assert [entry.command for entry in run.books.entries] == ["echo made > done.txt"]
    assert ".zubble/journal.json" in run.files


async def test_an_agent_that_takes_the_journals_place_loses_only_its_own_copy(drive):
    squat = say("run", command="ln -s /etc .zubble; echo made > done.txt")

    run = await drive(PLAN, squat, SUBMIT)

    assert run.stopped.stop is Stop.SUBMITTED
    assert len(run.books.of_type("journal_file_refused")) == 1
    assert len(run.books.entries) == 1


async def test_with_verify_each_step_the_run_ends_when_the_tree_passes(drive):
    run = await drive(PLAN, MAKE, GIVE_UP, verify_each_step=True)

    assert run.stopped.stop is Stop.SUBMITTED
    assert run.transcript.step == 2


async def test_streams_that_break_again_and_again_are_the_providers_failure(drive):
    broken = {"text": PLAN, "fault": {"kind": "reset", "after_tokens": 3}}

    with pytest.raises(ModelUnavailable, match="3 streams in a row"):
        await drive(broken)


async def test_a_run_folded_from_its_events_is_the_run(drive):
    run = await drive(PLAN, say("run", command="false", plan_step_id=1), MAKE, SUBMIT)
    again = Transcript(run.transcript.job)

    again.replay(run.books.events)

    assert again == run.transcript


class _Ceiling(Decisions):
    def before_step(self, view):
        return Deny("enough for today") if view.step > 1 else Allow()


class _Gate(Decisions):
    def before_dispatch(self, view, tool, command):
        return Deny(f"{tool} may not make files") if "done" in command else Allow()


class _Stubborn(Decisions):
    def wants_to_stop(self, view, action, report):
        return Deny("look once more")


class _Broken(Decisions):
    def before_dispatch(self, view, tool, command):
        raise KeyError(tool)


class _Silent(Decisions):
    def before_step(self, view):
        return None


class _LostRouter(Decisions):
    def assemble(self, view, messages, options):
        raise LookupError("no route")


async def test_a_ceiling_ends_the_run_as_blocked(drive):
    run = await drive(PLAN, MAKE, decisions=_Ceiling())

    assert (run.stopped.stop, run.stopped.reason) == (Stop.BLOCKED, "enough for today")


async def test_a_gate_keeps_a_command_from_running_and_tells_why(drive):
    run = await drive(PLAN, MAKE, GIVE_UP, decisions=_Gate())

    assert "done.txt" not in run.files
    assert "This command was not run: shell may not make files" in run.prompts[2]


async def test_an_agent_sent_back_more_than_twice_is_stopped(drive):
    run = await drive(PLAN, SUBMIT, decisions=_Stubborn())

    assert run.stopped.stop is Stop.MODEL_STOP
    assert len(run.books.of_type("premature_stop")) == 3


@pytest.mark.parametrize(
    ("policy", "why"),
    [(_Silent(), "gave no answer"), (_LostRouter(), "LookupError: no route")],
)
async def test_a_policy_that_fails_stops_the_run(drive, policy, why):
    run = await drive(PLAN, decisions=policy)

    assert run.stopped.stop is Stop.BLOCKED
    assert why in run.stopped.reason


async def test_a_gate_that_fails_lets_nothing_through(drive):
    run = await drive(PLAN, MAKE, GIVE_UP, decisions=_Broken())

    assert "done.txt" not in run.files
    assert "policy failed: KeyError" in run.prompts[2]
