"""What an engine really offers: what it says about itself, and what a sandbox on it finds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zubble_queue.contracts.sandbox import MIB, Sandbox, Strength, shell
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.probing import ISOLATION

CHECKS: Final[Mapping[str, str]] = {
    **ISOLATION,
    "root": "! test -w / && ! test -w /dev && ! test -w /proc/sys/kernel/core_pattern && ! test -w /.zubble",
}
"""Fact to a shell command that succeeds where it holds; the rest of the root is the image's."""
_LIMITS: Final = {"MemoryLimit": "memory", "PidsLimit": "processes", "CpuCfsQuota": "processor time"}
_OF_A_SHARED_KERNEL: Final = frozenset({"privileges", "supervisor"})
"""What gVisor's /proc does not tell, or tells to everybody: there the kernel is the command's own."""
_TOOLS: Final = "cat </dev/null | grep -c x | tail -n 1 >/dev/null"


@dataclass(frozen=True, slots=True)
class Findings:
    """Of one trial."""

    strength: Strength
    problems: tuple[str, ...]
    facts: Mapping[str, str]

    @property
    def isolated(self) -> bool:
        return self.strength != "none"


async def try_out(sandbox: Sandbox, info: Mapping[str, Any], runtime: str | None) -> Findings:
    """Run the checks in a sandbox. Raises SandboxUnavailable."""
    if not (await sandbox.exec(shell(_TOOLS))).ok:
        return Findings(
            "none", ("Its image has no sh, cat, grep and tail, so nothing could be checked.",), {}
        )
    kernel = _version((await sandbox.exec(shell("cat /proc/version"))).stdout)
    own_kernel = bool(kernel) and kernel != info.get("KernelVersion")
    checks = {
        fact: check for fact, check in CHECKS.items() if not own_kernel or fact not in _OF_A_SHARED_KERNEL
    }
    held = {fact: (await sandbox.exec(shell(check))).ok for fact, check in checks.items()}
    problems = [_failed(fact, own_kernel) for fact, holds in held.items() if not holds]
    isolated = not problems
    unlimited = [what for field, what in _LIMITS.items() if not info.get(field)]
    if unlimited:
        problems.append(f"The engine cannot limit {' and '.join(unlimited)}: see `docker info`.")
    if runtime is not None and not own_kernel:
        problems.append(f"The runtime {runtime!r} gives sandboxes no kernel of their own.")
    facts = {"kernel": kernel, **{fact: "yes" if holds else "no" for fact, holds in held.items()}}
    return Findings(_strength(isolated, bool(unlimited), own_kernel), tuple(problems), facts)


def _version(told: bytes) -> str:
    """Of the kernel: the third word of /proc/version."""
    words = told.decode(errors="replace").split()
    return words[2] if len(words) > 2 else ""


def _failed(fact: str, own_kernel: bool) -> str:  # noqa: FBT001 - a finding
    advice = ": start runsc with --oci-seccomp" if own_kernel and fact == "seccomp" else ""
    return f"Isolation of {fact} does not hold here{advice}."


def _strength(isolated: bool, unlimited: bool, own_kernel: bool) -> Strength:  # noqa: FBT001 - three findings
    if not isolated:
        return "none"
    if unlimited:
        return "namespaces"
    return "kernel" if own_kernel else "limits"


def facts_of(info: Mapping[str, Any]) -> dict[str, str]:
    """What the engine says about itself, in few words."""
    remapped = any("name=userns" in option for option in info.get("SecurityOptions") or ())
    return {
        "engine": str(info.get("ServerVersion")),
        "cgroups": f"v{info.get('CgroupVersion', '1')}",
        "user namespace": "yes" if remapped else "no",
    }


def check_engine(info: Mapping[str, Any], runtime: str | None) -> None:
    """Raises SandboxUnavailable for an engine that cannot do what every sandbox needs."""
    if info.get("OSType", "linux") != "linux":
        raise SandboxUnavailable("The Docker engine runs no Linux containers.")
    if not any("name=seccomp" in option for option in info.get("SecurityOptions") or ()):
        raise SandboxUnavailable("The Docker engine has no seccomp: use one that was built with it.")
    runtimes = info.get("Runtimes") or {}
    if runtime is not None and runtime not in runtimes:
        known = ", ".join(sorted(runtimes)) or "none"
        raise SandboxUnavailable(
            f"The Docker engine knows no runtime {runtime!r} (known: {known}): add it to its daemon.json."
        )


def check_room(root: str | None, min_free_mb: int) -> None:
    """Raises SandboxUnavailable when the engine's disk, where it is this machine's, is nearly full."""
    if root is None or not Path(root).is_dir():
        return
    free = shutil.disk_usage(root).free // MIB
    if free < min_free_mb:
        raise SandboxUnavailable(
            f"The disk of the Docker engine has only {free} MiB free below {root}, and "
            f"sandboxes.docker.min_free_mb is {min_free_mb}: make room, as with `docker system prune`."
        )
