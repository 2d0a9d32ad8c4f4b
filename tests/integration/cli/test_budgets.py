"""Ceilings from a user's point of view."""

from __future__ import annotations


def test_a_batch_that_ends_at_its_ceiling_is_sealed_whole_and_says_so_by_its_exit_code(ready):
    ready.tasks("good-1", "good-2", "good-3")

    said = ready.submit("--max-batch-usd", "0.000001", "--json")

    assert said.code == 4
    assert said.json["outcomes"] == {"limit:batch_spend": 3}
    assert said.json["spend_usd"] == 0


def test_a_batch_that_pauses_at_its_ceiling_goes_on_when_it_is_raised(ready):
    ready.tasks("good-1", "good-2")

    paused = ready.submit("--max-batch-usd", "0.000001", "--on-ceiling", "pause", "--json")
    assert paused.code == 4
    assert paused.json["states"] == {"queued": 2}
    assert paused.json["ceiling_reached"] == "batch_spend"
    shown = ready.zubble("budget", "show", "batch/b", "--json").json
    assert (shown["ceiling_usd"], shown["settled_usd"], shown["reached"]) == (0.000001, 0, True)

    raised = ready.zubble("budget", "set", "batch/b", "1", "--json").json
    assert (raised["ceiling_usd"], raised["reached"]) == (1.0, False)
    done = ready.submit("--json")
    assert (done.code, done.json["outcomes"]) == (0, {"verified": 2})

    spent = ready.zubble("budget", "show", "tenant/default", "--json").json
    assert spent["by_model_usd"] == {"mock": done.json["spend_usd"]}
    assert spent["by_outcome_usd"] == {"verified": done.json["spend_usd"]}
    assert spent["reserved_usd"] == 0

    below = ready.zubble("budget", "set", "batch/b", "0.000001")
    assert below.code == 2
    assert below.problems == [
        f"The ceiling of batch 'b' cannot be below the ${spent['settled_usd']:.6f} it has spent."
    ]
    assert ready.zubble("budget", "show", "batch/b", "--json").json["ceiling_usd"] == 1.0
    assert ready.zubble("budget", "show", "batch/nosuch").code == 2


def test_a_task_that_ends_unverified_is_tried_again_as_often_as_was_asked_for(ready):
    ready.tasks("bad-1")

    said = ready.submit("--retries", "2", "--json")

    assert (said.code, said.json["outcomes"]) == (1, {"stuck": 1})
    task = ready.zubble("task", "show", "bad-1", "--json").json
    assert task["attempts"] == 3
    assert task["ending"]["reason"].startswith("max_retries=2 exhausted; the last attempt ended failed")
    assert [past["outcome"] for past in task["ending"]["evidence"]["past"]] == ["failed", "failed"]
