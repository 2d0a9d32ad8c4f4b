"""The post-mortem of a repair is read where it is, and nothing hangs on it."""

from __future__ import annotations

import pytest

from zubble_queue.contracts.envelope import PromptRequest
from zubble_queue.contracts.sandbox import SandboxSpec, shell
from zubble_sandbox.local import LocalProvider
from zubble_worker import reporting

from .conftest import envelope


@pytest.fixture
async def sandbox():
    opened = await LocalProvider().open(SandboxSpec(name="report", owner="test"))
    yield opened
    await opened.destroy()


def repair(path: str = "report.md"):
    return envelope(protocol="repair", prompt=PromptRequest(report_path=path))


async def test_a_report_is_read_within_the_work_tree_and_outside_of_it(sandbox, tmp_path):
    outside = tmp_path / "it's findings"
    await sandbox.write("report.md", b"The port was wrong.\n")
    await sandbox.exec(shell(f'cp report.md "{outside}"'))
    await sandbox.freeze()

    assert await reporting.report_of(repair(), sandbox) == b"The port was wrong.\n"
    assert await reporting.report_of(repair(str(outside)), sandbox) == b"The port was wrong.\n"


async def test_where_there_is_none_or_none_was_asked_for_there_is_nothing(sandbox):
    await sandbox.write("report.md", b"unasked")
    assert await reporting.report_of(envelope(), sandbox) == b""
    assert await reporting.report_of(repair("missing.md"), sandbox) == b""


async def test_a_report_that_never_ends_holds_nothing_up(sandbox, monkeypatch):
    monkeypatch.setattr(reporting, "_READ_SECONDS", 0.1)
    await sandbox.exec(shell("mkfifo report.md; ln -s /dev/zero endless.md"))

    assert await reporting.report_of(repair(), sandbox) == b""
    assert await reporting.report_of(repair("endless.md"), sandbox) == b""
    await sandbox.destroy()
    assert await reporting.report_of(repair(), sandbox) == b""
