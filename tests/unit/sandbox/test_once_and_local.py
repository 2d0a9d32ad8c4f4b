"""One command, and the backend that isolates nothing."""

# Looking at a path blocks nobody here:
# ruff: noqa: ASYNC240

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zubble_queue.contracts.sandbox import SandboxSpec, shell
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox import probing
from zubble_sandbox.local import LocalProvider
from zubble_sandbox.once import exec_once
from zubble_sandbox.records import Records


@pytest.fixture
def provider(tmp_path):
    return LocalProvider(folder=tmp_path / "records")


async def test_one_command_is_run_and_nothing_is_left(provider, tmp_path):
    result = await exec_once(provider, ("sh", "-c", "pwd; exit 3"), 30.0)
    assert result.exit_code == 3
    assert not Path(os.fsdecode(result.stdout.strip())).exists()
    assert list(Records(tmp_path / "records")) == []


async def test_local_says_that_it_isolates_nothing(provider):
    probe = await provider.probe()
    assert probe.available
    assert not probe.isolated
    assert probe.strength == "none"


async def test_a_backend_whose_isolation_does_not_hold_is_not_available(tmp_path):
    checks = {"network": "true", "root": "false"}

    probe = await probing.probe(LocalProvider(folder=tmp_path), dict, checks)

    assert (probe.available, probe.isolated, probe.strength) == (False, False, "none")
    assert probe.problems == ("Isolation of root does not hold here.",)


async def test_local_cannot_keep_an_allowlist(provider):
    with pytest.raises(JobError, match="cannot keep an allow-list: use bubblewrap or docker"):
        await provider.open(SandboxSpec("n", "o", network="allowlist"))


async def test_the_folder_goes_with_the_sandbox_whatever_is_in_it(provider):
    sandbox = await provider.open(SandboxSpec("n", "o"))
    result = await sandbox.exec(shell("pwd; mkdir -p a/b; ln -s /etc l; chmod 000 a/b a"))
    folder = Path(os.fsdecode(result.stdout.strip())).parent
    assert folder.exists()
    await sandbox.destroy()
    assert not folder.exists()
    assert Path("/etc").exists()


async def test_a_supervisor_killed_by_its_command_is_a_lost_sandbox(provider):
    sandbox = await provider.open(SandboxSpec("n", "o"))
    with pytest.raises(SandboxUnavailable):
        await sandbox.exec(shell("kill -KILL $PPID; sleep 1"))
    await sandbox.destroy()
