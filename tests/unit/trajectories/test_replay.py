"""Stored trajectories of any harness, replayed through every detector."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from zubble_queue.cli import main
from zubble_queue.errors import BadInput
from zubble_queue.trajectories import reading
from zubble_queue.trajectories.steps import Call, Step, Trajectory
from zubble_worker.replay import replay
from zubble_worker.supposed_tree import SupposedTree, may_change

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "trajectories"
LOOP = "the same words again and again and " * 500


def atif(said, command, output):
    """The same four turns in every format: three times one command, then a loop in the text."""
    agent = {"source": "agent", "step_id": 2}
    call = {"tool_call_id": "c", "function_name": "bash", "arguments": {"command": command}}
    seen = {"results": [{"source_call_id": "c", "content": output}]}
    turns = [{**agent, "message": text, "tool_calls": [call], "observation": seen} for text in said]
    first = {"source": "user", "step_id": 1, "message": "do it"}
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "a"},
        "steps": [first, *turns],
    }


def mini(said, command, output):
    block = f"```mswea_bash_command\n{command}\n```"
    answer = f"<returncode>1</returncode>\n<output>\n{output}\n</output>"
    turns = [
        message
        for text in said
        for message in (
            {"role": "assistant", "content": f"{text}\n{block}"},
            {"role": "user", "content": answer},
        )
    ]
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": "do it"}, *turns]
    return {"trajectory_format": "mini-swe-agent-1.1", "info": {}, "messages": messages}


def mini_with_tools(said, command, output):
    called = {"id": "c", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}
    turns = [
        message
        for text in said
        for message in (
            {"role": "assistant", "content": text, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "c", "content": output, "extra": {"returncode": 1}},
        )
    ]
    return [{"role": "user", "content": "do it"}, *turns]


def swe_agent(said, command, output):
    return {
        "trajectory": [{"action": command, "observation": output, "response": text} for text in said],
        "history": [],
        "info": {},
    }


def openhands(said, command, output):
    turns = [
        event
        for text in said
        for event in (
            {"source": "agent", "action": "run", "args": {"command": command, "thought": text}},
            {
                "source": "agent",
                "observation": "run",
                "content": output,
                "extras": {"metadata": {"exit_code": 1}},
            },
        )
    ]
    first = {"source": "user", "action": "message", "args": {"content": "do it"}}
    return {"instance_id": "i", "history": [first, *turns]}


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (atif, "atif"),
        (mini, "mini-swe-agent"),
        (mini_with_tools, "mini-swe-agent"),
        (swe_agent, "swe-agent"),
        (openhands, "openhands"),
    ],
)
def test_the_same_run_fires_the_same_detectors_in_every_format(tmp_path, capsys, write, name):
    file = tmp_path / "of-no-known-name"
    file.write_text(json.dumps(write(["one", "two", "three", LOOP], "make test", "no such file")))

    assert main(["replay", str(file), "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    [found] = answer["files"]
    assert (answer["schema"], found["path"], found["format"], found["steps"]) == (
        "zubble.replay/1",
        str(file),
        name,
        4,
    )
    first = {}
    for fired in found["fired"]:
        first.setdefault(fired["detector"], fired["step"])
    assert (first["tool-cycle"], first["in-stream"]) == (3, 4)


@pytest.mark.parametrize(("times", "fires"), [(2, False), (3, True), (4, True)])
def test_a_cycle_fires_at_its_third_round_and_not_before(times, fires):
    call = Call("shell", "ls nowhere", "none", "failed")
    steps = tuple(Step(number, f"try {number}", calls=(call,)) for number in range(1, times + 1))

    found = [(firing.detector, firing.step) for firing in replay(Trajectory("atif", steps))]

    assert (("tool-cycle", 3) in found) is fires


def test_the_same_test_after_a_new_edit_each_time_is_work():
    calls = [
        call
        for number in range(6)
        for call in (
            Call("shell", f"sed -i s/{number}/x/ a.py", ""),
            Call("shell", "pytest -q", f"{number} failed at line {number * 7}", "failed"),
        )
    ]
    steps = tuple(Step(number, f"step {number}", calls=(call,)) for number, call in enumerate(calls, 1))

    assert "tool-cycle" not in {firing.detector for firing in replay(Trajectory("atif", steps))}


@pytest.mark.parametrize(
    ("tool", "arguments", "changes"),
    [
        ("shell", "cat > a.py <<'EOF'\nx\nEOF", True),
        ("shell", "echo x >> log", True),
        ("shell", "sed -i s/a/b/ f", True),
        ("shell", "cd /x && rm -rf build", True),
        ("shell", "git checkout main", True),
        ("shell", "pip install -e .", True),
        ("shell", "ls 2>/dev/null", False),
        ("shell", "make 2>&1 | tail", False),
        ("shell", "grep -rn 'a->b' src", False),
        ("shell", "pytest -q", False),
        ("shell", "git status", False),
        ("str_replace_editor", '{"command": "str_replace"}', True),
        ("str_replace_editor", '{"command": "view"}', False),
        ("read", '{"path": "a"}', False),
    ],
)
def test_what_looks_like_a_change_of_files_is_told_from_what_does_not(tool, arguments, changes):
    assert may_change(Call(tool, arguments)) is changes


def test_a_change_made_again_or_that_failed_changes_nothing():
    tree = SupposedTree()
    edit, failing = Call("shell", "touch a"), Call("shell", "touch b", "denied", "failed")

    before, after, again, failed, then = (
        tree.before(call) for call in (edit, edit, failing, failing, Call("shell", "ls"))
    )

    assert before != after
    assert after == again == failed == then


def test_an_unusable_reply_is_repaired_once_and_the_second_ends_a_run():
    bad = {"bad_replies": 1, "unusable": True}
    steps = (Step(1, "a", **bad), Step(2, "ok", calls=(Call("shell", "ls"),)), Step(3, "b", **bad))

    once = [(firing.step, firing.measure) for firing in replay(Trajectory("atif", steps))]
    twice = replay(Trajectory("atif", (*steps, Step(4, "c", **bad))))

    assert once == [(1, "repair"), (3, "repair")]
    assert (twice[-1].detector, twice[-1].step, twice[-1].measure) == ("format-errors", 4, "stop")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is no trajectory that is known"),
        (b"\x00\xff\xfe", "is no trajectory that is known"),
        (b"[" * 100_000, "is no trajectory that is known"),
        (b'{"trajectory": [{"action": "ls", "observation": "x", "tool_calls": [1]}]}', "another kind"),
        (b'{"schema_version": "ATIF-v1.7", "steps": [7]}', "another kind"),
        (
            b'{"schema_version": "ATIF-v1.7", "steps": [{"source": "agent", "tool_calls": [{}]}]}',
            "is missing",
        ),
        (b'{"seq": 1, "time": 0, "attempt": 1, "type": "call_started"}\n', "'step' is missing"),
        (b'{"seq": 1, "time": 0, "attempt": 1, "type": "claimed"}\nnonsense\n', "another kind"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_the_others_are_replayed(tmp_path, capsys, content, sentence):
    good, bad = tmp_path / "good", tmp_path / "bad\x1b[2J"
    good.write_text(json.dumps(swe_agent(["one"], "ls", "")))
    bad.write_bytes(content)

    assert main(["replay", str(bad), str(good), "--json"]) == 2

    said = capsys.readouterr()
    answer = json.loads(said.out)
    [problem] = answer["problems"]
    assert (len(answer["files"]), answer["exit_code"]) == (1, 2)
    assert sentence in problem
    assert said.err.count("\n") == 1
    assert "\x1b" not in said.err


def test_a_file_that_is_too_large_is_not_taken_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 1_000)
    file = tmp_path / "large"
    file.write_bytes(b" " * 1_001)

    with pytest.raises(BadInput, match="is larger than"):
        reading.read_file(file)


def test_bare_tool_calls_are_a_trajectory_too(tmp_path):
    file = tmp_path / "calls.jsonl"
    rows = [
        {"tool": "bash", "args": {"command": "make"}, "exit_code": 2, "output": f"line {at}"} for at in (1, 2)
    ]
    rows.append({"tool": "edit", "args": {"path": "a"}})
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    [trajectory] = reading.read_file(file)

    calls = [step.calls[0] for step in trajectory.steps]
    assert [(call.tool, call.arguments, call.end) for call in calls] == [
        ("shell", "make", "failed"),
        ("shell", "make", "failed"),
        ("edit", '{"path": "a"}', "ok"),
    ]


def test_a_file_of_many_trajectories_is_replayed_line_by_line(tmp_path, capsys):
    file = tmp_path / "output.jsonl"
    runs = [openhands(["one"] * times, "ls nowhere", "") for times in (1, 3)]
    file.write_text("".join(f"{json.dumps(run)}\n" for run in runs))

    assert main(["replay", str(file), "--json"]) == 0

    files = json.loads(capsys.readouterr().out)["files"]
    assert [(found["line"], found["steps"], bool(found["fired"])) for found in files] == [
        (1, 1, False),
        (2, 3, True),
    ]


def _damaged(value, rng):
    """The value with some of it gone, and some of it something else."""
    if rng.random() < 0.03:
        return rng.choice([None, True, -1, 1e300, "", "\ud800", [], {}, [[]], {"text": 1}])
    if isinstance(value, dict):
        return {key: _damaged(item, rng) for key, item in value.items() if rng.random() > 0.01}
    return [_damaged(item, rng) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("write", [atif, mini, mini_with_tools, swe_agent, openhands])
def test_whatever_is_damaged_in_a_file_it_is_replayed_or_refused_with_one_sentence(tmp_path, write):
    rng, file, ends = random.Random(5), tmp_path / "file", set()
    for _ in range(100):
        file.write_text(json.dumps(_damaged(write(["one", "two"], "ls", "none"), rng)))
        try:
            ends.add(bool([replay(trajectory) for trajectory in reading.read_file(file)]))
        except BadInput as refused:
            ends.add(len(refused.problems) == 1 and "one sentence")

    assert ends == {True, "one sentence"}


def test_people_read_a_table_without_anything_that_acts_on_their_terminal(tmp_path, capsys):
    file = tmp_path / "a\x1b[31m"
    file.write_text(json.dumps(swe_agent(["one"] * 3, "ls \x1b[2J\ud800", "\x1b]0;x\x07")))

    assert main(["replay", str(file)]) == 0

    said = capsys.readouterr().out
    assert "tool-cycle       refuse" in said
    assert "\x1b" not in said


HEALTHY = {"mini_swe_agent_github_issue", "mini_swe_agent_local", "swe_agent_marshmallow-1867"}
STRONG = {"refuse", "cut", "reset", "stop"}


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the collected trajectories are not here")
def test_collected_trajectories_are_judged_as_their_labels_say():
    fired = {
        file.name.partition(".")[0]: replay(reading.read_file(file)[0])
        for file in sorted(SAMPLES.glob("*.json"))
    }

    assert set(fired) >= HEALTHY
    assert {name for name in HEALTHY if fired[name]} == set()
    cycle = [firing for firing in fired["swe_agent_ctf_eps"] if firing.detector == "tool-cycle"]
    assert [(firing.step, firing.measure) for firing in cycle] == [(12, "refuse"), (13, "refuse")]
    assert {firing.measure for firing in fired["openhands_ponyc-4588_max_iterations"]} & STRONG == set()
    assert [
        (firing.step, firing.detector, firing.measure)
        for firing in fired["harbor_terminus2_hello-world-invalid-json"]
    ] == [(1, "format-errors", "repair")]
    assert not {firing.measure for firing in fired["swe_agent_pydicom-1458"]} & STRONG


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the collected trajectories are not here")
def test_two_hundred_successful_echoes_are_seen_though_nothing_failed():
    [trajectory] = reading.read_file(SAMPLES.parent / "degenerate" / "agent_asylum_case001_calls.jsonl")

    found = replay(trajectory)

    cycle = [firing.step for firing in found if firing.detector == "tool-cycle"]
    stalled = [firing.step for firing in found if firing.detector == "no-progress"]
    assert (cycle[0], stalled[0] < 15) == (18, True)
    assert {firing.detector for firing in found} & {"no-success", "error-cascade", "churn"} == set()
