"""What each tool takes; strict, so that a wrong argument is one sentence to the model and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zubble_queue.contracts.sandbox import WORK_DIR

WAIT_SECONDS: Final = 600
"""The longest single wait."""
_TEXT_CHARS: Final = 1_048_576
_REASON_CHARS: Final = 300

PathText = Annotated[str, Field(min_length=1, max_length=1_024)]


class ToolError(Exception):
    """A tool cannot do what it was asked; the message is its result."""


class Arguments(BaseModel):
    """Of one tool."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Read(Arguments):
    path: PathText
    offset: int = Field(default=1, ge=1)
    """First line, from 1."""
    limit: int = Field(default=2_000, ge=1)
    """Lines at most."""


class Write(Arguments):
    path: PathText
    content: str = Field(max_length=_TEXT_CHARS)


class Edit(Arguments):
    path: PathText
    old: str = Field(min_length=1, max_length=_TEXT_CHARS)
    """Literal text that the file holds exactly once."""
    new: str = Field(max_length=_TEXT_CHARS)


class List(Arguments):
    path: PathText = "."


class RunTests(Arguments):
    pass


class Wait(Arguments):
    seconds: float = Field(gt=0, le=WAIT_SECONDS)
    """At most."""
    until: str | None = Field(default=None, min_length=1, max_length=65_536)
    """A shell command; exit code 0 ends the wait."""


KINDS: Final[dict[str, type[Arguments]]] = {
    "read": Read,
    "write": Write,
    "edit": Edit,
    "list": List,
    "run_tests": RunTests,
    "wait": Wait,
}
"""By the name of the tool; all of `contracts.task.ACTUATORS` but the shell."""


def parse(tool: str, given: Mapping[str, Any]) -> Arguments:
    """The arguments of a call. Raises ToolError with the first thing that is wrong, and what is right."""
    kind = KINDS.get(tool)
    if kind is None:
        raise ToolError(f"there is no tool {tool[:60]!r}; known: {', '.join(KINDS)}")
    try:
        return kind.model_validate(dict(given))
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "arguments"
        takes = ", ".join(kind.model_fields) or "none"
        raise ToolError(f"{where}: {first['msg']}; {tool} takes: {takes}"[:_REASON_CHARS]) from invalid


def inside(path: str, work_dir: str | None) -> str:
    """The path relative to the work tree.

    Symbolic links are the sandbox's to refuse; here a path only must not say that it leaves the tree.

    Raises:
        ToolError: It is absolute and lies elsewhere, or climbs out with '..'.
    """
    for root in dict.fromkeys((work_dir or WORK_DIR, WORK_DIR)):
        if path == root or path.startswith(f"{root}/"):
            path = path[len(root) :].lstrip("/") or "."
            break
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise ToolError(f"path: {path!r} leaves the work tree")
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    if path.startswith("/") or "\0" in path:
        raise ToolError(f"path: {path!r} is not in the work tree; give it relative to that")
    return "/".join(parts) or "."
