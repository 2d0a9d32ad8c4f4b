"""Before the first call: is the check one at all?"""

from __future__ import annotations

from zubble_queue.contracts.ending import Verdict
from zubble_queue.errors import JobError
from zubble_worker.case import Case
from zubble_worker.check import SandboxChecker
from zubble_worker.contact import patiently


async def preflight(case: Case, checker: SandboxChecker) -> None:
    """Once per content: the check must be runnable, and must fail on the untouched tree (F9).

    Raises:
        JobError: It proves nothing.
    """
    content, store = case.envelope.content_hash(), case.tools.store
    if case.envelope.preflight == "off" or await patiently(lambda: store.preflighted(content)):
        return
    result = await checker.check()
    await case.record("preflight_finished", **result.as_dict())
    if result.verdict is Verdict.PASSED:
        raise JobError("verify_command passes before anything was done, so it proves nothing")
    if result.verdict is Verdict.ERROR:
        raise JobError(f"verify_command cannot judge the untouched work tree: {result.error}")
    await patiently(lambda: store.set_preflighted(content))
