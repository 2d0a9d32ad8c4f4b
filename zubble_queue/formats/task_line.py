"""One task in the user's words, and how it becomes envelopes, one per repeat, with its files as blobs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError, model_validator

from zubble_queue.contracts import identity
from zubble_queue.contracts.envelope import (
    ATTACHED,
    INLINE_BYTES,
    BlobRef,
    FileEntry,
    Level,
    PromptRequest,
    Repetition,
    TaskEnvelope,
    VerifyLocation,
    VerifySpec,
)
from zubble_queue.contracts.memory import MemoryMode
from zubble_queue.contracts.model import estimate_tokens
from zubble_queue.contracts.sandbox import VERIFY_DIR
from zubble_queue.contracts.submission import Parcel, TaskDefaults
from zubble_queue.contracts.task import ACTUATORS, TaskInput
from zubble_queue.formats import template_file
from zubble_queue.formats.lines import Problems, sentences

_STRICT: Final = ConfigDict(strict=True, frozen=True, extra="forbid")
_RENAMED: Final = {"verify_command": "verify.command", "source_id": "id"}
REPEATS_MAX: Final = 1_000

Part = TypeVar("Part", bound=BaseModel)


class FileLine(BaseModel):
    """A file that is not plain text, or has to be executable; exactly one of text and base64 is given."""

    model_config = _STRICT

    text: str | None = None
    base64: str | None = None
    executable: bool = False

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("exactly one of text and base64 must be given")
        self.data()
        return self

    def data(self) -> bytes:
        if self.text is not None:
            return self.text.encode()
        try:
            return base64.b64decode(self.base64 or "", validate=True)
        except binascii.Error as broken:
            raise ValueError("base64 is not valid") from broken


def _as_file(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


Files = dict[str, Annotated[FileLine, BeforeValidator(_as_file)]]
"""Path to text, or to an object with text or base64."""


class VerifyLine(BaseModel):
    """How a claim of done is checked; the agent never sees the files."""

    model_config = _STRICT

    command: str
    """Shell command, at most 200 characters; exit code 0 means done."""
    files: Files = Field(default_factory=dict)
    """Mounted read-only at `folder`."""
    folder: str = VERIFY_DIR
    env: dict[str, str] = Field(default_factory=dict)
    """Variables for the check alone."""
    reward_files: Annotated[tuple[str, ...], Strict(strict=False)] = ()
    """Where the check writes a number, below a folder of `sandbox.scratch`, instead of its exit code."""
    timeout_seconds: int = 120
    location: VerifyLocation | None = None
    """Where the check runs; `environment` for the backend `attached`, else `copy`."""
    network: str = "none"
    """The check's own; the agent's commands have that of `sandbox`."""
    allowed_hosts: Annotated[tuple[str, ...], Strict(strict=False)] = ()


class PromptLine(BaseModel):
    """What protocols with a template put into the system prompt."""

    model_config = _STRICT

    template: str | None = None
    """A file *.j2 below the folder of the task file, for the protocol `custom`."""
    replies: str = "structured"
    report_path: str = "report.md"


class TaskLine(BaseModel):
    """A line of a task file. Everything but id, description and verify may be left out."""

    model_config = _STRICT

    id: str
    """The user's own name of the task; what export writes."""
    description: str
    """One paragraph, at most 500 characters."""
    verify: VerifyLine
    instructions: str = ""
    """Longer text, counted against context_budget_tokens."""
    success_criteria: str = "The verify command exits with 0."
    allowed_tools: Annotated[tuple[str, ...], Strict(strict=False)] = ("shell",)
    context_budget_tokens: int = 8_000
    files: Files = Field(default_factory=dict)
    """Placed in the work tree before the first step."""
    budget: dict[str, Any] = Field(default_factory=dict)
    """Fields of LoopBudget; what is left out comes from the flags."""
    sandbox: dict[str, Any] = Field(default_factory=dict)
    """Fields of SandboxRequest; what is left out comes from the flags."""
    model: str | None = None
    level: Level | None = None
    temperature: float | None = None
    repeats: int | None = Field(default=None, ge=1, le=REPEATS_MAX)
    task_type: str = "task"
    memory: MemoryMode | None = None
    pool: str | None = None
    """Only workers of this pool run the task."""
    protocol: str | None = None
    """How the model is told to answer."""
    prompt: PromptLine = PromptLine()
    test_command: str | None = None
    """What the tool `run_tests` runs."""
    verify_each_step: bool = False
    max_context_resets: int = 3
    """How often a run that loops goes on in a fresh context."""
    guards: Annotated[tuple[str, ...], Strict(strict=False)] | None = None
    """Detectors whose critical signal ends the run as `blocked`."""
    max_steps: int | None = None
    max_turn_secs: int | None = None
    repetition: Repetition | None = None
    ask: dict[str, Any] = Field(default_factory=dict)
    """Fields of AskRequest: whether a person may be asked; what is left out comes from the flags."""
    preflight: Literal["off", "once"] = "once"
    labels: dict[str, str] = Field(default_factory=dict)


class Builder:
    """Makes parcels of task lines, and keeps what is wrong with them."""

    def __init__(self, defaults: TaskDefaults, problems: Problems) -> None:
        self._defaults, self._problems = defaults, problems
        self._lines: dict[str, int] = {}
        self._contents: dict[bytes, tuple[str, bytes]] = {}

    def add(self, number: int, task: TaskLine) -> list[Parcel]:
        """The task's parcels, one per repeat; none when something is wrong with it."""
        first = self._lines.setdefault(task.id, number)
        if first != number:
            self._problems.add(number, f"id: {task.id!r} is already used by {self._problems.place(first)}.")
            return []
        checked = _Checked(list(_problems(task)), self._contents)
        blobs: dict[str, bytes] = {}
        parts = self._parts(task, checked, blobs)
        envelopes = [
            self._envelope(task, repeat, parts, checked)
            for repeat in range(1, (task.repeats or self._defaults.repeats) + 1)
        ]
        for problem in dict.fromkeys(checked.problems):
            self._problems.add(number, problem)
        return [Parcel(envelope=envelope, blobs=blobs) for envelope in envelopes if envelope is not None]

    def _parts(self, task: TaskLine, checked: _Checked, blobs: dict[str, bytes]) -> dict[str, Any]:
        """What all repeats share."""
        defaults = self._defaults
        sandbox = checked.changed(defaults.sandbox, "sandbox.", _own_network(task.sandbox))
        attached = sandbox is not None and sandbox.backend == ATTACHED
        verify = {
            **task.verify.model_dump(exclude={"command", "files", "location"}),
            "files": checked.entries("verify.files.", task.verify.files, blobs),
            "location": task.verify.location or ("environment" if attached else "copy"),
        }
        return {
            "prompt": self._prompt(task.prompt, checked, blobs),
            "budget": checked.changed(defaults.budget, "budget.", task.budget),
            "sandbox": sandbox,
            "ask": checked.changed(defaults.ask, "ask.", task.ask),
            "files": checked.entries("files.", task.files, blobs),
            "instructions": _instructions(task.instructions, blobs),
            "verify": checked.part(VerifySpec, "verify.", verify),
        }

    def _prompt(self, asked: PromptLine, checked: _Checked, blobs: dict[str, bytes]) -> PromptRequest | None:
        template: BlobRef | None = None
        if asked.template is not None:
            try:
                data = template_file.read(self._problems.path.parent, asked.template)
            except ValueError as wrong:
                checked.problems.append(f"prompt.template: {wrong}.")
                return None
            template = blob_ref(data)
            blobs[template.ref] = data
        return checked.part(
            PromptRequest, "prompt.", {**asked.model_dump(exclude={"template"}), "template": template}
        )

    def _envelope(
        self, task: TaskLine, repeat: int, parts: Mapping[str, Any], checked: _Checked
    ) -> TaskEnvelope | None:
        defaults = self._defaults
        words = {
            "task_id": identity.task_id(defaults.batch, task.id, repeat),
            "description": task.description,
            "context_budget_tokens": task.context_budget_tokens,
            "allowed_tools": task.allowed_tools,
            "success_criteria": task.success_criteria,
            "verify_command": task.verify.command,
        }
        task_input = checked.part(TaskInput, "", words)
        if checked.problems:
            return None
        rest = {
            "batch": defaults.batch,
            "source_id": task.id,
            "repeat": repeat,
            "task": task_input,
            "model": task.model or defaults.model,
            "level": task.level or defaults.level,
            "temperature": defaults.temperature if task.temperature is None else task.temperature,
            "stop": defaults.stop,
            "protocol": task.protocol or defaults.protocol,
            "test_command": task.test_command,
            "verify_each_step": task.verify_each_step,
            "max_context_resets": task.max_context_resets,
            "repetition": task.repetition or defaults.repetition,
            "guards": defaults.guards if task.guards is None else task.guards,
            "max_steps": defaults.max_steps if task.max_steps is None else task.max_steps,
            "max_turn_secs": defaults.max_turn_secs if task.max_turn_secs is None else task.max_turn_secs,
            "preflight": task.preflight,
            "task_type": task.task_type,
            "memory": task.memory or defaults.memory,
            "pool": task.pool or defaults.pool,
            "tenant": defaults.tenant,
            "labels": {**defaults.labels, **task.labels},
        }
        return checked.part(TaskEnvelope, "", {**rest, **parts})


class _Checked:
    """Makes the records of one task, and collects the problems of all of them."""

    def __init__(self, problems: list[str], contents: dict[bytes, tuple[str, bytes]]) -> None:
        self.problems, self._contents = problems, contents

    def part(self, kind: type[Part], prefix: str, values: Mapping[str, Any]) -> Part | None:
        try:
            return kind(**values)
        except ValidationError as invalid:
            self.problems += sentences(invalid, prefix, _RENAMED)
            return None

    def changed(self, default: Part, prefix: str, changes: Mapping[str, Any]) -> Part | None:
        """The default, where nothing is to be changed."""
        if not changes:
            return default
        return self.part(type(default), prefix, {**default.model_dump(), **changes})

    def entries(self, prefix: str, files: Files, blobs: dict[str, bytes]) -> tuple[FileEntry, ...]:
        entries = (self._entry(prefix, path, files[path], blobs) for path in sorted(files))
        return tuple(entry for entry in entries if entry is not None)

    def _entry(self, prefix: str, path: str, file: FileLine, blobs: dict[str, bytes]) -> FileEntry | None:
        ref, data = self._content(file.data())
        blobs[ref] = data
        blob = BlobRef(ref=ref, size=len(data), executable=file.executable)
        return self.part(FileEntry, prefix, {"path": path, "blob": blob})

    def _content(self, data: bytes) -> tuple[str, bytes]:
        """Hashed and kept once, however many tasks share it."""
        if data not in self._contents:
            self._contents[data] = (blob_ref(data).ref, data)
        return self._contents[data]


def _problems(task: TaskLine) -> Iterator[str]:
    """What no record's own rules can see."""
    for tool in task.allowed_tools:
        if tool not in ACTUATORS:
            yield f"allowed_tools: there is no tool {tool!r}; known: {', '.join(ACTUATORS)}."
    for field, files in (("files", task.files), ("verify.files", task.verify.files)):
        for path in files if len(files) > 1 else ():
            for parent in map(str, PurePosixPath(path).parents):
                if parent in files:
                    yield f"{field}: {parent!r} cannot be a file and the folder of {path!r}."
    tokens = estimate_tokens(task.description) + estimate_tokens(task.instructions)
    if tokens > task.context_budget_tokens:
        yield (
            f"instructions: about {tokens} tokens with the description, more than "
            f"context_budget_tokens ({task.context_budget_tokens})."
        )


def _own_network(sandbox: Mapping[str, Any]) -> Mapping[str, Any]:
    """The hosts of the flags are for an allow-list, not for a task that names another network."""
    if sandbox.get("network", "allowlist") == "allowlist":
        return sandbox
    return {"allowed_hosts": (), **sandbox}


def _instructions(text: str, blobs: dict[str, bytes]) -> str | BlobRef:
    data = text.encode()
    if len(data) <= INLINE_BYTES:
        return text
    blob = blob_ref(data)
    blobs[blob.ref] = data
    return blob


def blob_ref(data: bytes) -> BlobRef:
    """The reference that the artifact store will give the data."""
    return BlobRef(ref=f"sha256:{identity.sha256(data)}", size=len(data))
