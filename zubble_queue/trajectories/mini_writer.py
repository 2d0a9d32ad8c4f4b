"""Writes runs as mini-swe-agent 1.1 does: the list of messages, with what they cost in `extra`."""

from __future__ import annotations

import json
from typing import Any, Final

from zubble_queue.contracts.ending import MICRO, Stop, Usage
from zubble_queue.trajectories.run import Reply, RunStep
from zubble_queue.trajectories.sealed import SealedRun

FORMAT: Final = "mini-swe-agent-1.1"


def write(sealed: SealedRun) -> str:
    """One JSON object."""
    ending, envelope = sealed.ending, sealed.envelope
    value = {
        "info": {
            "model_stats": {"instance_cost": ending.spend_usd, "api_calls": ending.usage.calls},
            "config": {
                "agent": envelope.budget.model_dump(mode="json"),
                "agent_type": "zubble",
                "model": {"model_name": envelope.model, "temperature": envelope.temperature},
            },
            "exit_status": _exit_status(ending.stop),
            "submission": sealed.patch,
            "zubble": sealed.summary,
        },
        "messages": _messages(sealed),
        "trajectory_format": FORMAT,
        "instance_id": envelope.source_id,
    }
    return json.dumps(value, indent=1) + "\n"


def _exit_status(stop: Stop) -> str:
    """In mini-swe-agent's words where it has one, else the stop."""
    if stop is Stop.SUBMITTED:
        return "Submitted"
    return "LimitsExceeded" if stop.value.startswith("limit:") else stop.value


def _messages(sealed: SealedRun) -> list[dict[str, Any]]:
    run, found = sealed.run, [_user(sealed.task)]
    restarts = list(run.restarts)
    for at, step in enumerate(run.steps):
        while restarts and restarts[0][0] <= at:
            _, time, text = restarts.pop(0)
            found.append(_user(text, timestamp=time))
        found += _step(step)
    found += [_user(text, timestamp=time) for _, time, text in restarts]
    extra = {"exit_status": _exit_status(sealed.ending.stop), "submission": sealed.patch}
    return [*found, {"role": "exit", "content": sealed.ending.reason, "extra": extra}]


def _step(step: RunStep) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for at, reply in enumerate(step.replies):
        is_last = at == len(step.replies) - 1
        actions = [{"command": step.arguments}] if is_last and step.tool else []
        found.append(_assistant(reply, reply.usage.plus(step.aside) if is_last else reply.usage, actions))
        if at < len(step.format_errors):
            reason = f"The reply could not be used: {step.format_errors[at]}"
            found.append(_user(reason, interrupt_type="FormatError"))
    if step.told:
        found.append(_user(step.told, timestamp=step.told_at, **_result(step)))
    return found


def _assistant(reply: Reply, spent: Usage, actions: list[dict[str, str]]) -> dict[str, Any]:
    usage = {"prompt_tokens": spent.prompt_tokens, "completion_tokens": spent.completion_tokens}
    extra = {
        "actions": actions,
        "cost": spent.spend_micro_usd / MICRO,
        "timestamp": reply.time,
        "response": {"usage": usage, "finish_reason": reply.finish},
    }
    thought = {"reasoning_content": reply.reasoning} if reply.reasoning else {}
    return {"role": "assistant", "content": reply.text, **thought, "extra": extra}


def _user(text: str, **extra: Any) -> dict[str, Any]:
    return {"role": "user", "content": text} | ({"extra": extra} if extra else {})


def _result(step: RunStep) -> dict[str, Any]:
    if step.result is None:
        return {}
    output = f"{step.result.get('stdout', '')}{step.result.get('stderr', '')}"
    return {"raw_output": output, "returncode": step.result.get("exit_code")}
