"""From what a caller gives to the task that the loop works at."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from pydantic import ValidationError

from zubble.protocols import RepairProtocol
from zubble_queue.contracts import identity
from zubble_queue.contracts.envelope import (
    ATTACHED,
    LOCAL,
    Level,
    PromptRequest,
    SandboxRequest,
    TaskEnvelope,
    VerifySpec,
)
from zubble_queue.contracts.places import is_below
from zubble_queue.contracts.sandbox import MIB, WORK_DIR, SandboxSpec
from zubble_queue.contracts.task import LoopBudget, TaskInput
from zubble_queue.errors import BadInput
from zubble_queue.formats.lines import sentences

_NAME: Final = "standalone"
_NAMED: Final = {"max_wallclock_seconds": "timeout", "verify_command": "verify"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What is the same for all runs of an agent."""

    model: str
    request: SandboxRequest
    protocol: RepairProtocol
    level: Level
    temperature: float
    verify: str | None
    budget: LoopBudget

    def task(self, seconds: float) -> TaskEnvelope:
        """For one run of at most so many seconds. Raises BadInput, one sentence per value."""
        try:
            return self._task(
                LoopBudget(**self.budget.model_dump() | {"max_wallclock_seconds": math.ceil(seconds)})
            )
        except ValidationError as invalid:
            raise BadInput(sentences(invalid, renamed=_NAMED)) from invalid

    def _task(self, budget: LoopBudget) -> TaskEnvelope:
        return TaskEnvelope(
            batch=_NAME,
            source_id="task",
            task=TaskInput(
                task_id=identity.task_id(_NAME, "task", 1),
                description="Do what the instructions below ask for.",
                context_budget_tokens=32_000,
                allowed_tools=("shell",),
                success_criteria=self.protocol.success_criteria,
                verify_command=self.verify or self.protocol.report_there,
            ),
            budget=budget,
            **self._said(),
            model=self.model,
            level=self.level,
            temperature=self.temperature,
            sandbox=_with_room(self.request, self.protocol.report_path),
            verify=VerifySpec(location="environment" if self.request.backend == ATTACHED else "copy"),
            memory="off",
        )

    def _said(self) -> dict[str, Any]:
        """The protocol `repair` is answered in JSON; in text the success criteria name the report."""
        if self.protocol.replies == "text":
            return {"protocol": "text"}
        return {"protocol": "repair", "prompt": PromptRequest(report_path=self.protocol.report_path)}


def spec_of(envelope: TaskEnvelope) -> SandboxSpec:
    """The sandbox of one run, under a name of its own."""
    asked = envelope.sandbox
    return SandboxSpec(
        name=f"{_NAME}.{secrets.token_hex(6)}",
        owner=f"{_NAME}-{os.getpid()}",
        memory_bytes=asked.memory_mb * MIB,
        work_bytes=asked.work_mb * MIB,
        pids=asked.pids,
        cpus=asked.cpus,
        image=asked.image,
        container=asked.container,
        work_dir=asked.work_dir,
        scratch=asked.scratch,
        env=dict(asked.env),
        network=asked.network,
        allowed_hosts=asked.allowed_hosts,
        background=asked.background,
        max_life_seconds=envelope.budget.max_wallclock_seconds + 3_600.0,
    )


def instructions(messages: Sequence[Mapping[str, str]]) -> str:
    """What is asked for; who said what stands there only where somebody else than the asker spoke.

    Raises:
        BadInput: One sentence per message that is none.
    """
    if problems := _problems(messages):
        raise BadInput(problems)
    if any(message["role"] == "assistant" for message in messages):
        return "\n\n".join(f"{message['role'].upper()}\n{message['content']}" for message in messages)
    return "\n\n".join(message["content"] for message in messages)


def _with_room(request: SandboxRequest, report_path: str) -> SandboxRequest:
    """A sandbox of our own has a folder for a report outside of the work tree."""
    folder = str(PurePosixPath(report_path).parent)
    inside = not folder.startswith("/") or is_below(folder, request.work_dir or WORK_DIR)
    if inside or request.backend in {ATTACHED, LOCAL}:
        return request
    return SandboxRequest(**request.model_dump() | {"scratch": (*request.scratch, folder)})


def _problems(messages: Sequence[Mapping[str, str]]) -> list[str]:
    if not messages:
        return ["messages must not be empty."]
    return [
        f"messages[{at}] must have role system, user or assistant, and content that is text."
        for at, message in enumerate(messages)
        if message.get("role") not in {"system", "user", "assistant"}
        or not isinstance(message.get("content"), str)
    ]
