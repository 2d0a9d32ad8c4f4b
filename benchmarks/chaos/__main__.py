"""A batch under faults: real server, real workers, the mock endpoint as the independent witness.

Exit code 0 only when no task was lost or sealed twice, no two attempts of a task were at the endpoint at
once, no attempt wrote without its lease, and nothing was paid off the books: docs/chaos.md.
"""

from __future__ import annotations

import json

from benchmarks.chaos import campaign, report
from benchmarks.chaos.ground import on_ground
from benchmarks.chaos.options import Options


def main() -> int:
    options = Options.read(None, program="script/chaos", description=__doc__)
    outcome = on_ground(options, campaign.run)
    found = report.values(options, outcome)
    report.show(found, outcome.verdict)
    if options.json:
        print(json.dumps(found))
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
