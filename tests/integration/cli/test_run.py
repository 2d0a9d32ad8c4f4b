"""`zubble run` as its users type it."""

from __future__ import annotations

import json

import pytest

TEXT = "```sh\npytest missing; echo done > report.md\n```"


@pytest.fixture
def texting(user):
    """A user, with a model that answers in text, and commands that run here."""
    script = {"rules": [{"turns": [TEXT, "It is done.\n<done>"], "then": "cycle"}]}
    user.write("script.json", json.dumps(script))
    process = user.start("mock-endpoint", "--script", "script.json", "--json")
    user.environment["ZUBBLE_WORKER__SANDBOXES"] = "local"
    return user, json.loads(process.stdout.readline())["url"]


def test_a_run_without_a_check_asks_for_a_report_and_keeps_memory_and_journal_in_folders(texting):
    user, url = texting
    user.write("spec.md", "Make it so.\n" * 60)
    line = [
        *("run", "--endpoint", url, "--model", "qwen", "--task", "spec.md", "--env", "local"),
        *("--level", "xhigh", "--minutes", "2", "--protocol", "text", "--temperature", "0.2"),
        *("--stop-sequences", "User:", "\\nUser:", "User:\\n", "--memory-dir", "memory", "--journal"),
    ]

    said = user.zubble(*line, "--json")

    assert said.code == 0, said.err
    assert "No --verify: a claim of done is accepted once report.md is there" in said.err
    assert said.json["outcome"] == "verified"
    (tried,) = json.loads((user.folder / ".zubble/journal.json").read_text())
    assert (tried["category"], tried["exit_code"]) == ("verification", 0)
    (kept,) = (user.folder / "memory/task.jsonl").read_text().splitlines()
    assert json.loads(kept)["outcome"] == "verified"

    user.zubble("memory", "forget", "task")
    again = user.zubble(*line, "--json")
    assert (again.code, len(again.json["ending"]["memory"]["read"])) == (0, 1)
    assert len((user.folder / "memory/task.jsonl").read_text().splitlines()) == 2


def test_a_memory_folder_that_holds_something_else_is_refused_before_anything_is_made(texting):
    user, url = texting
    (user.folder / "memory").mkdir()
    user.write("memory/task.jsonl", "{}\n")

    said = user.zubble("run", "--endpoint", url, "--model", "m", "--task", "x", "--memory-dir", "memory")

    assert (said.code, user.home.exists()) == (2, False)
    assert said.problems[-1] == "memory/task.jsonl, line 1: not an entry of task type task."
