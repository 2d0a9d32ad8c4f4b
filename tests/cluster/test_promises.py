"""The pod backend keeps the promises of every backend on a real node."""

import pytest

from zubble_sandbox.conformance import KNOWN_GAPS, PROMISES


@pytest.mark.parametrize("name", PROMISES)
async def test_a_pod_keeps_the_promise(provider, name, request):
    if reason := KNOWN_GAPS.get((provider.name, name)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    await PROMISES[name](provider)
