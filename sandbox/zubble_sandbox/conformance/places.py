"""Promises about where things are, and about the environment of commands."""

from __future__ import annotations

from zubble_queue.contracts.sandbox import SandboxProvider
from zubble_queue.errors import JobError
from zubble_sandbox.conformance.base import opened, output, promise, refused

_APP = "/app/code"
_TESTS = "/tests"
_LOGS = ("/logs/agent", "/logs/verifier")


@promise
async def commands_find_the_work_tree_where_the_spec_says(provider: SandboxProvider) -> None:
    async with opened(provider, work_dir=_APP) as sandbox:
        assert await output(sandbox, "pwd; echo made >made; echo $ZUBBLE_WORK") == f"{_APP}\n{_APP}\n"
        for path in ("made", f"{_APP}/made", "/work/made"):
            assert await sandbox.read(path) == b"made\n"
        for path in ("made", f"{_APP}/made"):
            assert await output(sandbox, f"cat {path}") == "made\n"
        await sandbox.write("given/file", b"given")
        assert await output(sandbox, f"cat {_APP}/given/file") == "given"
        snapshot = await sandbox.snapshot()
        await output(sandbox, "rm -r made given")
        await sandbox.restore(snapshot)
        assert [entry.path for entry in await sandbox.list()] == ["given", "given/file", "made"]


@promise
async def the_files_of_a_check_may_lie_elsewhere(provider: SandboxProvider) -> None:
    files = {f"{_TESTS}/test.sh": b"#!/bin/sh\ncat $ZUBBLE_VERIFY/data/in\n", f"{_TESTS}/data/in": b"1"}
    async with opened(provider, verify_dir=_TESTS, readonly_files=files) as sandbox:
        assert await output(sandbox, f"{_TESTS}/test.sh") == "1"
    with refused(JobError):
        async with opened(provider, verify_dir=_TESTS, readonly_files={"/verify/check": b""}):
            pass


@promise
async def further_folders_are_empty_and_writable_and_no_part_of_the_work_tree(
    provider: SandboxProvider,
) -> None:
    async with opened(provider, scratch=_LOGS) as sandbox:
        before = await sandbox.fingerprint()
        assert await output(sandbox, f"find {' '.join(_LOGS)} -mindepth 1") == ""
        await output(sandbox, f"echo 1 >{_LOGS[1]}/reward.txt; mkdir {_LOGS[0]}/more")
        assert await sandbox.read(f"{_LOGS[1]}/reward.txt") == b"1\n"
        assert [entry.path for entry in await sandbox.list(_LOGS[0])] == ["more"]
        assert await sandbox.fingerprint() == before
        await output(sandbox, f"ln -s /etc/passwd {_LOGS[1]}/link")
        with refused(OSError):
            await sandbox.read(f"{_LOGS[1]}/link")
        with refused(FileNotFoundError):
            await sandbox.read(f"{_LOGS[1]}/none")
    async with opened(provider, scratch=_LOGS) as fresh:
        with refused(FileNotFoundError):
            await fresh.read(f"{_LOGS[1]}/reward.txt")


@promise
async def every_command_has_the_variables_of_its_spec(provider: SandboxProvider) -> None:
    odd = "a 'b' \"c\" $d = \\ \n é"
    async with opened(provider, env={"ODD": odd, "HOME": "/nowhere"}) as sandbox:
        for _ in range(2):
            assert await output(sandbox, 'printf "%s" "$ODD"; echo; echo $HOME') == f"{odd}\n/nowhere\n"
