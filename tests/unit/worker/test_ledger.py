"""The plan ledger knows what is done, what is next, and when an action leaves the plan."""

from __future__ import annotations

import pytest

from zubble_worker.buckets import bucket_of, counted
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


def test_a_step_that_stays_in_a_revised_plan_is_not_abandoned_and_keeps_its_state():
    ledger = planned("look", "patch", "test")
    ledger.act(1, "run: ls")
    ledger.succeeded(1, "ls")
    ledger.act(2, "run: patch")

    ledger.plan(["look", "rewrite", "test"], cause="the patch does not apply")

    assert [what for what, _ in ledger.abandoned] == ["patch"]
    assert [step.done for step in ledger.steps] == [True, False, False]
    assert ledger.expected == 2


def test_the_cause_is_what_failed_last_where_the_agent_gives_none():
    ledger = planned("open the port")
    ledger.failed(1, "nc -z db 5432", "exited 1: refused\n")

    ledger.plan(["ask the proxy"])

    assert ledger.abandoned == [("open the port", "last `nc -z db 5432` exited 1: refused")]


def test_a_failure_that_was_overcome_is_no_cause():
    ledger = planned("open the port")
    ledger.failed(1, "nc -z db 5432", "exited 1")
    ledger.succeeded(1, "nc -z db 5432")

    ledger.plan(["ask the proxy"], cause="the port was open")

    assert ledger.abandoned == [("open the port", "the port was open")]


@pytest.mark.parametrize("attempted", [19, 20, 21, 23])
def test_past_twenty_the_oldest_attempts_are_only_counted(attempted):
    ledger = PlanLedger()
    for number in range(attempted):
        ledger.plan([f"try disk {number}"])
    ledger.plan(["give up"], cause="none works")

    text = ledger.render()
    assert text.count("\n  - [storage] try disk ") == min(attempted, 20)
    assert f"[storage] try disk {attempted - 1}: none works" in text
    old = attempted - 20
    assert (f"  - {old} earlier: storage {old}\n" in text) is (old > 0)


@pytest.mark.parametrize(
    ("text", "bucket"),
    [
        ("curl -s http://db:5432/health", "network"),
        ("dig +short example.com", "network"),
        ("systemctl restart nginx", "compute"),
        ("kubectl get pods -A", "compute"),
        ("df -h /var", "storage"),
        ("kubectl describe pvc data", "storage"),
        ("curl -u admin:password http://a", "auth"),
        ("kubectl auth can-i list pods", "rbac"),
        ("kubectl get rolebindings", "rbac"),
        ("openssl x509 -in a.crt -noout -dates", "cert"),
        ("openssl s_client -connect db:443", "cert"),
        ("cat src/parser.py", "other"),
        ("python -m pytest tests", "other"),
        ("echo made > done.txt", "other"),
    ],
)
def test_an_attempt_is_put_where_its_words_belong(text, bucket):
    assert bucket_of(text) == bucket


def test_what_came_of_it_decides_where_the_command_says_nothing():
    assert bucket_of("./check.sh", "x509: certificate has expired") == "cert"
    assert bucket_of("df -h", "x509: certificate has expired") == "storage"


def test_counts_say_how_many_failed():
    assert counted([("network", True), ("network", False), ("cert", False)]) == "network 2 (1 failed), cert 1"
