from itertools import combinations

import pytest

from zubble_queue.scoring import Score, pass_at_k, scores


def by_counting(samples, passed, k):
    """The share of all choices of k samples with at least one that passed."""
    choices = list(combinations([True] * passed + [False] * (samples - passed), k))
    return sum(any(choice) for choice in choices) / len(choices)


@pytest.mark.parametrize("samples", [1, 2, 5, 8])
def test_the_estimate_is_the_share_of_all_choices_of_k_samples(samples):
    for passed in range(samples + 1):
        for k in range(1, samples + 1):
            assert pass_at_k(samples, passed, k) == pytest.approx(by_counting(samples, passed, k))


def test_many_samples_do_not_overflow():
    assert pass_at_k(1_000, 10, 100) == pytest.approx(0.6534, abs=1e-3)


@pytest.mark.parametrize(("samples", "passed", "k"), [(3, 1, 0), (3, 1, 4), (3, 4, 1), (0, 0, 1)])
def test_what_is_not_defined_is_refused(samples, passed, k):
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(samples, passed, k)


def test_scores_are_means_over_the_tasks_with_enough_samples():
    samples = [("a", "verified"), ("a", "failed"), ("b", "failed"), ("b", "loop:text"), ("c", "verified")]

    assert scores(samples) == [Score(1, 0.5, 3), Score(2, 0.5, 2)]


@pytest.mark.parametrize("outcome", ["invalid", "infra", "cancelled", None])
def test_what_says_nothing_about_the_model_is_not_counted(outcome):
    assert scores([("a", "verified"), ("a", outcome), ("b", outcome)]) == [Score(1, 1.0, 1)]


def test_without_samples_there_is_no_score():
    assert scores([]) == []
