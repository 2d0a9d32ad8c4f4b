"""Folders of Harbor tasks at the prompt."""

from __future__ import annotations

import shutil
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples/harbor"


def test_a_folder_of_harbor_tasks_is_recognised_and_named_after(ready):
    shutil.copytree(EXAMPLES, ready.folder / "terminal tasks")

    whole = ready.zubble("batch", "submit", "terminal tasks", "--model", "mock", "--dry-run", "--json").json
    one = ready.zubble(
        "batch", "submit", str(EXAMPLES / "add-numbers"), "--model", "mock", "--dry-run", "--json"
    ).json

    assert [task["source_id"] for task in whole["tasks"]] == ["zubble-examples/add-numbers"]
    assert whole["batch"].startswith("terminal-tasks-")
    assert one["batch"].startswith("add-numbers-")


def test_what_a_folder_asks_for_in_vain_is_said_task_by_task_and_nothing_is_created(ready):
    for name, field in (("a", "environment.gpus = 1"), ("b", 'agent.user = "root"')):
        shutil.copytree(EXAMPLES / "add-numbers", ready.folder / "tasks" / name)
        (ready.folder / "tasks" / name / "task.toml").write_text(f"{field}\n")

    said = ready.zubble("batch", "submit", "tasks", "--model", "mock", "--wait")

    assert (said.code, said.out) == (2, "")
    assert [problem.rpartition(": ")[0] for problem in said.problems] == [
        "a: environment.gpus",
        "b: agent.user",
    ]
    assert not ready.home.exists()


def test_a_folder_without_tasks_is_one_sentence(ready):
    (ready.folder / "empty").mkdir()

    said = ready.zubble("batch", "submit", "empty", "--model", "mock")

    assert said.code == 2
    assert said.problems == [
        "empty is a folder without tasks: there is neither a task.toml nor folders with one."
    ]
