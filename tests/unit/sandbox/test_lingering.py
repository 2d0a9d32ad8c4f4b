"""A sandbox whose worker is gone still has what was its own."""

from __future__ import annotations

import os

import pytest

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.bubblewrap import BubblewrapOptions, BubblewrapProvider
from zubble_sandbox.conformance.elsewhere import opened_elsewhere
from zubble_sandbox.records import runtime_dir
from zubble_sandbox.uids import UidPool

ONLY_UID = 60_777


@pytest.mark.bubblewrap
@pytest.mark.skipif(
    os.geteuid() != 0, reason="only the sandboxes of a worker that is root have users of their own"
)
async def test_its_user_is_nobody_elses_until_it_has_ended(missing_part):
    class Only(BubblewrapProvider):
        options = BubblewrapOptions(uid_base=ONLY_UID, uid_count=1)

    provider = Only(Only.options)
    probe = await provider.probe()
    if not probe.isolated:
        missing_part(f"bubblewrap does not isolate here: {'; '.join(probe.problems)}")
    pool = UidPool(runtime_dir() / "uids", ONLY_UID, 1)
    spec = SandboxSpec("lingering", f"lingering-{os.getpid()}", linger_seconds=60.0)
    async with opened_elsewhere(provider, spec) as handle:
        pass
    with pytest.raises(SandboxUnavailable, match="in use"):
        pool.take()
    sandbox = await provider.attach(handle)
    with pytest.raises(SandboxUnavailable, match="in use"):
        pool.take()
    await sandbox.destroy()
    pool.take().give_back()
