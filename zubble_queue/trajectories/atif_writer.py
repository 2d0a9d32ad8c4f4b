"""Writes runs as ATIF v1.7, Harbor's trajectory format: one step for each model call.

Other messages between the calls (the task, a restart, a cleared context) are steps of `user` or `system`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import zubble_queue
from zubble_queue.contracts.ending import MICRO, Usage
from zubble_queue.trajectories.run import Reply, RunStep
from zubble_queue.trajectories.sealed import SealedRun

SCHEMA_VERSION: Final = "ATIF-v1.7"


def write(sealed: SealedRun) -> str:
    """One JSON object."""
    envelope, usage = sealed.envelope, sealed.ending.usage
    steps = [{"step_id": number, **step} for number, step in enumerate(_steps(sealed), 1)]
    value = {
        "schema_version": SCHEMA_VERSION,
        "session_id": envelope.task.task_id,
        "trajectory_id": envelope.task.task_id,
        "agent": {"name": "zubble", "version": zubble_queue.__version__, "model_name": envelope.model},
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": usage.prompt_tokens,
            "total_completion_tokens": usage.completion_tokens,
            "total_cached_tokens": usage.cached_tokens,
            "total_cost_usd": sealed.ending.spend_usd,
            "total_steps": len(steps),
        },
        "extra": {"batch": envelope.batch, "source_id": envelope.source_id, **sealed.summary},
    }
    return json.dumps(value, indent=1) + "\n"


def _steps(sealed: SealedRun) -> list[dict[str, Any]]:
    run, found = sealed.run, [{"source": "user", "message": sealed.task}]
    restarts = list(run.restarts)
    for at, step in enumerate(run.steps):
        while restarts and restarts[0][0] <= at:
            found.append(_system(*restarts.pop(0)[1:]))
        found += [_repaired(step, reply, at) for at, reply in enumerate(step.replies[:-1])]
        if step.replies:
            found.append(_acted(step, step.replies[-1]))
        if step.reset:
            found.append(_system(step.told_at, step.told))
    return found + [_system(time, text) for _, time, text in restarts]


def _system(time: float, text: str) -> dict[str, Any]:
    return {"timestamp": _iso(time), "source": "system", "message": text}


def _agent(step: RunStep, reply: Reply, **extra: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "timestamp": _iso(reply.time),
        "source": "agent",
        "message": reply.text,
        "metrics": _metrics(reply.usage),
        "llm_call_count": 1,
        "extra": {"step": step.number, "finish": reply.finish, "repetition": list(reply.repetition), **extra},
    }
    return found | ({"reasoning_content": reply.reasoning} if reply.reasoning else {})


def _repaired(step: RunStep, reply: Reply, at: int) -> dict[str, Any]:
    reason = step.format_errors[at] if at < len(step.format_errors) else ""
    seen = {"results": [{"content": f"The reply could not be used: {reason}"}]} if reason else None
    return _agent(step, reply) | ({"observation": seen} if seen else {})


def _acted(step: RunStep, reply: Reply) -> dict[str, Any]:
    """The last reply of a step; what was spent beside replies is counted here."""
    found = _agent(step, reply, action=step.kind, signals=step.signals)
    found |= {"metrics": _metrics(reply.usage.plus(step.aside)), "llm_call_count": 1 + step.aside.calls}
    call_id = f"step-{step.number}"
    if step.tool:
        found["tool_calls"] = [
            {"tool_call_id": call_id, "function_name": step.tool, "arguments": _arguments(step)}
        ]
    if step.told and not step.reset:
        result: dict[str, Any] = {"content": step.told}
        if step.tool:
            result |= {"source_call_id": call_id, "extra": _end(step)}
        found["observation"] = {"results": [result]}
    return found


def _arguments(step: RunStep) -> dict[str, Any]:
    if step.tool == "shell":
        return {"command": step.arguments}
    try:
        found = json.loads(step.arguments)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"arguments": step.arguments}


def _end(step: RunStep) -> dict[str, Any]:
    """How the call ended: exit code and seconds, or why it was not made."""
    if step.denied:
        return {"denied": step.denied}
    if step.result is None:
        return {"refused": step.verdict != "allow"}
    return {name: step.result.get(name) for name in ("exit_code", "timed_out", "oom", "seconds")}


def _metrics(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
        "cost_usd": usage.spend_micro_usd / MICRO,
        "extra": {"reasoning_tokens": usage.reasoning_tokens, "estimated": usage.estimated_calls > 0},
    }


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat()
