"""With 50,000 attempts in its memory Flower answers nearly as fast as with 1,000."""

from __future__ import annotations

import pytest


@pytest.mark.timeout(900)
def test_pages_and_api_stay_usable_with_many_attempts(full_sizes, missing_part):
    pytest.importorskip("flower")
    from benchmarks.flower import measure

    few, many = (1_000, 50_000) if full_sizes else (200, 4_000)
    found = measure(few, many)

    ratios = {name: page["ratio"] for name, page in found["pages"].items()}
    assert {name for name, ratio in ratios.items() if ratio > many / few / 2} == set(), ratios
    assert found["kib_per_attempt"] < 15
