"""task.toml of Harbor (schema 1.4 and the older spellings): what is understood of it, and what is refused.

A field that is not understood would change what the task means, so it is refused by its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from zubble_queue.contracts.hosts import host_pattern
from zubble_queue.contracts.sandbox import NetworkMode

_STRICT: Final = ConfigDict(strict=True, frozen=True, extra="forbid")
_MODES: Final[Mapping[str, NetworkMode]] = {"no-network": "none", "public": "open", "allowlist": "allowlist"}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG])B?\s*", re.IGNORECASE)
_PER_MB: Final = {"K": 1 / 1_024, "M": 1.0, "G": 1_024.0}
_FROM_THE_HOST: Final = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)
_VERSION: Final = re.compile(r"1(\.\d+)*")
_MOST_SECONDS: Final = 3_600
"""Of `LoopBudget.max_wallclock_seconds` and `VerifySpec.timeout_seconds`."""

Mode = Literal["no-network", "public", "allowlist"]


class _Phase(BaseModel):
    model_config = _STRICT

    user: Any = None
    network_mode: Mode | None = None
    allowed_hosts: list[str] | None = None


class Agent(_Phase):
    """[agent]."""

    timeout_sec: float | None = Field(default=None, ge=1, le=_MOST_SECONDS)


class Verifier(_Phase):
    """[verifier]."""

    timeout_sec: float = Field(default=600.0, ge=1, le=_MOST_SECONDS)
    env: dict[str, str] = Field(default_factory=dict)
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Any = None
    collect: list[Any] = Field(default_factory=list)


class Environment(BaseModel):
    """[environment]."""

    model_config = _STRICT

    docker_image: str | None = Field(
        default=None, max_length=300, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$"
    )
    build_timeout_sec: float = 600.0
    os: str = "linux"
    cpus: float | None = Field(default=None, gt=0, le=1_024)
    memory_mb: int | None = Field(default=None, ge=16, le=1_048_576)
    storage_mb: int | None = Field(default=None, ge=1, le=1_048_576)
    gpus: int | None = None
    gpu_types: list[Any] | None = None
    tpu: Any = None
    network_mode: Mode | None = None
    allowed_hosts: list[str] | None = None
    allow_internet: bool | None = None
    env: dict[str, str] = Field(default_factory=dict)
    workdir: str | None = None
    skills_dir: Any = None
    mcp_servers: list[Any] = Field(default_factory=list)
    healthcheck: Any = None

    @model_validator(mode="before")
    @classmethod
    def _reads_old_sizes(cls, data: Any) -> Any:
        """`memory = "2G"` for memory_mb = 2048, and the same of storage."""
        if not isinstance(data, Mapping):
            return data
        values = dict(data)
        for old in ("memory", "storage"):
            if old in values:
                size = _megabytes(old, values.pop(old))
                if values.setdefault(f"{old}_mb", size) != size:
                    raise ValueError(f"{old} and {old}_mb contradict each other")
        return values


class Config(BaseModel):
    """A task.toml."""

    model_config = _STRICT

    schema_version: str = "1.4"
    version: str | None = None
    """The old name of schema_version."""
    source: Any = None
    task: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    agent: Agent = Field(default_factory=Agent)
    verifier: Verifier = Field(default_factory=Verifier)
    environment: Environment = Field(default_factory=Environment)
    solution: dict[str, Any] = Field(default_factory=dict)
    """For an agent that plays the reference solution."""
    artifacts: list[Any] = Field(default_factory=list)
    multi_step_reward_strategy: Any = None
    steps: list[Any] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Network:
    """What a phase may reach."""

    mode: NetworkMode
    hosts: tuple[str, ...] = ()


def network(config: Config, phase: Agent | Verifier) -> Network | None:
    """Of the phase itself, else of the environment; None where the task says nothing."""
    environment = config.environment
    for part in (phase, environment):
        if part.network_mode is not None:
            return Network(_MODES[part.network_mode], tuple(part.allowed_hosts or ()))
    if environment.allow_internet is None:
        return None
    return Network("open" if environment.allow_internet else "none")


def seconds(value: float) -> int:
    """Whole seconds, rounded up."""
    return math.ceil(value)


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """Values as they travel: of `${NAME:-default}` the default; nothing is read from this machine."""
    found = {name: _FROM_THE_HOST.fullmatch(value) for name, value in env.items()}
    return {name: (found[name] or ("", "", value))[2] or "" for name, value in env.items()}


def unsupported(config: Config) -> Iterator[str]:
    """One sentence for each field that asks for what cannot be done, naming it."""
    if not _VERSION.fullmatch(config.version or config.schema_version):
        yield f"schema_version: {config.version or config.schema_version!r} is not understood, only 1.x is."
    if config.steps:
        yield "steps: tasks of several steps cannot be run, only those of a single one."
    elif config.multi_step_reward_strategy is not None:
        yield "multi_step_reward_strategy: tasks of several steps cannot be run."
    yield from _of_the_phases(config)
    yield from _of_the_environment(config.environment)
    yield from _artifacts(config)


def _of_the_phases(config: Config) -> Iterator[str]:
    verifier = config.verifier
    for name, phase in (("agent", config.agent), ("verifier", verifier)):
        if phase.user is not None:
            yield f"{name}.user: commands run as the sandbox's one unprivileged user; no other can be had."
        yield from _hosts(name, phase.network_mode, phase.allowed_hosts)
    if verifier.environment is not None or verifier.environment_mode == "separate":
        field = "environment" if verifier.environment is not None else "environment_mode"
        yield f"verifier.{field}: the check runs in a sandbox like the agent's, not in one of its own kind."
    if verifier.collect:
        yield "verifier.collect: commands between agent and check are not run."
    yield from _secrets("verifier.env", verifier.env)


def _of_the_environment(environment: Environment) -> Iterator[str]:
    if environment.os.lower() != "linux":
        yield f"environment.os: sandboxes run Linux, not {environment.os!r}."
    devices = {"gpus": environment.gpus, "gpu_types": environment.gpu_types, "tpu": environment.tpu}
    for name in (name for name, value in devices.items() if value):
        yield f"environment.{name}: sandboxes have no such devices."
    if environment.skills_dir is not None:
        yield "environment.skills_dir: the agent has no skills to be given."
    if environment.mcp_servers:
        yield "environment.mcp_servers: the agent speaks to no MCP server."
    if environment.healthcheck is not None:
        yield "environment.healthcheck: nothing is started in the sandbox that could be waited for."
    yield from _hosts("environment", environment.network_mode, environment.allowed_hosts)
    yield from _secrets("environment.env", environment.env)


def _hosts(table: str, mode: str | None, hosts: list[str] | None) -> Iterator[str]:
    if hosts and mode != "allowlist":
        yield f"{table}.allowed_hosts: needs network_mode = 'allowlist'."
    for host in hosts or ():
        try:
            host_pattern(host)
        except ValueError as wrong:
            yield f"{table}.allowed_hosts: {wrong}."


def _secrets(field: str, env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        found = _FROM_THE_HOST.fullmatch(value)
        if found and found[2] is None:
            yield f"{field}.{name}: what this machine has ({value}) does not travel with a task."


def _artifacts(config: Config) -> Iterator[str]:
    """Files of the work tree are kept anyhow."""
    work_dir = config.environment.workdir
    for entry in config.artifacts:
        path = entry if isinstance(entry, str) else None
        inside = path is not None and (
            not path.startswith("/") or (work_dir is not None and path.startswith(f"{work_dir}/"))
        )
        if not inside:
            yield f"artifacts: {entry!r} cannot be collected; changes of the work tree are kept anyhow."


def _megabytes(field: str, size: Any) -> int:
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None:
        raise ValueError(f"{field} must be a size such as '2G' or '512M', got {size!r}")
    return int(float(found[1]) * _PER_MB[found[2].upper()])
