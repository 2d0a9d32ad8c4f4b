"""What `zubble doctor` looks at: each check does the thing, and says what to do when it fails."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from zubble_queue import registry, sandboxes
from zubble_queue.cli.inside import instead
from zubble_queue.cli.installation import installation
from zubble_queue.cli.machine import ON_THIS_MACHINE, STRONGER, endpoint_problem, key_problems
from zubble_queue.cli.models import unpriced
from zubble_queue.cli.report import Exit, Report
from zubble_queue.config_layers import CONFIG_VARIABLE, ENV_PREFIX
from zubble_queue.contracts.envelope import LOCAL
from zubble_queue.contracts.finding import Finding, Verdict
from zubble_queue.embedded import Embedded
from zubble_queue.errors import BadInput, CannotStart, OperatorError, StoreUnavailable, UnknownName
from zubble_queue.feeder import ROLE
from zubble_queue.settings import Settings, without_password

if TYPE_CHECKING:
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_queue.stores.auditing import Audit

Role = Literal["submit", "worker", "dispatcher"]

_OLDEST_PYTHON: Final = (3, 11)
_KEYS_SHOWN: Final = 3
_FREE_BYTES: Final = 1 << 30
_WORKER_PACKAGES: Final = ("celery", "httpx", "genai_prices", "prometheus_client")
_SIGNS: Final[Mapping[Verdict, str]] = {"ok": "ok", "unused": "-", "warning": "!"}
"""All others fail."""
_OUTSIDE: Final[frozenset[Verdict]] = frozenset({"unreachable", "unavailable"})
"""A server, or what is below us, does not give what is needed."""
_ALLOW: Final = "add it to worker.sandboxes in zubble.toml or ZUBBLE_WORKER__SANDBOXES."


async def run(settings: Settings, role: str, report: Report) -> Exit:
    """Check, report, and return the exit code. Raises UnknownName for a role that does not exist."""
    if role not in get_args(Role):
        raise UnknownName("role", role, get_args(Role))
    return tell([finding async for finding in _findings(settings, role)], report, role=role)


def tell(findings: Sequence[Finding], report: Report, **values: str) -> Exit:
    """Findings as a table or as JSON, with further values; returns the exit code."""
    report.table(
        ("", "CHECK", "FOUND", "WHAT TO DO"),
        ([_SIGNS.get(f.verdict, "FAIL"), f.check, f.detail, f.todo] for f in findings),
    )
    verdicts = {finding.verdict for finding in findings}
    code = Exit.DONE
    if verdicts & _OUTSIDE:
        code = Exit.INFRASTRUCTURE
    elif "failed" in verdicts:
        code = Exit.BAD_INPUT
    report.result({**values, "exit_code": int(code), "findings": [asdict(finding) for finding in findings]})
    return code


async def _findings(settings: Settings, role: str) -> AsyncIterator[Finding]:
    yield _python()
    for finding in _variables():
        yield finding
    async for finding in broker(settings):
        yield finding
    for folder in (settings.home, Path(settings.artifacts_url)):
        if "://" not in str(folder):
            yield _disk(folder)
    if role == "submit":
        return
    yield _packages()
    if role == "worker":
        async for finding in _sandboxes(settings):
            yield finding
        yield _seccomp()
        for finding in _models(settings.models):
            yield finding


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < _OLDEST_PYTHON:
        return Finding("python", "failed", found, "Install Python 3.11 or newer.")
    return Finding("python", "ok", found)


def _variables() -> Iterator[Finding]:
    """ZUBBLE_ variables that nothing reads: misspelled ones."""
    known = {CONFIG_VARIABLE, *(f"{ENV_PREFIX}{name}".upper() for name in Settings.model_fields)}
    for name in sorted(os.environ):
        upper = name.upper()
        if upper.startswith(ENV_PREFIX) and upper.partition("__")[0] not in known:
            yield Finding("environment", "warning", f"{name} is not a setting", "See `zubble config show`.")


async def broker(settings: Settings) -> AsyncIterator[Finding]:
    """Whether Redis answers, who works and who leads."""
    if settings.redis_url is None:
        async for finding in _embedded(settings):
            yield finding
        return
    where = without_password(settings.redis_url.get_secret_value())
    try:
        async with installation(settings) as place:
            workers = await place.store.workers()
            leader = await place.store.leader(ROLE)
            audit = await place.store.audit()
    except CannotStart as refused:
        silent = "does not answer" in str(refused)
        yield Finding("redis", "unreachable" if silent else "failed", where, str(refused))
        return
    except StoreUnavailable as lost:
        yield Finding("redis", "unreachable", where, str(lost))
        return
    yield Finding("redis", "ok", where)
    yield _keys(audit)
    todo = "" if workers else "Start one: zubble worker."
    yield Finding("workers", "ok" if workers else "warning", f"{len(workers)} alive", todo)
    todo = "" if leader else "Start `zubble worker` or `zubble dispatcher`."
    yield Finding("feeder", "ok" if leader else "warning", leader or "nobody leads", todo)


def _keys(audit: Audit) -> Finding:
    """Keys that would stay for ever fill Redis in the end."""
    if not audit.wrong:
        return Finding("keys", "ok", f"{audit.keys} keys, each lives as long as it should")
    shown = ", ".join(sorted(audit.wrong)[:_KEYS_SHOWN])
    found = f"{len(audit.wrong)} of {audit.keys} keys have no time to live, such as {shown}"
    return Finding("keys", "failed", found, "Report this as a bug; DEL removes them.")


async def _embedded(settings: Settings) -> AsyncIterator[Finding]:
    """Start it, or adopt it, and leave it as it was."""
    name = f"embedded in {settings.embedded_folder}"
    embedded = Embedded(settings.embedded_folder)
    if not embedded.folder.has_data:
        parent = _existing(settings.embedded_folder)
        if not os.access(parent, os.W_OK):
            yield Finding("redis", "failed", name, f"{parent} is not writable: set ZUBBLE_HOME.")
        else:
            yield Finding("redis", "ok", f"{name} (never started)")
        return
    try:
        async with installation(settings) as place:
            audit = await place.store.audit()
    except (CannotStart, StoreUnavailable) as refused:
        yield Finding("redis", "failed", name, str(refused))
        return
    yield Finding("redis", "ok", name)
    yield _keys(audit)


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(_existing(folder)).free
    found = f"{free / (1 << 30):.1f} GiB free for {folder}"
    if free < _FREE_BYTES:
        return Finding("disk", "warning", found, "Make room, or put home and artifacts_url elsewhere.")
    return Finding("disk", "ok", found)


def _packages() -> Finding:
    missing = [name for name in _WORKER_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return Finding(
            "packages", "failed", f"missing {', '.join(missing)}", "pip install 'zubble-queue[worker]'"
        )
    return Finding("packages", "ok", "extra `worker` is installed")


async def _sandboxes(settings: Settings) -> AsyncIterator[Finding]:
    for name in settings.worker.sandboxes:
        yield await _sandbox(settings, name)
    installed = registry.names("sandbox")
    for name in sorted(set(installed) - set(settings.worker.sandboxes)):
        yield await _unused(settings, name)
    for name in sorted(set(settings.sandboxes) - set(installed)):
        todo = f"Remove the table [sandboxes.{name}]; known: {', '.join(installed)}."
        yield Finding(f"sandbox {name}", "warning", "no such backend is installed", todo)


async def _sandbox(settings: Settings, name: str) -> Finding:
    check = f"sandbox {name}"
    try:
        probe = await sandboxes.provider(settings, name).probe()
    except OperatorError as refused:
        found = "its settings are wrong" if isinstance(refused, BadInput) else "not installed"
        return Finding(check, "failed", found, " ".join(str(refused).splitlines()))
    problems = " ".join(probe.problems)
    if not probe.available:
        todo = instead(name, probe.problems)
        found, todo = (problems, todo) if todo else ("does not work here", problems)
        return Finding(check, "unavailable", found, todo)
    granted = [network for network in probe.networks if network in {"none", *settings.worker.networks}]
    words = [f"strength {probe.strength}", f"networks {' '.join(granted)}"]
    facts = ", ".join([*words, *map(" ".join, probe.facts.items())])
    if not probe.isolated:
        return Finding(check, "warning", facts, problems or "It does not isolate: run what you trust.")
    return Finding(check, "ok", facts, problems or STRONGER[probe.strength])


async def _unused(settings: Settings, name: str) -> Finding:
    """A backend that the settings do not allow: tried where that is quick and changes nothing elsewhere."""
    check = f"sandbox {name}"
    if name not in ON_THIS_MACHINE:
        found = "isolates nothing" if name == LOCAL else "not tried"
        return Finding(check, "unused", found, f"To use it, {_ALLOW}")
    tried = await _sandbox(settings, name)
    if tried.verdict in _SIGNS:
        return Finding(check, "unused", f"works here: {tried.detail}", f"To use it, {_ALLOW}")
    return Finding(check, "unused", tried.detail, tried.todo)


def _seccomp() -> Finding:
    if importlib.util.find_spec("pyseccomp") is None:
        return Finding("seccomp", "failed", "pyseccomp is missing", "pip install 'zubble-queue[worker]'")
    if ctypes.util.find_library("seccomp") is None:
        return Finding("seccomp", "failed", "libseccomp is missing", "Install it: apt install libseccomp2.")
    return Finding("seccomp", "ok", "libseccomp is there")


def _models(models: Mapping[str, ModelConfig]) -> Iterator[Finding]:
    if not models:
        yield Finding("models", "failed", "none is defined", "Add a [models.NAME] table to zubble.toml.")
    problems, keyless = unpriced(models, models), dict(key_problems(models))
    for name, config in sorted(models.items()):
        found = f"{config.backend} at {config.place}"
        if name in keyless and len(keyless) < len(models):
            yield Finding(f"model {name}", "warning", f"{found}, not offered here", keyless[name])
            continue
        problem = keyless.get(name) or problems.get(name) or _silence(config)
        yield Finding(f"model {name}", "failed" if problem else "ok", found, problem)


def _silence(config: ModelConfig) -> str:
    if config.cli and shutil.which(config.cli.command[0]) is None:
        return f"the program {config.cli.command[0]} is not on this machine's PATH."
    return endpoint_problem(config.base_url) if config.base_url else ""
