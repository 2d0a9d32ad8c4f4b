"""Promises about what commands reach. Needs python3 in the sandbox."""

from __future__ import annotations

from typing import Final

from zubble_queue.contracts.sandbox import SandboxProvider
from zubble_queue.errors import JobError
from zubble_sandbox.conformance.base import opened, output, promise, refused

_ASK: Final = """python3 - <<'END'
import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://denied.example/", timeout=20)
except urllib.error.HTTPError as answer:
    print(answer.code, answer.read().decode())
END
"""


@promise
async def an_allow_list_is_kept_by_a_proxy_or_refused(provider: SandboxProvider) -> None:
    hosts = ("allowed.example",)
    if "allowlist" not in (await provider.probe()).networks:
        with refused(JobError):
            async with opened(provider, network="allowlist", allowed_hosts=hosts):
                pass
        return
    async with opened(provider, network="allowlist", allowed_hosts=hosts) as sandbox:
        said = await output(sandbox, _ASK)
        assert said.startswith("403 zubble: denied.example is not on the allow-list"), said
        (use,) = sandbox.host_uses
        assert (use.host, use.allowed, use.denied, use.reasons) == ("denied.example", 0, 1, ("host",))
        assert await output(sandbox, "env | grep -ic '^https\\?_proxy=http://127.0.0.1:'") == "4\n"
    async with opened(provider) as sandbox:
        assert sandbox.host_uses == ()
        assert await output(sandbox, "env | grep -ic _proxy= || true") == "0\n"
