"""What a fresh context of a loop is told: the task, its place in the loop, and what was tried (Z19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.model import estimate_tokens
from zubble_worker import journal, memory

JOURNAL_TOKENS: Final = 2_000
"""The most that earlier iterations may take in a prompt."""
_TOLD: Final = 20
_SIMPLIFY_EVERY: Final = 3
"""Iterations without completion, until the next one is told to simplify (Z21)."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What an iteration has to know of its loop."""

    number: int
    """From 1, of those that count."""
    of: int
    plan: str
    """Path in the work tree."""
    signal: str | None
    """What the last line of a submitted report must be; None where the check alone decides."""
    text_replies: bool
    """Whether replies are text: then an iteration ends in another way."""
    last_report: str = ""
    """What the iteration before said at its end, and how it ended."""
    room_tokens: int = JOURNAL_TOKENS


def brief(about: Brief, entries: Sequence[JournalEntry]) -> str:
    """The end of an iteration's instructions. `entries` are the trials of all iterations, oldest first."""
    parts = [_RULES.format(number=about.number, of=about.of, plan=about.plan, ending=_ending(about))]
    if about.signal is not None:
        parts.append(f"The last line of a report that is submitted must be exactly: {about.signal}")
    if about.number > 1 and (about.number - 1) % _SIMPLIFY_EVERY == 0:
        parts.append(_SIMPLIFY.format(count=about.number - 1))
    if about.last_report:
        parts.append(f"The iteration before ended so (quoted, unchecked): {memory.quoted(about.last_report)}")
    return "\n".join([*parts, *_journal(entries, about.room_tokens)])


def _ending(about: Brief) -> str:
    if about.text_replies:
        return "say in one line what was done and what is next, and write <give_up> alone as the last line"
    return '"report" in one line what was done and what is next'


def _journal(entries: Sequence[JournalEntry], room_tokens: int) -> list[str]:
    """As many of the last trials as there is room for."""
    last = [_harmless(entry) for entry in entries[-_TOLD:]]
    for first in range(len(last)):
        if estimate_tokens(text := journal.render(last[first:])) <= room_tokens:
            return [text]
    return []


def _harmless(entry: JournalEntry) -> JournalEntry:
    """Foreign text on one line, without marks that could pass for ours."""
    said = {
        "command": memory.quoted(entry.command, chars=300)[1:-1],
        "result_summary": memory.quoted(entry.result_summary)[1:-1] if entry.result_summary else "",
        "model_note": memory.quoted(entry.model_note)[1:-1] if entry.model_note else None,
    }
    return entry.model_copy(update=said)


_RULES: Final = """\
THE LOOP
This is iteration {number} of at most {of}. Each begins with a fresh context in the same work tree: of the
earlier ones only the files are left, and what is told here.
- {plan} is the plan, one line per item: "- [ ] what is to be done". Where it is not there, write it first.
  Read it, take the most important open item, do that one, check it, and tick it: "- [x]".
- Then end this iteration: {ending}. That does not end the task; the next iteration goes on.
- Submit only when nothing of the task is left to be done."""
_SIMPLIFY: Final = (
    "[harness] {count} iterations ended without completion. Simplify: take a smaller item, or a plainer way, "
    "and write down in the plan what did not work."
)
