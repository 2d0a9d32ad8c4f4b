"""What `zubble sandbox exec` does."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from zubble_queue import sandboxes
from zubble_queue.cli.logs import log_to_stderr
from zubble_queue.cli.machine import check_sandboxes
from zubble_queue.cli.report import Exit, Report
from zubble_queue.contracts.sandbox import Command, CommandResult, HostUse, SandboxSpec

if TYPE_CHECKING:
    from zubble_queue.contracts.envelope import SandboxRequest
    from zubble_queue.settings import Settings

_SPARE_SECONDS = 60.0


async def execute(
    settings: Settings, asked: SandboxRequest, command: list[str], timeout_seconds: float, report: Report
) -> Exit:
    """Raises CannotStart when the sandbox is not to be had: nothing ever runs outside instead."""
    log_to_stderr(quiet=True)
    provider = sandboxes.provider(settings, asked.backend)
    await check_sandboxes(settings, [asked])
    spec = SandboxSpec(
        name=f"exec-{os.getpid()}-{secrets.token_hex(4)}",
        owner=f"exec-{os.getpid()}",
        image=asked.image,
        container=asked.container,
        work_dir=asked.work_dir,
        network=asked.network,
        allowed_hosts=asked.allowed_hosts,
        allowed_ports=settings.worker.network_ports,
        max_life_seconds=timeout_seconds + _SPARE_SECONDS,
    )
    box = await provider.open(spec)
    try:
        result = await box.exec(Command(argv=tuple(command), timeout_seconds=timeout_seconds))
    finally:
        await box.destroy()
    _say(result, timeout_seconds, box.host_uses, report)
    return Exit.DONE if result.ok else Exit.NOT_ALL_VERIFIED


def _say(result: CommandResult, timeout_seconds: float, uses: Sequence[HostUse], report: Report) -> None:
    if not report.as_json:
        sys.stdout.buffer.write(result.stdout)
        sys.stdout.flush()
        sys.stderr.buffer.write(result.stderr)
        sys.stderr.flush()
    if result.timed_out:
        report.note(f"The command was killed after {timeout_seconds:g} seconds.")
    elif result.oom:
        report.note("The command was killed: the memory of its sandbox was used up.")
    elif result.signal is not None:
        report.note(f"The command was killed by signal {result.signal}.")
    for use in uses:
        report.note(
            f"{use.host}: {use.allowed} allowed, {use.denied} denied {' '.join(use.reasons)}".rstrip()
        )
    report.result(
        {
            "exit_code": result.exit_code,
            "signal": result.signal,
            "timed_out": result.timed_out,
            "oom": result.oom,
            "stdout": result.stdout.decode("utf-8", "replace"),
            "stderr": result.stderr.decode("utf-8", "replace"),
            "truncated": result.truncated,
            "bytes": {"stdout": result.stdout_bytes, "stderr": result.stderr_bytes},
            "elapsed_seconds": result.seconds,
            "host_uses": [asdict(use) for use in uses],
        }
    )
