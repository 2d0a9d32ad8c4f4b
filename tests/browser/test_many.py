"""With 50,000 attempts in its memory Flower is usable: lists take longer as they grow, other pages do not."""

from __future__ import annotations

import pytest


@pytest.mark.timeout(900)
def test_pages_and_api_stay_usable_with_many_attempts(full_sizes, missing_part):
    pytest.importorskip("flower")
    from benchmarks.flower import measure

    few, many = (1_000, 50_000) if full_sizes else (200, 4_000)
    found = measure(few, many)

    ratios = {name: page["ratio"] for name, page in found["pages"].items()}
    lists = {name for name in ratios if "list" in name or name == "api of tasks"}
    assert {name for name in lists if ratios[name] > 4 * many / few} == set(), ratios
    assert {name for name in ratios.keys() - lists - {"search for a state"} if ratios[name] > 10} == set(), (
        ratios
    )
    assert found["kib_per_attempt"] < 15
