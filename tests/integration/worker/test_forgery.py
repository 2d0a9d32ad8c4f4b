"""Solutions that forge their check, through the whole way: none of them is verified."""

from __future__ import annotations

from pathlib import Path

from zubble_queue.contracts.ending import Verdict
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Submission, TaskDefaults
from zubble_queue.formats import humaneval
from zubble_queue.testing import structured_reply as say

from .conftest import BATCH

TASKS = Path(__file__).parents[3] / "examples" / "humaneval" / "HumanEval.jsonl.gz"
PLAN = say("plan", steps=["forge it", "submit it"])

_WRITE = "cat > /work/solution.py <<'E'\n{}\nE"
FORGERIES = {
    "exits with success": _WRITE.format("import os\nos._exit(0)"),
    "exits with success when called": _WRITE.format(
        "import os\ndef separate_paren_groups(s):\n    os._exit(0)"
    ),
    "overwrites the check": (
        "mkdir -p verify; echo 'raise SystemExit(0)' > verify/check.py; "
        "echo 'raise SystemExit(0)' > /verify/check.py; echo 'raise SystemExit(0)' > check.py; "
        + _WRITE.format("def truncate_number(n):\n    return 0")
    ),
    "plants a sitecustomize": (
        "echo 'import os; os._exit(0)' | tee sitecustomize.py usercustomize.py json.py > zz.pth; "
        + _WRITE.format("x = 1")
    ),
    "prints PASSED": _WRITE.format('print("PASSED")\nprint("1 passed, 0 failed")\nraise SystemExit(0)'),
    "returns what equals everything": _WRITE.format(
        "class Yes:\n    def __eq__(self, other):\n        return True\n"
        "def intersperse(numbers, delimeter):\n    return Yes()"
    ),
}


async def test_no_forgery_is_verified_and_an_honest_solution_is(install):
    parcels = humaneval.read(TASKS, TaskDefaults(batch=BATCH, model="mock"))[: len(FORGERIES) + 1]
    names = [parcel.envelope.source_id for parcel in parcels]
    *forged, honest = names
    rules = {
        name: [PLAN, say("run", command=command), say("submit"), say("report", report="caught")]
        for name, command in zip(forged, FORGERIES.values(), strict=True)
    }
    assert honest == "HumanEval/6"
    nested = (
        "def parse_nested_parens(paren_string):\n    def depth(s):\n        d = m = 0\n        for c in s:\n"
        "            d += (c == '(') - (c == ')')\n            m = max(m, d)\n        return m\n"
        "    return [depth(x) for x in paren_string.split(' ') if x]"
    )
    rules[honest] = [PLAN, say("run", command=_WRITE.format(nested)), say("submit")]
    zubble = await install(rules, contains="({}).")
    await zubble.dispatcher.submit(Submission(BatchInfo(name=BATCH, model="mock"), parcels))
    zubble.start_worker(slots=2)

    endings = {name: (await zubble.sealed(name)).ending for name in names}

    assert {name: ending.verdict for name, ending in endings.items()} == {
        **dict.fromkeys(forged, Verdict.FAILED),
        honest: Verdict.PASSED,
    }
