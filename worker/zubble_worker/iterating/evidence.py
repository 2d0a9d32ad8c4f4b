"""What an iteration was worth, by what it left and not by what it says (decision 0015)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, Self

from zubble_queue.contracts.journal import Category, JournalEntry
from zubble_worker.observers.actions.results import digest, is_echo
from zubble_worker.protocols import fenced
from zubble_worker.snapshots import Tree

Evidence = Literal["tree", "plan", "result"]
_DONE_ITEM: Final = re.compile(r"^\s*(?:[-*]|\d+[.)])\s+\[[xX]\]", re.MULTILINE)
_KEPT_TREES: Final = 1_000
_KEPT_RESULTS: Final = 5_000


@dataclass(slots=True)
class Seen:
    """What the iterations of a loop have brought so far; the plan is judged by its items that are done."""

    trees: list[str] = field(default_factory=list)
    plan_done: int = 0
    results: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, state: Mapping[str, object]) -> Self:
        """From what `state` gave."""
        return cls(**state)  # type: ignore[arg-type]

    def state(self) -> dict[str, object]:
        return {"trees": self.trees, "plan_done": self.plan_done, "results": self.results}

    def add(self, tree: Tree, plan: str, entries: Sequence[JournalEntry]) -> tuple[Evidence, ...]:
        """What is new in an iteration: another tree, a further item of the plan, a result.

        Args:
            tree: The work tree as the iteration left it.
            plan: Path of the plan in it; what else the plan says, and the report, change no tree.
            entries: What was tried.
        """
        found: list[Evidence] = []
        state = _state(tree, leaving_out=_names(plan, "report.md"))
        if state not in self.trees:
            found.append("tree")
            self.trees = [*self.trees, state][-_KEPT_TREES:]
        done = done_items(tree, plan)
        if done > self.plan_done:
            found.append("plan")
            self.plan_done = done
        new = [result for result in _results(entries) if result not in self.results]
        if new:
            found.append("result")
            self.results = [*self.results, *dict.fromkeys(new)][-_KEPT_RESULTS:]
        return tuple(found)


def _names(*paths: str) -> frozenset[bytes]:
    return frozenset(path.encode("utf-8", "surrogateescape") for path in paths)


def done_items(tree: Tree, plan: str) -> int:
    """Items of the plan that are ticked, as in `- [x] parse the file`."""
    item = tree.get(plan.encode("utf-8", "surrogateescape"))
    return len(_DONE_ITEM.findall(item.data.decode("utf-8", "replace"))) if item and not item.is_link else 0


def kind_of(entries: Sequence[JournalEntry], *, changed: bool) -> Category:
    """Of an iteration: a fix attempt where it changed anything or tried to, else whether it verified."""
    kinds = {entry.category for entry in entries}
    if changed or "fix_attempt" in kinds:
        return "fix_attempt"
    return "verification" if "verification" in kinds else "diagnostic"


def claims(report: str, signal: str) -> bool:
    """Whether the last line that is not empty is the signal, outside fences (C7)."""
    reply = fenced.split(report)
    said = [line.strip() for line in reply.outside if line.strip()]
    return reply.ends_outside and bool(said) and said[-1] == signal


def _results(entries: Iterable[JournalEntry]) -> list[str]:
    return [
        digest(str(entry.exit_code), entry.result_summary)
        for entry in entries
        if entry.result_summary.strip() and not is_echo(entry.command, entry.result_summary)
    ]


def _state(tree: Tree, leaving_out: frozenset[bytes]) -> str:
    hashed = sha256()
    for path in sorted(tree.keys() - leaving_out):
        item = tree[path]
        hashed.update(b"%d %d %d %d " % (item.is_link, item.executable, len(path), len(item.data)))
        hashed.update(path + item.data)
    return hashed.hexdigest()
