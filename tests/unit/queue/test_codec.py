import json

import pytest

from zubble_queue.contracts.ending import Ending, Stop
from zubble_queue.stores import codec


@pytest.mark.parametrize(
    ("usd", "micro"), [(5.0, 5_000_000), (0.1, 100_000), (1.005, 1_005_000), (0.0000019, 1), (1e-12, 1)]
)
def test_a_ceiling_is_rounded_down_to_whole_micro_dollars_but_never_to_nothing(usd, micro):
    assert codec.micro_usd(usd) == micro


def test_an_ending_that_fits_is_kept_whole_but_for_the_usage():
    ending = Ending(stop=Stop.GAVE_UP, evidence={"a": [1, {}]}, files_touched=("a",))
    stored = codec.ending_json(ending)

    assert "usage" not in json.loads(stored)
    assert Ending.model_validate_json(stored) == ending


@pytest.mark.parametrize("evidence", [{}, {"text": "ü" * 60_000}])
def test_an_ending_never_takes_more_than_its_share(evidence):
    files = tuple(f"\x01ü{number}" * 20 for number in range(10_000))
    stored = codec.ending_json(Ending(stop=Stop.GAVE_UP, evidence=evidence, files_touched=files))
    kept = Ending.model_validate_json(stored)

    assert len(stored.encode()) <= codec.ENDING_BYTES
    assert len(kept.files_touched) > 50
    assert kept.files_touched == files[: len(kept.files_touched)]
    assert kept.evidence["omitted"].endswith(f"after the first {len(kept.files_touched)}")
