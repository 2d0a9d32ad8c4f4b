"""pass@k: the chance that at least one of k samples of a task passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Final

NOT_COUNTED: Final = frozenset({"invalid", "infra", "cancelled"})
"""Outcomes that say nothing about the model."""


@dataclass(frozen=True, slots=True)
class Score:
    """An estimate over all tasks that have enough samples for it."""

    k: int
    value: float
    """The mean over the tasks, 0 to 1."""
    tasks: int
    """How many tasks have at least k samples that count."""


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The unbiased estimate 1 - C(n - c, k) / C(n, k) of one task, for n samples of which c passed.

    Source: Chen et al. 2021, "Evaluating Large Language Models Trained on Code" (the HumanEval paper,
    arXiv:2107.03374), equation 1, in the product form given there, which keeps numbers small.
    """
    if not 1 <= k <= samples or not 0 <= passed <= samples:
        raise ValueError(f"pass@{k} of {samples} samples, {passed} of them passed, is not defined")
    if samples - passed < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(samples - passed + 1, samples + 1))


def scores(samples: Iterable[tuple[str, str | None]]) -> list[Score]:
    """pass@k for every k that some task has samples for.

    Args:
        samples: For every repeat the source id of its task, and its outcome; None for one that is not sealed.
    """
    tasks = _counted(samples)
    most = max((n for n, _ in tasks), default=0)
    return [_score(k, [task for task in tasks if task[0] >= k]) for k in range(1, most + 1)]


def _counted(samples: Iterable[tuple[str, str | None]]) -> list[tuple[int, int]]:
    outcomes: defaultdict[str, list[bool]] = defaultdict(list)
    for source_id, outcome in samples:
        if outcome is not None and outcome not in NOT_COUNTED:
            outcomes[source_id].append(outcome == "verified")
    return [(len(passed), sum(passed)) for passed in outcomes.values()]


def _score(k: int, tasks: list[tuple[int, int]]) -> Score:
    total = sum(pass_at_k(samples, passed, k) for samples, passed in tasks)
    return Score(k, total / len(tasks), len(tasks))
