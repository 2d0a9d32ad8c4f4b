"""Promises about what lasts: processes between commands, and a sandbox without its worker."""

from __future__ import annotations

import io
import tarfile
from typing import Final

from zubble_queue.contracts.sandbox import Sandbox, SandboxProvider
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.conformance.base import exists, opened, output, promise, refused, run, small, until
from zubble_sandbox.conformance.elsewhere import opened_elsewhere

_TICK: Final = "while :; do echo >>ticks; echo tick; sleep 0.02; done"
LINGER_SECONDS: Final = 120.0


async def _ticks(sandbox: Sandbox) -> int:
    try:
        return len(await sandbox.read("ticks"))
    except FileNotFoundError:  # it has not begun yet
        return 0


async def _count(sandbox: Sandbox, command: str) -> int:
    """Processes with such a command line."""
    lines = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done"
    return int((await run(sandbox, f"{lines} | grep -c '{command}'")).stdout)


async def _ticks_on(sandbox: Sandbox) -> None:
    before = await _ticks(sandbox)

    async def more() -> bool:
        return await _ticks(sandbox) > before + 2

    await until(more, "the background process goes on")


@promise
async def a_background_process_lives_on_where_the_spec_allows_it(provider: SandboxProvider) -> None:
    async with opened(provider, background=True) as sandbox:
        result = await run(sandbox, f"({_TICK}) & echo started; exit 5")
        assert result.exit_code == 5, result
        assert result.stdout.startswith(b"started\n") or b"tick" in result.stdout, result
        await _ticks_on(sandbox)
        assert await output(sandbox, "echo on") == "on\n"
        await _ticks_on(sandbox)


@promise
async def a_command_past_its_deadline_takes_only_its_own_processes_along(provider: SandboxProvider) -> None:
    async with opened(provider, background=True) as sandbox:
        await run(sandbox, f"({_TICK}) & exit")
        own = "(while :; do echo >>own; sleep 0.02; done) & setsid sleep 98764 & sleep 98764"
        assert (await run(sandbox, own, timeout_seconds=0.5)).timed_out
        await _ticks_on(sandbox)
        size = len(await sandbox.read("own"))
        assert await _count(sandbox, "[s]leep 98764") == 0
        assert len(await sandbox.read("own")) == size


@promise
async def freezing_also_stops_background_processes(provider: SandboxProvider) -> None:
    async with opened(provider, background=True) as sandbox:
        await run(sandbox, f"({_TICK}) & exit")
        await _ticks_on(sandbox)
        await sandbox.freeze()
        before = await _ticks(sandbox)
        for _ in range(5):
            await sandbox.fingerprint()
        assert await _ticks(sandbox) == before
        await sandbox.thaw()
        await _ticks_on(sandbox)


@promise
async def a_snapshot_is_of_one_moment(provider: SandboxProvider) -> None:
    """However busy the tree is, and whoever else is at work."""
    async with opened(provider, background=True) as sandbox:
        await run(sandbox, "mkdir many; i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo $i >many/$i; done")
        await run(sandbox, "(while :; do echo >>first; echo >>last; done) & exit")
        await until(lambda: exists(sandbox, "last"), "the background process writes")
        for _ in range(5):
            with tarfile.open(fileobj=io.BytesIO(await sandbox.snapshot())) as tar:
                first, last = (tar.getmember(name).size for name in ("first", "last"))
            assert first - last in {0, 1}
        size = (await sandbox.list("."))[0].size
        await until(lambda: _longer(sandbox, size), "the background process goes on")


async def _longer(sandbox: Sandbox, size: int) -> bool:
    return (await sandbox.list("."))[0].size > size


@promise
async def a_sandbox_is_adopted_after_its_worker_died(provider: SandboxProvider) -> None:
    async with opened_elsewhere(provider, small(linger_seconds=LINGER_SECONDS)) as handle:
        with refused(SandboxUnavailable):
            await provider.attach(handle)
    await provider.reap()
    sandbox = await provider.attach(handle)
    try:
        assert sandbox.handle == handle
        assert sandbox.spec.linger_seconds == LINGER_SECONDS
        assert await sandbox.read("kept") == b"kept\n"
        assert await _count(sandbox, "[s]leep 98765") == 0, "what the last worker ran is ended"
        assert await output(sandbox, "cat kept") == "kept\n"
    finally:
        await sandbox.destroy()
    with refused(SandboxUnavailable):
        await provider.attach(handle)


@promise
async def a_sandbox_that_nobody_adopts_is_gone_when_its_time_is_over(provider: SandboxProvider) -> None:
    async with opened_elsewhere(provider, small(linger_seconds=1.0)) as handle:
        pass

    async def reaped() -> bool:
        await provider.reap()
        try:
            await provider.attach(handle)
        except SandboxUnavailable:
            return True
        raise AssertionError("it is adopted although its time is over")

    async with opened(provider) as other:
        await run(other, "sleep 2.5")
    await until(reaped, "it is gone")


@promise
async def a_sandbox_that_ends_with_its_worker_has_no_handle(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        assert sandbox.handle is None
        assert not await exists(sandbox, "anything")
    for handle in ("", "no-such-sandbox", "../../etc/passwd", "zubble-" + "0" * 32):
        with refused(SandboxUnavailable):
            await provider.attach(handle)
