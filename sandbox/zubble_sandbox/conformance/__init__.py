"""What every sandbox promises, as one suite: `PROMISES`, run by the contract tests over each backend.

Each promise is an async function that takes a provider, opens what it needs and asserts. A backend that
cannot keep one is listed in `KNOWN_GAPS` with the reason; the contract tests expect that failure, strictly.

ZUBBLE_CONFORMANCE_OUTPUT_MIB sets how much the promise about large output prints (200 MiB).
"""

from zubble_sandbox.conformance import differing, files, lasting, living, places, reaching, running
from zubble_sandbox.conformance.base import KNOWN_GAPS, PROMISES, Promise

__all__ = [
    "KNOWN_GAPS",
    "PROMISES",
    "Promise",
    "differing",
    "files",
    "lasting",
    "living",
    "places",
    "reaching",
    "running",
]
