"""Every backend keeps every promise, or says why not."""

import pytest

from zubble_sandbox.conformance import KNOWN_GAPS, PROMISES


@pytest.mark.parametrize("name", PROMISES)
async def test_the_backend_keeps_its_promise(provider, name, request):
    if reason := KNOWN_GAPS.get((provider.name, name)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    await PROMISES[name](provider)


def test_every_known_gap_names_a_promise_and_a_reason():
    assert {promise for _, promise in KNOWN_GAPS} <= set(PROMISES)
    assert all(KNOWN_GAPS.values())
