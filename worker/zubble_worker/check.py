"""Verification: a fresh sandbox, a frozen copy of the work tree, files the agent never saw (design: 3.6)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zubble_queue.contracts import identity
from zubble_queue.contracts.checking import CheckResult
from zubble_queue.contracts.ending import Verdict
from zubble_queue.contracts.envelope import TaskEnvelope, VerifySpec
from zubble_queue.contracts.sandbox import CommandResult, Sandbox, SandboxProvider, SandboxSpec, shell
from zubble_worker import reward, view
from zubble_worker.sizes import snapshot_bytes

_NOT_RUNNABLE = frozenset({126, 127})
_OUTPUT_CHARS = 4_000


class SandboxChecker:
    """Judges the work tree of one sandbox; the same tree is judged once and the answer kept.

    In an attached container it is the container that is judged, by a supervisor of its own, and each time
    anew: it holds more than the work tree.

    Args:
        files: Path below the check's folder to content.
    """

    def __init__(
        self, provider: SandboxProvider, sandbox: Sandbox, envelope: TaskEnvelope, files: Mapping[str, bytes]
    ) -> None:
        self._provider, self._sandbox, self._envelope = provider, sandbox, envelope
        self._files = {f"{envelope.verify.folder}/{path}": data for path, data in files.items()}
        self._in_place = envelope.verify.location == "environment"
        self._judged: tuple[str, CheckResult] | None = None
        self._opened = 0
        self.snapshot = b""
        """The tree that was judged last; empty where it was too large to be judged."""

    async def check(self) -> CheckResult:
        self.snapshot = b""
        try:
            self.snapshot = await self._sandbox.snapshot(max_bytes=snapshot_bytes(self._sandbox.spec))
        except ValueError as too_large:
            if not self._in_place:
                return _not_checked(too_large)
        if self._in_place:
            return await self._judge()
        digest = identity.sha256(self.snapshot)
        if self._judged and self._judged[0] == digest:
            return replace(self._judged[1], seconds=0.0)
        result = await self._judge()
        self._judged = (digest, result)
        return result

    async def _judge(self) -> CheckResult:
        started = time.monotonic()
        self._opened += 1
        spec = replace(self._sandbox.spec, name=f"{self._sandbox.spec.name}.verify{self._opened}")
        box = await self._provider.open(_of_the_check(spec, self._envelope.verify, self._files))
        try:
            if not self._in_place:
                await box.restore(self.snapshot)
            limit = float(self._envelope.verify.timeout_seconds)
            result = await box.exec(shell(self._envelope.task.verify_command, timeout_seconds=limit))
            judgement = await _judgement(box, result, self._envelope.verify.reward_files)
        finally:
            uses = box.host_uses
            await box.destroy()
        printed = (result.stdout + result.stderr).decode("utf-8", "replace")
        return CheckResult(
            verdict=judgement.verdict,
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            output=view.cut(printed, _OUTPUT_CHARS),
            seconds=time.monotonic() - started,
            host_uses=uses,
            reward=judgement.reward,
            error=judgement.error,
        )


def _not_checked(why: Exception) -> CheckResult:
    return CheckResult(
        Verdict.ERROR, None, timed_out=False, output="", seconds=0.0, error=f"Not checked: {why}."
    )


@dataclass(frozen=True, slots=True)
class _Judgement:
    verdict: Verdict
    reward: float | dict[str, float] | None
    error: str = ""


async def _judgement(box: Sandbox, result: CommandResult, reward_files: Sequence[str]) -> _Judgement:
    """By the reward file, where there is to be one; else by the exit code."""
    not_run = ""
    if result.exit_code in _NOT_RUNNABLE:
        not_run = f"The check cannot be run in the sandbox (exit code {result.exit_code})."
    if reward_files:
        return await _by_reward(box, result, reward_files, not_run)
    if not_run:
        return _Judgement(Verdict.ERROR, None, not_run)
    return _Judgement(Verdict.PASSED, 1.0) if result.ok else _Judgement(Verdict.FAILED, 0.0)


async def _by_reward(
    box: Sandbox, result: CommandResult, reward_files: Sequence[str], not_run: str
) -> _Judgement:
    """Of a check that was killed, by its deadline or by the candidate, the last word is not known."""
    if result.exit_code is None:
        return _Judgement(Verdict.FAILED, None)
    try:
        found = await reward.read(box, reward_files)
    except reward.RewardMissing as missing:
        return _Judgement(Verdict.ERROR, None, not_run or str(missing))
    except reward.NoReward as none:
        return _Judgement(Verdict.ERROR, None, str(none))
    return _Judgement(Verdict.PASSED if reward.passes(found) else Verdict.FAILED, found)


def _of_the_check(spec: SandboxSpec, verify: VerifySpec, files: Mapping[str, bytes]) -> SandboxSpec:
    """The agent's sandbox with the check's files, variables and network; its one command leaves nothing."""
    return replace(
        spec,
        verify_dir=verify.folder,
        readonly_files=files,
        env={**spec.env, **verify.env},
        network=verify.network,
        allowed_hosts=verify.allowed_hosts,
        background=False,
    )
