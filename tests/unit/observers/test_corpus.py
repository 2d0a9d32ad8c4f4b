"""What must be seen and what must be left alone, on generated texts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from zubble_worker.observers.ladder import Fired
from zubble_worker.observers.repetition import RepetitionDetector, StreamGuard


def _corpus() -> ModuleType:
    """The neighbouring module; tests are no package, so it is loaded by its place."""
    spec = importlib.util.spec_from_file_location("corpus", Path(__file__).with_name("corpus.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


corpus = _corpus()


def fired(text: str) -> list[Fired]:
    detector = RepetitionDetector()
    found = [one for delta in corpus.deltas(text) for one in detector.feed("text", delta)]
    return found + detector.finish()


@pytest.mark.parametrize("language", corpus.LANGUAGES)
def test_a_loop_of_any_period_up_to_sixty_is_nudged_within_320_tokens(language: str) -> None:
    late = {
        period: [one.token for one in found]
        for period in range(1, 61)
        if not (found := fired(corpus.loop(language, period, tokens=400))) or found[0].token > 320
    }
    assert late == {}


@pytest.mark.parametrize("language", corpus.LANGUAGES)
@pytest.mark.parametrize("period", [1, 7, 20, 60])
def test_a_loop_is_cut_soon_after_3000_of_its_tokens_counted(language: str, period: int) -> None:
    guard = StreamGuard()
    text = corpus.loop(language, period, tokens=3_600)
    assert any(guard.feed("text", delta) for delta in corpus.deltas(text))
    assert guard.tokens <= period + 3_188 + 80


@pytest.mark.parametrize("kind", corpus.LEGITIMATE)
def test_legitimate_repetitive_text_is_neither_cut_nor_nudged(kind: str) -> None:
    assert fired(corpus.LEGITIMATE[kind]()) == []


@pytest.mark.parametrize("kind", corpus.LEGITIMATE)
def test_a_loop_after_legitimate_text_is_still_seen(kind: str) -> None:
    text = corpus.LEGITIMATE[kind]() + corpus.loop("english", 20, tokens=400)
    assert [one.threshold for one in fired(text)] == [50]
