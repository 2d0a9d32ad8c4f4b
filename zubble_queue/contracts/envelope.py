"""The envelope: everything needed to run one task; and its header, all that Celery and Flower see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator

from zubble_queue.contracts import identity
from zubble_queue.contracts.frozen import FrozenMap
from zubble_queue.contracts.hosts import AllowedHosts
from zubble_queue.contracts.memory import MemoryMode
from zubble_queue.contracts.need import Need, sandbox_need
from zubble_queue.contracts.places import Environment, Folder, is_below
from zubble_queue.contracts.question import AskRequest
from zubble_queue.contracts.sandbox import VERIFY_DIR, WORK_DIR, NetworkMode, Strength
from zubble_queue.contracts.task import LoopBudget, TaskInput

ENVELOPE_VERSION: Final = 1
"""A worker refuses an envelope of a newer version."""
INLINE_BYTES: Final = 8_192
"""Longer values live in the artifact store and travel as references."""

POOL_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,63}$"

_FROZEN: Final = ConfigDict(strict=True, frozen=True, extra="forbid")

_OUTWARD: Final = frozenset(
    {
        *("bind", "binds", "capabilities", "capadd", "devices", "dockersock", "hostipc", "hostnetwork"),
        *("hostpath", "hostpid", "ipc", "ipcmode", "mount", "mounts", "networkmode", "pid", "pidmode"),
        *("privileged", "securityopt", "user", "userns", "usernsmode", "volume", "volumes"),
    }
)
"""What other systems call the ways out of a container, without signs and in lower case."""

_NOT_KEPT: Final = {
    "snapshot": "of a sandbox its work tree is kept, and always",
    **dict.fromkeys(
        ("linger", "linger_seconds"),
        "no sandbox outlives its worker; the task goes on elsewhere, from its last checkpoint",
    ),
}
"""What a backend could do and no task is given, and why."""

ATTACHED: Final = "attached"
"""The backend that makes no sandbox, but runs in a container or pod that is there."""

LOCAL: Final = "local"
"""The backend that runs commands where the worker runs."""

Level = Literal["off", "low", "medium", "xhigh"]
Repetition = Literal["graduated", "strict"]
Replies = Literal["structured", "text"]
ProtocolName = Literal["structured", "text", "repair", "swe", "custom"]
VerifyLocation = Literal["copy", "environment"]
MOST_STEPS: Final = 10_000
MOST_STOPS: Final = 16
StopSequence = Annotated[str, Field(min_length=1, max_length=100)]
MOST_TURN_SECS: Final = 86_400
Guard = Literal[
    "tool-cycle",
    "error-cascade",
    "tool-dominance",
    "no-progress",
    "no-success",
    "timeouts",
    "text-repetition",
]
"""Detectors whose critical signal a task may make final (F2)."""


class BlobRef(BaseModel):
    """A value in the artifact store, named by its content."""

    model_config = _FROZEN

    ref: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0)
    executable: bool = False


class FileEntry(BaseModel):
    """One file to be placed in a sandbox; `path` is relative and stays below its folder."""

    model_config = _FROZEN

    path: str = Field(min_length=1, max_length=1_024)
    blob: BlobRef

    @model_validator(mode="after")
    def _stays_below(self) -> Self:
        parts = self.path.split("/")
        if self.path.startswith("/") or "\0" in self.path or any(part in {"", ".", ".."} for part in parts):
            raise ValueError(f"path {self.path!r} must be relative, without empty, '.' or '..' parts")
        return self


class NetworkRequest(BaseModel):
    """What the commands of a phase may reach; the worker's settings may refuse it."""

    model_config = _FROZEN

    network: NetworkMode = "none"
    allowed_hosts: AllowedHosts = ()
    """For `allowlist`: names, and `*.name` for every name below one. None at all: nothing is reached."""

    @model_validator(mode="after")
    def _has_one_policy(self) -> Self:
        if self.allowed_hosts and self.network != "allowlist":
            raise ValueError(f"allowed_hosts need network 'allowlist', not {self.network!r}")
        return self


class SandboxRequest(NetworkRequest):
    """What the task asks of the place where its commands run; the worker's settings may refuse it."""

    model_config = _FROZEN

    backend: str = Field(default="bubblewrap", pattern=POOL_PATTERN)
    min_strength: Strength = "none"
    """Only workers whose probe found the backend that strong are given the task."""
    image: str | None = Field(default=None, max_length=300, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$")
    """The root file system, by name or digest, as the backend keeps it; None for the backend's own."""
    container: str | None = Field(default=None, max_length=300, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
    """For `attached`: the container to run in, or a pod as `namespace/pod` or `namespace/pod/container`; None
    for the one that the worker's settings name."""
    work_dir: Folder | None = WORK_DIR
    """Where commands find the work tree; None for the image's own working directory."""
    scratch: Annotated[tuple[Folder, ...], Strict(strict=False), Field(max_length=16)] = ()
    """Further folders, empty at first, that commands may write to; nothing in them is kept or judged."""
    env: Environment = Field(default_factory=dict, validate_default=True)
    """For every command, those of the check included."""
    cpus: float | None = Field(default=None, gt=0, le=1_024, allow_inf_nan=False)
    """Processor time a second; None for as much as there is."""
    memory_mb: int = Field(default=1_024, ge=16, le=1_048_576)
    work_mb: int = Field(default=256, ge=1, le=1_048_576)
    """Size of the work tree's file system."""
    pids: int = Field(default=256, ge=4, le=32_768)
    command_timeout_seconds: int = Field(default=30, ge=1, le=3_600)
    background: bool = False
    """Whether what a command leaves running, as a server, lives on for the next ones; else it ends with the
    command. A copy that is checked, and an attempt that goes on elsewhere, have files only."""

    @model_validator(mode="before")
    @classmethod
    def _stays_inside(cls, data: Any) -> Any:
        names = data.keys() if isinstance(data, Mapping) else ()
        if outward := sorted(filter(_is_outward, names)):
            raise ValueError(f"{', '.join(outward)}: no task may reach out of its sandbox")
        if kept := next(filter(_NOT_KEPT.__contains__, names), None):
            raise ValueError(f"{kept}: {_NOT_KEPT[kept]}")
        return data

    @model_validator(mode="after")
    def _makes_or_finds_its_place(self) -> Self:
        if self.backend != ATTACHED and self.container is not None:
            raise ValueError(f"container needs backend {ATTACHED!r}, not {self.backend!r}")
        if self.backend == ATTACHED and (self.image or self.scratch or self.network == "allowlist"):
            raise ValueError("an attached container has its own image, network and folders")
        if self.backend == LOCAL and (self.image or self.scratch or self.work_dir not in {None, WORK_DIR}):
            raise ValueError(f"the backend {LOCAL!r} has no file system of its own for an image or folders")
        return self

    @property
    def need(self) -> str:
        """What the worker must offer, as in `bubblewrap` or `bubblewrap:limits`."""
        return sandbox_need(self.backend, self.min_strength)


class VerifySpec(NetworkRequest):
    """How a claim of done is checked (design: section 3.6). The agent never sees these files.

    The check has a network of its own, by default none, whatever the agent's commands have.
    """

    model_config = _FROZEN

    files: Annotated[tuple[FileEntry, ...], Strict(strict=False)] = ()
    """Mounted read-only at `folder`, in the verify sandbox only."""
    folder: Folder = VERIFY_DIR
    env: Environment = Field(default_factory=dict, validate_default=True)
    """For the check alone, added to that of the sandbox."""
    reward_files: Annotated[tuple[Folder, ...], Strict(strict=False), Field(max_length=4)] = ()
    """Where the check writes its reward, below a scratch folder; the first that is there decides: a number,
    or in *.json also an object of numbers. Without any the exit code decides."""
    timeout_seconds: int = Field(default=120, ge=1, le=3_600)
    location: VerifyLocation = "copy"
    """`copy`: a fresh sandbox over a frozen copy of the work tree. `environment`: the attached container
    itself, as the agent left it."""


class PromptRequest(BaseModel):
    """What protocols with a template put into the system prompt."""

    model_config = _FROZEN

    template: BlobRef | None = None
    """Of the protocol `custom`: a Jinja2 template."""
    replies: Replies = "structured"
    """How replies to it are read."""
    report_path: str = Field(
        default="report.md", min_length=1, max_length=1_024, pattern=r"^[^\x00-\x1f\x7f]+$"
    )
    """Where `repair` asks for the post-mortem (Z10)."""


def _overlap(one: str, other: str) -> bool:
    return is_below(one, other) or is_below(other, one)


class TaskEnvelope(BaseModel):
    """Everything needed to run one task."""

    model_config = _FROZEN

    version: int = Field(default=ENVELOPE_VERSION, ge=1)
    batch: str = Field(pattern=identity.BATCH_NAME_PATTERN)
    source_id: str = Field(min_length=1, max_length=400)
    """The id the user's file gives the task; what export writes."""
    repeat: int = Field(default=1, ge=1)
    """The k-th sample of a task, for pass@k."""
    task: TaskInput
    budget: LoopBudget = LoopBudget()
    instructions: str | BlobRef = ""
    """Long instructions, counted against `task.context_budget_tokens`; over 8 KiB as a reference."""
    files: Annotated[tuple[FileEntry, ...], Strict(strict=False)] = ()
    """Placed in the work tree before the first step."""
    work_tree: BlobRef | None = None
    """A snapshot that the work tree begins with, before files are placed in it; None for an empty one."""
    agent: Literal["zubble"] = "zubble"
    protocol: ProtocolName = "structured"
    """How the model is told to answer (C35)."""
    prompt: PromptRequest = Field(default_factory=PromptRequest)
    model: str = Field(min_length=1, max_length=200)
    """A name defined in the worker's zubble.toml; endpoint and key never travel."""
    pool: str = Field(default="default", pattern=POOL_PATTERN)
    """Only workers that serve this pool are given the task."""
    level: Level = "off"
    """Thinking level; decides max tokens per call (Z23)."""
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    stop: Annotated[tuple[StopSequence, ...], Strict(strict=False), Field(max_length=MOST_STOPS)] = ()
    """Where replies are text these end one, before the protocol's own; JSON would be cut by them (C15)."""
    sandbox: SandboxRequest = Field(default_factory=SandboxRequest)
    verify: VerifySpec = Field(default_factory=VerifySpec)
    test_command: str | None = Field(default=None, min_length=1, max_length=1_000)
    """What the tool `run_tests` runs, in the agent's own sandbox; it decides nothing."""
    verify_each_step: bool = False
    max_context_resets: int = Field(default=3, ge=0, le=10)
    """How often a run that loops goes on with a cleared context before it is stopped (Z21)."""
    guards: Annotated[tuple[Guard, ...], Strict(strict=False)] = ()
    """A critical signal of these detectors ends the run as `blocked`, with its evidence (C27)."""
    repetition: Repetition = "graduated"
    """What a reply that repeats itself meets; `strict` restarts it once after a burst (C1)."""
    ask: AskRequest = Field(default_factory=AskRequest)
    max_steps: int = Field(default=0, ge=0, le=MOST_STEPS)
    """Model calls of one run, repairs included; 0 for no cap of its own (V2)."""
    max_turn_secs: int = Field(default=0, ge=0, le=MOST_TURN_SECS)
    """Seconds of one run, by its own clock; 0 for no cap of its own (V2)."""
    preflight: Literal["off", "once"] = "once"
    """`once`: before the first call the verify command must run and must fail on the untouched tree."""
    task_type: str = Field(default="task", pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    memory: MemoryMode = "write"
    """Whether earlier runs of the task type are quoted to this one, and this one is kept for later ones."""
    tenant: str = Field(default="default", pattern=identity.BATCH_NAME_PATTERN)
    labels: FrozenMap[str, str] = Field(default_factory=dict, validate_default=True)

    @model_validator(mode="after")
    def _is_itself(self) -> Self:
        expected = identity.task_id(self.batch, self.source_id, self.repeat)
        if self.task.task_id != expected:
            raise ValueError(f"task.task_id must be {expected!r}, derived from batch, source_id and repeat")
        if isinstance(self.instructions, str) and len(self.instructions.encode()) > INLINE_BYTES:
            raise ValueError(f"instructions over {INLINE_BYTES} bytes must be a reference")
        return self

    @model_validator(mode="after")
    def _has_what_its_tools_need(self) -> Self:
        if "run_tests" in self.task.allowed_tools and self.test_command is None:
            raise ValueError("test_command: the tool 'run_tests' needs one")
        return self

    @model_validator(mode="after")
    def _has_the_template_of_its_protocol(self) -> Self:
        if (self.protocol == "custom") != (self.prompt.template is not None):
            raise ValueError("prompt.template: a template belongs to the protocol 'custom', and it needs one")
        if self.protocol != "custom" and self.prompt.replies != "structured":
            raise ValueError("prompt.replies: only the protocol 'custom' has a choice")
        return self

    @model_validator(mode="after")
    def _keeps_its_folders_apart(self) -> Self:
        """A reward in the work tree would be the agent's to write."""
        scratch = self.sandbox.scratch
        apart = [*scratch, self.verify.folder, self.sandbox.work_dir or WORK_DIR]
        for at, one in enumerate(apart):
            if clash := next((other for other in apart[:at] if _overlap(one, other)), None):
                raise ValueError(f"the folders {clash!r} and {one!r} must not lie in each other")
        for file in self.verify.reward_files:
            if not any(is_below(file, folder) and file != folder for folder in scratch):
                raise ValueError(f"verify.reward_files: {file!r} must be below a folder of sandbox.scratch")
        return self

    @model_validator(mode="after")
    def _is_checked_where_it_can_be(self) -> Self:
        """A copy of the work tree is no copy of a container."""
        if (self.sandbox.backend == ATTACHED) != (self.verify.location == "environment"):
            raise ValueError(
                f"verify.location must be 'environment' with sandbox.backend {ATTACHED!r}, else 'copy'"
            )
        if self.sandbox.backend == ATTACHED and self.work_tree is not None:
            raise ValueError("work_tree: an attached container has its own")
        if self.sandbox.backend == ATTACHED and self.verify.network == "allowlist":
            raise ValueError("verify.network: an attached container has its own network")
        return self

    @property
    def task_id(self) -> str:
        return self.task.task_id

    def content_hash(self) -> str:
        """Hash of all that decides how the task runs; the same key with another hash is a conflict.

        What has its default is left out, so that a field which a later release adds changes no stored hash.
        """
        apart = {"version", "batch", "source_id", "repeat", "labels"}
        content = self.model_dump(mode="json", exclude=apart, exclude_defaults=True)
        content["task"].pop("task_id")
        return identity.sha256(identity.canonical_json(content))

    @property
    def need(self) -> Need:
        """What a worker must offer to be given the task."""
        return Need(self.pool, self.sandbox.need, self.model)

    def header(self, *, epoch: int, round_: int = 1) -> Header:
        return Header(
            task_id=self.task_id,
            batch=self.batch,
            source_id=self.source_id,
            repeat=self.repeat,
            attempt=epoch,
            round=round_,
            task_type=self.task_type,
            model=self.model,
            pool=self.pool,
            sandbox=self.sandbox.need,
            budget=self.budget,
            labels=self.labels,
        )


class Header(BaseModel):
    """What the Celery message and Flower show: ids and limits, no text, no secret."""

    model_config = _FROZEN

    task_id: str
    batch: str
    source_id: str
    repeat: int = 1
    attempt: int = Field(ge=0)
    """The epoch of the attempt this message announces: 1 for the first."""
    round: int = Field(default=1, ge=1)
    push: int = Field(default=1, ge=1)
    """How often this attempt was announced; more than one after a lost message."""
    task_type: str = "task"
    model: str = ""
    pool: str = "default"
    sandbox: str = "bubblewrap"
    """`SandboxRequest.need`: the backend, and the strength where one is demanded."""
    budget: LoopBudget = LoopBudget()
    labels: FrozenMap[str, str] = Field(default_factory=dict, validate_default=True)

    @property
    def need(self) -> Need:
        """Decides the queue the message goes to."""
        return Need(self.pool, self.sandbox, self.model)

    @property
    def message_id(self) -> str:
        """The Celery id: `<task_id>.<epoch>.<push>` (with the round in the epoch's sequence)."""
        return f"{self.task_id}.{self.attempt}.{self.push}"


def _is_outward(name: object) -> bool:
    return isinstance(name, str) and name.lower().replace("_", "").replace("-", "") in _OUTWARD
