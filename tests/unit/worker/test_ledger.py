"""The plan ledger knows what is done, what is next, and when an action leaves the plan."""

from __future__ import annotations

from zubble_worker.ledger import PlanLedger


def planned(*steps: str) -> PlanLedger:
    ledger = PlanLedger()
    ledger.plan(list(steps))
    return ledger


def test_the_first_pending_step_is_expected():
    assert planned("look", "fix").expected == 1


def test_no_step_is_expected_without_a_plan():
    assert PlanLedger().expected is None


def test_a_step_is_done_when_the_agent_moves_on_after_a_success():
    ledger = planned("look", "fix")

    ledger.act(1, "run: ls")
    ledger.succeeded(1, "ls")
    warning = ledger.act(2, "run: sed")

    assert warning is None
    assert ledger.expected == 2
    assert "[DONE (`ls` exited 0)] look" in ledger.render()


def test_a_success_alone_does_not_finish_a_step():
    ledger = planned("look", "fix")

    ledger.act(1, "run: ls")
    ledger.succeeded(1, "ls")
    ledger.act(1, "run: cat a")

    assert ledger.expected == 1


def test_skipping_a_step_that_never_succeeded_is_a_divergence():
    ledger = planned("look", "fix")

    ledger.act(1, "run: ls /nothing")
    warning = ledger.act(2, "run: sed")

    assert warning is not None
    assert "step 1 (look) is still pending" in warning
    assert "divergence: yes" in ledger.render()


def test_going_back_to_a_finished_step_is_no_divergence():
    ledger = planned("look", "fix")
    ledger.act(1, "run: ls")
    ledger.succeeded(1, "ls")
    ledger.act(2, "run: sed")

    assert ledger.act(1, "run: ls") is None


def test_an_action_without_a_step_or_a_plan_is_no_divergence():
    assert PlanLedger().act(3, "run: ls") is None
    assert planned("look").act(None, "run: ls") is None


def test_a_revised_plan_abandons_what_was_pending_with_its_cause():
    ledger = planned("look", "patch the parser")
    ledger.act(1, "run: ls")
    ledger.succeeded(1, "ls")
    ledger.act(2, "run: patch")

    ledger.plan(["rewrite the parser"], cause="the patch does not apply")

    text = ledger.render()
    assert "ABANDONED APPROACHES\n  - patch the parser: the patch does not apply" in text
    assert "look:" not in text
    assert ledger.expected == 1


def test_a_step_id_beyond_the_plan_changes_nothing():
    ledger = planned("look")

    ledger.succeeded(7, "ls")

    assert "PENDING" in ledger.render()
