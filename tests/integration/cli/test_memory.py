"""What runs left behind, from a user's point of view."""

from __future__ import annotations


def test_memory_is_listed_shown_and_forgotten(mixed):
    user, _ = mixed

    (listed,) = user.zubble("memory", "ls", "--json").json["memories"]
    assert (listed["task_type"], listed["entries"]) == ("task", 3)

    shown = user.zubble("memory", "show", "task", "--json").json
    assert shown["schema"] == "zubble.memory-show/1"
    assert {entry["source_id"]: entry["outcome"] for entry in shown["entries"]} == {
        "good-1": "verified",
        "bad-1": "failed",
        "odd-1": "verified",
    }
    assert "touch done.txt" in user.zubble("memory", "show", "task").out

    ending = user.zubble("task", "show", "good-1", "--json").json["ending"]
    assert ending["memory"] == {"mode": "write", "read": []}

    assert user.zubble("memory", "forget", "task", "--task", "bad-1", "--json").json["forgotten"] == 1
    assert user.zubble("memory", "ls", "--json").json["memories"][0]["entries"] == 2
    assert user.zubble("memory", "forget", "task").out == "Forgot 2 runs of task type task.\n"
    assert user.zubble("memory", "ls", "--json").json["memories"] == []

    unknown = user.zubble("memory", "show", "tusk")
    assert (unknown.code, unknown.problems) == (2, ["Unknown task type 'tusk'; known: none."])
