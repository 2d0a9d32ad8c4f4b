"""Finding out what isolation is really there, from inside a sandbox that is opened for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from zubble_queue.contracts.sandbox import MIB, Probe, Sandbox, SandboxProvider, SandboxSpec, Strength, shell
from zubble_queue.errors import JobError, SandboxUnavailable

ISOLATION: Final[Mapping[str, str]] = {
    "seccomp": "grep -q '^Seccomp:[[:space:]]*2$' /proc/self/status",
    "capabilities": "grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status",
    "privileges": "grep -q '^NoNewPrivs:[[:space:]]*1$' /proc/self/status",
    "network": "! tail -n +3 /proc/net/dev | grep -qv '^ *lo:'",
    "root": "! test -w / && ! test -w /dev && ! test -w /proc/sys/kernel/core_pattern && ! test -e /root",
    "supervisor": "! cat /proc/1/environ 2>/dev/null",
}
"""Fact to a shell command that succeeds where it holds."""


async def probe(
    provider: SandboxProvider,
    facts: Callable[[], Mapping[str, str]],
    checks: Mapping[str, str],
    no_limits: Callable[[], str] = lambda: "",
    strongest: Strength = "namespaces",
) -> Probe:
    """Open a sandbox, run the checks in it, and report; isolated when there were some and all held.

    Where one does not hold the backend is not available: it promises what is not there.

    Args:
        provider: What to probe.
        facts: Asked once a sandbox was open.
        checks: Fact to a shell command that succeeds where it holds.
        no_limits: Why its limits do not hold for a sandbox as a whole; empty when they do.
        strongest: What it is when all holds.
    """
    spec = SandboxSpec(
        name="probe", owner=f"probe-{os.getpid()}", work_bytes=MIB, tmp_bytes=MIB, max_life_seconds=60
    )
    try:
        sandbox = await provider.open(spec)
    except (SandboxUnavailable, JobError) as error:
        return Probe(provider.name, available=False, isolated=False, problems=(str(error),))
    try:
        held = {fact: await _holds(sandbox, check) for fact, check in checks.items()}
    except SandboxUnavailable as error:
        return Probe(provider.name, available=False, isolated=False, problems=(str(error),))
    finally:
        await sandbox.destroy()
    problems = [f"Isolation of {fact} does not hold here." for fact, holds in held.items() if not holds]
    if not checks:
        problems.append("Nothing is isolated here: for commands that are not trusted, use bubblewrap.")
    found = {**facts(), **{fact: "yes" if holds else "no" for fact, holds in held.items()}}
    isolated = bool(held) and not problems
    available = isolated or not checks
    strength: Strength = strongest if isolated else "none"
    if isolated and (lacking := no_limits()):
        problems.append(lacking)
        strength = "namespaces"
    return Probe(provider.name, available, isolated, strength, tuple(problems), found)


async def _holds(sandbox: Sandbox, check: str) -> bool:
    return (await sandbox.exec(shell(check))).ok
