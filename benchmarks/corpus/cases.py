"""The cases of the corpus, and what the detector makes of one.

A loop begins after some prose; it is seen in time when a rung is reached within four periods of its beginning
or 320 tokens, whichever is more: a loop of one word needs 239 to fill the window.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.corpus.texts import LANGUAGES, LEGITIMATE, deltas, loop, prose
from zubble_worker.observers.repetition import StreamGuard
from zubble_worker.observers.tokens import tokenize

REPLY_TOKENS = 16_000
"""The most that a call may produce at any thinking level."""
IN_TIME_PERIODS = 4
IN_TIME_TOKENS = 320
PERIODS = (
    *(1, 2, 3, 4, 5, 7, 10, 13, 17, 24, 34, 45, 60, 90, 120, 150, 180),
    *(195, 210, 252, 400, 700, 1_000, 1_472, 2_000),
)
SEEDS = 6
SIGNS = ("a", "!", "?", "0", "=", "哈", "ア", "😀", "_", ".", "\n", " ", "\t", " \n", "\r\n", "\u3000")
MARKS = ("<|im_end|>", "<|endoftext|>", "[INST]", "</s>", "<end_of_turn>\n")
COUNTERS = (
    "Step {}: I will look at the file again and then report what I found in it.\n",
    "{}. The answer to this question can be found in the file.\n",
    "Attempt {} failed, trying again.\n",
    "def handler_{}(event): return None\n",
    "user{}: tell me something about you\n",
)
STEPS = (1, 2, 5, -1)


@dataclass(frozen=True)
class Case:
    kind: str
    name: str
    text: str
    begins: int = 0
    """The token at which the loop begins."""
    period: int = 0


@dataclass(frozen=True)
class Verdict:
    kind: str
    name: str
    tokens: int
    first: int | None
    """The token at which the first rung was reached."""
    in_time: bool
    actions: tuple[str, ...]
    cut: bool


def loops() -> Iterator[Case]:
    """Exact ones of nine languages and of single signs and marks; loops that count; paraphrase."""
    for language in LANGUAGES:
        for period in PERIODS:
            text = loop(language, period, REPLY_TOKENS)
            yield _begun("exact", f"{language} {period}", text, period)
    for sign in (*SIGNS, *MARKS):
        period = max(len(tokenize(sign * 8, ended=True)[0]) // 8, 1)
        yield _begun("exact", repr(sign), sign * 4 * REPLY_TOKENS, period)
    for unit in COUNTERS:
        for step in STEPS:
            counted = "".join(unit.format(9_000 + step * n) for n in range(1_000))
            yield _begun("counter", f"{unit[:12]} {step:+}", counted, len(tokenize(unit)[0]))
    for seed in range(20):
        yield _begun("paraphrase", str(seed), "".join(_paraphrases(random.Random(seed))), 12)


def legitimate() -> Iterator[Case]:
    """Of each kind some, fewer where it is the same text for every seed."""
    for kind, text in LEGITIMATE.items():
        for seed, made in enumerate(dict.fromkeys(map(text, range(SEEDS)))):
            yield Case("legitimate", f"{kind} {seed}", made)


def cases() -> Iterator[Case]:
    yield from loops()
    yield from legitimate()


def _begun(kind: str, name: str, text: str, period: int) -> Case:
    begin = prose(random.Random(name), 120) + "\n"
    return Case(kind, name, begin + text, len(tokenize(begin, ended=True)[0]), period)


def _paraphrases(chance: random.Random) -> Iterator[str]:
    for _ in range(800):
        yield (
            f"{chance.choice(['I will', 'Let me', 'Now I', 'I am going to', 'Next I'])} "
            f"{chance.choice(['check', 'look at', 'read', 'inspect', 'examine'])} "
            f"{chance.choice(['the file', 'that file', 'this module', 'the source', 'its content'])} "
            f"{chance.choice(['again', 'once more', 'one more time', 'carefully', 'before I go on'])}. "
        )


def judge(case: Case) -> Verdict:
    guard = StreamGuard()
    for delta in deltas(case.text):
        if guard.feed("text", delta) or guard.counted("text") >= REPLY_TOKENS:
            break
    first = min((fired.token for fired in guard.fired), default=None)
    latest = case.begins + max(IN_TIME_PERIODS * case.period, IN_TIME_TOKENS)
    actions = tuple(dict.fromkeys(fired.action for fired in guard.fired))
    in_time = first is not None and first <= latest
    return Verdict(case.kind, case.name, guard.tokens, first, in_time, actions, guard.cut is not None)
