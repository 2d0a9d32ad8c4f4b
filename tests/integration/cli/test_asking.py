"""`zubble run` at a terminal, and `zubble task answer|approve|deny` from a prompt."""

from __future__ import annotations

import json

import pytest

from zubble_queue.testing import structured_reply as say

TURNS = [
    say("plan", steps=["ask", "make"]),
    say("ask", question="Which\x1b[2J colour?", plan_step_id=1),
    say("run", command="echo made > done.txt", plan_step_id=2),
    say("submit", report="done"),
]
LINE = ("run", "--task", "Make the file done.txt", "--verify", "test -f done.txt", "--env", "local", "--json")


@pytest.fixture
def asking(user):
    """A user whose model asks, and who runs commands here."""
    user.write("script.json", json.dumps({"rules": [{"turns": TURNS}]}))
    process = user.start("mock-endpoint", "--script", "script.json", "--json")
    user.environment["ZUBBLE_WORKER__SANDBOXES"] = "local"
    return user, ("--endpoint", json.loads(process.stdout.readline())["url"], "--model", "m")


@pytest.mark.slow
def test_whoever_sits_at_a_run_answers_its_question_and_extends_its_cap(asking):
    user, model = asking
    process = user.start(*LINE, *model, "--attended", "--max-steps", "3", typed="blue\nmaybe\ny\n")
    said = user.finish(process)

    assert (said.code, said.json["outcome"]) == (0, "verified"), said.err
    assert r"? Which\x1b[2J colour?" in said.err
    assert "? max_steps=3 exceeded. Go on for as much again?" in said.err
    assert "Please say y, or n and a reason." in said.err
    assert said.json["ending"]["phases"]["awaiting_human_seconds"] > 0


@pytest.mark.slow
def test_a_run_whose_input_has_ended_is_denied_more_than_its_cap(asking):
    user, model = asking
    said = user.finish(user.start(*LINE, *model, "--attended", "--max-steps", "2", typed=""))

    assert (said.code, said.json["outcome"]) == (4, "limit:max_steps")


@pytest.mark.slow
def test_a_run_without_a_terminal_asks_nobody_and_its_cap_ends_it(asking):
    user, model = asking
    said = user.zubble(*LINE, *model, "--max-steps", "3")

    assert (said.code, said.json["outcome"], said.json["question"]) == (0, "verified", None)


@pytest.mark.slow
def test_a_queued_task_is_answered_from_a_prompt(asking):
    user, model = asking
    user.tasks("one")
    url = json.dumps(model[1])
    user.write("zubble.toml", f'[models.mock]\nbase_url = {url}\nprice = "free"\n')
    user.start("up", "--slots", "1")
    user.wait_until(lambda: user.zubble(*user.SUBMIT, "--ask").code == 0, "the task is submitted")

    def waits():
        listed = user.zubble("task", "ls", "b", "--state", "awaiting_human", "--json").json["tasks"]
        return listed and listed[0]

    user.wait_until(waits, "the task waits")
    assert "answer with: zubble task answer" in user.zubble("task", "show", "one").out
    assert "wait for a person: zubble task ls b" in user.zubble("batch", "show", "b").out
    wrong = user.zubble("task", "approve", "one")
    assert (wrong.code, "asks a question: zubble task answer" in wrong.err) == (2, True)

    answered = user.zubble("task", "answer", "one", "blue", "--json")
    assert (answered.code, answered.json["question"]["answer"]["text"]) == (0, "blue")
    again = user.zubble("task", "answer", "one", "red")
    assert (again.code, "was answered before" in again.err or "is sealed" in again.err) == (2, True)
    assert user.zubble("batch", "watch", "b", "--json").json["outcomes"] == {"verified": 1}
    trace = user.zubble("task", "trace", "one").out
    assert "answered by human after" in trace
