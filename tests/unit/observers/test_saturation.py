"""The counter against its definition, word for word and slow."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from zubble_worker.observers.saturation import Saturation

LETTERS = st.characters(min_codepoint=ord("A"), max_codepoint=ord("Z"))
NOISE = st.text(LETTERS, max_size=60)
LOOP = st.builds(
    lambda unit, length: (unit * length)[:length],
    st.text(LETTERS, min_size=1, max_size=210),
    st.integers(0, 500),
)
TEXT = st.lists(NOISE | LOOP, max_size=6).map("".join)


def by_definition(sequence: str) -> list[tuple[int, int]]:
    """(token, count) of every token that counts."""
    recycled: list[bool] = []
    count, counted = 0, []
    for token in range(len(sequence)):
        gram = sequence[token - 9 : token + 1]
        seen = token >= 9 and any(
            sequence[end - 9 : end + 1] == gram for end in range(max(9, token - 200), token)
        )
        recycled.append(seen)
        share = sum(recycled[-200:]) / 200
        if share < 0.5:
            count = 0
        if seen and share >= 0.9:
            count += 1
            counted.append((token, count))
    return counted


def counted(saturation: Saturation, sequence: str) -> list[tuple[int, int]]:
    return [
        (run.token + place, run.before + place + 1)
        for run in saturation.advance(sequence)
        for place in range(run.length)
    ]


@settings(max_examples=60)
@given(TEXT)
@example("A" * 600)
@example("AB" * 150 + "CDEFGHIJKL" * 8 + "AB" * 150)
def test_it_counts_what_the_definition_counts(sequence: str) -> None:
    assert counted(Saturation(), sequence) == by_definition(sequence)


@settings(max_examples=60)
@given(TEXT, st.data())
def test_cuts_and_restarts_change_nothing(sequence: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sequence)), max_size=10)))
    saturation, found = Saturation(), []
    for start, end in zip([0, *cuts], [*cuts, len(sequence)], strict=True):
        found += counted(saturation, sequence[start:end])
        saturation = Saturation.from_state(json.loads(json.dumps(saturation.state())))
    assert found == counted(Saturation(), sequence)


def test_a_loop_longer_than_the_window_is_not_recycled() -> None:
    unit = "".join(map(chr, range(0x4E00, 0x4E00 + 201)))
    assert Saturation().advance(unit * 20) == []


def test_a_loop_as_long_as_the_window_is() -> None:
    unit = "".join(map(chr, range(0x4E00, 0x4E00 + 200)))
    runs = Saturation().advance(unit * 20)
    assert {run.period for run in runs} == {200}


def test_the_count_rests_while_the_share_is_between_the_limits_and_begins_anew_below() -> None:
    def fresh(size: int, start: int) -> str:
        return "".join(map(chr, range(start, start + size)))

    saturation = Saturation()
    saturation.advance("A" * 400)
    before = saturation.count
    saturation.advance(fresh(60, 0x5000) + "A" * 50)
    assert saturation.count == before
    saturation.advance(fresh(150, 0x6000) + "A" * 12)
    assert saturation.count == 0
