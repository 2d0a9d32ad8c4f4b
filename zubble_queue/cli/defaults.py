"""From flags to what every task of a submission gets that does not say it itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from pydantic import ValidationError

from zubble_queue import registry
from zubble_queue.cli import models
from zubble_queue.contracts.envelope import (
    ATTACHED,
    MOST_STEPS,
    MOST_STOPS,
    MOST_TURN_SECS,
    POOL_PATTERN,
    Guard,
    Level,
    ProtocolName,
    Repetition,
    SandboxRequest,
)
from zubble_queue.contracts.hosts import MAX_HOSTS, host_pattern
from zubble_queue.contracts.identity import BATCH_NAME_PATTERN
from zubble_queue.contracts.memory import MemoryMode
from zubble_queue.contracts.question import MOST_DEADLINE_SECONDS, AskRequest
from zubble_queue.contracts.record import MOST_USD, OnCeiling
from zubble_queue.contracts.sandbox import STRENGTHS, WORK_DIR, NetworkMode
from zubble_queue.contracts.submission import TaskDefaults
from zubble_queue.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_queue.contracts.task import LoopBudget

TEMPERATURES = (0.0, 2.0)
_KUBECTL = "kubectl"
"""Another word for `attached`, with a pod."""
_CONTAINER = r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,2}"


def task_defaults(
    *,
    batch: str,
    model: str,
    budget: LoopBudget,
    level: str | None = None,
    temperature: float | None = None,
    stop: Sequence[str] = (),
    sandbox: str | None = None,
    container: str | None = None,
    min_strength: str | None = None,
    network: str | None = None,
    allow_hosts: Sequence[str] = (),
    background: bool = False,
    repeats: int = 1,
    memory: str | None = None,
    protocol: str | None = None,
    max_steps: int | None = None,
    max_turn_secs: int | None = None,
    guards: Sequence[str] = (),
    repetition: str | None = None,
    ask: AskRequest | None = None,
    pool: str | None = None,
    tenant: str = "default",
    labels: Sequence[str] = (),
) -> TaskDefaults:
    """The flags, checked.

    Raises:
        BadInput: One sentence per flag that cannot be used.
    """
    problems = [
        *_problems(batch, model, level, temperature, memory),
        *_protocol_problems(protocol),
        *_stop_problems(stop),
        *_name_problems("--tenant", tenant),
        *_pool_problems(pool),
        *_strength_problems(min_strength),
        *_network_problems(network, allow_hosts),
        *_cap_problems("--max-steps", max_steps, MOST_STEPS),
        *_cap_problems("--max-turn-secs", max_turn_secs, MOST_TURN_SECS),
        *_guard_problems(guards),
        *_repetition_problems(repetition),
    ]
    if problems:
        raise BadInput(problems)
    return TaskDefaults(
        batch=batch,
        model=model,
        level=level or "off",  # type: ignore[arg-type]  # checked above
        temperature=temperature or 0.0,
        stop=tuple(dict.fromkeys(sequence.replace("\\n", "\n") for sequence in stop)),
        budget=budget,
        sandbox=sandbox_request(sandbox, network, allow_hosts, container=container).model_copy(
            update={"min_strength": min_strength or "none", "background": background}
        ),
        network_said=network is not None or bool(allow_hosts),
        repeats=repeats,
        memory=memory or "write",  # type: ignore[arg-type]  # checked above
        protocol=protocol or "structured",  # type: ignore[arg-type]  # checked above
        max_steps=max_steps or 0,
        max_turn_secs=max_turn_secs or 0,
        guards=tuple(dict.fromkeys(guards)),  # type: ignore[arg-type]  # checked above
        repetition=repetition or "graduated",  # type: ignore[arg-type]  # checked above
        ask=ask or AskRequest(),
        pool=pool or "default",
        tenant=tenant,
        labels=dict(_label_pairs(labels)),
    )


def asking(*, human: bool, deadline_seconds: int | None) -> AskRequest:
    """Whether people may be asked. Raises BadInput."""
    if deadline_seconds is None:
        return AskRequest(human=human)
    if not human:
        raise BadInput(["--ask-deadline-seconds needs --ask."])
    if not 1 <= deadline_seconds <= MOST_DEADLINE_SECONDS:
        raise BadInput([f"--ask-deadline-seconds must be between 1 and {MOST_DEADLINE_SECONDS:,}."])
    return AskRequest(human=True, deadline_seconds=deadline_seconds)


def on_ceiling(given: str | None, *, wait: bool) -> OnCeiling:
    """What becomes of tasks at a ceiling: whoever waits wants an end. Raises BadInput."""
    if given is None:
        return "seal" if wait else "pause"
    if given not in get_args(OnCeiling):
        raise BadInput([f"--on-ceiling must be one of {', '.join(get_args(OnCeiling))}, not {given!r}."])
    return given  # type: ignore[return-value]  # checked above


def batch_ceiling(usd: float | None) -> float | None:
    """Raises BadInput."""
    if usd is not None and not 0 < usd <= MOST_USD:
        raise BadInput([f"--max-batch-usd must be above 0 and at most {MOST_USD:,}, got {usd:g}."])
    return usd


def endpoint(model: str, url: str | None, price: str | None, api_key_env: str | None) -> ModelConfig | None:
    """The model that --endpoint defines, if it is given. Raises BadInput."""
    if url is not None:
        return models.endpoint_model(model, url, price, api_key_env)
    if price is not None or api_key_env is not None:
        raise BadInput(["--price and --api-key-env describe an --endpoint; give its URL, too."])
    return None


def sandbox_request(
    backend: str | None,
    network: str | None = None,
    allow_hosts: Sequence[str] = (),
    *,
    container: str | None = None,
    image: str | None = None,
) -> SandboxRequest:
    """The request for a backend, by default for the one that isolates, and for a network, by default none.

    In an image commands work where it says.

    Raises UnknownName or BadInput.
    """
    backend, container = _placed(backend, container)
    known = registry.names("sandbox")
    if backend is not None and backend not in known:
        raise UnknownName("sandbox", backend, known)
    if problems := list(_network_problems(network, allow_hosts)):
        raise BadInput(problems)
    try:
        return SandboxRequest(
            backend=backend or SandboxRequest().backend,
            container=container,
            image=image,
            work_dir=WORK_DIR if image is None else None,
            network=network or ("allowlist" if allow_hosts else "none"),  # type: ignore[arg-type]  # checked
            allowed_hosts=tuple(allow_hosts),
        )
    except ValidationError as invalid:
        told = (error["msg"].removeprefix("Value error, ").rstrip(".") for error in invalid.errors())
        raise BadInput([f"--sandbox {backend}: {each}." for each in told]) from None


def _placed(backend: str | None, container: str | None) -> tuple[str | None, str | None]:
    """Backend and container, also in the words of those who say where a command is executed.

    Raises BadInput.
    """
    if backend == _KUBECTL and container is None:
        raise BadInput(["--env kubectl needs --container NAMESPACE/POD; --sandbox pod makes its own pods."])
    if backend == _KUBECTL and container is not None:
        return ATTACHED, container if "/" in container else f"default/{container}"
    if container is None:
        return backend, None
    if backend not in {None, "docker", ATTACHED}:
        raise BadInput(
            [f"--container is for --sandbox attached, --env docker and --env kubectl, not {backend}."]
        )
    if not re.fullmatch(_CONTAINER, container):
        raise BadInput([f"--container must be the name of a container or NAMESPACE/POD, not {container!r}."])
    return ATTACHED, container


def _problems(
    batch: str, model: str, level: str | None, temperature: float | None, memory: str | None
) -> Iterator[str]:
    if batch:
        yield from _name_problems("--batch", batch)
    if not 1 <= len(model) <= 200:
        yield "--model must have 1 to 200 characters."
    if level is not None and level not in get_args(Level):
        yield f"--level must be one of {', '.join(get_args(Level))}, not {level!r}."
    if memory is not None and memory not in get_args(MemoryMode):
        yield f"--memory must be one of {', '.join(get_args(MemoryMode))}, not {memory!r}."
    low, high = TEMPERATURES
    if temperature is not None and not low <= temperature <= high:
        yield f"--temperature must be between {low:g} and {high:g}, got {temperature:g}."


def _name_problems(flag: str, name: str) -> Iterator[str]:
    if not re.fullmatch(BATCH_NAME_PATTERN, name):
        yield f"{flag} must be 1 to 100 letters, digits, dots, dashes or underscores, no sign first."


def _stop_problems(stop: Sequence[str]) -> Iterator[str]:
    if len(stop) > MOST_STOPS:
        yield f"--stop-sequences can be given at most {MOST_STOPS} times."
    if any(not 1 <= len(sequence) <= 100 for sequence in stop):
        yield "--stop-sequences must have 1 to 100 characters each."


def _cap_problems(flag: str, cap: int | None, most: int) -> Iterator[str]:
    if cap is not None and not 0 <= cap <= most:
        yield f"{flag} must be between 0 and {most:,}, got {cap}."


def _protocol_problems(protocol: str | None) -> Iterator[str]:
    known = [name for name in get_args(ProtocolName) if name != "custom"]
    if protocol == "custom":
        yield "--protocol custom needs a template: name both in a task file."
    elif protocol is not None and protocol not in known:
        yield f"--protocol must be one of {', '.join(known)}, not {protocol!r}."


def _guard_problems(guards: Sequence[str]) -> Iterator[str]:
    for guard in guards:
        if guard not in get_args(Guard):
            yield f"--guard must be one of {', '.join(get_args(Guard))}, not {guard!r}."


def _repetition_problems(repetition: str | None) -> Iterator[str]:
    if repetition is not None and repetition not in get_args(Repetition):
        yield f"--repetition must be one of {', '.join(get_args(Repetition))}, not {repetition!r}."


def _pool_problems(pool: str | None) -> Iterator[str]:
    if pool is not None and not re.fullmatch(POOL_PATTERN, pool):
        yield "--pool must be 1 to 64 lower-case letters, digits, dots, dashes or underscores, no sign first."


def _network_problems(network: str | None, allow_hosts: Sequence[str]) -> Iterator[str]:
    if network is not None and network not in get_args(NetworkMode):
        yield f"--network must be one of {', '.join(get_args(NetworkMode))}, not {network!r}."
    elif network not in {None, "allowlist"} and allow_hosts:
        yield f"--allow-host needs --network allowlist, not {network}."
    if len(allow_hosts) > MAX_HOSTS:
        yield f"--allow-host can be given at most {MAX_HOSTS} times."
    for host in allow_hosts:
        try:
            host_pattern(host)
        except ValueError as wrong:
            yield f"--allow-host {wrong}."


def _strength_problems(strength: str | None) -> Iterator[str]:
    if strength is not None and strength not in STRENGTHS:
        yield f"--min-strength must be one of {', '.join(STRENGTHS)}, not {strength!r}."


def _label_pairs(pairs: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise BadInput([f"--label must be NAME=VALUE, not {pair!r}."])
        yield name, value
