"""Sees the marks of a chat template in a reply, as `<|im_end|>` or `[INST]`, again and again.

A server that does not stop at them lets the model play both sides. One mark may be a quotation; many, close
to each other, are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from zubble_worker.observers.tokens import codes, tokenize

NEAR_TOKENS: Final = 200
"""A mark farther from the last one begins the count anew."""
NUDGE_LEAKS: Final = 5
GATE_LEAKS: Final = 25

_MARKS: Final = (
    *("[INST]", "[/INST]", "<</SYS>>", "</s>", "<eos>", "<end_of_turn>", "<start_of_turn>"),
    *("<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<|user|>", "<|assistant|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<|return|>"),
    *("<|channel|>", "<|message|>", "<|start|>", "<|system|>", "<｜end▁of▁sentence｜>", "<｜User｜>"),  # noqa: RUF001
)
_SEQUENCES: Final = tuple(codes(tokenize(mark, ended=True)[0]) for mark in _MARKS)
_PATTERN: Final = re.compile("|".join(map(re.escape, sorted(_SEQUENCES, key=len, reverse=True))))
_FIRSTS: Final = tuple({sequence[0] for sequence in _SEQUENCES})
_LONGEST: Final = max(map(len, _SEQUENCES))


class Leaked(NamedTuple):
    """One mark."""

    token: int
    """Its last token's index in the stream, from 0."""
    number: int
    """The how-manieth it is, from 1."""


@dataclass(slots=True)
class Leaks:
    """One stream's count of marks."""

    tokens: int = 0
    count: int = 0
    last: int = 0
    """Where the last mark ended."""
    recent: str = ""
    """The codes of the last tokens, one fewer than the longest mark has."""

    def advance(self, codes: str) -> list[Leaked]:
        """Take the next tokens, one code each; returns the marks that end among them."""
        known = self.recent + codes
        first = self.tokens - len(self.recent)
        found: list[Leaked] = []
        for match in _PATTERN.finditer(known) if any(sign in known for sign in _FIRSTS) else ():
            token = first + match.end() - 1
            if token < self.tokens:
                continue
            self.count = self.count + 1 if token - self.last <= NEAR_TOKENS else 1
            self.last = token
            found.append(Leaked(token, self.count))
        self.tokens += len(codes)
        self.recent = known[1 - _LONGEST :]
        return found
