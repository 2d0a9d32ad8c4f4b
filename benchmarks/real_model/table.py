"""The detector's verdict on each reply of a real model beside a reader's, as a table for the documentation.

    python -m benchmarks.real_model.table --replies replies.jsonl --judgements judgements.json

The verdict is that of the default ladder: the token at which 50 and 500 were reached. A judgement is one word
for each number of a prompt: `loop` where nothing new comes any more, `list` where lines differ and look alike
or count up, `text` for anything else.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from zubble_worker.observers.repetition import RepetitionDetector

NUDGE, SERIOUS = 50, 500


def reached(text: str) -> dict[int, int]:
    """Threshold to the token at which the default ladder reached it, without a limit of tokens."""
    detector = RepetitionDetector()
    fired = [*detector.feed("text", text), *detector.finish()]
    return {one.threshold: one.token for one in fired}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replies", type=Path, required=True)
    parser.add_argument("--judgements", type=Path, required=True)
    options = parser.parse_args()
    replies = sorted(
        (json.loads(line) for line in options.replies.open(encoding="utf-8")), key=lambda one: one["number"]
    )
    judged: dict[str, str] = json.loads(options.judgements.read_text("utf-8"))
    print("| | prompt | tokens | 50 at | 500 at | ended | reader |\n|---|---|---|---|---|---|---|")
    counts: Counter[tuple[str, str]] = Counter()
    after: Counter[int] = Counter()
    for reply in replies:
        rungs = reached(reply["text"])
        judgement = judged[str(reply["number"])]
        verdict = "500" if SERIOUS in rungs else "50" if NUDGE in rungs else "none"
        counts[judgement, verdict] += 1
        for threshold in (NUDGE, SERIOUS):
            after[threshold] += reply["tokens"] - rungs.get(threshold, reply["tokens"])
        print(_row(reply, rungs, judgement))
    print()
    for (judgement, verdict), count in sorted(counts.items()):
        print(f"- reader `{judgement}`, highest threshold {verdict}: {count}")
    whole = sum(reply["tokens"] for reply in replies)
    for threshold, tokens in sorted(after.items()):
        print(f"- tokens that came after {threshold} was reached: {tokens:,} of {whole:,}")
    cut = [one for one in replies if one["ended"] == "cut"]
    print(f"- cut in the stream: {len(cut)} of {len(replies)}")


def _row(reply: dict[str, Any], rungs: dict[int, int], judgement: str) -> str:
    prompt = " ".join(reply["prompt"].split()).replace("|", "\\|").replace("`", "'")[:40]
    where = [str(rungs.get(threshold, "")) for threshold in (NUDGE, SERIOUS)]
    cells = [str(reply["number"]), f"`{prompt}`", str(reply["tokens"]), *where, reply["ended"], judgement]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
