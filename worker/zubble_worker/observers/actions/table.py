"""Every threshold of the action observers: value, unit, where the number comes from.

`docs/detectors.md` shows the same table; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Threshold:
    """One number that decides."""

    name: str
    value: float
    unit: str
    source: str

    @property
    def count(self) -> int:
        return int(self.value)


CYCLE_REPEATS: Final = Threshold("tool-cycle repeats", 3, "rounds", "Z22, F5")
CYCLE_LENGTH: Final = Threshold("tool-cycle length", 5, "calls", "gemini-cli, opencode PR #47845")
CASCADE: Final = Threshold("error-cascade", 3, "failed steps in a row", "F5")
FRUITLESS: Final = Threshold("no-success", 4, "rounds in a row without a success", "V1")
FRUITLESS_AT_ALL: Final = Threshold(
    "no-success, though each is new", 24, "rounds in a row without a success", "own"
)
TIMEOUTS: Final = Threshold("timeouts", 3, "commands in a row that timed out", "SWE-agent")
EXCESS: Final = Threshold("excessive-steps", 20, "steps, doubled each time", "F5")
DOMINANCE: Final = Threshold("tool-dominance", 0.6, "share of the calls", "F5")
DOMINANCE_STEPS: Final = Threshold("tool-dominance minimum", 5, "calls", "F5")
BUDGET_WARNING: Final = Threshold("budget warning", 0.8, "share of a limit", "F3, F5")
BUDGET_SPENT: Final = Threshold("budget spent", 1.0, "share of a limit", "F3, F5")
QUALITY: Final = Threshold("quality-drop", 0.7, "of the best score before", "F5")
SAME_TEXT: Final = Threshold("text-repetition", 3, "turns in a row", "Z18, Z25")
NEAR_TEXT: Final = Threshold("near-same text", 0.8, "Jaccard index of word trigrams", "own")
FORMAT_ERRORS: Final = Threshold("format-errors", 1, "repairs in a row that failed", "C8 (structured)")
PRESSURE: Final = Threshold("context-pressure", 0.8, "of the window, prompt tokens as reported", "Z22, C13")
UNFINISHED: Final = Threshold("unfinished", 3, "claims or contexts that ended without completion", "Z21")
STALL: Final = Threshold(
    "no-progress", 6, "steps in a row that brought nothing new", "own; Illospace PR #533"
)
STALL_AGAIN: Final = Threshold("no-progress, each rung after", 3, "further steps", "own")
READING: Final = Threshold("reading", 30, "steps in a row that only read on", "own; stella #4034")
CHURN: Final = Threshold("churn", 4, "equal failures of one command in changed trees", "own; V3")
CHURN_AGAIN: Final = Threshold("churn, each rung after", 2, "further equal failures", "own")
PATIENCE: Final = Threshold(
    "patience", 10, "waits, or changes of one call's result, on end", "own; OpenHands #5355"
)

ALL: Final = (
    *(
        CYCLE_REPEATS,
        CYCLE_LENGTH,
        CASCADE,
        FRUITLESS,
        FRUITLESS_AT_ALL,
        TIMEOUTS,
        EXCESS,
        DOMINANCE,
        DOMINANCE_STEPS,
    ),
    *(BUDGET_WARNING, BUDGET_SPENT, QUALITY, SAME_TEXT, NEAR_TEXT, FORMAT_ERRORS, PRESSURE, UNFINISHED),
    *(STALL, STALL_AGAIN, READING, CHURN, CHURN_AGAIN, PATIENCE),
)
