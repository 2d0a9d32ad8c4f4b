"""What a command says: sentences and tables to people, exactly one JSON object to programs."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Final

PROBLEMS_SHOWN: Final = 50
_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Unicode categories that move cursors, reverse text or show nothing."""


class Exit(IntEnum):
    """Exit codes of every command (design: section 8)."""

    DONE = 0
    NOT_ALL_VERIFIED = 1
    BAD_INPUT = 2
    """Bad input, or something that is needed is not to be had."""
    INFRASTRUCTURE = 3
    CEILING = 4
    BUG = 70
    """A fault of our own, with a traceback (EX_SOFTWARE of sysexits.h)."""
    DETACHED = 130


class Report:
    """One command's voice.

    Args:
        command: As in the schema: `batch-submit` gives `zubble.batch-submit/1`.
        as_json: Standard output is one JSON object, and what it holds is not said a second time.
    """

    current: ClassVar[Report]
    """The running command's; where errors go."""

    def __init__(self, command: str, *, as_json: bool) -> None:
        self.command, self.as_json = command, as_json
        self.answered = False
        """Whether the result was given, to whomever."""
        Report.current = self

    def say(self, text: str) -> None:
        """A line of the result for people."""
        if not self.as_json:
            print(text, flush=True)

    def note(self, text: str) -> None:
        """A line about the way, not the result: always to standard error."""
        print(text, file=sys.stderr, flush=True)

    def result(self, values: Mapping[str, Any]) -> None:
        """The one JSON object; nothing where people read."""
        self.answered = True
        if self.as_json:
            print(json.dumps({"schema": f"zubble.{self.command}/1", **values}, default=str), flush=True)

    def failed(self, code: Exit, problems: Sequence[str]) -> int:
        """Say what is wrong, one sentence a line, and return the code."""
        for problem in problems[:PROBLEMS_SHOWN]:
            self.note(plain(problem))
        if len(problems) > PROBLEMS_SHOWN:
            self.note(f"… and {len(problems) - PROBLEMS_SHOWN} more.")
        self.result({"exit_code": int(code), "problems": list(problems)})
        return int(code)

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Aligned columns for people; cells are made harmless. A terminal folds them, a pipe does not."""
        if self.as_json:
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*headings, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(Text(plain(str(cell)), overflow="fold") for cell in row))
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = 1_000
        with console.capture() as printed:
            console.print(table)
        print("\n".join(line.rstrip() for line in printed.get().splitlines()))


def plain(text: str, *, lines: bool = False) -> str:
    r"""The text with everything that could act on a terminal shown as \x1b, \u202e and the like.

    Args:
        text: Written by a model, a task file or a server.
        lines: Keep line ends and tabs.
    """
    if text.isprintable():
        return text
    return "".join(char if _harmless(char, lines=lines) else _escaped(char) for char in text)


def _harmless(char: str, *, lines: bool) -> bool:
    return (lines and char in "\n\t") or unicodedata.category(char) not in _HIDDEN


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def usd(amount: float) -> str:
    """Money for people: cents, and more digits where it is less than a cent."""
    return f"${amount:.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.6f}"


def duration(seconds: float) -> str:
    """As in 12.3 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
