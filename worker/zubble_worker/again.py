"""How a call whose stream was cut is made once more, from what of its reply is sound (C1, C4, C14)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from zubble_queue.contracts.model import (
    SMALLEST_CALL_TOKENS,
    CallOptions,
    Message,
    Reply,
    estimate_tokens,
)
from zubble_worker.observers.onset import before_loop
from zubble_worker.observers.repetition import WARNING

SHORTER: Final = (
    "Your last reply was cut: prompt and reply had nearly filled the context. Older results were left out. "
    "Answer once more, and shorter."
)
_RESTART_TEMPERATURE: Final = 0.7
"""At least; at temperature 0 another seed changes nothing (C1)."""
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Again:
    """What is other than in a first call; all that was done counts for the whole turn."""

    done: frozenset[str] = frozenset()
    """Actions of the cuts so far; each is borne once a turn."""
    cause: Mapping[str, Any] | None = None
    """Evidence of the last cut."""
    kept: str = ""
    """The beginning of the reply, from where it goes on."""
    inserted: str = ""
    """Said behind it in the model's own voice, and no part of the reply."""
    note: str = ""
    """Said at the end of the prompt."""

    @property
    def prefix(self) -> str:
        return self.kept + self.inserted

    def applied(
        self, messages: Sequence[Message], options: CallOptions, *, seed: int
    ) -> tuple[Sequence[Message], CallOptions]:
        """The request as it is to be made now; the whole reply stays within `max_tokens`."""
        if "restart" in self.done:
            warmer = max(options.temperature, _RESTART_TEMPERATURE)
            options = replace(options, seed=seed, temperature=warmer)
        if self.note:
            last = messages[-1]
            messages = [*messages[:-1], Message(last.role, f"{last.content}\n\n[harness] {self.note}")]
        if self.prefix:
            rest = max(options.max_tokens - estimate_tokens(self.kept), SMALLEST_CALL_TOKENS)
            options = replace(options, prefix=self.prefix, max_tokens=min(rest, options.max_tokens))
        return messages, options

    def joined(self, reply: Reply) -> Reply:
        """The whole reply. A server may have said the beginning once more."""
        if not self.prefix:
            return reply
        glue = self.inserted[-1:] if self.kept else ""
        return replace(reply, text=self.kept + glue + reply.text.removeprefix(self.prefix))

    def after(self, reply: Reply, *, structured: bool, continues: bool) -> Again:
        """The next call, after a reply that was cut for `restart`, `restart_prefix` or `compact`."""
        assert reply.cut is not None
        evidence = reply.cut.evidence
        done = self.done | {evidence["action"]}
        match evidence["action"]:
            case "restart_prefix":
                return _warned(before_loop(reply.text, evidence), structured, Again(done, evidence))
            case "compact" if continues:
                return Again(done, evidence, kept=_sound(reply.text))
            case "compact":
                return Again(done, evidence, note=SHORTER)
        return Again(done, evidence)


def _warned(kept: str, structured: bool, again: Again) -> Again:  # noqa: FBT001
    """With the warning behind what is kept; in JSON only inside of a string, else at the prompt's end."""
    kept = _sound(kept)
    if not structured:
        return replace(again, kept=kept, inserted=f"\n{WARNING}\n" if kept else f"{WARNING}\n")
    if _ESCAPED.sub("", kept).count('"') % 2:
        return replace(again, kept=kept, inserted=f" {WARNING} ")
    return replace(again, kept=kept, note=WARNING)


def _sound(text: str) -> str:
    """Without blanks at its end, which endpoints refuse, and without half an escape sequence."""
    text = text.rstrip()
    half = (len(text) - len(text.rstrip("\\"))) % 2
    return text[:-1] if half else text
