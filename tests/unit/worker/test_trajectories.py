"""Runs of the real loop, written in other harnesses' formats and read back."""

from __future__ import annotations

import json

import pytest

from zubble_queue.contracts.ending import Ending
from zubble_queue.testing import structured_reply
from zubble_queue.trajectories import atif_writer, mini_writer, own, reading
from zubble_queue.trajectories.run import fold
from zubble_queue.trajectories.sealed import SealedRun
from zubble_worker.replay import replay

LOOP = "again and again the very same words " * 900
TURNS = (
    structured_reply("plan", steps=["look", "make it"]),
    "no JSON at all",
    structured_reply("run", command="cat missing.txt", plan_step_id=1),
    structured_reply("run", command="cat missing.txt", plan_step_id=1),
    structured_reply("run", command="cat missing.txt", plan_step_id=1),
    structured_reply("run", command=f"true # {LOOP}"),
)
FRESH = (structured_reply("run", command="touch done.txt", plan_step_id=2), structured_reply("submit"))


@pytest.fixture
async def run(drive):
    """A plan, a repair, three failing commands of which the third is refused, a cut, a reset, and success."""
    return await drive(*TURNS, fresh=FRESH)


def sealed(run):
    ending = Ending(
        stop=run.stopped.stop, verdict="passed", reason="done", usage=run.books.usage, iterations_used=1
    )
    events = tuple(run.books.events)
    return SealedRun(run.transcript.job.envelope, ending, events, fold(events), "Mind the gap.", "a patch")


async def test_a_run_is_folded_into_its_steps(run):
    found = fold(run.books.events)

    assert [step.kind for step in found.steps] == ["plan", "run", "run", "run", "none", "run", "submit"]
    assert [len(step.replies) for step in found.steps] == [1, 2, 1, 1, 1, 1, 1]
    assert [step.verdict for step in found.steps if step.tool] == ["allow", "allow", "refuse", "allow"]
    assert [step.number for step in found.steps if step.reset] == [5]
    assert sum(step.usage.tokens for step in found.steps) == run.books.usage.tokens


async def test_atif_holds_every_call_with_what_came_of_it(run):
    value = json.loads(atif_writer.write(sealed(run)))
    steps = value["steps"]

    assert value["schema_version"] == "ATIF-v1.7"
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
    assert [step["source"] for step in steps] == ["user", *["agent"] * 6, "system", *["agent"] * 2]
    assert "Mind the gap." in steps[0]["message"]
    usage = run.books.usage
    agents = [step for step in steps if step["source"] == "agent"]
    assert sum(step["metrics"]["prompt_tokens"] for step in agents) == usage.prompt_tokens
    assert sum(step["metrics"]["completion_tokens"] for step in agents) == usage.completion_tokens
    assert value["final_metrics"]["total_prompt_tokens"] == usage.prompt_tokens
    called = [step for step in agents if "tool_calls" in step]
    for step in called:
        [call], [result] = step["tool_calls"], step["observation"]["results"]
        assert (call["function_name"], result["source_call_id"]) == ("shell", call["tool_call_id"])
    ends = [step["observation"]["results"][0]["extra"] for step in called]
    assert [end.get("exit_code") for end in ends] == [1, 1, None, 0]
    assert ends[2] == {"refused": True}


async def test_mini_swe_agent_gets_its_messages_and_what_they_cost(run):
    value = json.loads(mini_writer.write(sealed(run)))

    assert value["trajectory_format"] == "mini-swe-agent-1.1"
    assert (value["info"]["exit_status"], value["info"]["submission"]) == ("Submitted", "a patch")
    assert value["info"]["model_stats"]["api_calls"] == run.books.usage.calls
    costs = [message["extra"]["cost"] for message in value["messages"] if message["role"] == "assistant"]
    assert round(sum(costs) * 1e6) == run.books.usage.spend_micro_usd
    assert value["messages"][-1]["role"] == "exit"
    codes = [(message.get("extra") or {}).get("returncode") for message in value["messages"]]
    assert [code for code in codes if code is not None] == [1, 1, 0]


async def test_what_is_written_is_replayed_as_what_happened(run, tmp_path):
    written = {
        "zubble": "".join(f"{json.dumps(event.model_dump())}\n" for event in run.books.events),
        "atif": atif_writer.write(sealed(run)),
        "mini-swe-agent": mini_writer.write(sealed(run)),
    }
    fired = {}
    for name, text in written.items():
        file = tmp_path / name
        file.write_text(text)
        [trajectory] = reading.read_file(file)
        assert trajectory.format == name
        fired[name] = {firing.detector for firing in replay(trajectory) if firing.measure != "none"}

    assert fired["zubble"] == fired["atif"]
    for detectors in fired.values():
        assert {"tool-cycle", "in-stream", "format-errors"} <= detectors


async def test_our_own_log_is_replayed_with_its_fingerprints_and_resets(run):
    trajectory = own.read(run.books.events)

    calls = [call for step in trajectory.steps for call in step.calls]
    assert [call.end for call in calls] == ["failed", "failed", "refused", "ok"]
    assert all(call.state for call in calls)
    assert [step.number for step in trajectory.steps if step.cleared] == [5]


async def test_a_log_whose_beginning_is_kept_elsewhere_is_folded_from_where_it_begins(run):
    events = run.books.events

    for begin in range(len(events) - 1):
        assert fold(events[begin:]).steps[-1].kind == "submit"
