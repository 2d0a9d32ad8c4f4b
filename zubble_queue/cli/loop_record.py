"""What a loop of fresh contexts keeps in `.zubble` of its work folder; it resumes from that."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from zubble_queue import whole_files
from zubble_queue.contracts.ending import MICRO
from zubble_queue.contracts.journal import Category, JournalEntry
from zubble_queue.errors import BadInput

PRIVATE: Final = ".zubble"
_JOURNAL_ENTRIES: Final = 500
_ENTRIES: Final = TypeAdapter(list[JournalEntry])
_STRICT: Final = ConfigDict(strict=True, extra="forbid")


class Iteration(BaseModel):
    """One fresh context, as it ended."""

    model_config = _STRICT

    number: int
    """From 1; also the repeat of its task."""
    task_id: str
    outcome: str
    """Of its run."""
    kind: Category
    progress: Annotated[tuple[Literal["tree", "plan", "result"], ...], Strict(strict=False)]
    """Evidence of it; empty where there is none."""
    report: str
    interrupted: bool
    """Cancelled before it could end: it counts for what was spent only."""
    steps: int
    tokens: int
    spend_micro_usd: int
    seconds: float
    """Wall clock, as charged."""


class LoopRecord(BaseModel):
    """How far a loop is."""

    model_config = _STRICT

    version: Literal[1] = 1
    name: str
    """Also its batch."""
    goal: str
    """Hash of what is to be done and how that is checked."""
    iterations: list[Iteration] = Field(default_factory=list)
    running: str | None = None
    """Task of an iteration that was begun and of which nothing more is known."""
    fruitless: int = 0
    """Iterations in a row without evidence of progress."""
    seen: dict[str, list[str] | int] = Field(default_factory=dict)
    """State of the evidence."""
    outcome: str | None = None
    """How the loop ended; None while it goes on."""

    @property
    def counted(self) -> list[Iteration]:
        return [each for each in self.iterations if not each.interrupted]

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.iterations)

    @property
    def spend_usd(self) -> float:
        return sum(each.spend_micro_usd for each in self.iterations) / MICRO

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.iterations)


class LoopFiles:
    """The files of a loop.

    Args:
        work: The folder that is worked on.
    """

    def __init__(self, work: Path) -> None:
        self._folder = work / PRIVATE
        self._record, self._journal = self._folder / "loop.json", self._folder / "journal.json"
        self._reports = self._folder / "reports"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other loop out of the folder. Raises BadInput where one is in it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "loop.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BadInput([f"Another loop works in {self._folder.parent}."]) from None
            yield

    def record(self) -> LoopRecord | None:
        """None where there is none. Raises BadInput where it cannot be read."""
        try:
            return LoopRecord.model_validate_json(self._record.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as broken:
            raise BadInput(
                [f"{self._record} is no record of a loop; move it away, or use --anew."]
            ) from broken

    def journal(self) -> list[JournalEntry]:
        """What was tried in all iterations, oldest first. Raises BadInput where it cannot be read."""
        try:
            return _ENTRIES.validate_json(self._journal.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValidationError) as broken:
            raise BadInput([f"{self._journal} is no journal; move it away, or use --anew."]) from broken

    def save(self, record: LoopRecord) -> None:
        whole_files.write(self._record, record.model_dump_json(indent=1).encode())

    def add(self, entries: list[JournalEntry]) -> None:
        kept = [*self.journal(), *entries][-_JOURNAL_ENTRIES:]
        whole_files.write(self._journal, _ENTRIES.dump_json(kept, indent=1))

    def clear(self) -> None:
        """Forget record and journal: another task begins."""
        self._record.unlink(missing_ok=True)
        self._journal.unlink(missing_ok=True)

    def put_away(self, report: Path, number: int) -> None:
        """The report of one iteration is not the report of the next."""
        if report.is_file() and not report.is_symlink():
            self._reports.mkdir(parents=True, exist_ok=True)
            report.replace(self._reports / f"{number}.md")
