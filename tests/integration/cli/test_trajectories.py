"""Trajectories of a batch that ran: traced, exported, replayed."""

from __future__ import annotations

import json

import pytest


def test_a_run_is_traced_step_by_step(mixed):
    user, _ = mixed

    shown, answered = user.zubble("task", "trace", "good-1"), user.zubble("task", "trace", "good-1", "--json")

    assert "$ touch done.txt" in shown.out
    assert "exit code 0 after" in shown.out
    assert "Ended verified (stop submitted, verdict passed)" in shown.out
    value = answered.json
    assert value["schema"] == "zubble.task-trace/1"
    assert [step["step"] for step in value["steps"]] == list(range(1, len(value["steps"]) + 1))
    assert sum(step["tokens"]["total"] for step in value["steps"]) == value["tokens"]["total"]


def test_a_hostile_run_is_traced_without_acting_on_the_terminal(mixed):
    user, _ = mixed

    for arguments in ((), ("--whole",)):
        assert "\x1b" not in user.zubble("task", "trace", "odd-1", *arguments).out


@pytest.mark.parametrize(
    ("form", "suffix", "name"),
    [("atif", ".json", "atif"), ("mini", ".traj.json", "mini-swe-agent"), ("events", ".jsonl", "zubble")],
)
def test_trajectories_are_exported_one_file_a_task_and_replayed(mixed, form, suffix, name):
    user, _ = mixed

    said = user.zubble("batch", "export", "b", "--format", form, "-o", f"out/{form}", "--json").json

    files = sorted((user.folder / "out" / form).iterdir())
    assert (said["written"], said["missing"], said["without"]) == (len(files), 0, 0) == (3, 0, 0)
    assert all(file.name.endswith(suffix) for file in files)
    replayed = user.zubble("replay", *(str(file) for file in files), "--json")
    assert replayed.code == 0
    assert [file["format"] for file in replayed.json["files"]] == [name] * 3
    assert all(file["steps"] for file in replayed.json["files"])


def test_an_exported_event_log_has_no_references_left(mixed):
    user, _ = mixed

    user.zubble("batch", "export", "b", "--format", "events", "-o", "events")

    for file in (user.folder / "events").iterdir():
        events = [json.loads(line) for line in file.read_text().splitlines()]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert "$blob" not in file.read_text()


def test_trajectories_need_a_folder(mixed):
    user, _ = mixed
    (user.folder / "taken").write_text("")

    none = user.zubble("batch", "export", "b", "--format", "atif")
    taken = user.zubble("batch", "export", "b", "--format", "mini", "-o", "taken")

    assert (none.code, taken.code) == (2, 2)
    assert none.problems == ["--format atif needs -o FOLDER: it writes one file for each task."]
    assert taken.problems == ["-o taken is no folder: --format mini writes one file for each task."]
