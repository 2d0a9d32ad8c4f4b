"""Batches from a user's point of view: submitted, watched, looked at, exported; by real processes."""

from __future__ import annotations

import csv
import io
import json
import signal


def test_a_batch_can_be_submitted_run_and_looked_at(mixed):
    user, said = mixed
    submitted = said.json
    assert said.code == 1
    assert submitted["schema"] == "zubble.batch-submit/1"
    assert (submitted["created"], submitted["existing"], submitted["total"]) == (3, 0, 3)
    assert submitted["outcomes"] == {"verified": 2, "failed": 1}

    shown = user.zubble("batch", "show", "b", "--json").json
    assert shown["schema"] == "zubble.batch-show/1"
    assert shown["states"] == {"sealed": 3}
    assert shown["spend_usd"] > 0
    assert shown["tokens"]["total"] == shown["tokens"]["prompt"] + shown["tokens"]["completion"] > 0
    assert shown["tokens_saved"] == 0
    assert all(name.endswith("_seconds") for name in shown["phases"])

    (listed,) = user.zubble("batch", "ls", "--json").json["batches"]
    assert (listed["batch"], listed["sealed"]) == ("b", 3)

    (failed,) = user.zubble("task", "ls", "b", "--outcome", "failed", "--json").json["tasks"]
    assert (failed["source_id"], failed["outcome"]) == ("bad-1", "failed")

    shown = user.zubble("task", "show", "good-1", "--json").json
    assert shown["output"]["verify_passed"] is True
    assert shown["worklog"].startswith(f"task_id: {shown['task_id']}\n")
    assert shown["envelope"]["model"] == "mock"

    tail = user.zubble("task", "tail", "good-1", "--json").json
    assert tail["outcome"] == "verified"
    assert [event["seq"] for event in tail["events"]] == sorted(event["seq"] for event in tail["events"])

    assert user.zubble("batch", "watch", "b").code == 1


def test_what_a_model_writes_never_acts_on_the_terminal(mixed):
    user, _ = mixed
    for command in (["task", "show", "odd-1"], ["task", "tail", "odd-1"], ["task", "ls", "b"]):
        said = user.zubble(*command)
        assert "\x1b" not in said.out + said.err
    assert r"\x1b[2Jodd" in user.zubble("task", "tail", "odd-1").out


def test_results_are_exported_in_three_formats(mixed):
    user, _ = mixed
    lines = [json.loads(line) for line in user.zubble("batch", "export", "b").out.splitlines()]
    assert [line["source_id"] for line in lines] == ["good-1", "bad-1", "odd-1"]
    assert [line["output"]["verify_passed"] for line in lines] == [True, False, True]
    assert lines[0]["ending"]["stop"] == "submitted"

    said = user.zubble("batch", "export", "b", "--format", "csv", "-o", "out.csv", "--json")
    assert (said.json["written"], said.json["not_sealed"]) == (3, 0)
    rows = list(csv.DictReader(io.StringIO((user.folder / "out.csv").read_text())))
    assert [row["outcome"] for row in rows] == ["verified", "failed", "verified"]

    samples = [
        json.loads(line)
        for line in user.zubble("batch", "export", "b", "--format", "humaneval").out.splitlines()
    ]
    assert [set(sample) for sample in samples] == [{"task_id", "completion", "passed", "result"}] * 3
    assert [sample["passed"] for sample in samples] == [True, False, True]


def test_submitting_again_creates_only_what_is_new_and_names_conflicts(ready):
    ready.tasks("good-1", "good-2")
    assert ready.submit().code == 0
    logged = ready.logs()

    again = ready.submit("--json")
    assert ready.logs() == logged, "nothing was left to do, and yet a worker was started"
    assert (again.code, again.json["created"], again.json["existing"]) == (0, 0, 2)
    assert "nothing was created" in again.err

    ready.tasks("good-3", "good-2", "good-1")
    more = ready.zubble(*ready.SUBMIT, "--dry-run", "--json")
    assert (more.json["created"], more.json["existing"], more.json["dry_run"]) == (1, 2, True)
    assert ready.submit("--json").json["created"] == 1
    assert ready.zubble("batch", "show", "b", "--json").json["total"] == 3

    ready.tasks(ready.task("good-1", budget={"max_iterations": 3}), "good-2")
    changed = ready.submit()
    assert changed.code == 2
    assert changed.problems == [
        "'good-1' is in batch 'b' with other content or settings; submit it under another batch name."
    ]


def test_a_dry_run_says_what_would_be_and_starts_nothing(ready):
    ready.tasks("good-1", "good-2")

    said = ready.zubble(*ready.SUBMIT, "--max-spend-usd", "2", "--dry-run", "--json")

    assert said.code == 0
    assert (said.json["created"], said.json["budget_usd"], said.json["unpriced"]) == (2, 4.0, [])
    assert [task["source_id"] for task in said.json["tasks"]] == ["good-1", "good-2"]
    assert not ready.home.exists()


def test_an_endpoint_can_be_tried_without_a_configuration(user, endpoint):
    user.tasks("good-1", "good-2", "good-3")
    flags = ["--endpoint", endpoint, "--price", "3/15", "--model", "tried", "--sandbox", "local", "--wait"]
    user.environment["ZUBBLE_WORKER__SANDBOXES"] = "local"

    said = user.zubble("batch", "submit", "tasks.jsonl", *flags, "--limit", "2", "--json")

    assert (said.code, said.json["total"], said.json["outcomes"]) == (0, 2, {"verified": 2})
    assert said.json["spend_usd"] > 0


def test_one_task_runs_here_and_now(ready):
    ready.write("input.txt", "hello")
    flags = ["--model", "mock", "--sandbox", "local", "--input", "input.txt", "--work-tree", "tree.tar"]

    said = ready.zubble(
        "run", "--task", "This is task good.", "--verify", "test -f done.txt", *flags, "--json"
    )

    assert said.code == 0, said.err
    assert (said.json["schema"], said.json["outcome"]) == ("zubble.run/1", "verified")
    assert (ready.folder / "tree.tar").stat().st_size > 0
    assert "sandbox_opened" in said.err


def test_a_run_that_reaches_a_limit_exits_with_four(ready):
    ready.tasks("bad-1", "good-1")

    said = ready.zubble(
        "run",
        "tasks.jsonl",
        "--id",
        "bad-1",
        "--model",
        "mock",
        "--sandbox",
        "local",
        "--max-iterations",
        "2",
    )

    assert said.code == 4, said.err
    assert "limit:iterations" in said.out


def test_a_batch_can_be_cancelled_while_up_runs(ready):
    up = ready.start("up", "--slots", "1")
    assert up.stdout is not None
    assert up.stdout.readline().startswith("Up: 1 workers, 1 slots, models mock.")
    ready.tasks("endless-1", "endless-2", "endless-3")
    submitted = ready.zubble(*ready.SUBMIT, "--json")
    assert (submitted.code, submitted.json["created"], submitted.err) == (0, 3, "")
    cancelled = ready.zubble("batch", "cancel", "b", "--json").json
    watched = ready.zubble("batch", "watch", "b", "--json")

    assert cancelled["cancelled"] == 3
    assert watched.code == 1
    assert watched.json["outcomes"] == {"cancelled": 3}
    up.send_signal(signal.SIGINT)
    assert ready.finish(up).code == 0
