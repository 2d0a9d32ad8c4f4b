"""What every protocol is: how the model is told to answer, and how its answer is read."""

from __future__ import annotations

import typing
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from zubble_queue.contracts.envelope import SandboxRequest, TaskEnvelope
from zubble_queue.contracts.task import ACTUATORS

_HOSTS_NAMED: Final = 20

StepText = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]


class Action(BaseModel):
    """One turn of the agent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    action: Literal["plan", "run", "tool", "report", "submit", "ask"]
    command: str | None = Field(default=None, max_length=65_536)
    tool: str | None = Field(default=None, max_length=60)
    """A tool beside the shell (C42)."""
    arguments: dict[str, Any] | None = None
    """Of the tool; what is wrong with them is the tool's to say."""
    plan_step_id: int | None = Field(default=None, ge=1)
    reasoning: str | None = None
    steps: list[StepText] | None = Field(default=None, max_length=50)
    report: str | None = None
    question: str | None = None
    revised_plan: list[StepText] | None = Field(default=None, max_length=50)
    note: str | None = None


class NotUnderstood(Exception):
    """The reply is not one valid action; the message says why, for the model and for the record."""


class Protocol(typing.Protocol):
    """How one run talks with its model; pure, made from the envelope alone."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> dict[str, Any] | None:
        """JSON schema of a reply, for endpoints that can enforce one; None where replies are text."""

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop sequences, for endpoints that take them (C15)."""

    @property
    def format_error_limit(self) -> int:
        """So many failed repairs in a row end the run (C8)."""

    def system_prompt(self) -> str: ...

    def parse(self, text: str) -> Action:
        """The action in a reply. Raises NotUnderstood."""

    def repair_request(self, reason: str) -> str:
        """What a reply that was not understood is answered with, once a step."""


def opening(asked: SandboxRequest) -> str:
    """Where the agent works, and what its commands may reach."""
    place = asked.work_dir or "the folder in which your commands begin"
    return f"You are an agent that works in a Linux sandbox {_reach(asked)}. Your work tree is {place}."


def lasting(asked: SandboxRequest) -> str:
    """What of a command is still there for the next one."""
    if asked.background:
        return "files persist, and processes left in the background"
    return "only files persist"


def tools_of(envelope: TaskEnvelope) -> tuple[str, ...]:
    """The allowed tools beside the shell."""
    return tuple(tool for tool in envelope.task.allowed_tools if tool in ACTUATORS and tool != "shell")


def _reach(asked: SandboxRequest) -> str:
    if asked.network == "open":
        return "with a network"
    if not asked.allowed_hosts:
        return "without network"
    named, more = asked.allowed_hosts[:_HOSTS_NAMED], len(asked.allowed_hosts) - _HOSTS_NAMED
    hosts = ", ".join(named) + (f" and {more} more hosts" if more > 0 else "")
    return f"whose programs reach only {hosts}, by http(s) through the proxy of their environment variables"
