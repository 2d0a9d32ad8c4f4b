"""Which backends there are here."""

from __future__ import annotations

import os

import pytest

from zubble_queue.contracts.sandbox import SandboxProvider
from zubble_sandbox.bubblewrap import BubblewrapProvider
from zubble_sandbox.local import LocalProvider

PROVIDERS = {"local": LocalProvider, "bubblewrap": BubblewrapProvider}


@pytest.fixture(params=sorted(PROVIDERS))
async def provider(request) -> SandboxProvider:
    provider = PROVIDERS[request.param]()
    probe = await provider.probe()
    if not probe.available:
        reason = f"{request.param} is not available: {'; '.join(probe.problems)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return provider
