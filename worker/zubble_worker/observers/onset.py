"""Finds where a loop began, so that a reply can go on from what was said before it (C4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zubble_worker.observers.saturation import GRAM_TOKENS, ON_TOKENS
from zubble_worker.observers.tokens import tokenize


def before_loop(text: str, evidence: Mapping[str, Any]) -> str:
    """The text up to the first copy of what is repeated in it.

    Args:
        text: The channel's text, from its beginning.
        evidence: Of the rung that was reached there: `token`, `period`, `threshold`, `by`.
    """
    tokens, _ = tokenize(text, ended=True)
    last, period = min(evidence["token"], len(tokens) - 1), evidence["period"] or 1
    place = last
    while place >= period and tokens[place] == tokens[place - period]:
        place -= 1
    first = max(place + 1 - period, 0)
    if evidence["by"] == "saturation":
        # So many tokens it takes at least until the rung is reached; where the copies are not exact, the one
        # that differs is not where the loop began.
        earliest = max(last - period - GRAM_TOKENS - ON_TOKENS - evidence["threshold"], 0)
        first = first if first - earliest <= GRAM_TOKENS else earliest
    return text[: _offset(text, tokens[:first])]


def _offset(text: str, tokens: list[str]) -> int:
    """Where the last of the text's first tokens ends; between two tokens are blanks alone."""
    at = 0
    for token in tokens:
        at = text.index(token, at) + len(token)
    return at
