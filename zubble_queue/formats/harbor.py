"""Harbor's task folders, single-step: one folder, a folder of folders, or one with a dataset.toml.

The agent gets instruction.md. tests/ is laid to /tests for the check alone, which runs tests/test.sh in a
fresh sandbox with the agent's work tree and reads the reward from /logs/verifier. What a task asks for and
cannot get here is refused by the name of its field (docs/how-to/harbor.md).
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from zubble_queue.contracts.model import estimate_tokens
from zubble_queue.contracts.submission import Parcel, TaskDefaults
from zubble_queue.errors import BadInput
from zubble_queue.formats import folders, harbor_config, harbor_tasks
from zubble_queue.formats.folders import Unfit
from zubble_queue.formats.harbor_config import Config, Network
from zubble_queue.formats.harbor_tasks import TEXT_BYTES, Task
from zubble_queue.formats.lines import Problems, sentences
from zubble_queue.formats.task_line import Builder, FileLine, Files, TaskLine, VerifyLine

INSTRUCTION: Final = "instruction.md"
TESTS: Final = "tests"
TEST: Final = "test.sh"
WORK_DIR: Final = "/app"
"""Where a task without an image and without a workdir has its work tree, as Harbor's own examples do."""
LOGS: Final = ("/logs/agent", "/logs/artifacts", "/logs/verifier")
REWARD_FILES: Final = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
VERIFY_COMMAND: Final = f"exec /{TESTS}/{TEST}"
"""`exec`: no shell stays beside the tests that a candidate could get at."""
TESTS_BYTES: Final = 64 * 1_048_576

_DESCRIPTION_CHARS: Final = 500
_CONTEXT_TOKENS: Final = (8_000, 32_000)
"""As any task has, and the most, for instructions that need it."""
_COMPOSE: Final = tuple(
    f"environment/{name}.{end}" for name in ("docker-compose", "compose") for end in ("yaml", "yml")
)
_DOCKERFILE: Final = "environment/Dockerfile"
_CANARY: Final = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
"""A line that marks benchmark text for whoever collects training data; agents are not shown it."""
_TASK_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_LABELS: Final = ("difficulty", "category")
_LABEL_CHARS: Final = 100


def read(path: Path, defaults: TaskDefaults) -> list[Parcel]:
    """All tasks of the folder.

    Raises:
        BadInput: Every problem of every task, with its folder; nothing is made of a folder that has one.
    """
    found = harbor_tasks.find(path)
    problems = Problems(path, where=lambda number: found[number].folder.name)
    builder = Builder(defaults, problems)
    parcels: list[Parcel] = []
    for number, task in enumerate(found):
        try:
            line = _line(task, defaults)
        except BadInput as wrong:
            for problem in wrong.problems:
                problems.add(number, problem)
        else:
            parcels += builder.add(number, line)
    problems.raise_any()
    return parcels


def _line(task: Task, defaults: TaskDefaults) -> TaskLine:
    """Raises BadInput with all that is wrong with the task."""
    problems: list[str] = []
    config = _config(task, problems)
    of_several_steps = config is not None and bool(config.steps)
    instruction, tests = "", Files()
    if not of_several_steps:
        instruction = _instruction(task.folder, problems)
        tests = _tests(task.folder, problems)
    problems += _environment_problems(task, config, defaults)
    if problems or config is None:
        raise BadInput(problems)
    try:
        return _task_line(task, config, instruction, tests, defaults)
    except ValidationError as invalid:
        raise BadInput(sentences(invalid)) from invalid


def _config(task: Task, problems: list[str]) -> Config | None:
    if task.values is None:
        problems.append(task.problem)
        return None
    try:
        config = Config.model_validate(task.values)
    except ValidationError as invalid:
        problems += sentences(invalid)
        return None
    problems += harbor_config.unsupported(config)
    return config


def _instruction(folder: Path, problems: list[str]) -> str:
    try:
        text = _without_canary(folders.read_text(folder, INSTRUCTION, max_bytes=TEXT_BYTES))
    except Unfit as unfit:
        problems.append(str(unfit))
        return ""
    if not text.strip():
        problems.append(f"{INSTRUCTION}: is empty.")
    return text


def _tests(folder: Path, problems: list[str]) -> Files:
    try:
        found = list(folders.read_all(folder, TESTS, max_bytes=TESTS_BYTES))
    except Unfit as unfit:
        problems.append(str(unfit))
        return {}
    if TEST not in {one.path for one in found}:
        problems.append(f"{TESTS}/{TEST}: is missing.")
    return {one.path: _file(one) for one in found}


def _file(found: folders.Found) -> FileLine:
    return FileLine(base64=base64.b64encode(found.data).decode(), executable=found.executable)


def _environment_problems(task: Task, config: Config | None, defaults: TaskDefaults) -> Iterator[str]:
    """What of a task's other files would have to be done and is not."""
    if folders.is_there(task.folder, "trajectory.json"):
        yield "trajectory.json: an agent begins afresh, not with a conversation that was had before."
    for name in (name for name in _COMPOSE if folders.is_there(task.folder, name)):
        yield f"{name}: services are not started beside the sandbox; name a single image instead."
    if config and _image(config, defaults) is None and folders.is_there(task.folder, _DOCKERFILE):
        yield _how_to_build(task)


def _how_to_build(task: Task) -> str:
    """Images are not built at run time: what a Dockerfile says would run on the worker's engine."""
    try:
        dockerfile = folders.read_file(task.folder, _DOCKERFILE, max_bytes=TEXT_BYTES).data
    except Unfit as unfit:
        return str(unfit)
    digest = hashlib.sha256(dockerfile).hexdigest()[:12]
    image = f"zubble/{re.sub('[^a-z0-9]+', '-', task.name.lower()).strip('-') or 'task'}:{digest}"
    build = shlex.join(["docker", "build", "-t", image, str(task.folder / "environment")])
    return (
        f"{_DOCKERFILE}: images are not built here; build it with `{build}` and set "
        f'environment.docker_image = "{image}", or give --image.'
    )


def _task_line(
    task: Task, config: Config, instruction: str, tests: Files, defaults: TaskDefaults
) -> TaskLine:
    short = len(instruction) <= _DESCRIPTION_CHARS
    description = instruction if short else f"Do what the instructions say (task {task.name[:200]})."
    tokens = estimate_tokens(description) + (0 if short else estimate_tokens(instruction))
    return TaskLine(
        id=task.name,
        description=description.strip(),
        instructions="" if short else instruction,
        success_criteria="The task's own tests pass.",
        context_budget_tokens=_CONTEXT_TOKENS[tokens > _CONTEXT_TOKENS[0]],
        verify=_verify(config, tests, defaults),
        budget=_budget(config),
        sandbox=_sandbox(config, defaults),
        task_type=_task_type(task.name),
        labels=dict(_labels(config)),
    )


def _verify(config: Config, tests: Files, defaults: TaskDefaults) -> VerifyLine:
    network = _network(harbor_config.network(config, config.verifier), defaults)
    return VerifyLine(
        command=VERIFY_COMMAND,
        files=tests,
        folder=f"/{TESTS}",
        env=harbor_config.variables(config.verifier.env),
        reward_files=REWARD_FILES,
        timeout_seconds=harbor_config.seconds(config.verifier.timeout_sec),
        network=network.mode,
        allowed_hosts=network.hosts,
    )


def _budget(config: Config) -> dict[str, Any]:
    limit = config.agent.timeout_sec
    return {} if limit is None else {"max_wallclock_seconds": harbor_config.seconds(limit)}


def _sandbox(config: Config, defaults: TaskDefaults) -> dict[str, Any]:
    environment, image = config.environment, _image(config, defaults)
    network = _network(harbor_config.network(config, config.agent), defaults)
    return {
        **_sizes(config, defaults),
        "network": network.mode,
        "allowed_hosts": network.hosts,
        "image": image,
        "work_dir": environment.workdir or (None if image else WORK_DIR),
        "scratch": LOGS,
        "env": harbor_config.variables(environment.env),
        "background": True,
        **({} if environment.cpus is None else {"cpus": environment.cpus}),
    }


def _image(config: Config, defaults: TaskDefaults) -> str | None:
    """The task's own, else that of the flags."""
    return config.environment.docker_image or defaults.sandbox.image


def _sizes(config: Config, defaults: TaskDefaults) -> dict[str, int]:
    """The work tree is kept in memory: it gets no more than the task has."""
    memory = config.environment.memory_mb or defaults.sandbox.memory_mb
    storage = config.environment.storage_mb
    return {"memory_mb": memory, **({} if storage is None else {"work_mb": min(storage, memory)})}


def _network(asked: Network | None, defaults: TaskDefaults) -> Network:
    """What the task says, else what the flags say, else what Harbor does: all of it."""
    if asked is not None:
        return asked
    if defaults.network_said:
        return Network(defaults.sandbox.network, defaults.sandbox.allowed_hosts)
    return Network("open")


def _task_type(name: str) -> str:
    """The collection a task belongs to, as in `terminal-bench/fix-git`."""
    collection, slash, _ = name.partition("/")
    return collection if slash and _TASK_TYPE.fullmatch(collection) else "harbor"


def _labels(config: Config) -> Iterator[tuple[str, str]]:
    for name in _LABELS:
        value = config.metadata.get(name)
        if isinstance(value, str) and value:
            yield name, value[:_LABEL_CHARS]


def _without_canary(text: str) -> str:
    lines = text.split("\n")
    first = next((at for at, line in enumerate(lines) if not _CANARY.fullmatch(line.strip())), len(lines))
    return "\n".join(lines[first:]).lstrip("\n") if first else text
