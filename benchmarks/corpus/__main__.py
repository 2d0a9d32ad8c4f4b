"""What the repetition detector sees in generated loops, and what it does to legitimate texts.

    python -m benchmarks.corpus [--every 1] [--json]

Every text goes through a StreamGuard in pieces of 1 to 12 characters, as one reply of at most 16,000 tokens.
Loops that count and paraphrase are listed apart: the first are only asked about, the second are not seen by
this detector. Exit code 1 when fewer than 99 of 100 exact loops are seen in time or a legitimate text is cut.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from itertools import islice

from benchmarks.corpus.cases import Verdict, cases, judge

RECALL = 0.99
"""Of exact loops, seen in time."""


def summary(kind: str, verdicts: list[Verdict]) -> dict[str, int | str]:
    having = {action: sum(action in one.actions for one in verdicts) for action in ("nudge", "gate")}
    return {
        "kind": kind,
        "texts": len(verdicts),
        "in_time": sum(one.in_time for one in verdicts),
        "seen": sum(one.first is not None for one in verdicts),
        "nudged": having["nudge"],
        "asked_about": having["gate"],
        "cut": sum(one.cut for one in verdicts),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--every", type=int, default=1, help="judge only every n-th text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    verdicts = [judge(case) for case in islice(cases(), 0, None, options.every)]
    kinds = dict.fromkeys(one.kind for one in verdicts)
    rows = [summary(kind, [one for one in verdicts if one.kind == kind]) for kind in kinds]
    by_kind = {row["kind"]: row for row in rows}
    recall = int(by_kind["exact"]["in_time"]) / int(by_kind["exact"]["texts"])
    if options.json:
        found = [asdict(one) for one in verdicts]
        print(
            json.dumps(
                {"schema": "zubble.benchmark.corpus/1", "recall": recall, "rows": rows, "texts": found}
            )
        )
    else:
        _print(rows, verdicts, recall)
    return 0 if recall >= RECALL and not by_kind["legitimate"]["cut"] else 1


def _print(rows: list[dict[str, int | str]], verdicts: list[Verdict], recall: float) -> None:
    print("".join(f"{name:>13}" for name in rows[0]))
    for row in rows:
        print("".join(f"{value:>13}" for value in row.values()))
    print(f"exact loops seen in time: {recall:.1%}, aim {RECALL:.0%}")
    for one in verdicts:
        if (one.kind == "exact" and not one.in_time) or (one.kind == "legitimate" and one.actions):
            print(f"  {one.kind} {one.name}: first at {one.first}, {', '.join(one.actions) or 'nothing'}")


if __name__ == "__main__":
    sys.exit(main())
