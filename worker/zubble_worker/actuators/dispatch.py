"""One call of a tool, carried out; whatever goes wrong with it is its result."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from zubble_queue.contracts.journal import Category
from zubble_queue.contracts.sandbox import CommandResult, Sandbox, shell
from zubble_worker.actuators import files, results, waiting
from zubble_worker.actuators.arguments import Edit, List, Read, RunTests, ToolError, Wait, Write, parse
from zubble_worker.protocols.base import Action

CATEGORIES: Final[dict[str, Category]] = {
    "read": "diagnostic",
    "list": "diagnostic",
    "wait": "diagnostic",
    "write": "fix_attempt",
    "edit": "fix_attempt",
    "run_tests": "verification",
}
"""What kind of trial a tool is (Z24)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where tools act, and within what."""

    sandbox: Sandbox
    seconds: float
    """Left to the run."""
    command_seconds: float
    """The most one command may take."""
    tests: str | None = None
    """What `run_tests` runs."""
    tests_seconds: float = 120.0
    ready: Callable[[], Awaitable[None]] | None = None
    """Returns once commands may run."""


def canonical(arguments: Mapping[str, Any]) -> str:
    """Arguments as the record and the observers have them."""
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def calls(action: Action) -> list[tuple[str, str]]:
    """What an action asks for: tool and command, or its arguments as JSON text.

    The first is the call itself. A shell command that it brings with it must be allowed like any other.
    """
    if action.action == "run":
        return [("shell", action.command or "")]
    tool, arguments = action.tool or "", action.arguments or {}
    until = arguments.get("until") if tool == "wait" else None
    return [(tool, canonical(arguments)), *([("shell", until)] if isinstance(until, str) else [])]


async def call(tool: str, arguments: Mapping[str, Any], place: Place) -> CommandResult:
    """The tool's result. Raises SandboxUnavailable alone: a fault of the machinery is no result."""
    started = time.monotonic()
    try:
        result = await _carry_out(tool, arguments, place)
    except ToolError as wrong:
        result = results.refused(str(wrong))
    except (OSError, ValueError) as wrong:
        result = results.refused(_reason(wrong, arguments))
    return replace(result, seconds=time.monotonic() - started)


async def _carry_out(tool: str, arguments: Mapping[str, Any], place: Place) -> CommandResult:
    sandbox = place.sandbox
    match parse(tool, arguments):
        case Read() as asked:
            return results.said(await files.read(sandbox, asked))
        case Write() as asked:
            return results.said(await files.write(sandbox, asked))
        case Edit() as asked:
            return results.said(await files.edit(sandbox, asked))
        case List() as asked:
            return results.said(await files.listing(sandbox, asked))
        case RunTests():
            return await _tests(place)
        case Wait() as asked:
            within = asked.model_copy(update={"seconds": min(asked.seconds, place.seconds)})
            return results.said(
                await waiting.wait(
                    sandbox, within, command_seconds=place.command_seconds, ready=place.ready or _at_once
                )
            )
        case _:
            raise ToolError(f"the tool {tool!r} is not built")


async def _tests(place: Place) -> CommandResult:
    if place.tests is None:
        raise ToolError("the task names no test command")
    limit = max(min(place.tests_seconds, place.seconds), 0.1)
    return await place.sandbox.exec(shell(place.tests, timeout_seconds=limit))


async def _at_once() -> None:
    """Nothing keeps commands from running."""


def _reason(wrong: OSError | ValueError, arguments: Mapping[str, Any]) -> str:
    said = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else str(wrong)
    return f"{arguments.get('path', '.')}: {said or type(wrong).__name__}"[:300]
