"""Promises about a sandbox as a whole: freezing, ending, and having nothing to do with another."""

from __future__ import annotations

import asyncio

from zubble_queue.contracts.sandbox import Command, SandboxProvider, SandboxSpec
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox.conformance.base import exists, opened, output, promise, refused, run, until

_COUNT = "i=0; while [ $i -lt {0} ]; do i=$((i+1)); echo $i >count; sleep 0.02; done"


@promise
async def a_probe_tells_what_is_there(provider: SandboxProvider) -> None:
    probe = await provider.probe()
    assert (probe.backend, probe.available) == (provider.name, True), probe


@promise
async def a_sandbox_knows_its_spec(provider: SandboxProvider) -> None:
    async with opened(provider, name="its-own-name", owner="its-owner") as sandbox:
        assert (sandbox.spec.name, sandbox.spec.owner) == ("its-own-name", "its-owner")


@promise
async def freezing_stops_a_command_and_thawing_continues_it(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        running = asyncio.create_task(run(sandbox, _COUNT.format(40)))
        await until(lambda: exists(sandbox, "count"), "the command counts")
        await sandbox.freeze()
        frozen_at = await sandbox.read("count")
        await asyncio.sleep(0.3)
        assert await sandbox.read("count") == frozen_at
        assert not running.done()
        await sandbox.thaw()
        assert (await running).ok
        assert await sandbox.read("count") == b"40\n"


@promise
async def frozen_time_is_not_counted_against_the_deadline(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        running = asyncio.create_task(run(sandbox, "echo >count; sleep 0.3; echo done", timeout_seconds=3.0))
        await until(lambda: exists(sandbox, "count"), "the command has begun")
        await sandbox.freeze()
        await asyncio.sleep(3.5)
        await sandbox.thaw()
        assert (await running).stdout == b"done\n"


@promise
async def a_frozen_sandbox_starts_a_command_when_it_is_thawed(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await sandbox.freeze()
        await sandbox.freeze()
        waiting = asyncio.create_task(output(sandbox, "echo on"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await sandbox.thaw()
        await sandbox.thaw()
        assert await waiting == "on\n"


@promise
async def after_destroying_everything_is_refused_and_destroying_again_is_not(
    provider: SandboxProvider,
) -> None:
    async with opened(provider) as sandbox:
        running = asyncio.create_task(run(sandbox, "echo >begun; sleep 98765"))
        await until(lambda: exists(sandbox, "begun"), "the command has begun")
        await sandbox.destroy()
        with refused(SandboxUnavailable):
            await running
        await sandbox.destroy()
        for call in (
            sandbox.exec(Command(("true",))),
            sandbox.read("a"),
            sandbox.write("a", b""),
            sandbox.list(),
            sandbox.fingerprint(),
            sandbox.snapshot(),
            sandbox.restore(b""),
            sandbox.freeze(),
        ):
            with refused(SandboxUnavailable):
                await call


@promise
async def destroying_a_frozen_sandbox_frees_whoever_waits_for_it(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await sandbox.freeze()
        waiting = asyncio.create_task(output(sandbox, "echo on"))
        await asyncio.sleep(0.05)
        await sandbox.destroy()
        with refused(SandboxUnavailable):
            await waiting


@promise
async def a_sandbox_ends_itself_after_its_life(provider: SandboxProvider) -> None:
    async with opened(provider, max_life_seconds=1.0) as sandbox:
        with refused(SandboxUnavailable):
            await run(sandbox, "sleep 98765")


@promise
async def two_sandboxes_have_nothing_in_common(provider: SandboxProvider) -> None:
    async with opened(provider) as first, opened(provider) as second:
        await output(first, "echo secret >file; echo secret >${TMPDIR:-/tmp}/file")
        assert await second.list() == []
        assert await output(second, "ls ${TMPDIR:-/tmp}") == ""


@promise
async def a_living_sandbox_is_not_reaped(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await provider.reap()
        assert await output(sandbox, "echo on") == "on\n"


@promise
async def read_only_files_outside_verify_are_the_jobs_fault(provider: SandboxProvider) -> None:
    for path in (
        "/etc/passwd",
        "/verify",
        "/verify/",
        "/verify/../etc/passwd",
        "verify/a",
        "/verify/a\0b",
        "/verifyx",
    ):
        with refused(JobError):
            await provider.open(SandboxSpec(name="bad", owner="bad", readonly_files={path: b""}))
