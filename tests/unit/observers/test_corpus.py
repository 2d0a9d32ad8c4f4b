"""What must be seen and what must be left alone, on generated texts."""

from __future__ import annotations

import pytest

from benchmarks.corpus import texts
from benchmarks.corpus.cases import Case, cases, judge
from zubble_worker.observers.ladder import Fired
from zubble_worker.observers.repetition import RepetitionDetector, StreamGuard

SAMPLED = 12
"""One in so many of the corpus is judged here; `python -m benchmarks.corpus` judges all."""


def fired(text: str) -> list[Fired]:
    detector = RepetitionDetector()
    found = [one for delta in texts.deltas(text) for one in detector.feed("text", delta)]
    return found + detector.finish()


@pytest.mark.parametrize("language", texts.LANGUAGES)
def test_a_loop_of_any_period_up_to_sixty_is_nudged_within_320_tokens(language: str) -> None:
    late = {
        period: [one.token for one in found]
        for period in range(1, 61)
        if not (found := fired(texts.loop(language, period, tokens=400))) or found[0].token > 320
    }
    assert late == {}


@pytest.mark.parametrize("language", texts.LANGUAGES)
@pytest.mark.parametrize("period", [1, 7, 20, 60])
def test_a_loop_is_cut_soon_after_3000_of_its_tokens_counted(language: str, period: int) -> None:
    guard = StreamGuard()
    text = texts.loop(language, period, tokens=3_600)
    assert any(guard.feed("text", delta) for delta in texts.deltas(text))
    assert guard.tokens <= period + 3_188 + 80


@pytest.mark.parametrize("kind", texts.LEGITIMATE)
def test_legitimate_repetitive_text_is_neither_cut_nor_nudged(kind: str) -> None:
    assert fired(texts.LEGITIMATE[kind]()) == []


@pytest.mark.parametrize("kind", texts.LEGITIMATE)
def test_a_loop_after_legitimate_text_is_still_seen(kind: str) -> None:
    text = texts.LEGITIMATE[kind]() + texts.loop("english", 20, tokens=400)
    assert [one.threshold for one in fired(text)] == [50]


@pytest.mark.parametrize("case", list(cases())[::SAMPLED], ids=lambda case: f"{case.kind} {case.name}")
def test_a_sample_of_the_corpus_is_judged_as_it_should_be(case: Case) -> None:
    verdict = judge(case)
    assert verdict.cut == verdict.in_time == (case.kind == "exact")
    assert ("gate" in verdict.actions) == (case.kind in {"exact", "counter"})
